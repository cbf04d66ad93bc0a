"""Sums over many values in half precision: they are taken in float32, so that none is infinite or
stands still on the way.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn import functional
from nbmodule.nn.functional.classification import binary_cross_entropy
from nbmodule.nn.functional.linear import embedding
from tests.nn.functional.calls import row
from tests.nn.functional.test_same_as_torch import tensor, theirs

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


DRAWS = np.random.default_rng(7)
ROWS = DRAWS.normal(size=(SIZE, 3))
LABELS = DRAWS.integers(0, 3, SIZE)
A, B, C = DRAWS.normal(size=(3, 4, 50))
CASES = [
    row("mse_loss", *2 * DRAWS.normal(size=(2, SIZE))),
    row("cross_entropy", ROWS, LABELS),
    row("cross_entropy", ROWS, LABELS, weight=np.array([1.0, 2.0, 0.5])),
    row("kl_div", np.full((SIZE, 2), -3.0), np.full((SIZE, 2), 0.5), reduction="batchmean"),
    row("avg_pool2d", 200 * abs(DRAWS.normal(size=(1, 32, 32, 2))) + 100, kernel_size=32),
    # squares that float16 does not hold
    row("cosine_similarity", 500 * A, 500 * A + 200 * B, axis=-1),
    row("local_response_norm", 400 * DRAWS.normal(size=(2, 3, 9)), size=5),
    row("cosine_loss", A, A + 0.1 * C, axis=-1),
    row("depthwise_conv2d", *(abs(DRAWS.normal(size=s)) for s in [(1, 9, 9, 3), (3, 7, 7, 1)])),
]


@pytest.mark.parametrize(("name", "arrays", "options"), CASES, ids=lambda part: str(part)[:40])
@pytest.mark.parametrize("dtype", HALVES)
def test_a_sum_in_half_precision_is_that_of_its_numbers(dtype, name, arrays, options):
    half = lambda x: jnp.asarray(x, dtype) if getattr(x, "dtype", None) == np.float64 else x
    arrays = [half(x) for x in arrays]
    options = {option: half(value) for option, value in options.items()}
    wanted = theirs(name, options)(*map(tensor, arrays))
    agrees(getattr(functional, name)(*arrays, **options), wanted.numpy(), dtype)


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
