"""Checkpoints that were made to harm, or are of something else: each is refused, and nothing at all
has changed.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule import files
from nbmodule.base.trees import flat, nest
from nbmodule.core.numbers import random
from tests.api.test_files import X, Y, net
from tests.files.trees import equal

OPTIMIZERS = {
    "Adam": lambda: nb.Adam(1e-2),
    "SGD": lambda: nb.SGD(0.1, momentum=0.9),
    "Optax": lambda: nb.Optax(optax.adamw(1e-2)),
}


def train(model, optimizer, steps):
    for _ in range(steps):
        grads = nb.grad(lambda m: nb.cross_entropy(m(X), Y))(model)
        optimizer.update(model, grads)


def position(model, optimizer):
    """Everything that a restore may change."""
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "stream": np.array(random.default.state.value),
        "made": random.default._position(),
    }


def changed(trees, chain, fn):
    """The trees with one leaf replaced; None takes it out."""
    leaves = dict(flat(trees))
    new = fn(leaves.pop(chain))
    return nest(leaves if new is None else leaves | {chain: new})


LEAVES = {
    "missing": lambda x: None,
    "of another shape": lambda x: np.zeros((*np.shape(x), 2), np.asarray(x).dtype),
    "text": lambda x: "text",
    "complex": lambda x: np.zeros(np.shape(x), np.complex64),
    "a level": lambda x: {"w": np.ones(2)},
}
STREAMS = {
    "without a state": {"made": 1, "drawn": 0},
    "without made": {"state": np.array([0, 1, 0x80000000], np.uint32), "drawn": 0},
    "of floats": {"state": np.array([0.0, 1.0, 2.0]), "made": 1, "drawn": 0},
    "drawn otherwise": {"state": np.array([0, 1, 0x80000005], np.uint32), "made": 1, "drawn": 0},
    "no mapping": np.ones(3),
}
ABOUT = {
    "no checkpoint": {"checkpoint": 0},
    "another step": {"step": 8},
    "a step of text": {"step": "7"},
    "other trees": {"trees": ["model"]},
    "trees of text": {"trees": "model"},
}


def corpus(trees, about):
    """Crafted checkpoints by name: trees and metadata that can be written."""
    for chain, _ in flat(trees):
        for kind, fn in LEAVES.items():
            if chain[0] == "optimizer" and kind == "a level":
                continue
            if chain == ("optimizer", "lr") and kind == "missing":  # a schedule is not saved
                continue
            yield f"{'/'.join(chain)} {kind}", changed(trees, chain, fn), about
    for tree in trees:
        if tree != "random":
            yield f"{tree} with more", {**trees, tree: {**trees[tree], "more": np.ones(2)}}, about
            yield f"{tree} is an array", {**trees, tree: np.ones(2)}, about
            others = {name: other for name, other in trees.items() if name != tree}
            yield f"no {tree}", others, about
    for name, stream in STREAMS.items():
        yield f"a stream {name}", {**trees, "random": stream}, about
    for name, more in ABOUT.items():
        yield name, trees, about | more


@pytest.fixture(params=OPTIMIZERS)
def saved(request, tmp_path):
    """A model and an optimizer some steps on, and the trees of their checkpoint from before."""
    nb.seed(1)
    model, optimizer = net(), OPTIMIZERS[request.param]()
    train(model, optimizer, 2)
    nb.save_checkpoint(
        tmp_path / "good", step=7, model=model, optimizer=optimizer, extra={"note": 1}
    )
    _, trees, extra = files.restore_checkpoint(tmp_path / "good")
    train(model, optimizer, 1)
    about = {"checkpoint": 1, "step": 7, "trees": list(trees), "extra": extra}
    return model, optimizer, trees, about


def test_a_crafted_checkpoint_changes_all_or_nothing(saved, tmp_path):
    model, optimizer, trees, about = saved
    before, count = position(model, optimizer), 0
    for name, crafted, metadata in corpus(trees, about):
        if metadata is about:
            metadata = about | {"trees": list(crafted)}
        files.save(tmp_path / "checkpoint-7.h5", crafted, metadata=metadata)
        with pytest.raises(nb.NbModuleError):
            nb.restore_checkpoint(tmp_path, model=model, optimizer=optimizer)
            pytest.fail(f"{name} was restored")
        assert equal(position(model, optimizer), before), name
        count += 1
    assert count > 60


def test_a_checkpoint_of_another_kind_of_optimizer_changes_nothing(tmp_path):
    model = net()
    for kind, make in OPTIMIZERS.items():
        optimizer = make()
        train(model, optimizer, 1)
        nb.save_checkpoint(tmp_path / kind, step=1, model=model, optimizer=optimizer)
    for kind, other in itertools.permutations(OPTIMIZERS, 2):
        for steps in (0, 1):
            optimizer = OPTIMIZERS[other]()
            train(model, optimizer, steps)
            before = position(model, optimizer)
            with pytest.raises(nb.NbModuleError, match="cannot set the state"):
                nb.restore_checkpoint(tmp_path / kind, model=model, optimizer=optimizer)
            assert equal(position(model, optimizer), before)


def test_an_optimizer_of_a_part_of_the_model_is_restored(tmp_path):
    model, optimizer = net(), nb.Adam(0.1)
    train(model[0], optimizer, 0)
    optimizer.update(model[0], nb.grad(lambda m: m(X).sum())(model[0]))
    nb.save_checkpoint(tmp_path, step=1, model=model, optimizer=optimizer)
    fresh = nb.Adam(0.1)
    nb.restore_checkpoint(tmp_path, model=model, optimizer=fresh)
    np.testing.assert_array_equal(fresh.state.mw.w, optimizer.state.mw.w)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (jnp.float32(0.5), 0.5), ([np.float64(0.25), jnp.bfloat16(2)], [0.25, 2.0]), (np.int64(3), 3),
        (np.bool_(True), True), (jnp.array(False), False), (nb.Parameter(0.5), 0.5), (np.array(7), 7),
        ((1, "two", None), [1, "two", None]),
    ],
)  # fmt: skip
def test_scalars_in_extra_come_back_as_python_numbers(value, expected, tmp_path):
    model = nb.Linear(2, 2)
    nb.save_checkpoint(tmp_path, step=1, model=model, extra={"x": value})
    _, found = nb.restore_checkpoint(tmp_path, model=model)
    assert found == {"x": expected} and type(found["x"]) is type(expected)


ENDLESS: list = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"x": np.ones(3)}, r"found ndarray of shape \[3\]; `x.tolist\(\)` makes lists of it"),
        ({"x": jnp.complex64(1)}, "got a scalar of complex64"),
        ({"x": {1, 2}}, "found set"),
        ({1: 2}, "got a dict with the key 1"),
        ({"x": [{None: 1}]}, "got a dict with the key None"),
        ({"x": ENDLESS}, "recursion"),
    ],
)
def test_an_extra_that_json_cannot_say_is_refused_and_nothing_is_written(extra, message, tmp_path):
    with pytest.raises(
        nb.ArgumentTypeError, match=f"cannot save extra: expected JSON values.*{message}"
    ):
        nb.save_checkpoint(tmp_path / "run", step=1, model=nb.Linear(2, 2), extra=extra)
    assert nb.checkpoint_steps(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("model", "optimizer", "words"),
    [
        (nb.Linear(2, 2), optax.adam(1e-3), r"nb\.Optax\(transformation\)"),
        (nb.Linear(2, 2), [nb.Adam()], "got list.*a folder of its own, with the part that it"),
        ({"a": nb.Linear(2, 2)}, nb.Adam(), r"dict: it is not a module.*nb\.Module\(first=model"),
    ],
)
def test_an_object_that_is_no_model_or_optimizer_is_refused_with_a_fix(
    model, optimizer, words, tmp_path
):
    for ask in (functools.partial(nb.save_checkpoint, step=0), nb.restore_checkpoint):
        with pytest.raises(TypeError, match=words):
            ask(tmp_path / "new", model=model, optimizer=optimizer)
    assert not (tmp_path / "new").exists()


def test_a_model_of_shapes_alone_is_shown_is_not_saved_and_is_filled_from_a_file(tmp_path, capsys):
    model = net()
    model.save_weights(tmp_path / "w.h5")
    shapes = nb.eval_shape(net)
    assert repr(shapes[0].weight) == "Parameter(float32[4, 3], no value)"
    nb.show(shapes)
    assert "34 parameters" in capsys.readouterr().out and "no value" in str(nb.layout(shapes))
    for read in (
        shapes.state_dict,
        lambda: shapes.save_weights(tmp_path / "new.h5"),
        lambda: nb.save_checkpoint(tmp_path / "run", step=0, model=shapes),
    ):
        with pytest.raises(nb.NotBuiltError, match="has only shapes, as nb.eval_shape returns it"):
            read()
    assert [path.name for path in tmp_path.iterdir()] == ["w.h5"]
    shapes.load_weights(tmp_path / "w.h5")
    np.testing.assert_array_equal(shapes.eval()(X), model.eval()(X))
