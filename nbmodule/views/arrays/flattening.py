"""The leaves of a PyTree as rows."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.core import Tracer

from nbmodule.base.format import plain
from nbmodule.views.arrays.values import metadata_of, short_value
from nbmodule.views.records.outline import outline_of_keys
from nbmodule.views.records.variables import LeafMetadata, VariableRows

_PLAIN = frozenset({str, int, float, bool, type(None)})


def flatten(tree: Any) -> tuple[VariableRows, list[Any], dict[str, str]]:
    """Flatten a PyTree; None is a leaf.

    Returns:
        The rows, the leaves, and how each step is written in Python.

    Example:
        >>> rows, leaves, spelled = flatten({"a": [np.zeros(3), "adam"]})
        >>> [(row.path, row.dtype, row.values) for row in rows]
        [('a.0', 'float64', None), ('a.1', 'str', "'adam'")]
        >>> spelled
        {'a': "['a']", '0': '[0]', '1': '[1]'}
    """
    pairs = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)[0]
    steps: dict[Any, str] = {}
    spelled: dict[str, str] = {}
    keys = []
    for path, _ in pairs:
        for key in path:
            if key not in steps:
                steps[key] = _step(key)
                spelled[steps[key]] = plain(key)
        keys.append(tuple([steps[key] for key in path]))
    if keys == [()]:
        keys, spelled = [("value",)], {"value": ""}
    leaves = [leaf for _, leaf in pairs]
    return _rows(keys, leaves), leaves, spelled


def _step(key: Any) -> str:
    """Name one step; a text of digits keeps its quotes, since items of lists are numbers."""
    value = next((getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)), key)
    return plain(value if isinstance(value, str) and not value.isdecimal() else repr(value))


def _rows(keys: list[tuple[str, ...]], leaves: list[Any]) -> VariableRows:
    metadata: list[LeafMetadata] = []
    numbered: dict[Any, int] = {}
    codes, shared, values = [], {}, {}
    first: dict[int, int] = {}
    for i, x in enumerate(leaves):
        key = _common_key(x)
        code = numbered.get(key, -1)
        if code < 0:
            code = len(metadata)
            metadata.append(metadata_of(x))
            if key is not None:
                numbered[key] = code
        codes.append(code)
        about = metadata[code]
        if about.shape is None:
            values[i] = short_value(x)
        elif about.unreadable:
            values[i] = about.unreadable
        elif not about.error and first.setdefault(id(x), i) != i:
            shared[i] = ".".join(keys[first[id(x)]])
    return VariableRows(outline_of_keys(keys), keys, metadata, codes, shared, values)


def _common_key(x: Array) -> Any:
    """Return what arrays of the same metadata share; None where each leaf is described alone."""
    cls = type(x)
    if cls is np.ndarray:
        return x.dtype, x.shape
    if _is_jax_array(cls):
        return None if x.is_deleted() else (x.dtype, x.shape, id(x.sharding))
    return cls if cls in _PLAIN else None


@functools.lru_cache(256)
def _is_jax_array(cls: type) -> bool:
    return issubclass(cls, jax.Array) and not issubclass(cls, Tracer)
