import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn.functional.attention import (
    merge_heads,
    multi_head_attention,
    scaled_dot_product_attention,
    split_heads,
)
from tests.nn.conftest import close


@pytest.fixture
def qkv(draws):
    return [draws.normal(size=(2, 3, *shape)).astype("f") for shape in ((4, 5), (6, 5), (6, 7))]


def test_a_query_that_may_look_at_nothing_gets_zeros_and_finite_gradients(qkv):
    mask = np.ones((4, 6), bool)
    mask[1] = False
    for given in (mask, np.where(mask, 0, -np.inf).astype("f")):

        def total(q, k, v, given=given):
            return (scaled_dot_product_attention(q, k, v, given) ** 2).sum()

        value, gradients = jax.value_and_grad(total, (0, 1, 2))(*qkv)
        assert np.isfinite(value)
        assert all(np.isfinite(g).all() for g in gradients)
        out = scaled_dot_product_attention(*qkv, given)
        np.testing.assert_array_equal(out[..., 1, :], 0)


def test_leading_axes_are_broadcast(qkv):
    q, k, v = qkv
    one = scaled_dot_product_attention(q, k[:, :1], v[0, 0])
    close(one[1, 2], scaled_dot_product_attention(q[1, 2], k[1, 0], v[0, 0]))


def test_softmax_of_half_precision_is_computed_in_float32(draws):
    q, k, v = (jnp.asarray(draws.normal(size=(300, 4)), jnp.bfloat16) for _ in range(3))
    out, weights = scaled_dot_product_attention(q, k, v, return_weights=True)
    assert out.dtype == weights.dtype == jnp.bfloat16
    exact = scaled_dot_product_attention(*(x.astype("f") for x in (q, k, v)))
    close(out.astype("f"), exact, atol=0.01)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_splitting_and_merging_heads_undo_each_other(batch, draws):
    x = draws.normal(size=(*batch, 5, 6)).astype("f")
    y = split_heads(x, 3)
    assert y.shape == (*batch, 3, 5, 2)
    np.testing.assert_array_equal(y[..., 1, :, :], x[..., 2:4])
    np.testing.assert_array_equal(merge_heads(y), x)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_many_heads_are_one_head_each(batch, draws):
    q, k, v = (
        draws.normal(size=(*batch, *shape)).astype("f") for shape in ((4, 6), (5, 6), (5, 9))
    )
    mask = draws.random((*batch, 3, 4, 5)) > 0.2
    out, weights = multi_head_attention(q, k, v, 3, mask, is_causal=False, return_weights=True)
    heads, each = scaled_dot_product_attention(
        split_heads(q, 3), split_heads(k, 3), split_heads(v, 3), mask, return_weights=True
    )
    close(out, merge_heads(heads))
    close(weights, each)
