"""Records of values that are no models: one array, or any PyTree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from nbmodule.base.format import count_noun, plain
from nbmodule.base.paths import entry_of
from nbmodule.views.arrays.pictures import corner_of, picture_of
from nbmodule.views.arrays.values import metadata_of, short_value, statistics_of
from nbmodule.views.builders.pictured import drawn_by_user, has_pictures
from nbmodule.views.records.records import ArrayCard, VariableRow, VariableTree

MEASURED_LEAVES = 200
MEASURED_ELEMENTS = 1 << 21
PICTURED_LEAVES = 24
PICTURED_ELEMENTS = 1 << 20
# Of an array of texts, so many rows and columns.
TEXTS = 20
# Elements of one array up to which its picture holds all values, 16 KiB of them.
EXACT_ELEMENTS = 4096


def array_card(x: Any, name: str = "") -> ArrayCard:
    """Create the record of one array; values that cannot be read are named, not an error.

    Example:
        >>> import numpy as np
        >>> card = array_card(np.array([[1.0, 2.0]], "float32"))
        >>> card.dtype, card.shape, card.statistics.mean, card.corner
        ('float32', (1, 2), 1.5, (('1', '2'),))
    """
    about = metadata_of(x)
    card = ArrayCard(plain(name), *about[1:6])
    reason = about.unreadable or about.error
    if reason:
        texts = corner_of(x, TEXTS)  # of an array of texts
        return dataclasses.replace(card, corner=texts, error=None if texts else reason)
    return dataclasses.replace(
        card,
        statistics=statistics_of([x])[0],
        picture=picture_of(x, exact=EXACT_ELEMENTS) if about.shape else None,
        corner=corner_of(x),
    )


def pytree_record(tree: object, name: str = "") -> VariableTree:
    """Create the record of any PyTree; arrays that occur twice are marked.

    Example:
        >>> import numpy as np
        >>> record = pytree_record({"a": [np.zeros(3), "adam"]}, "state")
        >>> [(row.keys, row.kind, row.shape) for row in record.rows]
        [(('a', '0'), 'array', (3,)), (('a', '1'), 'str', None)]
    """
    rows, leaves, spelled = flatten(tree)
    root = name if name.isidentifier() else "tree"
    title = plain(name or type(tree).__name__)
    return measured(VariableTree(title, rows, root=root, noun="leaf", spelled=spelled), leaves)


def flatten(tree: object) -> tuple[list[VariableRow], list[Any], dict[str, str]]:
    """Flatten a PyTree; None is a leaf.

    Returns:
        The rows, the leaves, and how each step is written in Python.

    Example:
        >>> rows, leaves, spelled = flatten({"a": [np.zeros(3), "adam"]})
        >>> [(row.path, row.dtype, row.value) for row in rows]
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


def _step(key: object) -> str:
    """Name one step; a text of digits keeps its quotes, since items of lists are numbers."""
    value = entry_of(key)
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
        path, more = ".".join(keys[i]), {"error": about.error, "keys": keys[i]}
        rows.append(VariableRow(path, *about[:6], shared_with=shared, value=value, **more))
    return rows


def measured(tree: VariableTree, leaves: Sequence[Any]) -> VariableTree:
    """Add statistics and pictures of the first leaves, up to a fixed amount of work.

    Args:
        tree: One row for each leaf.
        leaves: The values.
    """
    rows = list(tree.rows)
    missing = sum(row.is_readable for row in rows)
    first = range(min(len(leaves), MEASURED_LEAVES))
    drawn = {i: drawn_by_user(leaves[i], rows[i].path) for i in first} if has_pictures() else {}
    for i, picture in drawn.items():
        if picture is not None:
            is_text = picture.kind == "text"
            shown: Any = {"value": picture.notes[0]} if is_text else {"pictures": (picture,)}
            rows[i] = rows[i]._replace(**shown)
    chosen, elements = [], 0
    for i in first:
        if metadata_of(leaves[i]).is_readable and elements + leaves[i].size <= MEASURED_ELEMENTS:
            chosen.append(i)
            elements += leaves[i].size
    for i, stats in zip(chosen, statistics_of([leaves[i] for i in chosen]), strict=True):
        rows[i] = rows[i]._replace(statistics=stats)
    for i in chosen[:PICTURED_LEAVES]:
        if 1 < leaves[i].size <= PICTURED_ELEMENTS and drawn.get(i) is None:
            rows[i] = rows[i]._replace(pictures=(picture_of(leaves[i], weights=True, side=64),))
    missing -= len(chosen)
    note = f"{count_noun(missing, 'array')} not measured: show one of them"
    notes = (*tree.notes, note) if missing and chosen else tree.notes
    return dataclasses.replace(tree, rows=rows, notes=notes)
