"""`nb.from_torch` converts whole models written by hand, and the idioms they are made of, with
PyTorch's numbers.
"""

import jax
import numpy as np
import pytest

import nbmodule as nb
from tests.interop.conftest import assert_close

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch.nn")
F = pytest.importorskip("torch.nn.functional")
models = pytest.importorskip("tests.interop.torch_models")

IDS = np.arange(12).reshape(2, 6) % 13
IMAGE = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype("float32")
MODELS = {
    "nanoGPT": (models.NanoGPT, (IDS,), {}),
    "nanoGPT with its loss": (models.NanoGPT, (IDS, np.where(IDS > 3, IDS, -1)), {}),
    "U-Net": (models.UNet, (np.tile(IMAGE[:, :1], (1, 1, 2, 2))[:, :, :15, :14],), {}),
}


def agree(theirs, ours, args, kwargs, **tolerances):
    with torch.no_grad():
        wanted = theirs(
            *map(torch.tensor, args), **{name: torch.tensor(x) for name, x in kwargs.items()}
        )
    found = nb.jit(lambda *args, **kwargs: ours(*args, **kwargs))(*args, **kwargs)
    wanted, found = jax.tree.leaves(wanted), jax.tree.leaves(found)
    assert len(found) == len(wanted)
    assert_close(
        found, [tensor.numpy() for tensor in wanted], **{"rtol": 1e-4, "atol": 2e-5, **tolerances}
    )


@pytest.mark.parametrize("case", MODELS)
def test_a_whole_model_gives_pytorchs_numbers_in_evaluation_and_in_training(case):
    make, args, kwargs = MODELS[case]
    torch.manual_seed(0)
    theirs = make()
    names, flags = {name: set(vars(m)) for name, m in theirs.named_modules()}, theirs.training
    ours = nb.from_torch(theirs)
    assert {name: set(vars(m)) for name, m in theirs.named_modules()} == names
    assert theirs.training == flags
    agree(theirs, ours, args, kwargs)  # in training: batch statistics are taken and kept
    back = ours.to_torch()
    assert back.keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        if "num_batches" not in name:
            np.testing.assert_allclose(back[name].numpy(), tensor.numpy(), rtol=1e-5, atol=1e-6)
    agree(theirs.eval(), ours.eval(), args, kwargs)


def test_weights_that_pytorch_ties_are_tied():
    theirs = models.NanoGPT()
    ours = nb.from_torch(theirs)
    assert sum(variable.size for variable in ours.parameters()) == sum(
        tensor.numel() for tensor in theirs.parameters()
    )


def forward_of(function, **parts):
    """A module with a forward and parts."""

    class Idiom(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.arange(4), persistent=False)
            for name, part in parts.items():
                if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, part)

        def forward(self, x):
            return function(self, x)

    return Idiom()


