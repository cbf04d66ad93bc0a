"""Sums over many values in half precision: they are taken in float32, so that none is infinite or
stands still on the way.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn.functional.classification import binary_cross_entropy, cross_entropy, kl_div
from nbmodule.nn.functional.convolution import depthwise_conv2d
from nbmodule.nn.functional.linear import embedding
from nbmodule.nn.functional.normalization import local_response_norm
from nbmodule.nn.functional.pooling import avg_pool2d
from nbmodule.nn.functional.regression import cosine_loss, cosine_similarity, mse_loss

torch = pytest.importorskip("torch")
F = torch.nn.functional

HALVES = ("float16", "bfloat16")
SIZE = 66_000  # as many positions that no float16 counts them


def exact(fn, *arrays):
    """What PyTorch gives in float64 for the very numbers that the halves hold."""
    return fn(*(torch.tensor(np.asarray(x, "float64")) for x in arrays)).numpy()


def agrees(found, expected, dtype, *, steps=2.0):
    """Whether all values are within some steps of the dtype, measured at the largest."""
    assert found.dtype == dtype
    largest = np.abs(np.asarray(found, "float64") - expected).max() / np.abs(expected).max()
    assert largest <= steps * float(jnp.finfo(jnp.dtype(dtype)).eps)


def near(draws, scale, apart):
    """Two batches of vectors of nearly one direction."""
    x = draws.normal(size=(4, 50)) * scale
    return x, x + draws.normal(size=x.shape) * apart


def channels_first(fn):
    return lambda x, *w: fn(x.movedim(-1, 1), *(w.movedim(-1, 1) for w in w)).movedim(1, -1)


LABELS = np.random.default_rng(0).integers(0, 3, SIZE)
WEIGHT = np.array([1.0, 2.0, 0.5], "f")
# Ours, that of PyTorch, and what makes the arrays.
CASES = {
    "a mean over more positions than float16 counts": (
        mse_loss,
        F.mse_loss,
        lambda draws: 2 * draws.normal(size=(2, SIZE)),
    ),
    "labels": (
        lambda x: cross_entropy(x, LABELS),
        lambda x: F.cross_entropy(x, torch.tensor(LABELS)),
        lambda draws: [draws.normal(size=(SIZE, 3))],
    ),
    "weighted labels": (
        lambda x: cross_entropy(x, LABELS, weight=jnp.asarray(WEIGHT, x.dtype)),
        lambda x: F.cross_entropy(x, torch.tensor(LABELS), weight=torch.tensor(WEIGHT).double()),
        lambda draws: [draws.normal(size=(SIZE, 3))],
    ),
    "a divergence that is divided before it is rounded": (
        lambda p, t: kl_div(p, t, reduction="batchmean"),
        lambda p, t: F.kl_div(p, t, reduction="batchmean"),
        lambda draws: (np.full((SIZE, 2), -3.0), np.full((SIZE, 2), 0.5)),
    ),
    "a mean under a large window": (
        lambda x: avg_pool2d(x, 32),
        channels_first(lambda x: F.avg_pool2d(x, 32)),
        lambda draws: [200 * np.abs(draws.normal(size=(1, 32, 32, 2))) + 100],
    ),
    "vectors whose squares float16 does not hold": (
        cosine_similarity,
        F.cosine_similarity,
        lambda draws: near(draws, 500, 200),
    ),
    "vectors that nearly agree": (
        cosine_loss,
        lambda a, b: (1 - F.cosine_similarity(a, b)).mean(),
        lambda draws: near(draws, 1, 0.1),
    ),
    "neighbors whose squares float16 does not hold": (
        lambda x: local_response_norm(x, 5),
        lambda x: F.local_response_norm(x[..., None], 5)[..., 0],
        lambda draws: [400 * draws.normal(size=(2, 9))],
    ),
    "a depthwise kernel of many places": (
        depthwise_conv2d,
        channels_first(lambda x, w: F.conv2d(x, w, groups=2)),
        lambda draws: (
            np.abs(draws.normal(size=(1, 9, 9, 2))) + 1,
            np.abs(draws.normal(size=(2, 7, 7, 1))),
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", HALVES)
def test_a_sum_in_half_precision_is_that_of_its_numbers(dtype, name, draws):
    ours, theirs, make = CASES[name]
    arrays = [jnp.asarray(x, dtype) for x in make(draws)]
    agrees(ours(*arrays), exact(theirs, *arrays), dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_gradient_of_a_probability_of_exactly_zero_or_one_is_finite(dtype):
    p, target = jnp.asarray([0.0, 1.0, 0.0, 1.0], dtype), jnp.asarray([0.0, 1.0, 1.0, 0.0], dtype)
    assert jnp.isfinite(
        jax.grad(lambda p: binary_cross_entropy(p, target, reduction="sum"))(p)
    ).all()


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
def test_rows_far_above_the_largest_norm_are_scaled_down_to_it_in_every_precision(dtype, draws):
    table = jnp.asarray(draws.normal(size=(5, 100)) * 60, dtype)
    expected = exact(lambda w: F.embedding(torch.arange(5), w.clone(), max_norm=1.0), table)
    agrees(embedding(jnp.arange(5), table, max_norm=1.0), expected, dtype, steps=8)
    gradient = jax.grad(lambda w: embedding(jnp.arange(5), w, max_norm=1.0).sum())(table)
    assert (gradient == 1).all()
