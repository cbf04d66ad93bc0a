"""`nb.summary` counts what is there and changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb

from jax_settings import FLOAT


class Twice(nb.Module):
    def __init__(self):
        self.block, self.norm, self.idle = nb.Linear(4, 4), nb.BatchNorm1d(4), nb.Linear(2, 2)
        self.drop = nb.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.block(self.block(x))))


def test_rows_tell_sizes_shapes_calls_and_flops():
    table = nb.summary(Twice(), jnp.ones((8, 4)))
    block = table["block"]
    assert (block.parameters, block.calls, block.outputs) == (20, 2, f"{FLOAT}[8, 4]")
    assert block.bytes == 20 * jnp.dtype(FLOAT).itemsize
    assert block.flops >= 2 * 2 * 8 * 4 * 4
    assert (table["norm"].buffers, table["idle"].calls, table["idle"].outputs) == (8, 0, "")
    assert table[""].parameters == 20 + 8 + 6
    assert "Linear" in repr(table)
    assert "not called" in repr(table)


def test_looking_changes_nothing():
    model = Twice()
    before, position = model.state_dict(), nb.core.numbers.random.default.position()
    nb.summary(model, jax.ShapeDtypeStruct((8, 4), jnp.float32))
    assert all(np.array_equal(array, before[name]) for name, array in model.state_dict().items())
    assert nb.core.numbers.random.default.position() == position
    assert nb.summary(model)["block"].parameters == 20
