"""The views of `nb.what_if`, `nb.sweep` and `nb.attribute`: what was tried, what it changes, where
it matters.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nbmodule.base.format import format_number, plain
from nbmodule.base.notebook import names_of_notebook
from nbmodule.base.paths import hint
from nbmodule.base.sockets import socket
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentError
from nbmodule.interventions.attribute import Attribution
from nbmodule.interventions.edit import first_line, scalars_of
from nbmodule.interventions.patch import watched_at
from nbmodule.interventions.run import first_array
from nbmodule.interventions.sweep import Sweep
from nbmodule.interventions.targets import heads_of, names_of
from nbmodule.interventions.what_if import WhatIf
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.builders.registry import register_record
from nbmodule.views.records.records import Picture, ViewRecord
from nbmodule.views.renderers.columns import number, picture_payload
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.payload import common, payload_of
from nbmodule.views.renderers.plain_text import lines_of
from nbmodule.views.renderers.static import body_of
from nbmodule.views.renderers.titles import title_parts

if TYPE_CHECKING:
    from jax import Array


MOST_PARTS = 200


def parts_for(what_if: WhatIf) -> dict[str, Any]:
    """Return by name what can be put somewhere: functions that make a layer, then modules and
    classes of the notebook.
    """
    names = names_of_notebook().items()
    named = {name: value for name, value in names if _is_part(name, value, what_if)}
    return dict(list({**socket("between")(), **named}.items())[:MOST_PARTS])


def _is_part(name: str, value: object, what_if: WhatIf) -> bool:
    """Return True for a class of modules, and for a module outside the inspected model."""
    if name.startswith("_"):
        return False
    if isinstance(value, type):
        return issubclass(value, CoreModule) and value is not CoreModule
    if not is_module(value):
        return False
    return what_if.run.model not in (value, *plan_of(value).modules)


def part_for(
    what_if: WhatIf, name: str, path: str, method: str, is_after: bool
) -> tuple[Any, str | None]:
    """Return a module for a place by its name, and how it is written in code; None where its text
    says it.

    A layer or class is given the numbers of features that the place is given and returns.

    Raises:
        ArgumentError: there is no such name, or its class takes other arguments.
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
    if isinstance(part, type):
        return _built(part, name, (inputs, outputs))
    return part(inputs, outputs), None


def _features(what_if: WhatIf, path: str) -> tuple[int, int]:
    """Return the number of features that a module is given, and that it returns, on the input."""
    run = what_if.current
    module = names_of(run.model).get(path)
    if module is None:
        raise ArgumentError(f'{what_if.name} has no submodule "{path}".')
    met = watched_at(run.model, None, run.args, {(module, True), (module, False)}, run.kwargs)
    if not met:
        raise ArgumentError(f'"{path}" did not run on this input.')
    return _channels(module, met[module, True][0]), _channels(module, met[module, False][0])


def _channels(module: Any, values: object) -> int:
    x = first_array(values, module)
    layout = vars(module).get("data_format")
    axis = layout.index("C") if layout and "C" in layout and len(layout) == x.ndim else -1
    return x.shape[axis] if x.ndim else 1


def _built(cls: type, name: str, sizes: tuple[int, int]) -> tuple[Any, str]:
    """Return a module of a class of the notebook, given as many sizes as it requires."""
    required = [p for p in inspect.signature(cls).parameters.values() if p.default is p.empty]
    given = sizes[: len(required)]
    code = f"{name}({', '.join(map(str, given))})"
    try:
        return cls(*given), code
    except Exception as error:
        raise ArgumentError(
            f"{code} could not be made: {first_line(error)}. Make one in a cell, as in "
            f"part = {name}(...), and choose it by that name."
        ) from error


MOST_CELLS = 4096
MOST_ROWS = 400
MOST_PLACES = 2000


class TriedRow(NamedTuple):
    """One setting: where, what, and whether it is on."""

    path: str
    part: str
    words: str
    kind: str
    number: float
    on: bool


