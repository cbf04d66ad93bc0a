"""Which record stands for which kind of value, and which picture: two tables that rooms above and users add to."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable
from typing import Any

import jax

from nbmodule.base.foreign import framework_of, is_foreign
from nbmodule.errors import ArgumentTypeError
from nbmodule.tree.sockets import socket
from nbmodule.views.arrays.arrays import is_array
from nbmodule.views.arrays.pictures import picture_of, text_picture
from nbmodule.views.makers.leaves import array_card, pytree_record
from nbmodule.views.records.findings import findings_of
from nbmodule.views.records.records import Finding, Note, Picture, Record, Titled

_makers: dict[type, Callable[[Any], Record]] = {}
_pictures_by_type: dict[type, Callable[[Any], Any]] = {}
_pictures_by_path: dict[str, Callable[[Any], Any]] = {}


def register_record(kind: type, maker: Callable[[Any], Record]) -> None:
    """Say how values of a type become a record; the nearest class of a value decides.

    Args:
        kind: A class; its subclasses are meant too.
        maker: `maker(value)` gives a record of `views.records`.
    """
    _makers[kind] = maker


def record_for(value: Any) -> Record:
    """Make the record of any value: what is registered for its class, else an array's, else that of a PyTree.

    Example:
        >>> import numpy as np
        >>> type(record_for(np.zeros(3))).__name__, type(record_for({'a': np.zeros(3)})).__name__
        ('ArrayCard', 'VariableTree')
    """
    if isinstance(value, Titled):
        return value
    for kind in type(value).__mro__:
        if kind in _makers:
            return _makers[kind](value)
    if is_foreign(value) and framework_of(value) != "equinox":  # whose models are trees of arrays
        return socket("as_it_stands")("show", value)
    shown = _picture_of_user(value, None)
    if is_array(value):
        card = array_card(value)
        return card if shown is None else dataclasses.replace(card, picture=shown)
    if jax.tree_util.all_leaves([value]):
        return Note(type(value).__name__, repr(value))
    return pytree_record(value)


def findings(value: Any) -> tuple[Finding, ...]:
    """List what is wrong with a value, the worst first: what the bar under the title of its view says.

    Of calls: the first that is not finite, activations that are dead, returns that grow or die with depth, modules that were not
    called. Of a model: train and eval mixed, layers that differ from their like in one setting, frozen parameters, weights that
    are equal but not shared. Of a comparison: the modules at fault. Of what is well there are none.

    Args:
        value: Anything that `nb.show` shows.

    Returns:
        Records with `text`, `path` and `kind`: 'wrong' (it is), 'doubt' (it may be) or 'note' (it may be meant so).

    Example:
        >>> import nbmodule as nb
        >>> model = nb.Sequential(nb.Linear(3, 2), nb.Linear(2, 2))
        >>> model[1].weight[0] = float("nan")
        >>> [(found.kind, found.text) for found in findings(model.v)]
        [('wrong', 'NaN 2 in 1.weight')]
    """
    return findings_of(record_for(value))


def view_for(kind: type | str, fn: Callable[[Any], Any] | None) -> None:
    """Add a picture for a kind of value: of a type, or at paths such as `blocks.*.attention`.

    Args:
        kind: A class, or a path with `*`.
        fn: `fn(value)` gives a `Picture`, an array to be drawn, or a text; None takes the picture back.

    Example:
        >>> import numpy as np
        >>> view_for('encoder.*', lambda x: x[0])
        >>> picture_for(np.zeros((2, 3)), 'encoder.mlp').shape
        (3,)
        >>> view_for('encoder.*', None)
    """
    if not isinstance(kind, type | str):
        raise ArgumentTypeError(f"view_for takes a class or a path, not {type(kind).__name__}")
    if fn is not None and not callable(fn):
        raise ArgumentTypeError(f"view_for takes a function of one value, not {type(fn).__name__}")
    table: dict[Any, Any] = _pictures_by_type if isinstance(kind, type) else _pictures_by_path
    if fn is None:
        table.pop(kind, None)
    else:
        table[kind] = fn


def picture_for(value: Any, path: str | None = None, **options: Any) -> Picture:
    """Draw a value: what a user added for its path or its class, else what suits an array; a failure is drawn as text.

    Args:
        value: Anything.
        path: Where it was found.
        options: Passed to `picture_of`.
    """
    try:
        return _picture_of_user(value, path) or picture_of(value, **options)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return text_picture(type(value).__name__, f"could not be drawn: {type(error).__name__}: {error}")


def _picture_of_user(value: object, path: str | None) -> Picture | None:
    fn = next(
        (f for pattern, f in _pictures_by_path.items() if path is not None and fnmatch.fnmatchcase(path, pattern)), None
    )
    fn = fn or next((_pictures_by_type[kind] for kind in type(value).__mro__ if kind in _pictures_by_type), None)
    if fn is None:
        return None
    try:
        made = fn(value)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return text_picture(type(value).__name__, f"view_for raised {type(error).__name__}: {error}")
    if isinstance(made, Picture):
        return made
    return text_picture(type(value).__name__, made) if isinstance(made, str) else picture_of(made)
