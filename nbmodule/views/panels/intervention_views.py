"""The views of `nb.what_if`, `nb.sweep` and `nb.attribute`: what was tried, what it changes, where
it matters.

A page asks its kernel to try, turn, switch, sweep, attribute, edit, undo or keep; each request is
answered by what to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from nbmodule.base.format import format_number, plain
from nbmodule.base.notebook import names_of_notebook
from nbmodule.base.paths import hint
from nbmodule.base.sockets import socket
from nbmodule.calls.call import Call
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentError
from nbmodule.interventions.attribute import Attribution
from nbmodule.interventions.edit import scalars_of
from nbmodule.interventions.patch import record_at
from nbmodule.interventions.run import first_array
from nbmodule.interventions.sweep import Sweep
from nbmodule.interventions.targets import heads_of, names_of
from nbmodule.interventions.values import KINDS, Setting
from nbmodule.interventions.what_if import EDITS, WhatIf, separate_keys
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.builders.pytrees import register_record
from nbmodule.views.builders.tracked import shared_limits
from nbmodule.views.comm.sources import WeakSource, drawn, register_source
from nbmodule.views.records.records import ViewRecord
from nbmodule.views.renderers.columns import number, picture_payload
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.payload import common, payload_of
from nbmodule.views.renderers.plain_text import lines_of
from nbmodule.views.renderers.static import body_of

if TYPE_CHECKING:
    from jax import Array


MOST_PARTS = 200


def parts_for(what_if: WhatIf) -> dict[str, Any]:
    """Return the parts that can be inserted, by name: functions that make a layer, then modules of
    the notebook.
    """
    names = names_of_notebook().items()
    named = {name: value for name, value in names if _is_part(name, value, what_if)}
    return dict(list({**socket("insertable_layers")(), **named}.items())[:MOST_PARTS])


def _is_part(name: str, value: object, what_if: WhatIf) -> bool:
    """Return True for a module outside the inspected model."""
    if name.startswith("_") or not is_module(value):
        return False
    return what_if.run.model not in (value, *plan_of(value).modules)


def part_for(
    what_if: WhatIf, name: str, path: str, method: str, is_after: bool
) -> tuple[Any, str | None]:
    """Return a module for a place by its name, and how it is written in code; None where its text
    says it.

    A layer is made with the numbers of features that the place is given and returns.

    Raises:
        ArgumentError: there is no such name.
    """
    parts = parts_for(what_if)
    if name not in parts:
        raise ArgumentError(f"there is no module {name!r} to put there{hint(name, list(parts))}")
    part = parts[name]
    if is_module(part):
        return part, name
    inputs, outputs = _features(what_if, path)
    if is_after:
        inputs = outputs
    elif method != "replace":
        outputs = inputs
    return part(inputs, outputs), None


def _features(what_if: WhatIf, path: str) -> tuple[int, int]:
    """Return the number of features that a module is given, and that it returns, on the input."""
    run = what_if.current
    module = names_of(run.model).get(path)
    if module is None:
        raise ArgumentError(f'{what_if.name} has no submodule "{path}".')
    met = record_at(run.model, None, run.args, {(module, True), (module, False)}, run.kwargs)
    if not met:
        raise ArgumentError(f'"{path}" did not run on this input.')
    sizes = []
    for is_input in (True, False):
        _, channels, units, _ = counts_of(module, first_array(met[module, is_input][0], module))
        sizes.append(channels or units or 1)
    return sizes[0], sizes[1]


MOST_CELLS = 4096
MOST_ROWS = 400
MOST_PLACES = 2000


@dataclass(frozen=True)
class InterventionRecord(ViewRecord):
    """A what-if, a sweep or an attribution.

    Attributes:
        view: Name of the view.
        data: Fields of the page, without title and notes.
        text: As it is printed.
        code: The call that makes it.
    """

    name: str
    view: str
    data: Mapping[str, Any]
    text: tuple[str, ...] = ()
    code: str = ""


def sweep_record(sweep: Sweep) -> InterventionRecord:
    """Make the record of a sweep: a heat map, None where a module has no such part.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
        >>> record = sweep_record(nb.sweep(model, jnp.ones((1, 3)), "units", only="0", metric=0))
        >>> record.data["rows"], record.data["columns"]
        (['0'], ['0', '1', '2', '3'])
    """
    most = max(1, MOST_CELLS // max(1, len(sweep.rows)))
    more = len(sweep.columns) - most
    data = {
        "rows": list(map(plain, sweep.rows)),
        "columns": list(map(plain, sweep.columns[:most])),
        "cells": [
            [number(x) if sweep.has(r, c) else None for c, x in enumerate(row[:most])]
            for r, row in enumerate(sweep.shown_values)
        ],
        "over": sweep.over,
    }
    return InterventionRecord(
        sweep.name,
        "sweep",
        data,
        _lines_of(sweep),
        "nb.sweep(model, x, ...)",
        title=sweep.facts,
        notes=(f"{more} columns left out: see .values",) if more > 0 else (),
    )


def attribution_record(attribution: Attribution) -> InterventionRecord:
    """Make the record of an attribution: the picture of the input, and modules by how much they
    matter.
    """
    rows = sorted(attribution.modules.items(), key=lambda entry: -abs(entry[1]))[:MOST_ROWS]
    picture, notes, x = None, list(attribution.notes), attribution.inputs
    if x is not None:
        picture = picture_payload(picture_of(_first(x), labels=attribution.labels))
        if x.ndim > 1 and x.shape[0] > 1:
            notes.append(f"the picture is of the first of {x.shape[0]}")
    return InterventionRecord(
        attribution.name,
        "attribution",
        {"rows": _numbers(rows), "picture": picture},
        _lines_of(attribution),
        "nb.attribute(model, x, ...)",
        title=attribution.facts,
        notes=tuple(notes),
    )


def _lines_of(value: object) -> tuple[str, ...]:
    return tuple(repr(value).split("\n"))


def _numbers(rows: Iterable[tuple[str, float]]) -> list[list[Any]]:
    return [[plain(path), number(x)] for path, x in rows]


def _first(x: np.ndarray) -> np.ndarray:
    """The first entry along the rows; an image without its one channel."""
    x = x[0] if x.ndim > 1 else x
    return x[..., 0] if x.ndim == 3 and x.shape[-1] == 1 else x


def untried_record(name: str, calls: Iterable[Call]) -> InterventionRecord:
    """Make the record of a what-if of calls that ran, before anything was tried."""
    calls = [call for call in calls if call.kind == "call"]
    modules = {call.path: call.module for call in calls if call.module is not None}
    places = dict.fromkeys((plain(call.path), *_counts_of_call(call)) for call in calls)
    data = {
        **dict.fromkeys(("tried", "rows", "edits", "parts"), ()),
        **dict.fromkeys(("sweep", "attribution")),
        "root": plain(name),
        "pictures": {},
        "places": list(places),
        "attributes": attributes_of(modules),
        "noun": "",
        "can": {"undo": False, "keep": False},
    }
    title = (name, "nothing is changed: choose a place and a setting")
    return InterventionRecord(name, "what_if", data, code="y = model(x)", title=title)


def _counts_of_call(call: Call) -> tuple[int, int, int, int]:
    leaves = [] if call.error else jax.tree.leaves(call.returns)
    x = next((leaf for leaf in leaves if getattr(leaf, "ndim", 0)), None)
    return (0, 0, 0, 0) if x is None or call.module is None else counts_of(call.module, x)


def what_if_record(what_if: WhatIf) -> InterventionRecord:
    """Make the record of what was tried, and what it changes.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> record = what_if_record(nb.what_if(model, jnp.ones((1, 3)), {"0": nb.zero()}, metric=0))
        >>> record.data["tried"][0][2], record.data["rows"][1]
        ('set to zero', ['0', 1])
    """
    result, is_changed = what_if.result, bool(what_if.tried or what_if.edited)
    modules = names_of(what_if.current.model)
    title = [what_if.name]
    if result.metric_before is not None and result.metric_after is not None:
        before, after = map(format_number, (result.metric_before, result.metric_after))
        title.append(f"{what_if.run.noun} {before} → {after}")
    title.append(f"{len(what_if.tried)} tried" if is_changed else "nothing is changed")
    outputs = {"before": result.before, "after": result.after, "difference": result.difference}
    outputs = {name: _shown(x) for name, x in outputs.items() if is_changed or name == "before"}
    limits = shared_limits(*outputs.values())
    count = result.before.shape[0] if result.before.ndim > 2 else 1
    returns = list(what_if.current.before.returns.items())[:MOST_PLACES]
    swept, attributed = what_if.swept, what_if.attributed
    data = {
        "root": plain(what_if.name),
        "tried": list(map(_tried, what_if.tried)),
        "rows": _numbers(list(result.changes.items())[:MOST_PLACES]),
        "pictures": {
            name: picture_payload(picture_of(x, limits=limits)) for name, x in outputs.items()
        },
        "places": [[plain(p), *counts_of(modules[p], x)] for p, x in returns if p in modules],
        "attributes": attributes_of(modules),
        "parts": list(map(plain, parts_for(what_if))),
        "edits": [plain(line, 200) for line in what_if.edit_code.splitlines()],
        "noun": plain(what_if.run.noun),
        "sweep": None if swept is None else payload_of(sweep_record(swept)),
        "attribution": None if attributed is None else payload_of(attribution_record(attributed)),
        "can": {
            "undo": bool(what_if.can_undo),
            "keep": bool(what_if.edited or any(entry.on for entry in what_if.tried)),
        },
    }
    return InterventionRecord(
        what_if.name,
        "what_if",
        data,
        _lines_of(what_if),
        what_if.code,
        title=tuple(title),
        notes=(f"outputs are those of the first of {count}",) if count > 1 else (),
    )


def _tried(entry: Any) -> list[Any]:
    """Write where, what, and whether it is on."""
    at = entry.setting
    words = map(plain, (entry.where, at.where, at.words))
    return [*words, at.kind, number(at.number), entry.on]


def _shown(x: np.ndarray) -> np.ndarray:
    return x[0] if x.ndim > 2 or (x.ndim == 2 and x.shape[0] == 1) else x


def attributes_of(modules: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The numbers, texts and flags that can be set, of each module that has some, by path."""
    shown = {
        plain(path): {
            plain(name): _scalar(value)
            for name, value in scalars_of(module).items()
            if value is not None
        }
        for path, module in list(modules.items())[:MOST_PLACES]
    }
    return {path: values for path, values in shown.items() if values}


