import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.interop.conftest import RATE, assert_close, batches_of, trained

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch.nn")
table = pytest.importorskip("tests.wild.table")

BLOCK = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.scale = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x):
        return x + nn.functional.gelu(self.inner(self.norm(x))) * self.scale


class Network(nn.Module):
    """A forward of one's own: modules in lists, functions, methods, shapes, an optional argument."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.conv, self.head = nn.Conv1d(8, 8, 1), nn.Linear(8, 3)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x, scale=2.0):
        for block in self.blocks:
            x = block(x)
        y = self.conv(x.transpose(1, 2)).permute(0, 2, 1)
        x = torch.cat([x, y], dim=1).mean(dim=1)
        x = x.view(x.size(0), -1)
        return torch.softmax(self.head(x) * scale + self.shift, dim=-1), x.max(dim=1)[0]


def images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2),
        nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 4),
    )  # fmt: skip


LAYERS = {
    "images": (images, [(2, 3, 12, 12)]),
    "transposed": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, output_padding=1, padding=1),
        [(2, 4, 5, 5)],
    ),
    "lstm": (
        lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
        [(5, 7, 3)],
    ),
    "time first": (lambda: nn.GRU(3, 4), [(5, 7, 3)]),
    "attention, time first": (
        lambda: nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
        [(5, 2, 8), (3, 2, 4), (3, 2, 6)],
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**BLOCK), 2, enable_nested_tensor=False
        ),
        [(2, 5, 8)],
    ),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(**BLOCK, batch_first=True),
        [(2, 5, 8), (2, 6, 8)],
    ),
    "own forward": (Network, [(2, 5, 8)]),
}


@pytest.mark.parametrize("case", LAYERS)
def test_outputs_agree_and_the_state_dict_comes_back(case, draws):
    make, shapes = LAYERS[case]
    torch.manual_seed(0)
    theirs = make().eval()
    with torch.no_grad():
        for buffer in theirs.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer))
    xs = [draws.normal(size=shape).astype("float32") for shape in shapes]
    ours = nb.from_torch(theirs)
    with torch.no_grad():
        wanted = [tensor.numpy() for tensor in jax.tree.leaves(theirs(*map(torch.tensor, xs)))]
    found = jax.tree.leaves(nb.jit(lambda *xs: ours(*xs))(*xs))
    assert len(found) == len(wanted)
    assert_close(found, wanted, rtol=2e-5, atol=2e-6)
    back, reference = ours.to_torch(), theirs.state_dict()
    assert back.keys() == reference.keys()
    assert all(torch.equal(back[name], reference[name]) for name in reference)


@pytest.mark.parametrize("case", ["images", "encoder", "own forward"])
@pytest.mark.parametrize("verb", ["inspect", "track", "summary", "graph", "nonfinite"])
def test_an_unconverted_model_is_viewed_with_its_own_numbers(case, verb, draws):
    make, shapes = LAYERS[case]
    xs = [torch.tensor(draws.normal(size=shape).astype("float32")) for shape in shapes]
    table.VERBS[verb](table.Wild(make().eval(), xs, {}))


TRAINED = {
    "mlp": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), (4, 3), (4, 2)),
    "convolutional": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)
        ),
        (4, 2, 4, 4),
        (4, 2),
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(**BLOCK, batch_first=True),
        (3, 5, 8),
        (3, 5, 8),
    ),
}


@pytest.mark.parametrize("case", TRAINED)
def test_losses_and_weights_of_ten_steps_agree(case, draws):
    make, inputs, outputs = TRAINED[case]
    torch.manual_seed(0)
    theirs = make()
    ours = nb.from_torch(theirs)
    batches = batches_of(draws, inputs, outputs)
    optimizer = torch.optim.SGD(theirs.parameters(), RATE)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        loss = ((theirs(torch.tensor(np.array(x))) - torch.tensor(np.array(target))) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert_close(trained(ours, batches)[0], losses)
    back = ours.to_torch()
    for name, tensor in theirs.state_dict().items():
        if "num_batches" not in name:
            assert_close(back[name].numpy(), tensor.numpy(), rtol=1e-3, atol=1e-5)


def test_the_report_names_each_layer():
    made = nb.from_torch(images())
    lines = repr(made.conversion).splitlines()
    assert lines[0] == "12 layers, 12 tensors converted"
    assert lines[2].split() == ["0", "Conv2d", "→", "Conv2d"]
    assert lines[-1].strip() == "1.num_batches_tracked passed over"


def test_layers_of_ones_own_class_are_tracked_and_drawn():
    ours = nb.from_torch(Network())
    with nb.track(ours) as calls:
        nb.jit(lambda x: ours(x))(jnp.ones((2, 5, 8)))
    assert calls.paths[:4] == ("", "blocks.0", "blocks.0.norm", "blocks.0.inner")
    assert [call.class_name for call in calls][:2] == ["Network", "Block"]
    assert ours(jnp.ones((2, 5, 8)), scale=1.0)[0].shape == (2, 3)


def test_shared_layers_and_training_modes_are_kept():
    shared = nn.Linear(4, 4)
    theirs = nn.Sequential(shared, nn.Dropout(0.5).eval(), shared)
    ours = nb.from_torch(theirs)
    assert ours[0] is ours[2]
    assert ours.training
    assert not ours[1].training


def test_layers_with_options_that_the_library_lacks_run_their_own_forward(draws):
    theirs = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.LPPool1d(2, 2))
    x = draws.normal(size=(2, 1, 4, 4)).astype("float32")
    ours = nb.from_torch(theirs[0])
    with torch.no_grad():
        assert_close(ours(x), theirs[0](torch.tensor(x)).numpy(), rtol=1e-5, atol=1e-6)
        x = np.abs(x[:, 0])
        expected = theirs[1](torch.tensor(x)).numpy()
    assert_close(nb.from_torch(theirs[1])(x), expected, rtol=1e-5, atol=1e-6)


class Depends(nn.Module):
    """The forward, or the shape of the output, depends on values."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "expected", "message"),
    [
        (lambda x: x if x.sum() > 5 else -x, [-1.0, 2.0, -3.0], "needs the value of a tensor"),
        (lambda x: x[x > 0], [1.0, 3.0], r"aten\.index.*depends on the values.*without nb\.jit"),
    ],
)
def test_values_are_followed_in_eager_code_and_refused_while_jax_traces(
    function, expected, message
):
    model, x = nb.from_torch(Depends(function)), np.array([1.0, -2.0, 3.0], np.float32)
    assert model(x).tolist() == expected
    with pytest.raises(nb.TraceError, match=message):
        nb.jit(lambda x: model(x))(x)


