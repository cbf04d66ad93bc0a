"""Arrays of NumPy that are not JAX's: in another byte order, masked, of text, of wider
numbers: given wherever arrays enter, also to functions that are compiled.

A compiled function of JAX that has met the shape before reads the bytes of either order as if they
were its own, and the values behind a mask as if there were none.
"""

import re

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

ROWS = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
ONES = jnp.ones((2, 3))


class Plain(nb.Optimizer):
    def _step(self, v, grads):
        return v - grads * self._lr


def layer():
    return nb.Linear(3, 2, key=0)


def of_updated(grads):
    model = layer()
    nb.SGD(0.5).update(model, {"w": grads, "b": np.zeros(2, np.float32)})
    return model.weight()


def of_compiled(x):
    model = layer()
    model.compile(args=(x,))
    return model(x)


def of_variable(x):
    variable = nb.Parameter(jnp.zeros((2, 3)))
    variable[:] = x
    return variable()


def of_replaced(x):
    return nb.Sequential(layer(), nb.Linear(2, 3, key=1))(ONES, replace_submod_rets={"1": x})


STEP, ADD = nb.jit(lambda x: x * 2), nb.jit(lambda model, x: model(x))
DOUBLE = nb.jit(lambda batch: batch["x"] * 2)
ENTRIES = {
    "a layer": lambda x: layer()(x),
    "a loss": lambda x: nb.mse_loss(x, ROWS),
    "jit": STEP,
    "jit of a dict": lambda x: DOUBLE({"x": x}),
    "jit with a model": lambda x: ADD(layer(), x),
    "compile": of_compiled,
    "vmap": lambda x: nb.vmap(lambda x: x * 2)(x),
    "scan": lambda x: nb.scan(lambda carry, x: (carry, x * 2), 0.0, x)[1],
    "cond": lambda x: nb.cond(True, lambda x: x * 2, lambda x: x, x),
    "switch": lambda x: nb.switch(0, [lambda x: x * 2], x),
    "while_loop": lambda x: nb.while_loop(lambda x: (x < 9).all(), lambda x: x * 2, x),
    "checkpoint": lambda x: nb.checkpoint(lambda x: x * 2)(x),
    "grad": lambda x: nb.grad(lambda x: (x**2).sum())(x),
    "gradients of a Container": lambda x: nb.execute_with_gradients(lambda v: (v.w**2).sum(), {"w": x})[1].w,
    "step": lambda x: nb.Adam(0.5).step({"w": x}, {"w": x})["w"],
    "step of one's own": lambda x: Plain(0.5).step({"w": x}, {"w": x})["w"],
    "compiled step": lambda x: nb.SGD(0.5, trace_on_next_step=True).step({"w": x}, {"w": x})["w"],
    "Optax": lambda x: nb.Optax(optax.sgd(0.5)).step({"w": x}, {"w": x})["w"],
    "update": of_updated,
    "Containers": lambda x: (nb.Container(w=ONES) * nb.Container(w=x)).w,
    "a Container and an array": lambda x: (nb.Container(w=ONES) * x).w,
    "a variable and an array": lambda x: nb.Parameter(ONES) + x,
    "an array and a variable": lambda x: x + nb.Parameter(ONES),
    "a variable": lambda x: nb.Parameter(x)(),
    "items of a variable": of_variable,
    "replaced returns": of_replaced,
    "eval_shape": lambda x: np.zeros(nb.eval_shape(lambda x: x * 2, x).shape),
    "graph": lambda x: len(nb.graph(layer(), x).nodes),
    "summary": lambda x: len(nb.summary(layer(), x)),
    "first_nonfinite": lambda x: 0 if nb.first_nonfinite(layer(), x) is None else 1,
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES)
def test_numbers_in_the_other_order_of_bytes_are_those_numbers_also_where_all_is_compiled(entry):
    expected = ENTRIES[entry](ROWS)
    np.testing.assert_array_equal(ENTRIES[entry](ROWS.astype(">f4")), expected)
    np.testing.assert_array_equal(ENTRIES[entry](np.ma.array(ROWS)), expected)  # nothing is masked


SHAPES_ALONE = {"summary"}
# What is no number stays as it is among variables, as integers do.
LEFT_ALONE = {"step", "step of one's own", "compiled step", "Optax"}


@pytest.mark.parametrize("entry", sorted(ENTRIES.keys() - SHAPES_ALONE))
def test_masked_values_are_refused_with_the_fix_also_where_all_is_compiled(entry):
    ENTRIES[entry](ROWS)
    with pytest.raises(nb.NbModuleError, match=r"filled\(0\)"):
        ENTRIES[entry](np.ma.array(ROWS, mask=ROWS == 2))


@pytest.mark.parametrize("entry", sorted(ENTRIES.keys() - SHAPES_ALONE - LEFT_ALONE))
@pytest.mark.parametrize("dtype", ["U3", "O", "M8[D]", "longdouble"])
def test_an_array_of_no_numbers_is_refused_by_its_dtype(entry, dtype):
    ENTRIES[entry](ROWS)
    given = ROWS.astype(dtype)
    with pytest.raises(nb.NbModuleError, match=re.escape(str(given.dtype))):
        ENTRIES[entry](given)


@pytest.mark.parametrize(
    "save", [nb.save, nb.save_safetensors, lambda *given: nb.in_background(nb.save, *given)]
)
def test_a_file_holds_no_mask(save, tmp_path):
    with pytest.raises(nb.NbModuleError, match=r'"/w": some of its values are masked.*filled\(0\)'):
        save(tmp_path / "w", {"w": np.ma.array(ROWS, mask=ROWS == 2)})
    assert not list(tmp_path.iterdir())


def add(x, y):
    return x + y


def test_an_argument_is_named_by_its_place():
    with pytest.raises(
        TypeError,
        match=r"nb.vmap: argument batch\['x'\] is an array of dtype float32 with masked values",
    ):
        nb.vmap(lambda batch: batch["x"])({"x": np.ma.array(ROWS, mask=ROWS == 2)})
    with pytest.raises(
        TypeError, match="cannot call the compiled add: argument y is an array of dtype <U3"
    ):
        nb.jit(add)(ROWS, ROWS.astype("U3"))


class Waves(nb.Module):
    def forward(self, x, shift=None):
        return jnp.sin(x) if shift is None else jnp.sin(x) + jnp.cos(shift)


@pytest.mark.parametrize(
    "make",
    [Waves, lambda: nb.from_equinox(pytest.importorskip("equinox").nn.Lambda(jnp.sin))],
    ids=["own", "wrapped"],
)
def test_a_forward_sees_numbers_in_the_order_of_this_machine(make):
    model, swapped = make(), ROWS.astype(">f4")
    np.testing.assert_array_equal(model(swapped), model(ROWS))
    np.testing.assert_array_equal(Waves()(ROWS, shift=swapped), Waves()(ROWS, shift=ROWS))
