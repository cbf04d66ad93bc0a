"""The leaves of a PyTree as columns, found in one walk: a tree of 100,000 leaves makes no object
for each of them.

What arrays of one type and place have in common is worked out once and named by its number. A row
is made when somebody reads it, which for a large tree is the rows in view.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import jax
import numpy as np
from jax import Array
from jax.core import Tracer

from nbmodule.base.format import plain
from nbmodule.views.arrays.values import Facts, facts_of, short_value
from nbmodule.views.records.outline import Outline, group_neighbors, join_levels
from nbmodule.views.records.records import ShownStatistics, VariableRow

_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, eq=False)
class LeafRows(Sequence[VariableRow]):
    """The rows of a PyTree.

    Attributes:
        outline: The lines of the tree, levels included.
        names: For each row its own step.
        above: For each row the steps to it.
        facts: What may be said of leaves without reading them, each once.
        codes: For each row which of the facts is its own.
        shared: Rows that hold the array of an earlier row, and which.
        values: Short values of leaves that are no arrays, and pictures, by row.
        statistics: By row, of those that were measured.
    """

    outline: Outline
    names: list[str]
    above: list[tuple[str, ...]]
    facts: list[Facts]
    codes: list[int]
    shared: Mapping[int, int]
    values: Mapping[int, Any]
    statistics: Mapping[int, ShownStatistics | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    def keys(self, i: int) -> tuple[str, ...]:
        """The steps from the root to a row."""
        return (*self.above[i], self.names[i])

    @overload
    def __getitem__(self, i: int) -> VariableRow: ...
    @overload
    def __getitem__(self, i: slice) -> list[VariableRow]: ...
    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        facts, keys, first = self.facts[self.codes[i]], self.keys(i), self.shared.get(i)
        return VariableRow(
            ".".join(keys),
            "",
            facts.kind,
            facts.shape,
            facts.dtype,
            facts.bytes,
            facts.device,
            facts.sharding,
            False,
            None if first is None else ".".join(self.keys(first)),
            self.statistics.get(i),
            self.values.get(i),
            facts.unreadable if facts.is_lost else None,
            keys,
        )

    def __iter__(self) -> Iterator[VariableRow]:
        return (self[i] for i in range(len(self)))

    def with_values(
        self, values: Mapping[int, Any], statistics: Mapping[int, Any] | None = None
    ) -> LeafRows:
        """The same rows with other short values and pictures, and with more statistics if any are
        given.
        """
        return replace(self, values=values, statistics={**self.statistics, **(statistics or {})})

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, each counted once."""
        sizes = [facts.bytes for facts in self.facts]
        return sum([sizes[code] for code in self.codes]) - sum(
            sizes[self.codes[i]] for i in self.shared
        )

    def count(self, is_meant: Any) -> int:
        """How many rows have facts for which `is_meant` holds."""
        meant = [bool(is_meant(facts)) for facts in self.facts]
        return sum([meant[code] for code in self.codes])

    @functools.cached_property
    def grouped(self) -> Outline:
        """The lines with neighbors of one structure folded into one, and levels that hold one level
        joined with it.
        """
        alike = [
            (f.kind, f.shape, f.dtype, f.unreadable if f.is_lost else None) for f in self.facts
        ]
        signatures = [None if r < 0 else alike[self.codes[r]] for r in self.outline.row]
        return join_levels(group_neighbors(self.outline, signatures, leaves=False, longest=1))