class Unknown(nn.Module):
    def forward(self, x):
        return torch.linalg.lstsq(x, x)[0]


def test_an_operation_without_a_counterpart_is_named_with_the_unconverted_way():
    theirs = nn.Sequential(Unknown())
    with pytest.raises(
        nb.ArgumentError, match=r"linalg_lstsq.*no counterpart.*unconverted"
    ) as caught:
        nb.from_torch(theirs, torch.ones(3, 3))  # tried at once with an example
    assert "in 0 (Unknown)" in "".join(caught.value.__notes__)
    with pytest.raises(nb.ArgumentError, match="linalg_lstsq"):
        nb.from_torch(theirs)(np.ones((3, 3), np.float32))


def test_an_example_is_compared_with_pytorch_without_changes_to_either_model():
    theirs = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    ours = nb.from_torch(theirs, torch.rand(5, 3))
    assert ours.conversion.difference < 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in theirs.state_dict().items())
    assert np.array_equal(ours[1].running_mean, np.zeros(4))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.build = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        return self.build((self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x))


def test_parts_called_as_methods_of_a_module_keep_pytorchs_names(draws):
    theirs = Attention()
    ours = nb.from_torch(theirs)
    x = draws.normal(size=(2, 3, 4)).astype("float32")
    with nb.track(ours) as calls:
        y = ours(x)
    assert calls.paths == ("", "q", "k", "v", "build")
    assert_close(y, theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert ours.to_torch().keys() == theirs.state_dict().keys() == dict(ours.named_tensors()).keys()
    ours.load_state_dict(theirs.state_dict())


def test_a_replaced_layer_is_called_in_its_place_and_trained():
    ours = nb.from_torch(Attention())
    ours.q = nb.Linear(4, 4)
    grads = nb.grad(lambda m: m(jnp.ones((2, 3, 4))).sum())(ours)
    with nb.track(ours) as calls:
        ours(jnp.ones((2, 3, 4)))
    assert calls.paths[1] == "q" and grads.q.w.shape == (4, 4)


class Writes(nn.Module):
    """Changes views of its input, and a buffer, in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        self.count[1] += 1
        y = x.clone()
        y.view(-1)[::2] = 0
        z = y.transpose(0, 1)
        z[0].add_(10)
        w = z.reshape(-1)
        w += 100  # of a copy: z is not contiguous
        return y, z, w


def test_writes_into_views_and_buffers_are_those_of_pytorch(draws):
    theirs = Writes()
    ours = nb.from_torch(theirs)
    x = draws.normal(size=(3, 4)).astype("float32")
    for call in (ours, nb.jit(lambda x: ours(x))):
        for mine, expected in zip(call(x), theirs(torch.tensor(x))):
            np.testing.assert_array_equal(mine, expected.numpy())
    np.testing.assert_array_equal(ours.count, theirs.count.numpy())


class SharesParts(nn.Module):
    """One layer under two names, beside a list, and a parameter of a part that is an attribute of
    the whole.
    """

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3)
        self.again, self.norm = self.first, nn.BatchNorm2d(3)
        self.norm_again, self.parts = self.norm, nn.ModuleList([self.first, nn.Linear(2, 2)])
        self.zoom = self.parts[1].weight

    def forward(self, x):
        return self.norm_again(self.again(self.norm(self.first(x))))


class SharesPartsToo(nb.Module):
    def __init__(self):
        self.first = nb.Conv2d(3, 3, 3)
        self.again, self.norm = self.first, nb.BatchNorm2d(3)
        self.norm_again, self.parts = self.norm, [self.first, nb.Linear(2, 2)]
        self.zoom = self.parts[1].weight
        self.around = {"whole": self}


@pytest.mark.parametrize(
    "convert", [nb.from_torch, lambda theirs: nb.from_torch(theirs, like=SharesPartsToo())]
)
def test_shared_parts_return_to_pytorch_under_all_their_names(convert):
    theirs, again = SharesParts(), SharesParts()
    again.load_state_dict(convert(theirs).to_torch())  # strict: it wants every name
    wanted = theirs.state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in again.state_dict().items())


def test_tensors_without_gradient_in_pytorch_are_frozen():
    theirs = nn.Sequential(nn.Linear(3, 4), nn.MultiheadAttention(4, 2), nn.BatchNorm1d(4))
    theirs[0].weight.requires_grad_(False)
    theirs[1].in_proj_weight.requires_grad_(False)
    frozen = {
        name
        for name, variable in nb.from_torch(theirs).named_parameters()
        if not variable.requires_grad
    }
    assert frozen == {"0.weight", "1.in_proj_weight"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_models_dtype_is_kept(dtype):
    theirs = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).to(getattr(torch, dtype))
    ours = nb.from_torch(theirs)
    assert {variable.dtype for variable in ours.parameters()} == {jnp.dtype(dtype)}
    back = ours.to_torch()
    assert all(torch.equal(tensor, back[name]) for name, tensor in theirs.state_dict().items())
