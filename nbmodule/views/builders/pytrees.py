"""Records of any value: builders by class, to which the packages above add, records of arrays and
PyTrees, and what users add to them: pictures, labels, colors.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from nbmodule.base.foreign import framework_of, is_foreign
from nbmodule.base.format import count_noun, plain
from nbmodule.base.paths import entry_of
from nbmodule.base.sockets import socket
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.views.arrays.pictures import corner_of, picture_of, text_picture
from nbmodule.views.arrays.values import is_array_like, metadata_of, short_value, statistics_of
from nbmodule.views.records.findings import findings_of
from nbmodule.views.records.records import (
    ArrayCard,
    Finding,
    ModuleTree,
    Note,
    Picture,
    VariableRow,
    VariableTree,
    ViewRecord,
    mapped_pictures,
)

_makers: dict[type, Callable[[Any], ViewRecord]] = {}


def register_record(cls: type, maker: Callable[[Any], ViewRecord]) -> None:
    """Say how values of a type become a record; the nearest class of a value decides.

    Args:
        cls: A class; its subclasses are included.
        maker: `maker(value)` gives a record of `views.records`.
    """
    _makers[cls] = maker


def record_for(value: object) -> ViewRecord:
    """Make the record of any value: what is registered for its class, else an array's, else that of
    a PyTree.

    Example:
        >>> import numpy as np
        >>> type(record_for(np.zeros(3))).__name__, type(record_for({"a": np.zeros(3)})).__name__
        ('ArrayCard', 'VariableTree')
    """
    if isinstance(value, ViewRecord):
        return value
    shown = drawn_by_user(value)
    if is_array_like(value):
        card = array_card(value)
        return card if shown is None else dataclasses.replace(card, picture=shown)
    if shown is not None:
        return ArrayCard(type(value).__name__, picture=shown)
    for cls in type(value).__mro__:
        if cls in _makers:
            return _makers[cls](value)
    if is_foreign(value):
        record = socket("native_verb")("show", value)
        # Equinox has no mode of its own: layers have an argument `inference`.
        is_equinox = framework_of(value) == "equinox"
        return dataclasses.replace(record, mode="") if is_equinox else record
    if jax.tree_util.all_leaves([value]):
        return Note(type(value).__name__, repr(value))
    return pytree_record(value)


def findings(value: object) -> tuple[Finding, ...]:
    """List what is wrong with a value, the worst first: what the bar under the title of its view
    says.

    Of calls: the first that is not finite, activations that are dead, returns that grow or die with
    depth, modules that were not called. Of a model: train and eval mixed, layers that differ from
    their like in one setting, frozen parameters, weights that are equal but not shared. Of a
    comparison: the modules at fault. Of what is well there are none.

    Args:
        value: Anything that `nb.show` shows.

    Returns:
        Records with `text`, `path` and `kind`: 'wrong' (it is), 'doubt' (it may be) or 'note' (it
        may be meant so).

    Example:
        >>> import nbmodule as nb
        >>> model = nb.Sequential(nb.Linear(3, 2), nb.Linear(2, 2))
        >>> model[1].weight[0] = float("nan")
        >>> [(found.kind, found.text) for found in findings(model.v)]
        [('wrong', 'NaN 2 in 1.weight')]
    """
    return findings_of(record_for(value))


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
    card = ArrayCard(plain(name), *about[2:7])
    reason = about.value or about.error
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
        row = metadata_of(x)._replace(path=".".join(keys[i]), keys=keys[i])
        if row.shape is None:
            row = row._replace(value=short_value(x))
        elif row.is_readable and first.setdefault(id(x), i) != i:
            row = row._replace(shared_with=".".join(keys[first[id(x)]]))
        rows.append(row)
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


_pictures_by_type: dict[type, Callable[[Any], Any]] = {}
_pictures_by_path: dict[str, Callable[[Any], Any]] = {}


def view_for(kind: type | str, fn: Callable[[Any], Any] | None) -> None:
    """Add a picture for a kind of value: of a type, or at paths such as `blocks.*.attention`.

    It is drawn wherever such a value is shown: by itself, as the last value of a cell or by
    `nb.show`; as a leaf of a tree; as what a submodule returned.

    Args:
        kind: A class, or a path with `*`.
        fn: `fn(value)` gives a `Picture`, an array to be drawn, or a text; None takes the picture
            back.

    Example:
        >>> import numpy as np
        >>> view_for("encoder.*", lambda x: x[0])
        >>> picture_for(np.zeros((2, 3)), "encoder.mlp").shape
        (3,)
        >>> view_for("encoder.*", None)
    """
    if not isinstance(kind, type | str):
        raise ArgumentTypeError(f"view_for takes a class or a path, got {type(kind).__name__}")
    if fn is not None and not callable(fn):
        raise ArgumentTypeError(f"view_for takes a function of one value, got {type(fn).__name__}")
    table: dict[Any, Any] = _pictures_by_type if isinstance(kind, type) else _pictures_by_path
    if fn is None:
        table.pop(kind, None)
    else:
        table[kind] = fn


def picture_for(value: Any, path: str | None = None, **options: Any) -> Picture:
    """Draw a value: what a user added for its path or its class, else what suits an array; a
    failure is drawn as text.

    Args:
        value: Anything.
        path: Where it was found.
        options: Passed to `picture_of`.
    """
    try:
        return drawn_by_user(value, path) or picture_of(value, **options)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        reason = f"could not be drawn: {type(error).__name__}: {error}"
        return text_picture(type(value).__name__, reason)


def has_pictures() -> bool:
    """Return True if a user has registered a picture."""
    return bool(_pictures_by_type or _pictures_by_path)


def drawn_by_user(value: object, path: str | None = None) -> Picture | None:
    """The picture of a value that a user has given for its path or its class; None where there is
    none.
    """
    by_path = (f for glob, f in _pictures_by_path.items() if fnmatch.fnmatchcase(path or "", glob))
    classes = (cls for cls in type(value).__mro__ if cls in _pictures_by_type)
    fn = None if path is None else next(by_path, None)
    fn = fn or next((_pictures_by_type[cls] for cls in classes), None)
    if fn is None:
        return None
    name = type(value).__name__
    try:
        drawn = fn(value)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return text_picture(name, f"view_for raised {type(error).__name__}: {error}")
    if isinstance(drawn, Picture):
        return drawn
    return text_picture(name, drawn) if isinstance(drawn, str) else picture_of(drawn)


# -- what a reader adds to a record --
def with_labels(record: ViewRecord, labels: Sequence[str]) -> ViewRecord:
    """Write names at every picture that has as many bars, rows or columns.

    Args:
        record: Any record.
        labels: Names of classes or tokens.

    Returns:
        The record; where no picture fits it says so.

    Example:
        >>> import numpy as np
        >>> from nbmodule.views.builders.pytrees import array_card
        >>> with_labels(array_card(np.zeros(2)), ["cat", "dog"]).picture.labels
        ('cat', 'dog')
    """
    names = tuple(plain(name, 40) for name in labels)
    has_fitted = False

    def labeled(picture: Picture) -> Picture:
        nonlocal has_fitted
        is_reduced = any(note.startswith("mean of") for note in picture.notes)
        sizes = picture.shape if picture.kind == "bars" else picture.shape[1:]
        if picture.kind == "text" or is_reduced or len(names) not in sizes:
            return picture
        has_fitted = True
        return picture._replace(labels=names)

    record = mapped_pictures(record, labeled)
    if has_fitted or not names:
        return record
    count = count_noun(len(names), "label")
    note = f"{count} given, but no picture has as many bars, rows or columns"
    return dataclasses.replace(record, notes=(*record.notes, note))


def with_colors(record: ViewRecord, color: Mapping[str, float]) -> ViewRecord:
    """Tint the rows of a tree by a number for each path.

    Raises:
        ArgumentError: if a path is not in the tree, or the record is no tree.
    """
    if not color:
        return record
    if not isinstance(record, ModuleTree | VariableTree):
        raise ArgumentError(f"color= applies to the rows of a tree, got {type(record).__name__}.")
    if isinstance(record, VariableTree):
        names = {name for row in record.rows for name in row.spellings}
    else:
        names = {row.path for row in record.rows}
    unknown = [path for path in color if path not in names]
    if unknown:
        near = ", ".join(sorted(names - {""})[:3])
        raise ArgumentError(
            f"color= names {plain(unknown[0])!r}, which is not in the tree; the tree has {near}."
        )
    return dataclasses.replace(
        record, color={path: float(number) for path, number in color.items()}
    )
