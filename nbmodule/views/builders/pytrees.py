"""Records of values that are no models: one array, or any PyTree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import count_noun, plain
from nbmodule.views.arrays.flattening import LeafRows, flatten
from nbmodule.views.arrays.pictures import corner_of, picture_of
from nbmodule.views.arrays.reductions import statistics_of
from nbmodule.views.arrays.values import facts_of, is_array
from nbmodule.views.builders.pictured import are_any_given, drawn_by_user
from nbmodule.views.records.records import ArrayCard, VariableTree

MEASURED_LEAVES = 200
MEASURED_ELEMENTS = 1 << 21
PICTURED_LEAVES = 24
PICTURED_ELEMENTS = 1 << 20
TEXTS = 20
"""Of an array of texts, so many rows and columns."""
EXACT_ELEMENTS = 4096
"""Elements of one array up to which its picture holds all values, 16 KiB of them."""


def array_card(x: Any, name: str = "") -> ArrayCard:
    """Make the record of one array; values that cannot be read are named, not an error.

    Example:
        >>> import numpy as np
        >>> card = array_card(np.array([[1.0, 2.0]], 'float32'))
        >>> card.dtype, card.shape, card.statistics.mean, card.corner
        ('float32', (1, 2), 1.5, (('1', '2'),))
    """
    facts = facts_of(x)
    base = ArrayCard(
        plain(name), facts.shape, facts.dtype, facts.bytes, facts.device, facts.sharding
    )
    if facts.unreadable:
        texts = corner_of(
            x, TEXTS
        )  # of an array of texts; without one there is nothing that can be read
        return dataclasses.replace(base, corner=texts, error=None if texts else facts.unreadable)
    try:
        parts: dict[str, Any] = {
            "statistics": statistics_of([x])[0],
            "picture": picture_of(x, exact=EXACT_ELEMENTS) if facts.shape else None,
            "corner": corner_of(x),
        }
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        parts = {"error": plain(f"{type(error).__name__}: {error}")}
    return dataclasses.replace(base, **parts)


def pytree_record(tree: Any, name: str = "") -> VariableTree:
    """Make the record of any PyTree; arrays that are in it twice are marked.

    Example:
        >>> import numpy as np
        >>> record = pytree_record({'a': [np.zeros(3), 'adam']}, 'state')
        >>> [(row.keys, row.kind, row.shape) for row in record.rows]
        [(('a', '0'), 'array', (3,)), (('a', '1'), 'str', None)]
    """
    rows, leaves, spelled = flatten(tree)
    root = name if name.isidentifier() else "tree"
    record = VariableTree(
        plain(name or type(tree).__name__), rows, root=root, noun="leaf", spelled=spelled
    )
    return measured(record, leaves)


def leaves_in_order(tree: object) -> list[Any]:
    """The leaves of a PyTree, one for each row of its record."""
    return flatten(tree)[1]


def measured(tree: VariableTree, leaves: Sequence[Any]) -> VariableTree:
    """Add statistics and pictures of the first leaves, as far as a fixed amount of work reaches.

    Args:
        tree: One row for each leaf.
        leaves: The values.
    """
    tree = _with_pictures_of_user(tree, leaves)
    chosen, elements = [], 0
    for i, leaf in enumerate(leaves[:MEASURED_LEAVES]):
        if (
            is_array(leaf)
            and not facts_of(leaf).unreadable
            and elements + leaf.size <= MEASURED_ELEMENTS
        ):
            chosen.append(i)
            elements += leaf.size
    if not chosen:
        return tree
    statistics = dict(zip(chosen, statistics_of([leaves[i] for i in chosen]), strict=True))
    pictures = {
        i: picture_of(leaves[i], weights=True, side=64)
        for i in chosen[:PICTURED_LEAVES]
        if 1 < leaves[i].size <= PICTURED_ELEMENTS
        and drawn_by_user(leaves[i], tree.rows[i].path) is None
    }
    rows = tree.rows
    if isinstance(rows, LeafRows):
        readable = rows.count(lambda facts: facts.shape is not None and not facts.unreadable)
        rows = rows.with_values({**rows.values, **pictures}, statistics)
    else:
        readable = sum(
            1 for row in rows if row.shape is not None and row.error is None and row.values is None
        )
        rows = list(rows)
        for i in chosen:
            rows[i] = rows[i]._replace(
                statistics=statistics[i], values=pictures.get(i, rows[i].values)
            )
    left = readable - len(chosen)
    notes = (
        (*tree.notes, f"{count_noun(left, 'array')} not measured: show one of them")
        if left
        else tree.notes
    )
    return VariableTree(**(vars(tree) | {"rows": rows, "notes": notes}))


def _with_pictures_of_user(tree: VariableTree, leaves: Sequence[Any]) -> VariableTree:
    """The tree with what a user has given for kinds or places of its first leaves; a text stands in
    the row itself.
    """
    paths = (
        [tree.rows[i].path for i in range(min(len(leaves), MEASURED_LEAVES))]
        if are_any_given()
        else []
    )
    found = {
        i: made
        for i, path in enumerate(paths)
        if (made := drawn_by_user(leaves[i], path)) is not None
    }
    if not found:
        return tree
    values = {i: made.notes[0] if made.kind == "text" else made for i, made in found.items()}
    rows = tree.rows
    if isinstance(rows, LeafRows):
        rows = rows.with_values({**rows.values, **values})
    else:
        rows = [row._replace(values=values.get(i, row.values)) for i, row in enumerate(rows)]
    return dataclasses.replace(tree, rows=rows)