class PlaceRow(NamedTuple):
    """A place that can be set, with how many heads, channels, units and tokens it has; 0 where it
    has none.
    """

    path: str
    heads: int = 0
    channels: int = 0
    units: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class SweepRecord(ViewRecord):
    """A heat map: what each place changes.

    Attributes:
        cells: None where a module has no such part.
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    over: str = ""
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttributionRecord(ViewRecord):
    """The inputs and modules that an output comes from."""

    name: str
    picture: Picture | None
    rows: tuple[tuple[str, float], ...]
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class WhatIfRecord(ViewRecord):
    """The settings that were tried, and what they change.

    Attributes:
        attributes: Of each place the numbers, texts and flags that can be set.
        parts: Parts that can be put in the place of a module, or beside it, by name.
    """

    name: str
    tried: tuple[TriedRow, ...] = ()
    rows: tuple[tuple[str, float], ...] = ()
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    places: tuple[PlaceRow, ...] = ()
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    edits: tuple[str, ...] = ()
    code: str = ""
    noun: str = ""
    sweep: SweepRecord | None = None
    attribution: AttributionRecord | None = None
    parts: tuple[str, ...] = ()
    can_undo: bool = False
    can_keep: bool = False
    text: tuple[str, ...] = ()


def sweep_record(sweep: Sweep) -> SweepRecord:
    """Make the record of a sweep.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
        >>> record = sweep_record(nb.sweep(model, jnp.ones((1, 3)), "units", only="0", metric=0))
        >>> record.rows, record.columns
        (('0',), ('0', '1', '2', '3'))
    """
    most = max(1, MOST_CELLS // max(1, len(sweep.rows)))
    more = len(sweep.columns) - most
    notes = (f"{more} columns left out: see .values",) if more > 0 else ()
    cells = tuple(
        tuple(float(x) if sweep.has(r, c) else None for c, x in enumerate(row[:most]))
        for r, row in enumerate(sweep.shown_values)
    )
    return SweepRecord(
        sweep.name,
        sweep.rows,
        sweep.columns[:most],
        cells,
        sweep.over,
        tuple(repr(sweep).split("\n")),
        title=sweep.facts,
        notes=notes,
    )


def attribution_record(attribution: Attribution) -> AttributionRecord:
    """Make the record of an attribution: the picture of the input, and modules by how much they
    matter.
    """
    rows = tuple(sorted(attribution.modules.items(), key=lambda entry: -abs(entry[1])))[:MOST_ROWS]
    picture, notes, x = None, list(attribution.notes), attribution.inputs
    if x is not None:
        picture = picture_of(_first(x), labels=attribution.labels)
        if x.ndim > 1 and x.shape[0] > 1:
            notes.append(f"the picture is of the first of {x.shape[0]}")
    text = tuple(repr(attribution).split("\n"))
    return AttributionRecord(
        attribution.name, picture, rows, text, title=attribution.facts, notes=tuple(notes)
    )


def _first(x: np.ndarray) -> np.ndarray:
    """The first entry along the rows; an image without its one channel."""
    x = x[0] if x.ndim > 1 else x
    return x[..., 0] if x.ndim == 3 and x.shape[-1] == 1 else x


def what_if_record(what_if: WhatIf) -> WhatIfRecord:
    """Make the record of what was tried.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> record = what_if_record(nb.what_if(model, jnp.ones((1, 3)), {"0": nb.zero()}, metric=0))
        >>> record.tried[0].words, record.rows[1]
        ('set to zero', ('0', 1.0))
    """
    result, is_changed = what_if.result, bool(what_if.tried or what_if.edited)
    title = [what_if.name]
    if result.metric_before is not None and result.metric_after is not None:
        before, after = map(format_number, (result.metric_before, result.metric_after))
        title.append(f"{what_if.noun} {before} → {after}")
    title.append(f"{len(what_if.tried)} tried" if is_changed else "nothing is changed")
    outputs = {"before": result.before, "after": result.after, "difference": result.difference}
    outputs = {name: _shown(x) for name, x in outputs.items() if is_changed or name == "before"}
    limits = _limits(list(outputs.values()))
    count = result.before.shape[0] if result.before.ndim > 2 else 1
    return WhatIfRecord(
        what_if.name,
        tuple(_tried(entry) for entry in what_if.tried),
        tuple(result.changes.items())[:MOST_PLACES],
        {name: picture_of(x, limits=limits) for name, x in outputs.items()},
        _places(what_if),
        attributes_of(names_of(what_if.current.model)),
        tuple(what_if.edit_code.splitlines()),
        what_if.code,
        what_if.noun,
        None if what_if.swept is None else sweep_record(what_if.swept),
        None if what_if.attributed is None else attribution_record(what_if.attributed),
        tuple(parts_for(what_if)),
        bool(what_if.can_undo),
        bool(what_if.edited or any(e.on for e in what_if.tried)),
        tuple(repr(what_if).split("\n")),
        title=tuple(title),
        notes=(f"outputs are those of the first of {count}",) if count > 1 else (),
    )


def _tried(entry: Any) -> TriedRow:
    at = entry.setting
    return TriedRow(entry.where, at.where, at.words, at.kind, at.number, entry.on)


def _limits(arrays: list[np.ndarray]) -> tuple[float, float] | None:
    """One scale for all three pictures, so that the same color is the same number."""
    finite = [np.abs(x[np.isfinite(x)]) for x in arrays if np.issubdtype(x.dtype, np.floating)]
    largest = max((float(x.max()) for x in finite if x.size), default=0.0)
    return (-largest, largest) if largest else None


def _shown(x: np.ndarray) -> np.ndarray:
    return x[0] if x.ndim > 2 or (x.ndim == 2 and x.shape[0] == 1) else x


def _places(what_if: WhatIf) -> tuple[PlaceRow, ...]:
    run = what_if.current
    named = names_of(run.model)
    returns = list(run.before.returns.items())[:MOST_PLACES]
    return tuple(PlaceRow(p, *counts_of(named[p], x)) for p, x in returns if p in named)


def attributes_of(modules: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The numbers, texts and flags that can be set, of each module that has some, by path."""
    scalars = {path: scalars_of(module) for path, module in list(modules.items())[:MOST_PLACES]}
    shown = {
        path: {plain(name): value for name, value in values.items() if value is not None}
        for path, values in scalars.items()
    }
    return {path: values for path, values in shown.items() if values}


