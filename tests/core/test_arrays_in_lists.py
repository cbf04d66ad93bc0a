"""Arrays in lists, tuples and dicts of a module are buffers, as in attributes."""

from __future__ import annotations

import copy
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT


class Pair(NamedTuple):
    a: object
    b: object


class Held(nb.Module):
    def __init__(self):
        self.layers = [nb.Linear(2, 2), jnp.array([1.0, 2.0])]
        self.table = {
            "mean": np.array([3.0, 4.0], "f"),
            "deep": [{"x": jnp.ones(1)}, (jnp.zeros(2), "text", 7)],
        }
        self.pair = Pair(jnp.full(2, 5.0), None)
        self.words = [np.array(["a", "b"])]

    def forward(self, x):
        return self.layers[0](x) * self.layers[1] + self.table["mean"] + self.pair.a


BUFFERS = ["layers.1", "pair.0", "table.deep.0.x", "table.deep.1.0", "table.mean"]


def test_they_are_listed_saved_and_leaves_and_not_in_v(tmp_path):
    model = Held()
    assert [name for name, _ in model.named_buffers()] == BUFFERS
    assert model.v.cont_all_key_chains() == ["layers/v0/b", "layers/v0/w"]
    assert set(BUFFERS) <= set(model.state_dict()) and len(jax.tree.leaves(model)) == 7
    assert type(model.layers[1]) is type(model.table["mean"]) is type(model.pair.a) is nb.Buffer
    assert type(model.pair) is Pair and isinstance(model.words[0], np.ndarray)
    model.save_weights(tmp_path / "w.h5")
    other = Held()
    other.layers[1].value = jnp.zeros(2)
    other.load_weights(tmp_path / "w.h5")
    np.testing.assert_array_equal(other.layers[1].value, [1.0, 2.0])
    twin = copy.deepcopy(model)
    twin.layers[1][0] = 9.0
    assert model.layers[1][0] == 1.0


def test_arrays_put_in_later_are_buffers_too():
    model = Held()
    model.layers.append(jnp.ones(3))
    model.table["new"] = np.ones(4, "f")
    model.table["deep"].append((jnp.ones(1),))
    names = [name for name, _ in model.named_buffers()]
    assert {"layers.2", "table.new", "table.deep.2.0"} <= set(names)
    assert type(model.layers[2]) is nb.Buffer and model.state_dict()["table.new"].shape == (4,)


@pytest.mark.parametrize("way", ["argument", "captured"])
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_compiled_function_sees_their_values_and_not_constants(way):
    model, traces = Held(), []

    def body(model, x):
        traces.append(1)
        return model(x)

    fn = nb.jit(body) if way == "argument" else None
    call = (lambda x: fn(model, x)) if way == "argument" else nb.jit(lambda x: body(model, x))
    x = jnp.ones(2)
    for value in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        model.layers[1] = jnp.array(value)
        model.table["mean"][:] = value[0]
        np.testing.assert_allclose(call(x), model(x), rtol=1e-6)
    assert len(traces) == 1
    jaxpr = jax.make_jaxpr(lambda m, x: m(x))(model, x)
    assert not jaxpr.consts


def test_an_array_put_where_a_buffer_stood_goes_into_that_buffer():
    model = Held()
    model(jnp.ones(2)), model.state_dict()
    variable = model.layers[1]
    model.layers[1] = np.array([7.0, 8.0], FLOAT)
    assert model.state_dict()["layers.1"].tolist() == [7.0, 8.0]
    assert model.layers[1] is variable
    model.layers = [model.layers[0], jnp.array([5.0, 6.0])]
    assert model.layers[1] is variable and float(variable[0]) == 5.0
    model.layers[1] = jnp.ones(5)
    assert model.state_dict()["layers.1"].shape == (5,) and model.layers[1] is not variable


class Remembers(nb.Module):
    def __init__(self):
        self.last, self.both = [jnp.zeros(2)], {"x": jnp.zeros(2)}

    def forward(self, x):
        y = x + self.last[0]
        self.last[0] = y
        self.both = {"x": y * 2}
        return y


