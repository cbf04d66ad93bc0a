"""Equations of kernels written into a trace, beside those that JAX writes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.base import answering, inlining
from nbmodule.base.jax_names import INLINE


def other_signature(*given):
    raise TypeError("inline_jaxpr_into_trace() takes something else")


@pytest.mark.parametrize(
    ("changed", "used"),
    [((), "_Draft"), (("_Draft",), "_written_by_jax"), (("_inline",), None), (("_Draft", "_inline"), None)],
)
def test_a_jax_that_writes_equations_another_way_is_left_to_do_it_itself(changed, used, monkeypatch):
    if used == "_Draft" and jax.__version_info__ < (0, 10, 2):
        used = "_written_by_jax"  # before it took finished equations into a trace
    double = jax.jit(lambda x: x + x, inline=INLINE)
    for name in changed:
        monkeypatch.setattr(inlining, name, other_signature)
    inlining._way_of_writing.cache_clear()
    try:
        assert inlining._way_of_writing() is (used and getattr(inlining, used))
        staged = jax.make_jaxpr(lambda x: inlining.Inlined(double, ())((x,), {}) is answering.GO_ON)(1.0)
        assert [bool(x.val) for x in staged.jaxpr.outvars] == [used is None]
    finally:
        monkeypatch.undo()
        inlining._way_of_writing.cache_clear()


def test_what_is_written_of_known_values_is_computed_at_once_as_jax_does_it():
    two = jax.jit(lambda x: np.int32(2), inline=INLINE)
    cast = jax.jit(lambda y: y.astype(jnp.float32), inline=INLINE)

    def inlined(fn, x):
        return inlining.Inlined(fn, ())((x,), {})

    ours, of_jax = (
        jax.make_jaxpr(lambda x, call=call: x + call(cast, call(two, x)))(jnp.float32(1.0))
        for call in (inlined, lambda fn, x: fn(x))
    )
    assert [equation.primitive.name for equation in ours.eqns] == ["add"]
    assert str(ours) == str(of_jax)
