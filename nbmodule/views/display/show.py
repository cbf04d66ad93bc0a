"""Puts a value on the screen in the form that the place can show: a text, or text and HTML side by
side.

A display never breaks the cell: a part that fails is shown as its error, in its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from nbmodule.base.format import plain
from nbmodule.base.interpreter import collector_paused
from nbmodule.base.notebook import names_of_notebook, running_kernel, running_shell
from nbmodule.errors import ArgumentError
from nbmodule.tree.container import Container
from nbmodule.views.arrays.values import is_array_like
from nbmodule.views.builders.modules import module_of
from nbmodule.views.builders.pytrees import record_for, with_colors, with_labels
from nbmodule.views.comm.live_views import live_views
from nbmodule.views.records.records import Note, VariableTree, ViewRecord
from nbmodule.views.renderers.html import data_text, view_element
from nbmodule.views.renderers.payload import fitted, payload_of
from nbmodule.views.renderers.plain_text import capped_text_of, text_of, title_of
from nbmodule.views.renderers.static import plain_form_of
from nbmodule.views.renderers.text_layout import terminal_width

FORMS = ("auto", "static", "text")


def show(
    value: object,
    form: str | None = None,
    *,
    labels: Sequence[str] = (),
    color: Mapping[str, float] | None = None,
) -> None:
    """Display any value: a model, its variables, calls, an array, any PyTree.

    Args:
        value: Anything.
        form: 'static' (HTML and text), 'text', or 'auto', which is HTML in a notebook, joined to
            its kernel, and text elsewhere. By default what the environment variable
            `NBMODULE_DISPLAY` says, else 'auto'.
        labels: Names of classes or tokens: they stand at every picture with as many bars, rows or
            columns.
        color: A number for paths of a tree; its rows are tinted by them.

    Raises:
        ArgumentError: if there is no such form, or `color` names a path that is not there.

    Example:
        >>> import numpy as np
        >>> show({"a": np.zeros(3, "float32")}, form="text")
        dict  1 leaf  12 B  all finite
        └─ a  float32[3]  12 B  █▁▁▁▁▁▁▁  0 ± 0  <- zeros
    """
    form = chosen_form(form)
    record = value
    if labels or color:
        record = with_colors(with_labels(record_for(value), tuple(map(str, labels))), color or {})
    if form == "text" or (form == "auto" and not in_notebook()):
        text = printed(record)
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding))
        return
    if record is value and hasattr(type(value), "_ipython_display_"):
        show_in_place(value, form)
        return
    from IPython.display import display

    display(_bundle(value, record, form)[0], raw=True)


_outputs: weakref.WeakKeyDictionary[Any, tuple[Any, str | None]] = weakref.WeakKeyDictionary()


def show_in_place(value: object, form: str | None = None) -> None:
    """Display a value in an output that `renew` can write again, as the value is by then."""
    from IPython.display import display

    bundle, key = _bundle(value, value, chosen_form(form))
    _outputs[value] = display(bundle, raw=True, display_id=True), key


def renew(value: object) -> bool:
    """Write the last output of a value again, as the value is now; False if it has none."""
    if value not in _outputs:
        return False
    handle, key = _outputs[value]
    handle.update(_bundle(value, value, "static", key)[0], raw=True)
    return True


def printed(value: object) -> str:
    """Give the text that `show` prints."""
    return _guarded(value, lambda record: text_of(record, width=terminal_width()))


def chosen_form(form: str | None = None) -> str:
    """Give the form that is asked for, by argument or by `NBMODULE_DISPLAY`."""
    chosen = form or os.environ.get("NBMODULE_DISPLAY") or "auto"
    if chosen not in FORMS:
        where = "form" if form else "NBMODULE_DISPLAY"
        raise ArgumentError(f"{where} is {chosen!r}: expected one of {', '.join(FORMS)}.")
    return chosen


def mimebundle(value: object) -> dict[str, str]:
    """Give a value as `text/plain` and `text/html`, for `_repr_mimebundle_`.

    Example:
        >>> import numpy as np
        >>> sorted(mimebundle(np.zeros(3)))
        ['text/html', 'text/plain']
    """
    return _bundle(value, value, chosen_form())[0]


def _bundle(
    value: object, shown: object, form: str, key: str | None = None
) -> tuple[dict[str, str], str | None]:
    """Give the forms of a value that is shown as it is, or by its record, and the key under which
    a page in a live notebook asks the kernel: that of an earlier output, or a new one.
    """
    if shown is value and form != "text" and hasattr(type(value), "_draws_itself"):
        return cast("Any", value)._repr_mimebundle_(), None
    # A hundred thousand new rows would set the collector off again and again.
    with collector_paused():
        record = _record(shown, value)
        bundle = {"text/plain": _guarded(record, capped_text_of)}
        if form != "text":
            html, key = _html(record, value if form == "auto" else None, key)
            # A plain `str`: marimo writes a class derived from it as an empty object.
            bundle["text/html"] = str(html)
    return bundle, key


def _record(shown: object, value: object) -> ViewRecord:
    """Make a record with its title, which reads every row, for all forms."""
    try:
        record = named(record_for(shown), value)
        return dataclasses.replace(record, title=tuple(title_of(record)))
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return _failure(value, error)


def named(record: ViewRecord, value: object) -> ViewRecord:
    """Write copied code with the name that the value has in the notebook, where it has one."""
    root, names = getattr(record, "root", ""), names_of_notebook()
    name = _name_of(value, names) if root else None
    if name is None and root and isinstance(value, Container):
        owner = _name_of(module_of(value), names)
        name = owner and f"{owner}.v"
    if name is None:
        return record
    whole = isinstance(record, VariableTree) or root.startswith("nb.")
    stem = root if whole else re.split(r"[.\[]", root)[0]
    return dataclasses.replace(record, root=name + root[len(stem) :])  # type: ignore[call-arg]


def _name_of(value: object, names: Mapping[str, Any]) -> str | None:
    """Return the first name of a value that a reader gave it."""
    given = (n for n, other in list(names.items()) if other is value and not n.startswith("_"))
    return None if value is None else next(given, None)


def html_of(value: object) -> str:
    """Give a value as HTML that stands alone: no request, no other file."""
    return _bundle(value, value, "static")[0]["text/html"]


def _html(record: ViewRecord, value: object, key: str | None) -> tuple[str, str | None]:
    """Write the HTML of a record, and give the key under which a page asks about the value."""
    try:
        whole, record = record, fitted(record)
        data, form = payload_of(record), plain_form_of(record)
        text = data_text(data)
        if key is None and value is not None:
            with contextlib.suppress(Exception):  # a view that cannot be asked for more is a view
                views = live_views()
                key = None if views is None else views.admit(value, whole, text)
        return view_element(data["view"], text, form, key), key
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        note = _failure(record, error)
        return view_element("note", data_text(payload_of(note)), plain_form_of(note)), None


def _guarded(value: object, form: Callable[[ViewRecord], str]) -> str:
    try:
        return form(record_for(value))
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return text_of(_failure(value, error), color=False)


def _failure(value: object, error: Exception) -> Note:
    name = plain(getattr(value, "name", None) or type(value).__name__)
    reason = f"{type(error).__name__}: {plain(str(error), 500)}"
    return Note(name, f"could not be displayed: {reason}", is_error=True)


def in_notebook() -> bool:
    """Return True if output goes to a notebook, rather than to a terminal or a log."""
    return running_kernel() is not None


def display_all(on: bool = True) -> None:
    """Show every array and every PyTree of arrays that ends a cell of this notebook in the way of
    `show`.

    Args:
        on: False gives the usual text back.
    """
    shell = running_shell()
    if shell is None:
        return
    formatter = shell.display_formatter.mimebundle_formatter
    for cls in (type(jax.numpy.zeros(0)), np.ndarray, dict, list, tuple):
        if on:
            formatter.for_type(cls, _bundle_if_array)
        else:
            formatter.pop(cls, None)


def _bundle_if_array(value: object, **_: object) -> dict[str, str] | None:
    has_arrays = any(is_array_like(leaf) for leaf in jax.tree.leaves(value))
    return mimebundle(value) if has_arrays else None