IDIOMS = {
    "chunk": lambda m, x: x.chunk(2, dim=-1)[0] + torch.chunk(x, 2, -1)[1],
    "split with an index": lambda m, x: x.split(2, dim=-1)[1] + torch.split(x, [1, 3], dim=-1)[0],
    "masked_fill": lambda m, x: x.masked_fill(torch.tril(torch.ones(3, 3))[:, :1] == 0, -1e9),
    "a constant": lambda m, x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.ones(4),
    "arange": lambda m, x: x + torch.arange(x.shape[-1], device=x.device, dtype=x.dtype),
    "zeros of a shape": lambda m, x: x + torch.zeros(x.size(0), 1, x.size(-1)) + torch.ones_like(x),
    "unflatten": lambda m, x: x.unflatten(-1, (2, 2)) + torch.unflatten(x, 2, (2, -1)),
    "unbind": lambda m, x: x.reshape(2, 3, 2, 2).permute(2, 0, 3, 1).unbind(0)[1],
    "squeeze and excitation": lambda m, x: x * F.hardsigmoid(x.mean(-1, keepdim=True)),
    "a convolution by channel": lambda m, x: F.conv1d(x, torch.ones(3, 1, 3), groups=3),
    "interpolate": lambda m, x: F.interpolate(
        x, scale_factor=2, mode="linear", align_corners=False
    ),
    "pad": lambda m, x: F.pad(x, (1, -1, 0, 2), value=3.0),
    "reflected": lambda m, x: F.pad(x, (1, 2), mode="reflect"),
    "where, clamp, comparisons": lambda m, x: torch.where(
        (x > 0) & ~(x > 1), x.clamp(min=0.2), x.abs().log1p()
    ),
    "hardtanh": lambda m, x: F.hardtanh(x, -0.5, 0.5) + F.hardswish(x) + F.relu6(x) + F.softplus(x),
    "einsum and outer": lambda m, x: (
        torch.einsum("bij,bkj->bik", x, x) + torch.outer(x[0, 0, :3], x[0, 1, :3])
    ),
    "reductions": lambda m, x: (
        x.amax(-1)
        + x.std(-1)
        + x.norm(dim=-1)
        + torch.logsumexp(x, -1)
        + x.var(dim=-1, unbiased=False)
    ),
    "topless max": lambda m, x: x.max(dim=-1).values + x.min(dim=-1)[0],
    "one hot": lambda m, x: F.one_hot(x.argmax(-1), num_classes=4).float(),
    "gather": lambda m, x: (
        x.gather(1, x.argmax(1, keepdim=True)) + x.index_select(1, torch.tensor([1]))
    ),
    "max_pool1d": lambda m, x: (
        F.max_pool1d(x, 2) + F.avg_pool1d(x, 2) + F.adaptive_avg_pool1d(x, 2)
    ),
    "complex rotations": lambda m, x: torch.view_as_real(
        torch.view_as_complex(x.float().reshape(2, 3, 2, 2))
        * torch.polar(torch.ones(2), torch.tensor([0.1, 0.2]))
    ).flatten(2),
    "F.linear": lambda m, x: F.linear(x, m.layer.weight, m.layer.bias),
    "F.conv1d": lambda m, x: (
        F.conv1d(x, m.kernel, padding=1, stride=2)
        + F.conv1d(x, m.kernel, m.scale[:2], padding="same")[..., :2]
    ),
    "F.embedding": lambda m, x: F.embedding((x > 0).long(), m.layer.weight),
    "a registered mask": lambda m, x: x.masked_fill(
        m.mask[: x.size(1)] == 0, float("-inf")
    ).softmax(-1),
    "a buffer that is not saved": torch.no_grad()(lambda m, x: x * m.steps.float().cos()),
    "RMS norm": lambda m, x: x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, True) + 1e-6),
    "repeated heads": lambda m, x: x[:, :, None].expand(2, 3, 2, 4).reshape(2, 6, 4),
    "a causal mask": lambda m, x: (
        x @ x.mT + torch.triu(torch.full((3, 3), float("-inf")), diagonal=1)
    ).softmax(-1, dtype=torch.float32),
    "attention": lambda m, x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=m.mask[:3, :3].bool()
    ),
}


@pytest.mark.parametrize("case", IDIOMS)
def test_an_idiom_gives_pytorchs_numbers(case, draws):
    torch.manual_seed(0)
    parts = {
        "layer": nn.Linear(4, 5),
        "scale": nn.Parameter(torch.rand(4)),
        "kernel": nn.Parameter(torch.rand(2, 3, 3)),
        "mask": torch.tril(torch.ones(4, 4)),
    }
    theirs = forward_of(IDIOMS[case], **parts).eval()
    ours = nb.from_torch(theirs)
    agree(theirs, ours, (draws.normal(size=(2, 3, 4)).astype("float32"),), {})
    assert ours.to_torch().keys() == theirs.state_dict().keys()


def test_dropout_of_a_forward_drops_in_training_alone():
    theirs = forward_of(lambda m, x: F.dropout(x, p=0.5, training=m.training))
    ours = nb.from_torch(theirs)
    nb.seed(0)
    x = np.ones((40, 50), np.float32)
    kept = np.asarray(ours(x))
    assert set(np.unique(kept)) == {0.0, 2.0} and 0.4 < (kept == 0).mean() < 0.6
    assert not np.array_equal(kept, ours(x))
    np.testing.assert_array_equal(ours.eval()(x), x)
