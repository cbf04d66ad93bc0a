"""Arrays of large models that were looked at are let go when the model has others: only whoever
holds them keeps them.
"""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb

LOOKS = {
    "leaves": lambda model: jax.tree.leaves(model),
    "v": lambda model: model.v,
    "a number of v": lambda model: float(model.v.w[0]),
    "state_dict": lambda model: model.state_dict(),
    "a compiled call": lambda model: nb.jit(lambda m: m.w.sum())(model),
    "a copy": lambda model: jax.tree.map(lambda x: x, model),
}


@pytest.mark.parametrize("look", LOOKS)
def test_replaced_arrays_of_a_large_model_are_let_go(look):
    model = nb.Module(w=nb.Parameter(jnp.zeros(2**22 + 1)))
    LOOKS[look](model)
    old = weakref.ref(model.w.value)
    model.w.value = jnp.ones(2**22 + 1)
    gc.collect()
    assert old() is None


@pytest.mark.parametrize("size", [2, 2**22 + 1])
def test_who_holds_v_writes_into_the_model(size):
    model = nb.Module(w=nb.Parameter(jnp.zeros(size)), b=nb.Parameter(jnp.zeros(2)))
    held = model.v
    assert model.v is held
    held.w = jnp.ones(size)
    model.v.b = jnp.ones(2)
    assert float(model.w.value[0]) == 1 and float(model.b.value[0]) == 1
    model.v = model.v - model.v * 0.5
    assert float(model.w.value[0]) == 0.5