def flatten(tree: Any) -> tuple[LeafRows, list[Any], dict[str, str]]:
    """Walk a PyTree once.

    Args:
        tree: Any PyTree; None is a leaf. Mappings whose keys have no order are walked as they
            stand.

    Returns:
        The rows, the leaves, and how each step is written in Python.

    Example:
        >>> rows, leaves, spelled = flatten({"a": [np.zeros(3), "adam"]})
        >>> [(row.path, row.dtype, row.values) for row in rows], spelled
        ([('a.0', 'float64', None), ('a.1', 'str', "'adam'")], {'a': "['a']", '0': '[0]', '1': '[1]'})
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
        self.above: list[tuple[str, ...]] = []
        self.leaves: list[Any] = []
        self.codes: list[int] = []
        self.facts: list[Facts] = []
        self.holds: list[bool] = []
        self.spelled: dict[str, str] = {}
        self.steps: dict[Any, str] = {}
        self.nodes: dict[type, bool] = {
            dict: True,
            list: True,
            tuple: True,
            type(None): False,
            np.ndarray: False,
        }
        self.numbered: dict[Any, int] = {}
        self.first: dict[int, int] = {}
        self.shared: dict[int, int] = {}
        self.values: dict[int, Any] = {}

    def rows(self) -> LeafRows:
        return LeafRows(
            self.outline, self.names, self.above, self.facts, self.codes, self.shared, self.values
        )

    def is_node(self, x: object) -> bool:
        kind = type(x)
        known = self.nodes.get(kind)
        if known is None:
            known = self.nodes[kind] = not jax.tree_util.all_leaves([x])
        return known

    def items(self, x: Any) -> Iterable[tuple[Any, Any]]:
        """The children of a node, each with its key: a text, a number, or a key of JAX."""
        kind = type(x)
        if kind is dict:
            try:
                return [(key, x[key]) for key in sorted(x)]
            except TypeError:
                return x.items()
        if kind is list or kind is tuple:
            return enumerate(x)
        try:
            return [
                (path[0], child)
                for path, child in jax.tree_util.tree_flatten_with_path(x, lambda y: y is not x)[0]
            ]
        except (TypeError, ValueError):  # a mapping of another kind whose keys have no order
            if isinstance(x, Mapping):
                return x.items()
            raise

    def level(self, items: Iterable[tuple[Any, Any]], depth: int, above: tuple[str, ...]) -> None:
        """Add what is below one node; leaves that stand beside each other are added together."""
        nodes, steps, outline = self.nodes, self.steps, self.outline
        names: list[str] = []
        run: list[Any] = []
        for key, child in items:
            name = steps.get(key) if type(key) is str else None
            if name is None:
                name = self.step(key)
            known = nodes.get(type(child))
            if known is None:
                known = self.is_node(child)
            if not known:
                names.append(name)
                run.append(child)
                continue
            if run:
                self.add(run, names, depth, above)
                names, run = [], []
            at = len(outline)
            outline.append(depth, name, -1)
            self.level(self.items(child), depth + 1, (*above, name))
            if len(outline) == at + 1:  # nothing is below it
                del outline.depth[at:], outline.label[at:], outline.row[at:]
        if run:
            self.add(run, names, depth, above)

    def add(self, run: list[Any], names: list[str], depth: int, above: tuple[str, ...]) -> None:
        """Add leaves of one node."""
        start, n = len(self.leaves), len(run)
        self.outline.depth.extend([depth] * n)
        self.outline.label.extend(names)
        self.outline.row.extend(range(start, start + n))
        self.leaves.extend(run)
        self.names.extend(names)
        self.above.extend([above] * n)
        numbered, codes, holds, first = self.numbered, self.codes, self.holds, self.first
        for i, x in enumerate(run, start):
            key = _key(x)
            code = numbered.get(key, -1)
            if code < 0:
                code = self.ask(x, key)
            codes.append(code)
            if not holds[code]:
                self.describe(i, x, self.facts[code])
            elif first.setdefault(id(x), i) != i:
                self.shared[i] = first[id(x)]

    def ask(self, x: object, key: object) -> int:
        """Say what a leaf is; give the number of that."""
        facts = facts_of(x)
        self.facts.append(facts)
        self.holds.append(facts.shape is not None and facts.unreadable is None)
        if key is not None:
            self.numbered[key] = len(self.facts) - 1
        return len(self.facts) - 1

    def describe(self, i: int, x: object, facts: Facts) -> None:
        """Write what stands in place of numbers."""
        if facts.shape is None:
            self.values[i] = short_value(x)
        elif not facts.is_lost:
            self.values[i] = facts.unreadable

    def step(self, key: object) -> str:
        """Name one step; a text that looks like a number keeps its quotes, since items of lists are
        numbers too.
        """
        value, code = key, None
        for name in ("key", "idx", "name"):
            if type(key) not in (str, int) and hasattr(key, name):
                value = getattr(key, name)
                code = plain(key)
                break
        label = (
            plain(value) if isinstance(value, str) and not value.isdecimal() else plain(repr(value))
        )
        if type(key) is str:
            self.steps[key] = label
        self.spelled[label] = code if code is not None else plain(f"[{key!r}]")
        return label


def _key(x: Array) -> Any:
    """What arrays of the same facts have in common; None where each leaf is asked by itself."""
    kind = type(x)
    if kind is np.ndarray:
        return x.dtype, x.shape
    if _is_array_of_jax(kind):
        return None if x.is_deleted() else (x.dtype, x.shape, id(x.sharding))
    return kind if kind in _PLAIN else None


@functools.lru_cache(256)
def _is_array_of_jax(kind: type) -> bool:
    return issubclass(kind, jax.Array) and not issubclass(kind, Tracer)
