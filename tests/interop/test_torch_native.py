"""Native models of PyTorch are tracked and viewed, and left unchanged."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import nbmodule as nb

X = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5)
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return {"logits": self.head(self.features(x).mean((2, 3))), "n": x.shape[0]}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Cnn()


def hooks_of(model):
    return [
        len(found)
        for module in model.modules()
        for found in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    ]


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_a_recorded_return_does_not_follow_later_changes_in_place(model):
    model.eval()
    with nb.track(model) as calls:
        made = model(X)
    normed = model.features[1](model.features[0](X)).detach().numpy()
    assert (normed < 0).any()
    np.testing.assert_allclose(calls["features.1"].returns, normed, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(calls["features.2"].inputs[0], normed, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(calls[""].returns["logits"], made["logits"].detach().numpy())
    assert calls["features"].return_shapes == "float32[2, 4, 8, 8]"


def test_statistics_of_shifted_and_infinite_returns_are_those_of_numpy(model):
    for shifted in (X, X + 1e4, torch.where(X > 0.9, torch.inf, X)):
        with nb.track(model.features[0], returns="stats", inputs=True) as calls:
            made = model.features[0](shifted)
        wanted, found = made.detach().double().numpy(), calls[""].statistics
        finite = wanted[np.isfinite(wanted)]
        assert found.nonfinite == wanted.size - finite.size
        np.testing.assert_allclose(
            [found.mean, found.std, found.min, found.max],
            [finite.mean(), finite.std(), finite.min(), finite.max()],
            rtol=1e-4,
        )


def test_gradients_by_returns_and_by_parameters_are_those_of_autograd(model):
    model.eval()
    with nb.track(model, gradients=True) as calls:
        (model(X)["logits"] ** 2).sum().backward()
    np.testing.assert_allclose(calls.gradients["head.weight"], model.head.weight.grad, rtol=1e-6)
    assert calls.gradients.keys() == {name for name, _ in model.named_parameters()}
    hidden = model.features(X)
    hidden.retain_grad()
    (model.head(hidden.mean((2, 3))) ** 2).sum().backward()
    np.testing.assert_allclose(calls["features"].gradient, hidden.grad, rtol=1e-5)
    np.testing.assert_allclose(
        calls[""].gradient["logits"], 2 * model(X)["logits"].detach(), rtol=1e-5
    )


def test_views_leave_buffers_random_numbers_and_gradients_unchanged(model):
    model(X)["logits"].sum().backward()
    slope, before = model.head.weight.grad.clone(), state_of(model)
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    nb.summary(model, X)
    nb.graph(model, X)
    nb.inspect(model, X)
    nb.patch(model, X, X + 1, "features.0")
    nb.first_nonfinite(model, X, backward=True)
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(model.head.weight.grad, slope)
    assert model.training and not any(hooks_of(model))


def test_nothing_stays_behind_after_success_error_and_interrupt(model):
    def fail(*_):
        raise KeyboardInterrupt

    with nb.track(model, gradients=True):
        model(X)["logits"].sum().backward()
    assert not any(hooks_of(model))
    with nb.track(model) as calls, pytest.raises(RuntimeError):
        model(X[:, :2])
    assert calls.failed.path == "features.0" and "2 channels" in calls.failed.error
    handle = model.features[1].register_forward_hook(fail)
    with pytest.raises(KeyboardInterrupt), nb.track(model) as calls:
        model(X)
    handle.remove()
    assert not any(hooks_of(model))
    assert {call.path for call in calls if call.error} == {"", "features", "features.1"}
    with nb.track(model) as calls:
        model(X)
    assert calls.failed is None and len(calls) == 7
    assert not any(p._backward_hooks for p in model.parameters())


def test_the_graph_follows_values_through_modules_and_names_the_line(model):
    made = nb.graph(model.eval(), X)
    assert [group.path for group in made.groups] == [
        "features",
        "features.0",
        "features.1",
        "features.2",
        "features.3",
        "head",
    ]
    assert {node.name for node in made.nodes if node.kind == "variable"} >= {
        "features.0.weight",
        "head.bias",
    }
    mean = next(node for node in made.nodes if node.operation == "mean")
    assert mean.path == "" and mean.source.code.startswith("return {")
    conv = next(node for node in made.nodes if node.operation == "conv2d")
    assert conv.flops == 2 * 4 * 2 * 64 * 27 + 4 * 2 * 64
    assert made.nodes[made.outputs[0]].shape == (2, 2)
    failed = nb.graph(model, X[:, :1])
    assert failed.failure.path == "features.0" and "channels" in failed.failure.message


def test_the_first_nonfinite_value_is_found_forward_and_backward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.root = nn.Linear(2, 2), Root()

        def forward(self, x):
            return self.root(self.first(x))

    class Root(nn.Module):
        def forward(self, x):
            return torch.sqrt(x * 0)

    found = nb.first_nonfinite(Net(), torch.ones(1, 2), backward=True)
    assert (found.path, found.operation, found.phase) == ("root", "sqrt", "backward")
    assert found.code == "return torch.sqrt(x * 0)"
    assert nb.first_nonfinite(Net(), torch.ones(1, 2)) is None
    net = Net()
    net.first.weight.data[0] = torch.nan
    assert nb.first_nonfinite(net, torch.ones(1, 2)).path == "first.weight"


def test_calls_are_compared_with_those_of_a_converted_model_across_layouts(model):
    model.eval()
    theirs = nn.Sequential(model.features[0], model.features[1]).eval()
    ours = nb.from_torch(
        theirs, like=nb.Sequential(nb.Conv2d(3, 4, 3, padding=1), nb.BatchNorm2d(4))
    ).eval()
    with nb.track(theirs) as expected:
        theirs(X)
    with nb.track(ours) as calls:
        ours(jnp.asarray(X.permute(0, 2, 3, 1).numpy()))
    assert nb.compare(calls, expected).agrees
    ours[1].running_mean = ours[1].running_mean.value + 1
    with nb.track(ours) as calls:
        ours(jnp.asarray(X.permute(0, 2, 3, 1).numpy()))
    assert nb.compare(calls, expected).first.path == "1"


def test_shared_modules_and_parameters_are_listed_under_their_paths_and_counted_once():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(11)])
            self.tied = self.blocks[0]

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.tied(x)

    net = Net()
    net.blocks[2].weight = net.blocks[1].weight
    with nb.track(net) as calls:
        net(torch.ones(1, 3))
    blocks = [f"blocks.{i}" for i in range(11)]
    assert [call.path for call in calls][1:] == [*blocks, "blocks.0"]
    assert calls["blocks.0", 1].index == 1
    summary = nb.summary(net, torch.ones(1, 3))
    assert [row.path for row in summary][2:] == blocks
    assert summary["blocks.0"].calls == 2
    assert [summary[block].parameters for block in blocks] == [12] * 11
    assert summary[""].parameters == sum(p.numel() for p in net.parameters())
