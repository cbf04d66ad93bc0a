"""Random numbers drawn on the host: those of `jax.random`, to rounding, without one XLA compile.

`jax.random` compiles a program for each new shape, half a second and more on a CPU, which is most
of the time that building a model takes. Here 768 x 768 normal numbers take 13 ms at once.

Numbers are drawn in float32, and rounded for half precision. The functions take any key, and go to
`jax.random` itself where the host cannot know it (a traced key) or does not have its algorithm
(another generator, another layout of counters, another dtype).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.kinds import KeyLike
from nbmodule.core.numbers.threefry import bit_blocks, checked_shape, is_threefry, key_data, setting
from nbmodule.errors import ArgumentError


def _fill(
    key: KeyLike,
    shape: Sequence[int],
    dtype: DTypeLike,
    low: float,
    high: float,
    transform: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """Fill an array with `transform` of uniform float32 numbers in [low, high), as JAX makes them.

    Random mantissa bits under the exponent of one give a number in [1, 2); one is subtracted, then
    it is scaled and shifted.
    """
    start = np.float32(low)
    span = np.float32(np.float32(high) - start)
    # Filled block by block in place: temporary arrays of the full size would leave the cache.
    out = np.empty(checked_shape(shape), dtype)
    flat = out.reshape(-1)
    for part, words in bit_blocks(key, out.size):
        np.right_shift(words, np.uint32(9), out=words)
        np.bitwise_or(words, np.float32(1).view(np.uint32), out=words)
        values = words.view(np.float32)
        np.subtract(values, np.float32(1), out=values)
        if math.frexp(span)[0] == 0.5:  # the product with a power of two is exact
            np.multiply(values, span, out=values)
            np.add(values, start, out=values)
        else:  # rounded once, as the fused multiply and add that XLA compiles it to
            wide = np.multiply(values, float(span), dtype=np.float64)
            np.add(wide, float(start), out=values, casting="same_kind")
        np.maximum(values, start, out=values)
        flat[part] = transform(values)
    return out


def _normal_of(values: np.ndarray) -> np.ndarray:
    """Return normal numbers for numbers uniform in (-1, 1)."""
    values = erfinv(values)
    return np.multiply(values, _ROOT, out=values)


_ROOT = np.float32(math.sqrt(2))
# Polynomials in w = -log(1 - x**2), highest power first, as XLA evaluates them in float32: below
# w = 5 in w - 2.5, from there on in sqrt(w) - 3. SciPy's function would agree to 5e-6 only, and its
# import takes longer than all draws of a small model.
# Source: Giles (2010), Approximating the erfinv function. GPU Computing Gems, Jade edition.
_CENTER = np.array(
    [2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087]
    + [-0.00125372503, -0.00417768164, 0.246640727, 1.50140941],
    np.float32,
)
_TAIL = np.array(
    [-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773]
    + [-0.0076224613, 0.00943887047, 1.00167406, 2.83297682],
    np.float32,
)


def erfinv(x: np.ndarray) -> np.ndarray:
    """Compute the inverse error function of a float32 array in (-1, 1).

    Example:
        >>> erfinv(np.array([-0.5, 0.0, 0.5], np.float32)).round(4)
        array([-0.4769,  0.    ,  0.4769], dtype=float32)
    """
    w = -np.log1p(-x * x)
    result = np.polyval(_CENTER, w - np.float32(2.5))
    (rare,) = np.nonzero(w >= np.float32(5))  # some in a thousand: computed apart
    result[rare] = np.polyval(_TAIL, np.sqrt(w[rare]) - np.float32(3))
    return np.multiply(result, x, out=result)


def typed_key(key: KeyLike) -> Any:
    """Return the same key as a typed one, which `jax.random` and functions of users take."""
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return key
    words: Any = key
    if dtype != np.uint32 or np.shape(words) != (2,):
        words = key_data(key)
    # The generator is named, since users may change the default one.
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _draw(
    key: KeyLike,
    shape: Sequence[int],
    dtype: DTypeLike | None,
    by_jax: Callable[..., jax.Array],
    *on_host: Any,
) -> np.ndarray | jax.Array:
    """Draw by a function of `jax.random`, or with these arguments of `_fill` if the host can."""
    dtype = jax.dtypes.canonicalize_dtype(float if dtype is None else dtype)
    is_half = dtype.itemsize == 2 and jnp.issubdtype(dtype, jnp.floating)
    wide = np.dtype(np.float32) if is_half else dtype
    if wide == np.float32 and setting("threefry_partitionable") and is_threefry(key):
        return _fill(key, shape, dtype, *on_host)
    return by_jax(typed_key(key), shape=checked_shape(shape), dtype=wide).astype(dtype)


def draw_uniform(
    key: KeyLike,
    shape: Sequence[int] = (),
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike | None = None,
) -> np.ndarray | jax.Array:
    """Draw uniform numbers in [low, high), those of `jax.random.uniform`; on the host if it can.

    Example:
        >>> draw_uniform(0, (3,)).round(4)
        array([0.9477, 0.9786, 0.3323], dtype=float32)
        >>> jax.eval_shape(draw_uniform, jax.random.key(0)).dtype
        dtype('float32')
    """
    by_jax = functools.partial(jax.random.uniform, minval=low, maxval=high)
    return _draw(key, shape, dtype, by_jax, low, high)


def draw_normal(
    key: KeyLike, shape: Sequence[int] = (), dtype: DTypeLike | None = None
) -> np.ndarray | jax.Array:
    """Draw standard normal numbers, those of `jax.random.normal`; on the host if it can.

    Example:
        >>> draw_normal(0, (3,)).round(4)
        array([ 1.6226,  2.0253, -0.4335], dtype=float32)
    """
    just_above = np.nextafter(np.float32(-1), np.float32(0))
    return _draw(key, shape, dtype, jax.random.normal, just_above, 1.0, _normal_of)


def draw_truncated_normal(
    key: KeyLike,
    lower: float,
    upper: float,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> np.ndarray | jax.Array:
    """Draw standard normal numbers cut to (lower, upper), those of `jax.random.truncated_normal`;
    on the host if it can.

    Example:
        >>> draw_truncated_normal(0, -2.0, 2.0, (3,)).round(4)
        array([ 1.456 ,  1.7147, -0.4127], dtype=float32)
    """
    if not lower < upper:
        raise ArgumentError(f"lower must be less than upper, got lower={lower}, upper={upper}.")
    by_jax = functools.partial(jax.random.truncated_normal, lower=lower, upper=upper)
    bounds = np.array([lower, upper], np.float32)
    inner = np.nextafter(bounds, np.array([np.inf, -np.inf], np.float32))
    a, b = (math.erf(bound / _ROOT) for bound in bounds)
    return _draw(
        key, shape, dtype, by_jax, a, b, lambda values: np.clip(_normal_of(values), *inner)
    )
