"""The leaves of a PyTree as rows, found in one walk."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.core import Tracer

from nbmodule.base.format import plain
from nbmodule.views.arrays.values import metadata_of, short_value
from nbmodule.views.records.outline import Outline
from nbmodule.views.records.variables import LeafMetadata, VariableRows

_PLAIN = frozenset({str, int, float, bool, type(None)})


def flatten(tree: Any) -> tuple[VariableRows, list[Any], dict[str, str]]:
    """Walk a PyTree once.

    Args:
        tree: Any PyTree; None is a leaf. Mappings whose keys have no order are walked in their own.

    Returns:
        The rows, the leaves, and how each step is written in Python.

    Example:
        >>> rows, leaves, spelled = flatten({"a": [np.zeros(3), "adam"]})
        >>> [(row.path, row.dtype, row.values) for row in rows]
        [('a.0', 'float64', None), ('a.1', 'str', "'adam'")]
        >>> spelled
        {'a': "['a']", '0': '[0]', '1': '[1]'}
    """
    walk = _Walk()
    if walk.is_node(tree):
        walk.level(walk.items(tree), 0, ())
    else:
        walk.add([tree], ["value"], 0, ())
        walk.spelled = {"value": ""}
    return walk.rows(), walk.leaves, walk.spelled


class _Walk:
    def __init__(self) -> None:
        self.outline = Outline()
        self.names: list[str] = []
        self.levels: list[tuple[str, ...]] = []
        self.leaves: list[Any] = []
        self.codes: list[int] = []
        self.metadata: list[LeafMetadata] = []
        self.spelled: dict[str, str] = {}
        self.steps: dict[Any, str] = {}
        self.nodes: dict[type, bool] = {
            **dict.fromkeys((dict, list, tuple), True),
            **dict.fromkeys((type(None), np.ndarray), False),
        }
        self.numbered: dict[Any, int] = {}
        self.first: dict[int, int] = {}
        self.shared: dict[int, int] = {}
        self.values: dict[int, Any] = {}

    def rows(self) -> VariableRows:
        def path(i: int) -> str:
            return ".".join((*self.levels[i], self.names[i]))

        return VariableRows(
            self.outline,
            self.names,
            self.levels,
            self.metadata,
            self.codes,
            {i: path(first) for i, first in self.shared.items()},
            self.values,
        )

    def is_node(self, x: object) -> bool:
        is_node = self.nodes.get(type(x))
        if is_node is None:
            is_node = self.nodes[type(x)] = not jax.tree_util.all_leaves([x])
        return is_node

    def items(self, x: Any) -> Iterable[tuple[Any, Any]]:
        """Return the children of a node, each with its key: a text, a number, or a key of JAX."""
        if type(x) is dict:
            try:
                return [(key, x[key]) for key in sorted(x)]
            except TypeError:
                return x.items()
        if type(x) in (list, tuple):
            return enumerate(x)
        try:
            children = jax.tree_util.tree_flatten_with_path(x, lambda y: y is not x)[0]
        except (TypeError, ValueError):  # a mapping of another type whose keys have no order
            if isinstance(x, Mapping):
                return x.items()
            raise
        return [(path[0], child) for path, child in children]

    def level(self, items: Iterable[tuple[Any, Any]], depth: int, steps: tuple[str, ...]) -> None:
        """Add what is under one node; neighboring leaves are added together."""
        nodes, labels, outline = self.nodes, self.steps, self.outline
        names: list[str] = []
        run: list[Any] = []
        for key, child in items:
            name = labels.get(key) if type(key) is str else None
            if name is None:
                name = self.step(key)
            is_node = nodes.get(type(child))
            if is_node is None:
                is_node = self.is_node(child)
            if not is_node:
                names.append(name)
                run.append(child)
                continue
            if run:
                self.add(run, names, depth, steps)
                names, run = [], []
            at = len(outline)
            outline.append(depth, name, -1)
            self.level(self.items(child), depth + 1, (*steps, name))
            if len(outline) == at + 1:  # the node is empty
                del outline.depth[at:], outline.label[at:], outline.row[at:]
        if run:
            self.add(run, names, depth, steps)

    def add(self, run: list[Any], names: list[str], depth: int, steps: tuple[str, ...]) -> None:
        """Add leaves of one node."""
        start, n = len(self.leaves), len(run)
        self.outline.depth.extend([depth] * n)
        self.outline.label.extend(names)
        self.outline.row.extend(range(start, start + n))
        self.leaves.extend(run)
        self.names.extend(names)
        self.levels.extend([steps] * n)
        numbered, codes, first = self.numbered, self.codes, self.first
        for i, x in enumerate(run, start):
            key = _key(x)
            code = numbered.get(key, -1)
            if code < 0:
                code = len(self.metadata)
                self.metadata.append(metadata_of(x))
                if key is not None:
                    numbered[key] = code
            codes.append(code)
            about = self.metadata[code]
            if about.shape is None:
                self.values[i] = short_value(x)
            elif about.unreadable:
                self.values[i] = about.unreadable
            elif not about.error and first.setdefault(id(x), i) != i:
                self.shared[i] = first[id(x)]

    def step(self, key: object) -> str:
        """Name one step; a text of digits keeps its quotes, since items of lists are numbers."""
        value, code = key, plain(f"[{key!r}]")
        for name in ("key", "idx", "name"):
            if type(key) not in (str, int) and hasattr(key, name):
                value, code = getattr(key, name), plain(key)
                break
        is_word = isinstance(value, str) and not value.isdecimal()
        label = plain(value if is_word else repr(value))
        if type(key) is str:
            self.steps[key] = label
        self.spelled[label] = code
        return label


def _key(x: Array) -> Any:
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
