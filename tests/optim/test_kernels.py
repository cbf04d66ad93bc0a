"""How leaves are divided among kernels."""

from __future__ import annotations

import jax
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.optim.kernels import CHUNK, chunks_of


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=80))
def test_each_leaf_is_in_one_chunk_and_kinds_never_mix(leaves):
    facts, kinds = tuple(fact for fact, _ in leaves), tuple(kind for _, kind in leaves)
    chunks = chunks_of(facts, kinds)
    assert sorted(place for chunk in chunks for place in chunk) == list(range(len(leaves)))
    assert all(0 < len(chunk) <= CHUNK for chunk in chunks)
    assert all(len({kinds[place] for place in chunk}) == 1 for chunk in chunks)


@given(st.integers(0, 100), st.integers(0, 100))
def test_equal_leaves_make_few_kernels(first, second):
    chunks = chunks_of(("a",) * first + ("b",) * second, (0,) * (first + second))
    signatures = {tuple("a" if place < first else "b" for place in chunk) for chunk in chunks}
    assert len(signatures) <= 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: nb.Adam(nb.cosine_schedule(0.1, 100), clip_norm=1.0, accumulate=2),
        lambda: nb.AdamW(0.1),
        lambda: nb.LAMB(0.1),
        lambda: nb.Optax(optax.adam(optax.cosine_decay_schedule(0.1, 100))),
    ],
)
def test_dtypes_that_are_never_promoted_are_no_hindrance(make, net, make_net, gradients, agree):
    """Counts meet floats inside of optax, which raises by itself where JAX promotes nothing."""
    other, first, second = make_net(), make(), make()
    for i in range(3):
        first.update(net, gradients(i))
    with jax.numpy_dtype_promotion("strict"):
        for i in range(3):
            second.update(other, gradients(i))
    agree(other.v, net.v)
