"""The random keys and bits of `jax.random`, made on the host in NumPy, without one XLA compile.

Threefry is a hash of a counter, so the same bits can be had anywhere. Those here are JAX's exactly;
`host_random.py` makes numbers of them. The arithmetic runs in blocks that stay in the processor's
cache, in place. A key is a `uint32[2]` NumPy array, what `jax.random.key_data` gives.

Source: Salmon, Moraes, Dror and Shaw (2011), Parallel random numbers: as easy as 1, 2, 3. The
layout of the counters is that of `jax_threefry_partitionable`, JAX's default.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.format import format_array
from nbmodule.base.kinds import KeyLike
from nbmodule.errors import ArgumentError, ArgumentTypeError

_MASK = 0xFFFFFFFF
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
# Elements: the three work arrays of a block take 384 KiB, which fits a level-2 cache.
_BLOCK = 1 << 15
_IOTA = np.arange(_BLOCK, dtype=np.uint32)


def key_data(key: KeyLike) -> np.ndarray:
    """Give the two words of a threefry key as a NumPy array `uint32[2]`.

    Args:
        key: A typed JAX key, key data `uint32[2]`, or an integer seed, which means
            `jax.random.key(seed)`. As in JAX, only the low 32 bits of a seed count unless
            `jax_enable_x64` is set.

    Raises:
        ArgumentTypeError: It is none of these, such as a traced key, which has no value on the
            host, a key of another generator, or an array of keys.
        ArgumentError: A seed has more than 64 bits.

    Example:
        >>> key_data(42)
        array([ 0, 42], dtype=uint32)
        >>> key_data(jax.random.key(42))
        array([ 0, 42], dtype=uint32)
    """
    if type(key) is np.ndarray and key.dtype == np.uint32 and key.shape == (2,):
        return key
    if not is_threefry(key):
        dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", ())
        got = type(key).__name__ if dtype is None else format_array(shape, str(dtype))
        traced = " that is traced" if isinstance(key, Tracer) else ""
        raise ArgumentTypeError(
            "expected one key of threefry2x32 (jax.random.key(0), uint32[2]) or an integer seed, "
            f"got {got}{traced}."
        )
    if isinstance(key, (int, np.integer)):
        return _seed_words(key)
    array: Any = key
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(array))
    return np.asarray(array) if array.shape else _seed_words(int(array))


def is_threefry(key: KeyLike) -> bool:
    """Return True if the host can draw from `key`: one threefry key, or a seed, of known value.

    Example:
        >>> is_threefry(jax.random.key(0)), is_threefry(jax.random.key(0, impl="rbg"))
        (True, False)
    """
    if isinstance(key, Tracer):
        return False
    if isinstance(key, (int, np.integer)):
        return True
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    if dtype is None or shape is None:
        return False
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return shape == () and str(jax.random.key_impl(key)) == "threefry2x32"
    return (dtype == np.uint32 and shape == (2,)) or (
        shape == () and jnp.issubdtype(dtype, np.integer)
    )


def setting(name: str) -> Any:
    """Return a setting of JAX as it is in force in this thread."""
    return getattr(jax.config, f"jax_{name}")


def _seed_words(seed: int | np.integer) -> np.ndarray:
    """Return the high and low word of a seed, as `jax.random.key` makes them."""
    bits = 64
    if isinstance(seed, np.integer):
        bits, seed = 8 * seed.dtype.itemsize, int(seed)
    elif not -(1 << 63) <= seed < 1 << 63:
        raise ArgumentError(f"a seed must fit into 64 bits, got {seed}.")
    seed += setting("random_seed_offset")
    high = (seed >> 32) & _MASK if bits == 64 and setting("enable_x64") else 0
    return np.array((high, seed & _MASK), np.uint32)


def split(key: KeyLike, n: int = 2) -> np.ndarray:
    """Make `n` independent keys out of one, `uint32[n, 2]`; those of `jax.random.split`.

    Example:
        >>> split(0, 2)
        array([[1797259609, 2579123966],
               [ 928981903, 3453687069]], dtype=uint32)
    """
    k0, k1 = key_data(key).tolist()
    return np.array([_hash_one(k0, k1, i) for i in range(n)], np.uint32).reshape(n, 2)


def fold_in(key: KeyLike, n: int) -> np.ndarray:
    """Mix a 32-bit integer into a key, which gives a new key, `uint32[2]`; the same as
    `jax.random.fold_in`.

    Example:
        >>> fold_in(0, 7)
        array([2716826189,  292468403], dtype=uint32)
    """
    # Python integers: NumPy would warn of overflow and take ten times as long.
    k0, k1 = key_data(key).tolist()
    return np.array(_hash_one(k0, k1, n), np.uint32)


def _hash_one(k0: int, k1: int, n: int) -> tuple[int, int]:
    """Threefry-2x32 of the counter `n` in Python integers: 5 µs, where NumPy would take 60."""
    ks = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = k0, n + k1 & _MASK
    for i in range(5):
        for r in _ROTATIONS[i & 1]:
            x0 = x0 + x1 & _MASK
            x1 = (x1 << r & _MASK | x1 >> 32 - r) ^ x0
        x0 = x0 + ks[(i + 1) % 3] & _MASK
        x1 = x1 + ks[(i + 2) % 3] + i + 1 & _MASK
    return x0, x1


def bit_blocks(key: KeyLike, size: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield random words of 32 bits, block by block; the caller may overwrite a block.

    They are the hashes of the 64-bit counters 0 to `size - 1`, as `_hash_one` gives them.
    """
    k0, k1 = key_data(key).tolist()
    ks = (k0, k1, k0 ^ k1 ^ _PARITY)
    n = min(size, _BLOCK)
    x0, x1, spare = (np.empty(n, np.uint32) for _ in range(3))
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        if stop - start != n:
            n = stop - start
            x0, x1, spare = x0[:n], x1[:n], spare[:n]
        # 2**32 is a multiple of the block: all counters of a block have one high word.
        x0.fill((start >> 32) + k0 & _MASK)
        np.add(_IOTA[:n], np.uint32(start + k1 & _MASK), out=x1)
        for i in range(5):
            for r in _ROTATIONS[i & 1]:
                np.add(x0, x1, out=x0)
                np.left_shift(x1, np.uint32(r), out=spare)
                np.right_shift(x1, np.uint32(32 - r), out=x1)
                np.bitwise_or(x1, spare, out=x1)
                np.bitwise_xor(x1, x0, out=x1)
            np.add(x0, np.uint32(ks[(i + 1) % 3]), out=x0)
            np.add(x1, np.uint32(ks[(i + 2) % 3] + i + 1 & _MASK), out=x1)
        yield slice(start, stop), np.bitwise_xor(x0, x1, out=x0)


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape as a tuple of sizes, each zero or more."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise ArgumentTypeError(f"expected a shape such as (3, 4), got {shape!r}.") from None
    if any(size < 0 for size in sizes):
        raise ArgumentError(f"sizes must be at least 0, got shape {sizes}.")
    return sizes
