"""Random trees of everything that a file can hold, and an equality that looks at every bit."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from nbmodule.errors import FileFormatError
from nbmodule.files import read

_SMALL = (
    "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz float8_e8m0fnu int4 uint4"
)
DTYPES = [np.dtype(name) for name in "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()]
DTYPES += [np.dtype(getattr(ml_dtypes, name)) for name in _SMALL.split()]
BITS = {"int4": 4, "uint4": 4, "bool": 1}


def equal(a: Any, b: Any) -> bool:
    """Whether two trees are the same to the last bit, kinds of leaves included; a JAX array equals
    a NumPy array.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (jax.Array, np.ndarray)) and isinstance(b, (jax.Array, np.ndarray)):
        if isinstance(a.dtype, np.dtype):
            x, y = np.asarray(a), np.asarray(b)
            return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        return a.dtype == b.dtype and equal(*map(jax.random.key_data, (a, b)))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def refused(path: Path, message: str) -> str:
    """Read a file, which must be refused with this message; return the whole message."""
    with pytest.raises(FileFormatError, match=message) as caught:
        read(path)
    return str(caught.value)


def array_of(dtype: np.dtype, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Any bits that are a value of the dtype, NaN and infinities among them."""
    rng, bits = np.random.default_rng(seed), BITS.get(dtype.name)
    if bits is None:
        row = rng.integers(0, 256, prod(shape) * dtype.itemsize, np.uint8)
        return row.view(dtype).reshape(shape)
    values = np.asarray(rng.integers(0, 1 << bits, shape, np.uint8))
    if dtype.name.startswith("int"):
        return np.asarray(values.astype(np.int8) - np.int8(1 << (bits - 1))).astype(dtype)
    return values.astype(dtype) if dtype.name.startswith("uint") else values.view(dtype)


shapes = st.one_of(
    st.sampled_from([(), (0,), (1,), (0, 3), (2, 0, 5)]),
    st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    st.sampled_from([(700,), (40, 40), (3, 1, 300)]),
)
arrays = st.builds(array_of, st.sampled_from(DTYPES), shapes, st.integers(0, 999))
one_key = st.builds(
    lambda seed, impl: jax.random.key(seed, impl=impl),
    st.integers(0, 99),
    st.sampled_from(["threefry2x32", "rbg"]),
)
keys = one_key | one_key.map(lambda key: jax.random.split(key, 3))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(exclude_categories=[])),
)
names = st.one_of(
    st.sampled_from(["w", "b", "linear0", "v0", "v10", "", ".", "..", "/", "a/b", "é", "\0"]),
    st.sampled_from(["%", "%2F", "%u1234", "__buffers__", "__packed__", "__metadata__"]),
    st.text(st.characters(exclude_categories=[]), max_size=8),
)
trees = st.recursive(
    st.dictionaries(names, st.one_of(arrays, arrays, scalars, keys), max_size=5),
    lambda inner: st.dictionaries(names, st.one_of(arrays, inner), max_size=4),
    max_leaves=8,
)
