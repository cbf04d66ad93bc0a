"""Random numbers drawn on the host: those of `jax.random`, to rounding, without one XLA compile.

`jax.random` compiles a program for each new shape, half a second and more on a CPU, which is most
of the time that building a model takes. Here 768 x 768 normal numbers take 13 ms at once.

The functions take any key and go to `jax.random` itself where the host cannot know it (a traced
key) or does not have its algorithm (another generator, another layout of counters, another dtype).
"""

from __future__ import annotations

import importlib
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
    dtype: np.dtype,
    low: float,
    high: float,
    transform: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Fill an array with `transform` of uniform numbers in [low, high), made as JAX makes them for
    this dtype.

    Random mantissa bits under the exponent of one give a number in [1, 2); one is subtracted, then
    it is scaled and shifted.
    """
    width, mantissa = _LAYOUT[dtype]
    scale = _scale_half if dtype.itemsize == 2 else _scale
    work = np.float64 if dtype.itemsize == 8 else np.float32
    low, high = _round(low, dtype, work), _round(high, dtype, work)
    span = _round(high - low, dtype, work)
    # Filled block by block in place: temporary arrays of the full size would leave the cache.
    out = np.empty(checked_shape(shape), dtype)
    flat = out.reshape(-1)
    for part, words in bit_blocks(key, out.size, width):
        np.right_shift(words, words.dtype.type(width - mantissa), out=words)
        if dtype.itemsize == 2:
            values = np.multiply(words, np.float32(2.0**-mantissa), dtype=np.float32)
        else:
            np.bitwise_or(words, np.ones((), dtype).view(words.dtype), out=words)
            values = words.view(dtype)
            np.subtract(values, work(1), out=values)
        values = scale(values, span, low, dtype)
        np.maximum(values, low, out=values)
        flat[part] = values if transform is None else transform(values)
    return out


def _scale(values: np.ndarray, span: Any, low: Any, dtype: np.dtype) -> np.ndarray:
    """`values * span + low`, rounded once in float32, as the fused multiply and add that XLA
    compiles it to.
    """
    if (
        dtype.itemsize == 8 or math.frexp(span)[0] == 0.5
    ):  # the product with a power of two is exact
        np.multiply(values, span, out=values)
        return np.add(values, low, out=values)
    wide = np.multiply(values, float(span), dtype=np.float64)
    return np.add(wide, float(low), out=values, casting="same_kind")


def _scale_half(values: np.ndarray, span: Any, low: Any, dtype: np.dtype) -> np.ndarray:
    """`values * span + low` of half precision numbers held in float32, rounded after each step."""
    np.multiply(values, span, out=values)
    return _round(_round(values, dtype, np.float32) + low, dtype, np.float32)


_LAYOUT = {  # random bits drawn for each number and how many of them become its mantissa
    np.dtype(np.float16): (16, 10),
    np.dtype(jnp.bfloat16): (8, 7),
    np.dtype(np.float32): (32, 23),
    np.dtype(np.float64): (64, 52),
}


def _round(x: Any, dtype: np.dtype, work: Any) -> Any:
    """Round to `dtype`, and hold the result in `work`."""
    return np.asarray(x, work).astype(dtype, copy=False).astype(work, copy=False)[()]


def _normal_of(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """Return the transform that takes numbers uniform in (-1, 1) to normal ones."""

    def transform(values: np.ndarray) -> np.ndarray:
        root = _round(math.sqrt(2), dtype, values.dtype)
        values = erfinv(values)
        if dtype.itemsize == 2:
            values = _round(values, dtype, values.dtype)
        return np.multiply(values, root, out=values)

    return transform


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
    """Compute the inverse error function of a float32 or float64 array in (-1, 1).

    Example:
        >>> erfinv(np.array([-0.5, 0.0, 0.5], np.float32)).round(4)
        array([-0.4769,  0.    ,  0.4769], dtype=float32)
    """
    if x.dtype == np.float64:
        return importlib.import_module("scipy.special").erfinv(x)
    w = -np.log1p(-x * x)
    result = np.polyval(_CENTER, w - np.float32(2.5))
    (rare,) = np.nonzero(w >= np.float32(5))  # some in a thousand: computed apart
    result[rare] = np.polyval(_TAIL, np.sqrt(w[rare]) - np.float32(3))
    return np.multiply(result, x, out=result)


def _on_host(key: KeyLike, dtype: DTypeLike) -> bool:
    return dtype in _LAYOUT and bool(setting("threefry_partitionable")) and is_threefry(key)


def typed_key(key: KeyLike) -> Any:
    """Return the same key as a typed one, which `jax.random` and functions of users take."""
    # The generator is named, since users may change the default one.
    if isinstance(key, (int, np.integer)):
        return jax.random.key(key, impl="threefry2x32")
    if jnp.issubdtype(getattr(key, "dtype", np.float32), jax.dtypes.prng_key):
        return key
    words: Any = key
    if getattr(key, "dtype", None) != np.uint32 or np.shape(words) != (2,):
        words = key_data(key)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _canonical(dtype: object) -> np.dtype:
    return jax.dtypes.canonicalize_dtype(float if dtype is None else dtype)


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
    dtype = _canonical(dtype)
    if _on_host(key, dtype):
        return _fill(key, shape, dtype, low, high)
    return jax.random.uniform(typed_key(key), checked_shape(shape), dtype, low, high)


def draw_normal(
    key: KeyLike, shape: Sequence[int] = (), dtype: DTypeLike | None = None
) -> np.ndarray | jax.Array:
    """Draw standard normal numbers, those of `jax.random.normal`; on the host if it can.

    Example:
        >>> draw_normal(0, (3,)).round(4)
        array([ 1.6226,  2.0253, -0.4335], dtype=float32)
    """
    dtype = _canonical(dtype)
    if _on_host(key, dtype):
        just_above = float(np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
        return _fill(key, shape, dtype, just_above, 1.0, _normal_of(dtype))
    return jax.random.normal(typed_key(key), checked_shape(shape), dtype)


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
    dtype = _canonical(dtype)
    if not _on_host(key, dtype):
        shape = checked_shape(shape)
        return jax.random.truncated_normal(typed_key(key), lower, upper, shape, dtype)
    work = np.float64 if dtype.itemsize == 8 else np.float32
    # Rounded to the dtype first, as JAX does, so that the same numbers are cut off.
    bounds = np.array([lower, upper], dtype)
    inner = np.nextafter(bounds, np.array([np.inf, -np.inf], dtype)).astype(work)
    root = _round(math.sqrt(2), dtype, work)
    a, b = (math.erf(_round(bound / root, dtype, work)) for bound in bounds.astype(work))
    to_normal = _normal_of(dtype)

    def transform(values: np.ndarray) -> np.ndarray:
        values = to_normal(values)
        return np.clip(values, inner[0], inner[1], out=values)

    return _fill(key, shape, dtype, a, b, transform)