def counts_of(module: object, x: Array) -> tuple[int, int, int, int]:
    """Heads, channels, units and tokens of what a module returned."""
    layout = vars(module).get("data_format")
    channels = x.shape[layout.index("C")] if layout and x.ndim == len(layout) else 0
    units, tokens = x.shape[-1] if x.ndim else 0, x.shape[-2] if x.ndim > 2 and not channels else 0
    return heads_of(module)[0], channels, 0 if channels else units, tokens


# -- forms --
Intervention = SweepRecord | AttributionRecord | WhatIfRecord


def _title(record: Intervention) -> list[str]:
    return [plain(record.name)]


def _lines(record: Intervention, width: int, color: bool) -> list[str]:
    return [line[: max(width, 20)] for line in record.text[1:]]


def _static(record: Intervention) -> Markup:
    return tag("pre", "\n".join(record.text))


for kind in (SweepRecord, AttributionRecord, WhatIfRecord):
    title_parts.register(kind)(_title)
    lines_of.register(kind, _lines)
    body_of.register(kind)(_static)


def _scalar(value: Any) -> Any:
    """A number that JSON cannot hold is written out."""
    if isinstance(value, str):
        return plain(value, 200)
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


@payload_of.register
def _(record: SweepRecord) -> dict[str, Any]:
    return common(record, "sweep", code="nb.sweep(model, x, ...)") | {
        "rows": [plain(row) for row in record.rows],
        "columns": [plain(column) for column in record.columns],
        "cells": [[None if x is None else number(x) for x in row] for row in record.cells],
        "over": record.over,
    }


@payload_of.register
def _(record: AttributionRecord) -> dict[str, Any]:
    return common(record, "attribution", code="nb.attribute(model, x, ...)") | {
        "rows": [[plain(path), number(x)] for path, x in record.rows],
        "picture": None if record.picture is None else picture_payload(record.picture),
    }


@payload_of.register
def _(record: WhatIfRecord) -> dict[str, Any]:
    return common(record, "what_if", code=record.code) | {
        "root": plain(record.name),
        "tried": [
            [*map(plain, tried[:3]), tried.kind, number(tried.number), tried.on]
            for tried in record.tried
        ],
        "rows": [[plain(path), number(x)] for path, x in record.rows],
        "pictures": {name: picture_payload(picture) for name, picture in record.pictures.items()},
        "places": [[plain(path), *counts] for path, *counts in record.places],
        "attributes": {
            plain(path): {name: _scalar(v) for name, v in values.items()}
            for path, values in record.attributes.items()
        },
        "parts": [plain(name) for name in record.parts],
        "edits": [plain(line, 200) for line in record.edits],
        "noun": plain(record.noun),
        "sweep": None if record.sweep is None else payload_of(record.sweep),
        "attribution": None if record.attribution is None else payload_of(record.attribution),
        "can": {"undo": record.can_undo, "keep": record.can_keep},
    }


register_record(Sweep, sweep_record)
register_record(Attribution, attribution_record)
register_record(WhatIf, what_if_record)
