"""`nb.edit`: edits of a model are checked by shapes, made and undone."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


@pytest.fixture
def model():
    nb.seed(0)
    last = nb.Linear(4, 4), nb.Linear(4, 2)
    return nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.LayerNorm(4), *last)


@pytest.fixture
def x():
    return jnp.arange(6.0).reshape(2, 3)


def test_all_edits_work_and_are_undone_exactly(model, x):
    text, before = repr(model), np.asarray(model(x))
    edits = nb.edit(model, x)
    edits.replace("1", nb.Tanh()).insert("2", nb.Dropout(0.1)).remove("3").share("3", "3")
    edits.freeze("0").set("2", "rate", 0.0).reset("0").reset()
    kinds = [type(layer) for layer in model]
    assert kinds == [nb.Linear, nb.Tanh, nb.Dropout, nb.Linear, nb.Linear]
    assert not model[0].weight.requires_grad and model[2].rate == 0.0
    assert edits.code.splitlines()[:3] == [
        "model[1] = nb.Tanh()",
        "model.insert(2, nb.Dropout(rate=0.1))",
        "del model[3]",
    ]
    assert np.abs(np.asarray(model(x)) - before).max() > 0
    while edits.made:
        edits.undo()
    assert repr(model) == text and model[0].weight.requires_grad
    np.testing.assert_array_equal(model(x), before)
    with pytest.raises(nb.ArgumentError, match="no edit to undo"):
        edits.undo()


def test_an_edited_model_computes_as_one_written_that_way(model, x):
    first, last = model[0], model[4]
    nb.edit(model, x).replace("1", jnp.tanh).remove("2").remove("2")
    np.testing.assert_array_equal(model(x), last(jnp.tanh(first(x))))


def test_shared_modules_share_their_variables():
    pair = nb.Sequential(nb.Linear(3, 3), nb.Linear(3, 3))
    edits = nb.edit(pair, jnp.ones((1, 3))).share("1", "0")
    assert pair[1] is pair[0] and len(list(pair.parameters())) == 2
    assert edits.code == "model[1] = model[0]"
    edits.undo()
    assert pair[1] is not pair[0] and len(list(pair.parameters())) == 4


def test_a_reset_draws_as_the_class_does(model):
    old = np.asarray(model[0].weight.value)
    nb.edit(model).reset("0")
    new = np.asarray(model[0].weight.value)
    assert np.abs(new).max() <= np.abs(nb.Linear(3, 4).weight.value).max() * 3
    assert not (new == old).any()
    nb.edit(model).reset("0", make=lambda: nb.Linear(3, 4, weight_initializer=nb.Ones()))
    np.testing.assert_array_equal(model[0].weight.value, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda e: e.replace("0", nb.Linear(5, 4)),
            r"cannot do `model\[0\] = nb.Linear.*: with it the model fails .* 5 features",
        ),
        (lambda e: e.remove("4"), r"would return float32\[2, 4\] in place of float32\[2, 2\]"),
        (lambda e: e.insert("9", nb.ReLU()), "not one submodule"),
        (lambda e: e.replace("1", 3), "expected a module or a function"),
        (lambda e: e.replace("one", nb.ReLU()), "not one submodule"),
        (
            lambda e: e.set("2", "epz", 1),
            "has no number, text or flag 'epz' that can be set; it has .*eps",
        ),
        (lambda e: e.set("2", "eps", "x"), "is of another type"),
        (lambda e: e.set("2", "eps", True), "is of another type"),
        (lambda e: e.reset("1"), "no variables to initialize again"),
        (lambda e: e.reset("0", make=lambda: nb.Linear(3, 5)), "has other variables than Linear"),
        (lambda e: e.remove(""), "the whole model has no parent"),
        (lambda e: nb.edit(e.replace), "Convert it first"),
    ],
)
def test_an_invalid_edit_is_refused_and_changes_nothing(change, message, model, x):
    text, before = repr(model), np.asarray(model(x))
    edits = nb.edit(model, x)
    with pytest.raises(nb.NbModuleError, match=message):
        change(edits)
    assert repr(model) == text and not edits.made
    np.testing.assert_array_equal(model(x), before)
