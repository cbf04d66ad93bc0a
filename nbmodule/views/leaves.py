"""Records of values that are no models: one array, or any PyTree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from nbmodule.views.arrays import Facts, facts_of, is_array, short_value
from nbmodule.views.format import count_noun, plain
from nbmodule.views.pictures import corner_of, picture_of
from nbmodule.views.records import ArrayCard, VariableRow, VariableTree
from nbmodule.views.statistics import statistics_of

MEASURED_LEAVES = 200
MEASURED_ELEMENTS = 1 << 21
PICTURED_LEAVES = 24
PICTURED_ELEMENTS = 1 << 20


def array_card(x: Any, name: str = "", *, labels: Sequence[str] = (), weights: bool = False) -> ArrayCard:
    """Make the record of one array; values that cannot be read are named, not an error.

    Example:
        >>> import numpy as np
        >>> card = array_card(np.array([[1.0, 2.0]], 'float32'))
        >>> card.dtype, card.shape, card.statistics.mean, card.corner
        ('float32', (1, 2), 1.5, (('1', '2'),))
    """
    facts = facts_of(x)
    base = ArrayCard(plain(name), facts.shape, facts.dtype, facts.bytes, facts.device, facts.sharding)
    if facts.unreadable:
        return ArrayCard(**(vars(base) | {"error": facts.unreadable}))
    try:
        parts = {
            "statistics": statistics_of([x])[0],
            "picture": picture_of(x, labels=labels, weights=weights),
            "corner": corner_of(x),
        }
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        parts = {"error": plain(f"{type(error).__name__}: {error}")}
    return ArrayCard(**(vars(base) | parts))


def pytree_record(tree: Any, name: str = "", *, is_leaf: Any = None) -> VariableTree:
    """Make the record of any PyTree; arrays that are in it twice are marked.

    Example:
        >>> import numpy as np
        >>> record = pytree_record({'a': [np.zeros(3), 'adam']}, 'state')
        >>> [(row.keys, row.kind, row.shape) for row in record.rows]
        [(('a', '0'), 'array', (3,)), (('a', '1'), 'str', None)]
    """
    is_leaf = is_leaf or (lambda x: x is None)
    try:
        pairs, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)
    except ValueError:  # JAX refuses dicts whose keys have no order, such as 1 beside "a"
        pairs = list(_pairs_in_order(tree, is_leaf))
    rows, spelled = _rows(pairs)
    root = name if name.isidentifier() else "tree"
    record = VariableTree(plain(name or type(tree).__name__), rows, root=root, noun="leaf", spelled=spelled)
    return measured(record, [leaf for _, leaf in pairs])


def _pairs_in_order(tree: Any, is_leaf: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Flatten nested dicts, lists and tuples in the order in which they hold their values."""
    if type(tree) is dict and not is_leaf(tree):
        for key, value in tree.items():
            yield from _pairs_in_order(value, is_leaf, (*path, jax.tree_util.DictKey(key)))
    elif type(tree) in (list, tuple) and not is_leaf(tree):
        for i, value in enumerate(tree):
            yield from _pairs_in_order(value, is_leaf, (*path, jax.tree_util.SequenceKey(i)))
    else:
        for below, value in jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)[0]:
            yield (*path, *below), value


def _rows(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[VariableRow], dict[str, str]]:
    """One row for each leaf, and how each step is written in Python."""
    steps: dict[Any, str] = {}
    first: dict[int, str] = {}
    known: dict[Any, Any] = {}
    rows = []
    for path, leaf in pairs:
        keys = tuple([steps[k] if k in steps else steps.setdefault(k, _step(k)) for k in path]) or ("value",)
        facts = _facts(leaf, known)
        dotted = ".".join(keys)
        shared = value = None
        if facts.shape is None:
            value = short_value(leaf)
        elif facts.unreadable and not facts.is_lost:
            value = facts.unreadable
        elif first.setdefault(id(leaf), dotted) != dotted:
            shared = first[id(leaf)]
        rows.append(
            VariableRow(
                dotted, "", facts.kind, facts.shape, facts.dtype, facts.bytes, facts.device, facts.sharding, False,
                shared, None, value, facts.unreadable if facts.is_lost else None, keys,
            )
        )  # fmt: skip
    return rows, {label: plain(k) for k, label in steps.items()} or {"value": ""}


def _step(key: Any) -> str:
    """Name one step; a text key that looks like a number keeps its quotes, since list items are numbers too."""
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            value = getattr(key, name)
            return plain(value) if isinstance(value, str) and not value.isdecimal() else plain(repr(value))
    return plain(key)


def _facts(leaf: Any, known: dict[Any, Any]) -> Facts:
    """Look arrays of one type and place up rather than asking each again; the tree keeps the shardings alive."""
    plain_array = known.get(type(leaf))
    if plain_array is None:
        kind = type(leaf)
        known[kind] = plain_array = issubclass(kind, jax.Array) and not issubclass(kind, jax.core.Tracer)
    if not plain_array or leaf.is_deleted():
        return facts_of(leaf)
    kind = (leaf.shape, leaf.dtype, id(leaf.sharding))
    facts = known.get(kind)
    if facts is None:
        facts = known[kind] = facts_of(leaf)
    return facts


def measured(tree: VariableTree, leaves: Sequence[Any]) -> VariableTree:
    """Add statistics and pictures of the first leaves, as far as a fixed amount of work reaches.

    Args:
        tree: One row for each leaf.
        leaves: The values.
    """
    chosen, elements = [], 0
    for i, leaf in enumerate(leaves[:MEASURED_LEAVES]):
        if is_array(leaf) and not facts_of(leaf).unreadable and elements + leaf.size <= MEASURED_ELEMENTS:
            chosen.append(i)
            elements += leaf.size
    if not chosen:
        return tree
    rows = list(tree.rows)
    for i, stats in zip(chosen, statistics_of([leaves[i] for i in chosen]), strict=True):
        rows[i] = rows[i]._replace(statistics=stats)
    for i in chosen[:PICTURED_LEAVES]:
        if leaves[i].size <= PICTURED_ELEMENTS and leaves[i].size > 1:
            rows[i] = rows[i]._replace(values=picture_of(leaves[i], weights=True, side=64))
    readable = sum(1 for row in tree.rows if row.shape is not None and row.error is None and row.values is None)
    left = readable - len(chosen)
    notes = (*tree.notes, f"{count_noun(left, 'array')} not measured: show one of them") if left else tree.notes
    return VariableTree(**(vars(tree) | {"rows": rows, "notes": notes}))
