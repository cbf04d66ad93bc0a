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


@pytest.mark.parametrize("dtype", HALVES)
def test_a_mean_loss_over_more_positions_than_float16_counts_is_the_mean(dtype, draws):
    prediction, target = (jnp.asarray(draws.normal(size=SIZE) * 2, dtype) for _ in range(2))
    agrees(mse_loss(prediction, target), exact(F.mse_loss, prediction, target), dtype)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_cross_entropy_of_more_labels_than_float16_counts_is_their_mean(dtype, weighted, draws):
    logits, labels = jnp.asarray(draws.normal(size=(SIZE, 3)), dtype), draws.integers(0, 3, SIZE)
    weight = jnp.asarray([1.0, 2.0, 0.5], dtype) if weighted else None
    expected = exact(
        lambda x: F.cross_entropy(
            x,
            torch.tensor(labels),
            weight=torch.tensor([1.0, 2.0, 0.5]).double() if weighted else None,
        ),
        logits,
    )
    agrees(cross_entropy(logits, labels, weight=weight), expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_divergence_of_a_batch_is_divided_before_it_is_rounded(dtype):
    prediction, target = jnp.full((SIZE, 2), -3.0, dtype), jnp.full((SIZE, 2), 0.5, dtype)
    expected = exact(lambda p, t: F.kl_div(p, t, reduction="batchmean"), prediction, target)
    agrees(kl_div(prediction, target, reduction="batchmean"), expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_mean_under_a_large_window_is_that_of_its_values(dtype, draws):
    x = jnp.asarray(200 * np.abs(draws.normal(size=(1, 32, 32, 2))) + 100, dtype)
    expected = exact(lambda x: F.avg_pool2d(x.permute(0, 3, 1, 2), 32).permute(0, 2, 3, 1), x)
    agrees(avg_pool2d(x, 32), expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_cosine_similarity_of_vectors_whose_squares_float16_does_not_hold(dtype, draws):
    x1 = jnp.asarray(draws.normal(size=(4, 50)) * 500, dtype)
    x2 = jnp.asarray(np.asarray(x1, "float64") + draws.normal(size=(4, 50)) * 200, dtype)
    agrees(cosine_similarity(x1, x2), exact(F.cosine_similarity, x1, x2), dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_local_response_norm_of_values_whose_squares_float16_does_not_hold(dtype, draws):
    x = jnp.asarray(draws.normal(size=(2, 9)) * 400, dtype)
    agrees(
        local_response_norm(x, 5),
        exact(lambda x: F.local_response_norm(x[..., None], 5)[..., 0], x),
        dtype,
    )


@pytest.mark.parametrize("dtype", HALVES)
def test_a_depthwise_kernel_of_many_places_is_summed_as_a_dense_one(dtype, draws):
    x = jnp.asarray(np.abs(draws.normal(size=(1, 9, 9, 2))) + 1, dtype)
    weight = jnp.asarray(np.abs(draws.normal(size=(2, 7, 7, 1))), dtype)
    expected = exact(
        lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), groups=2).permute(
            0, 2, 3, 1
        ),
        x,
        weight,
    )
    agrees(depthwise_conv2d(x, weight), expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_gradient_of_a_probability_of_exactly_zero_or_one_is_finite(dtype):
    p, target = jnp.asarray([0.0, 1.0, 0.0, 1.0], dtype), jnp.asarray([0.0, 1.0, 1.0, 0.0], dtype)
    assert jnp.isfinite(
        jax.grad(lambda p: binary_cross_entropy(p, target, reduction="sum"))(p)
    ).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_the_cosine_loss_of_vectors_that_nearly_agree_is_not_rounded_away(dtype, draws):
    x1 = jnp.asarray(draws.normal(size=(4, 50)), dtype)
    x2 = jnp.asarray(np.asarray(x1, "float64") + draws.normal(size=(4, 50)) * 0.1, dtype)
    agrees(
        cosine_loss(x1, x2),
        exact(lambda a, b: (1 - F.cosine_similarity(a, b)).mean(), x1, x2),
        dtype,
    )


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
def test_rows_far_above_the_largest_norm_are_scaled_down_to_it_in_every_precision(dtype, draws):
    table = jnp.asarray(draws.normal(size=(5, 100)) * 60, dtype)
    expected = exact(lambda w: F.embedding(torch.arange(5), w.clone(), max_norm=1.0), table)
    agrees(embedding(jnp.arange(5), table, max_norm=1.0), expected, dtype, steps=8)
    gradient = jax.grad(lambda w: embedding(jnp.arange(5), w, max_norm=1.0).sum())(table)
    assert (gradient == 1).all()
