"""Two runs side by side: the innermost module at fault."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import compare, load_calls, track
from nbmodule.calls.saved_calls import as_calls


class Attention(nb.Module):
    def __init__(self, width, scaled=True):
        self.scaled = scaled
        self.qkv, self.proj = nb.Linear(width, 3 * width), nb.Linear(width, width)

    def forward(self, x):
        q, k, v = jnp.split(self.qkv(x), 3, -1)
        scores = q @ k.T * (x.shape[-1] ** -0.5 if self.scaled else 1.0)
        return self.proj(jnp.exp(scores) / jnp.exp(scores).sum(-1, keepdims=True) @ v)


class Block(nb.Module):
    def __init__(self, width):
        self.norm, self.attn = nb.LayerNorm(width), Attention(width)
        self.mlp = nb.Linear(width, width)

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Transformer(nb.Module):
    def __init__(self):
        self.blocks = [Block(8) for _ in range(7)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def model():
    nb.seed(0)
    return Transformer()


@pytest.fixture
def x():
    return jnp.asarray(np.random.default_rng(0).normal(size=(6, 8)), jnp.float32)


def run(model, x, **options):
    with track(model, **options) as calls:
        model(x)
    return calls


def transposed(model):
    model.blocks[4].attn.proj.weight.value = model.blocks[4].attn.proj.weight.value.T


def unscaled(model):
    model.blocks[4].attn.scaled = False


BUGS = {"transposed": (transposed, "blocks.4.attn.proj"), "unscaled": (unscaled, "blocks.4.attn")}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_a_planted_bug_in_the_fifth_block_is_named(bug, compiled, model, x, tmp_path):
    run(model, x).save(tmp_path / "reference.h5")
    plant, path = BUGS[bug]
    plant(model)
    with track(model, inputs=True) as calls:
        (nb.jit(lambda x: model(x)) if compiled else model)(x)
    found = compare(calls, load_calls(tmp_path / "reference.h5"))
    assert (found.first.path, found.first.fault) == (path, "module")
    assert not found.agrees
    assert found["blocks.5"].fault == "input"
    assert found["blocks.4"].fault == "inside"
    assert f"first fault: {path} (its input agrees" in repr(found)


def test_a_differing_first_input_is_no_fault_of_a_module(model, x):
    found = compare(run(model, x + 1), run(model, x))
    assert found.first.fault == "input"
    assert {pair.fault for pair in found} <= {"input", ""}


def test_a_module_that_fails_on_a_wrong_input_is_found_by_feeding_it_the_right_one(model, x):
    reference = run(model, x)
    transposed(model)
    found = compare(run(model, x + 0.5), reference)
    assert (found.first.path, found.first.fault) == ("blocks.4.attn.proj", "module")
    assert "it also fails with the input of the reference" in found.first.sentence()


def test_equal_runs_agree(model, x):
    found = compare(run(model, x), run(model, x))
    assert found.agrees
    assert found.first is None
    assert "all agree" in repr(found)


def hooked(layers, x):
    rows = []
    for name, layer in layers.named_modules():
        layer.register_forward_hook(
            lambda layer, given, out, name=name: rows.append((name, given, out))
        )
    layers(x)
    return rows


def test_a_reference_of_another_framework_is_aligned_by_path_and_order(model, x):
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    rows = hooked(layers, torch.tensor(np.asarray(x)))
    ours = nb.Sequential(nb.Linear(8, 5), nb.Tanh(), nb.Linear(5, 2))
    for i in (0, 2):
        ours[i].weight.value = layers[i].weight.detach().numpy()
        ours[i].bias.value = layers[i].bias.detach().numpy()
    assert compare(run(ours, x), rows).agrees
    renamed = [(f"module_{i}", given, out) for i, (_, given, out) in enumerate(rows)]
    found = {pair.path: pair.expected.path for pair in compare(run(ours, x), renamed)}
    assert found == {"0": "module_0", "1": "module_1", "2": "module_2", "": "module_3"}
    ours[2].bias[1] = 3.0
    assert compare(run(ours, x), renamed).first.path == "2"


@pytest.fixture
def images():
    """A model of images, the same in PyTorch but for one number, and what both are given."""
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 1), torch.nn.ReLU())
    ours = nb.Sequential(nb.Conv2d(3, 5, 1), nb.ReLU())
    ours[0].weight.value = theirs[0].weight.detach().numpy().transpose(0, 2, 3, 1)
    ours[0].bias.value = theirs[0].bias.detach().numpy() + np.float32([0, 0, 0, 0, 1])
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 3)).astype(np.float32)
    return ours, theirs, x, torch.tensor(x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("noted", [run, hooked])
@pytest.mark.parametrize("reference", [0, 1], ids=["of ours", "of PyTorch"])
def test_runs_of_pytorch_and_of_ours_are_compared_in_our_layout(images, noted, reference):
    ours, theirs, x, given = images
    sides = run(ours, x), noted(theirs, given)
    if reference == 0:
        sides = as_calls(sides[1]), sides[0]
    compared = compare(*sides)
    first, pair = compared.first, compared[""]
    assert (first.path, first.largest, first.where[-1]) == ("0", pytest.approx(1), 4)
    assert (first.fault, first.input_gap.agrees) == ("module", True)
    wanted = theirs(given).detach().numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(pair.returns[1 - reference][0], ours(x))
    np.testing.assert_array_equal(pair.returns[reference][0], wanted)
    for side in pair.inputs:
        np.testing.assert_array_equal(side[0], x)


def test_calls_without_a_counterpart_are_listed(model, x):
    reference = [
        (call.path, call.inputs, call.returns)
        for call in run(model, x)
        if call.path != "blocks.2.mlp"
    ]
    found = compare(run(model, x), [*reference, ("extra", x[:1])])
    assert [call.path for call in found.unmatched] == ["blocks.2.mlp"]
    assert [call.path for call in found.unexpected] == ["extra"]
    assert found.agrees


def test_nan_is_a_difference_and_equal_to_itself(model, x):
    reference = run(model, x)
    wrong = {call.path: np.asarray(call.returns).copy() for call in reference}
    wrong["blocks.3.mlp"][2, 1] = np.nan
    found = compare(reference, wrong)
    first = found.first
    assert (first.path, first.where, first.largest) == ("blocks.3.mlp", (2, 1), np.inf)
    same = {"blocks.3.mlp": wrong["blocks.3.mlp"]}
    assert compare(as_calls(same), same).agrees


def test_runs_without_returns_cannot_be_compared(model, x):
    with pytest.raises(
        nb.ArgumentError, match="the run holds no returns to compare: track it with returns=True"
    ):
        compare(run(model, x, returns="stats"), run(model, x))
    with pytest.raises(nb.ArgumentError, match="no call of the run matches the reference"):
        compare(run(model, x), {"other": np.zeros((1, 2, 3, 4))})
    with pytest.raises(nb.ArgumentTypeError, match="a reference must be calls, a path"):
        compare(run(model, x), 3)


class Cache:
    """Holds what a decoder keeps between tokens; two caches are never equal."""


class Cached(nb.Module):
    def __init__(self):
        self.layer = nb.Linear(8, 8)

    def forward(self, x):
        return self.layer(x), Cache()


def test_objects_that_are_no_arrays_are_listed_and_not_compared(x, tmp_path):
    model = Cached()
    before, after = run(model, x), run(model, x)
    before.save(tmp_path / "calls.h5")
    for reference in (before, load_calls(tmp_path / "calls.h5")):
        comparison = compare(after, reference)
        assert comparison.agrees and comparison.first is None
        assert comparison.pairs[-1].gap.opaque == ("Cache",)
        assert "not compared, since they are not arrays: Cache" in repr(comparison)
    model.layer.weight[0] = 7.0
    assert compare(run(model, x), before).first.path == "layer"
