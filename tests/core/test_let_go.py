"""Views of a large model do not keep its replaced arrays alive."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb

VIEWS = {
    "leaves": lambda model: jax.tree.leaves(model),
    "v": lambda model: model.v,
    "a number of v": lambda model: float(model.v.w[0]),
    "state_dict": lambda model: model.state_dict(),
    "a compiled call": lambda model: nb.jit(lambda m: m.w.sum())(model),
    "a copy": lambda model: jax.tree.map(lambda x: x, model),
}


@pytest.mark.parametrize("view", VIEWS)
def test_replaced_arrays_of_a_large_model_are_freed(view):
    model = nb.Module(w=nb.Parameter(jnp.zeros(2**22 + 1)))
    VIEWS[view](model)
    old = weakref.ref(model.w.value)
    model.w.value = jnp.ones(2**22 + 1)
    gc.collect()
    assert old() is None