def _scalar(value: object) -> Any:
    """A number that JSON cannot hold is written out."""
    if isinstance(value, str):
        return plain(value, 200)
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


def counts_of(module: object, x: Array) -> tuple[int, int, int, int]:
    """Heads, channels, units and tokens of what a module returned."""
    layout = vars(module).get("data_format")
    channels = x.shape[layout.index("C")] if layout and x.ndim == len(layout) else 0
    units, tokens = x.shape[-1] if x.ndim else 0, x.shape[-2] if x.ndim > 2 and not channels else 0
    return heads_of(module)[0], channels, 0 if channels else units, tokens


# -- forms --
@lines_of.register(InterventionRecord)
def _lines(record: InterventionRecord, width: int, color: bool, limit: int | None) -> list[str]:
    return [line[: max(width, 20)] for line in record.text[1:]]


@body_of.register
def _(record: InterventionRecord) -> Markup:
    return tag("pre", "\n".join(record.text))


@payload_of.register
def _(record: InterventionRecord) -> dict[str, Any]:
    return common(record, record.view, code=record.code) | dict(record.data)


register_record(Sweep, sweep_record)
register_record(Attribution, attribution_record)
register_record(WhatIf, what_if_record)


# -- requests of the page --
DEFAULTS = {"scale": 0.5, "noise": 0.1}