def test_state_in_a_list_is_carried_out_of_a_compiled_call():
    compiled, eager = Remembers(), Remembers()
    step = nb.jit(lambda m, x: m(x))
    for x in (jnp.ones(2), jnp.full(2, 2.0), jnp.full(2, 3.0)):
        np.testing.assert_array_equal(step(compiled, x), eager(x))
    assert type(compiled.last[0]) is nb.Buffer
    np.testing.assert_array_equal(compiled.state_dict()["last.0"], [6.0, 6.0])
    np.testing.assert_array_equal(compiled.state_dict()["both.x"], eager.state_dict()["both.x"])


class Keeps(nb.Module):
    def __init__(self):
        self.layer, self.seen = nb.Linear(2, 2), {"first": jnp.zeros(3)}

    def forward(self, x):
        y = self.layer(x)
        self.seen["last"] = y
        return y


def compiled(model):
    return nb.jit(lambda m, x: m(x))(model, jnp.ones(2))


def outlived(model):
    w, b = jnp.eye(2), jnp.zeros(2)
    jax.jit(lambda w, x: model(x, v={"layer": {"w": w, "b": b}}))(w, jnp.ones(2))


@pytest.mark.not_under("eager", reason="nothing is traced")
@pytest.mark.not_under(
    "leaks", reason="JAX tells of what is kept here on purpose at the end of the transform"
)
@pytest.mark.parametrize("is_walked_before", [False, True])
@pytest.mark.parametrize(
    ("keep", "use"),
    [(lambda model: None, compiled), (outlived, jax.tree.leaves), (outlived, compiled)],
    ids=["ours", "raw, leaves", "raw, compiled"],
)
def test_a_traced_value_without_a_buffer_of_its_shape_is_refused_and_taken_out(
    keep, use, is_walked_before
):
    model = Keeps()
    if is_walked_before:
        model.state_dict()
    keep(model)
    leaked = rf"a traced value \({FLOAT}\[2\]\) was put into a dict of a module .*; it was removed"
    with pytest.raises(nb.TracerLeakError, match=leaked):
        use(model)
    assert list(model.seen) == ["first"]
    assert sorted(model.state_dict()) == ["layer.bias", "layer.weight", "seen.first"]
    model(jnp.ones(2))
    use(model)


class Forgotten(nb.Module):
    """All its arrays are buffers: somebody forgot `nb.Parameter`."""

    def __init__(self):
        self.w, self.more = jnp.ones(2), [jnp.ones(2), jnp.ones(2), jnp.ones(2)]

    def forward(self, x):
        return (x * self.w * self.more[0]).sum()


def gradient_by(model):
    return nb.grad(lambda m: m(jnp.ones(2)))(model)


WARNING = r"Forgotten has no trainable parameter: .*more\.0, more\.1, more\.2 and 1 more.*assign nb\.Parameter\(array\)"


@pytest.mark.parametrize(
    "use",
    [
        gradient_by,
        nb.jit(gradient_by),
        lambda model: nb.value_and_grad(lambda m: m(jnp.ones(2)))(model),
        lambda model: nb.execute_with_gradients(lambda v: model(jnp.ones(2), v=v), model.v),
        lambda model: nb.SGD(lr=0.1).update(model, nb.Container()),
    ],
    ids=["grad", "compiled grad", "value_and_grad", "execute_with_gradients", "update"],
)
def test_a_model_with_nothing_to_train_warns_once_with_the_fix(use, recwarn):
    model = Forgotten()
    use(model), use(model), gradient_by(model)
    assert len(recwarn.list) == 1
    assert re.search(WARNING, str(recwarn[0].message))
    assert recwarn[0].filename == __file__


def test_no_warning_where_something_trains_or_nothing_could(recwarn):
    gradient_by(nb.Sequential(nb.Linear(2, 1), nb.Lambda(jnp.sum)))
    gradient_by(nb.Sequential(nb.Dropout(0.0, key=0), nb.Lambda(jnp.sum)))
    assert not recwarn.list


def test_the_first_gradient_of_a_model_whose_parameters_are_all_frozen_warns_once():
    frozen = nb.Sequential(nb.Linear(2, 1), nb.Lambda(jnp.sum)).requires_grad_(False)
    with pytest.warns(
        UserWarning, match=r"all of them are frozen \(0\.bias, 0\.weight\)"
    ) as warned:
        gradient_by(frozen), gradient_by(frozen)
    assert len(warned) == 1 and warned[0].filename == __file__
