"""The leaves of a PyTree as rows."""

from __future__ import annotations

from typing import Any

import jax

from nbmodule.base.format import plain
from nbmodule.views.arrays.values import metadata_of, short_value
from nbmodule.views.records.variables import VariableRow


def flatten(tree: Any) -> tuple[list[VariableRow], list[Any], dict[str, str]]:
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


def _rows(keys: list[tuple[str, ...]], leaves: list[Any]) -> list[VariableRow]:
    rows, first = [], {}
    for i, x in enumerate(leaves):
        about, shared, value = metadata_of(x), None, None
        if about.shape is None:
            value = short_value(x)
        elif about.unreadable:
            value = about.unreadable
        elif not about.error and first.setdefault(id(x), i) != i:
            shared = ".".join(keys[first[id(x)]])
        path, error = ".".join(keys[i]), about.error
        more = (False, shared, None, value, error, keys[i])
        rows.append(VariableRow(path, "", *about[:6], *more))
    return rows