class TrySource(WeakSource):
    """Applies the requests of a page to the what-if of a value."""

    def what_if(self) -> WhatIf:
        """Return the what-if."""
        return self.value()

    def answer(self, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        if kind not in ACTS:
            return super().answer(kind, message)
        what_if = self.what_if()
        ACTS[kind](what_if, message)
        return drawn(what_if_record(what_if))

    def ask_settle(self, message: dict[str, Any]) -> dict[str, Any]:
        """The hand has left the picture: the output that is saved with the notebook becomes what
        was tried last.
        """
        from nbmodule.views.display.show import renew

        return {"renewed": renew(self.value())}


class WhatIfSource(TrySource):
    """A what-if."""

    noun = "what-if"

    def has_changed(self) -> bool:
        what_if = self._value()
        return what_if is not None and what_if.has_changed

    def record(self) -> InterventionRecord:
        return what_if_record(self.value())


def _add(what_if: WhatIf, message: dict[str, Any]) -> None:
    kind = str(message.get("what"))
    if kind not in KINDS:
        raise ArgumentError(f"a page asked to set a place to {kind!r}, which is not known")
    part, index = str(message.get("part") or ""), message.get("index")
    parts = ((part, (int(index or 0),)),) if part else ()
    path, number = str(message.get("path", "")), message.get("number")
    if kind == "example":
        row = int(number or 0)
        more: Any = {"example": what_if.run.row(row), "example_name": f"x[{row}:{row + 1}]"}
    else:
        more = {"number": DEFAULTS.get(kind, 1.0) if number is None else float(number)}
    what_if.add({path: Setting(kind, parts, **more)})


def _edit(what_if: WhatIf, message: dict[str, Any]) -> None:
    method, path = str(message.get("method")), str(message.get("path", ""))
    if method not in EDITS:
        raise ArgumentError(f"a page asked for the edit {method!r}, which is not known")
    if method in ("replace", "insert"):
        is_after = bool(message.get("after"))
        with separate_keys():
            part, said = part_for(what_if, str(message.get("by")), path, method, is_after)
        what_if.edit(method, _after(path) if is_after else path, part, said)
    else:
        names = {"share": ["by"], "set": ["name", "value"]}.get(method, [])
        what_if.edit(method, path, *[message.get(name) for name in names])


def _after(path: str) -> str:
    """The place behind one in a list."""
    parent, _, last = path.rpartition(".")
    if not last.isdigit():
        raise ArgumentError(f'"{path}" stands in no list, so that nothing can be put after it.')
    return f"{parent}.{int(last) + 1}" if parent else str(int(last) + 1)


ACTS: dict[str, Callable[[WhatIf, dict[str, Any]], Any]] = {
    "add": _add,
    "turn": lambda what_if, m: what_if.turn(int(m["at"]), float(m["number"])),
    "switch": lambda what_if, m: what_if.switch(int(m["at"]), bool(m["on"])),
    "drop": lambda what_if, m: what_if.drop(int(m["at"])),
    "look_at": lambda what_if, m: what_if.look_at(int(m["index"])),
    "sweep": lambda what_if, m: what_if.sweep(
        str(m["over"]), only=str(m.get("only") or "") or None
    ),
    "attribute": lambda what_if, m: what_if.attribute(str(m.get("method", "gradient"))),
    "edit": _edit,
    "undo": lambda what_if, _: what_if.undo(),
    "keep": lambda what_if, _: what_if.keep(),
}


register_source(WhatIf, WhatIfSource)
