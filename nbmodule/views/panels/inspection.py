"""`nb.inspect`: modules, calls, returns and the graph of one call in one panel, under one
selection.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import count_noun, format_bytes, plain, printable_repr
from nbmodule.base.sockets import Shown, socket
from nbmodule.calls.call import Call
from nbmodule.calls.calls import Calls
from nbmodule.calls.recorder import Recorder
from nbmodule.calls.reduction import reduce_tree
from nbmodule.errors import ArgumentTypeError, PathError
from nbmodule.graphs import Graph, headline
from nbmodule.interventions.run import Run
from nbmodule.interventions.what_if import WhatIf, WhatIfResult
from nbmodule.views.builders.modules import Lines
from nbmodule.views.builders.pytrees import record_for, register_record
from nbmodule.views.builders.tracked import call_table, pictures_at
from nbmodule.views.comm.retention import BUDGET, keep_view, moved_to_host
from nbmodule.views.comm.sources import ValueGone, register_source
from nbmodule.views.panels.graph_view import GraphRecord
from nbmodule.views.panels.inspected_run import ModelRun, NoModules, Parts, parts_of
from nbmodule.views.panels.intervention_views import (
    InterventionRecord,
    TrySource,
    untried_record,
    what_if_record,
)
from nbmodule.views.records.findings import derived, findings_of
from nbmodule.views.records.records import CallTable, Finding, ModuleTree, Note, ViewRecord
from nbmodule.views.renderers.columns import filled, picture_payload
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.outlines import call_outline, module_outline
from nbmodule.views.renderers.payload import fitted, payload_of
from nbmodule.views.renderers.plain_text import lines_of, text_of, title_of
from nbmodule.views.renderers.static import body_of, plain_form_of

# Letters of code in one panel.
MOST_SOURCE = 40_000
# Bytes of pictures; the code of three views and a graph need room too.
PICTURE_BYTES = 60_000


@dataclass(frozen=True)
class Panel(ViewRecord):
    """The parts of an inspection; one that cannot be made is a note that says why."""

    name: str
    modules: ModuleTree | Note
    calls: CallTable | Note
    graph: GraphRecord | Note
    what_if: InterventionRecord | None = None
    sources: Mapping[str, Lines] = field(default_factory=dict)
    root: str = "view"

    def parts(self) -> Iterator[tuple[str, Any]]:
        """The parts with their names, in the order of reading."""
        yield from (("modules", self.modules), ("calls", self.calls), ("graph", self.graph))
        if self.what_if is not None:
            yield "what if", self.what_if


@derived.register
def _(panel: Panel) -> list[Finding]:
    parts = [(name, part) for name, part in panel.parts() if name != "graph"]
    return [f._replace(part=name) for name, part in parts for f in findings_of(part)][::-1]


def _bar(panel: Panel, parts: dict[str, Any]) -> dict[str, Any]:
    """The findings of all parts in one bar, each at its line in its part."""
    lines = {}
    for name, part in parts.items():
        lines |= {(name, text): line for _, text, line, _, _ in part.pop("findings", ())}
        part.pop("first", None)
    bar = [
        [f.kind, text := plain(f.text, 300), lines.get((f.part, text)), f.part, plain(f.path)]
        for f in findings_of(panel)
    ]
    first = next((entry[2:] for entry in bar if entry[0] != "note" and entry[2] is not None), None)
    return filled({"findings": bar or None, "first": first})


@payload_of.register
def _(panel: Panel) -> dict[str, Any]:
    parts = {name: payload_of(fitted(part, PICTURE_BYTES)) for name, part in panel.parts()}
    notes = [plain(note, 2000) for note in panel.notes]
    texts: dict[Lines, int] = {}
    has_steps = isinstance(panel.calls, CallTable) and bool(panel.calls.snapshots)
    at: dict[str, int] = {}
    spent = 0
    for path, lines in panel.sources.items():
        spent += 0 if lines in texts else len(lines.text)
        if lines in texts or spent <= MOST_SOURCE:
            at[path] = texts.setdefault(lines, len(texts))
    return filled(
        {
            "view": "inspect",
            "title": title_of(panel),
            "root": panel.root,
            "notes": notes or None,
            **_bar(panel, parts),
            "parts": parts,
            "code": f"nb.inspect({'recorder' if has_steps else 'model, x'})",
            "lines": [_code(lines) for lines in texts],
            "at": at,
            "returned": _returned(panel),
        }
    )


def _returned(panel: Panel) -> dict[int, list[int]] | None:
    """For each line of the modules the lines of the calls that say what it returned, where the
    panel has several steps.
    """
    tree, table = panel.modules, panel.calls
    if isinstance(tree, Note) or isinstance(table, Note) or len(table.snapshots) < 2:
        return None
    calls, modules = call_outline(table.rows, grouped=True), module_outline(tree)
    line = {table.rows[row].path: i for i, row in enumerate(calls.row) if row >= 0}
    call_lines = [line.get(tree.rows[row].path) if row >= 0 else None for row in modules.row]
    returned = {}
    for i, at in enumerate(call_lines):
        members = [call_lines[j] for j in modules.children(i)] if at is None else [at]
        if lines := [member for member in members if member is not None]:
            returned[i] = lines
    return returned


def _code(lines: Lines) -> list[Any]:
    text = "\n".join(plain(line, 300) for line in lines.text.split("\n"))
    return [plain(lines.place), lines.first, text, lines.left_out]


@lines_of.register(Panel)
def _text(panel: Panel, width: int, color: bool, limit: int | None) -> list[str]:
    lines: list[str] = []
    share = None if limit is None else limit // 4 - 2
    for name, part in panel.parts():
        body = text_of(part, width=width, limit=share, color=color).split("\n")
        lines += ["", f"{name}: {body[0]}" if body[0] != name else f"{name}:", *body[1:]]
    return lines


@body_of.register
def _(panel: Panel) -> Markup:
    parts = []
    for name, part in panel.parts():
        inside = (tag("summary", tag("b", name)), plain_form_of(part))
        parts.append(tag("details", *inside, open=name == "calls", style="margin:4px 0"))
    return tag("div", *parts)


# -- a panel and its object --
def inspect(model: object, /, *args: object, **kwargs: object) -> Inspection:
    """Call a model to look at it: what it is made of, what ran, what came out, and the graph of it,
    in one panel.

    Of an `nb.Recorder` nothing is called: the panel shows the steps that were recorded, and one
    slider moves modules, calls, pictures and the colors of the graph.

    The run leaves no trace: what it writes into variables is thrown away, attributes, random keys
    and flags stay. A first run that takes less than two seconds is done twice, since its times
    would be those of compiling its operations.

    Args:
        model: A module, or a function that uses one; of another callable the graph alone is shown.
            Or a recorder.
        *args: Its arguments; of a recorder's model they are needed where the graph cannot be traced
            from the recorded shapes.
        **kwargs: Its keyword arguments.

    Returns:
        The panel. `calls` and `graph` are what ran, `selected` is the call that is selected in the
        page or from Python.

    Raises:
        ArgumentTypeError: `model` cannot be called. What fails inside of it is shown, not raised.

    Example:
        >>> view = nb.inspect(nb.Sequential(nb.Linear(3, 4), nb.ReLU()), jnp.ones((2, 3)))
        >>> view.selected = "1"
        >>> view.selected.return_shapes, view.graph.flops
        ('float32[2, 4]', 64)
    """
    parts = parts_of(model, args, kwargs)
    return Inspection(parts, None if parts.recorder is not None else (model, args, kwargs))


class Inspection(Shown):
    """The panel that `nb.inspect` gives; see there.

    Attributes:
        calls: The calls that ran, with their returns in host memory.
        graph: The computation graph; None where it could not be made.
    """

    def __init__(
        self, parts: Parts, request: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None
    ) -> None:
        ran, why = _tried(parts.run)
        graph, no_graph = _tried(parts.graph)
        self.graph: Graph | None = graph
        self._selected: tuple[str, int] | None = None
        self._send: Callable[[dict[str, Any]], None] | None = None
        self._asked = request
        self._what_if: WhatIf | None = None
        self._recorder = None if parts.recorder is None else weakref.ref(parts.recorder)
        self._shown = _panel(parts, ran, why, graph, no_graph)
        calls = Calls(name=parts.name) if ran is None else ran.calls
        self.calls, self.nbytes = _in_host_memory(calls)
        keep_view(self, lambda view: f"inspect {view.record.name}")

    @property
    def recorder(self) -> Recorder | None:
        """Whose steps are shown; None where it is gone, or a call is shown."""
        return None if self._recorder is None else self._recorder()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The faults in what is shown, the worst first; see `nb.findings`."""
        return findings_of(self.record)

    @property
    def record(self) -> Panel:
        """The record that the panel shows, with what was tried last."""
        if self._what_if is None:
            return self._shown
        return dataclasses.replace(self._shown, what_if=what_if_record(self._what_if))

    @property
    def what_if(self) -> WhatIf:
        """The changes that are tried in the panel, as `nb.what_if` gives them.

        It looks at the largest output.
        """
        if self._what_if is None:
            if self._asked is None:
                raise ArgumentTypeError(
                    f"{self.record.name}: nothing can be tried here; nb.what_if(model, x) tries "
                    "changes of a call."
                )
            model, args, kwargs = self._asked
            self._what_if = WhatIf(Run(model, args, kwargs, metric=_largest(self.calls)))
        return self._what_if

    @property
    def result(self) -> WhatIfResult:
        """The last trial in the panel: output before and after, and by how much each module
        changes.
        """
        return self.what_if.result

    @property
    def selected(self) -> Call | None:
        """The call that is selected: a path, a path with the number of the call, a position or a
        call may be assigned.
        """
        path, number = self._selected or (None, 0)
        same = [call for call in self.calls if call.path == path]
        return same[min(number, len(same) - 1)] if same else None

    @selected.setter
    def selected(self, which: object) -> None:
        self._selected = None if which is None else self._place(which)
        self._tell_selected()

    def _tell_selected(self) -> None:
        path, number = self._selected or (None, 0)
        if self._send is not None:
            self._send({"type": "mark", "path": path, "call": number})

    def _place(self, which: Any) -> tuple[str, int]:
        """The path of a call, and how many calls of that path came before it."""
        if isinstance(which, str) and which in self.calls.known:
            return which, 0
        call = which if isinstance(which, Call) else self.calls[which]
        if not isinstance(call, Call):
            raise ArgumentTypeError(f"one call is selected, {which!r} names {len(call)}.")
        same = [one for one in self.calls if one.path == call.path]
        for number, one in enumerate(same):
            if one is call or (one.step, one.order) == (call.step, call.order):
                return call.path, number
        raise PathError(f"{call!r} is not a call of this run.")

    def hear(self, message: Any) -> None:
        """Take a message of the page: `{"type": "select", "path": "blocks.5", "call": 0}`. Others
        are not for this view.

        A page that was just drawn says `joined` instead: what Python has selected is then told to
        it.
        """
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "joined" and self._selected is not None:
            self._tell_selected()
        elif kind in ("select", "joined"):
            path, number = message.get("path"), int(message.get("call") or 0)
            self._selected = None if path is None else (str(path), max(number, 0))

    def tell(self, send: Callable[[dict[str, Any]], None] | None) -> None:
        """Say where messages to the pages go that show this; None where no page listens."""
        self._send = send

    def clear(self) -> None:
        """Let go of the returns; what is shown, and statistics, stay."""
        self.calls, self.nbytes = _in_host_memory(self.calls, room=0)

    def _ipython_display_(self) -> None:
        socket("show_in_place")(self)

    @printable_repr
    def __repr__(self) -> str:
        return text_of(record_for(self), color=False)


def _tried(make: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return make(), None
    except Exception as error:  # noqa: BLE001 - the part shows it
        return None, error


def _largest(calls: Calls) -> Any:
    """The largest output of the first row, at the last position of a sequence: an index."""
    outer = next((call for call in calls if call.parent is None and not call.error), None)
    leaves = [] if outer is None else jax.tree.leaves(outer.returns)
    arrays = (np.asarray(leaf) for leaf in leaves if getattr(leaf, "ndim", 0))
    x = next((x for x in arrays if jax.numpy.issubdtype(x.dtype, jax.numpy.floating)), None)
    if x is None:
        return None
    row = x[0, -1] if x.ndim == 3 else x.reshape(-1, x.shape[-1])[0]
    index = int(np.nanargmax(row)) if np.isfinite(row).any() else 0
    return (0, -1, index) if x.ndim == 3 else index


def _panel(
    parts: Parts, ran: ModelRun | None, why: Any, graph: Graph | None, no_graph: Any
) -> Panel:
    name, facts = parts.name, ()
    shown: Any = _missing("graph", no_graph)
    if graph is not None:
        shown = dataclasses.replace(GraphRecord(graph), root="view.graph")
        facts = headline(graph).split(" · ")[1:]
    if ran is None:
        missing = _missing("modules", why), _missing("calls", why)
        return Panel(name, *missing, shown, title=(name, *facts))
    table = ran.table or dataclasses.replace(call_table(ran.calls, ran.example), root="view.calls")
    notes = (f"the run ended early. {_said(ran.error)}",) if ran.error is not None else ()
    can_try = parts.recorder is None and ran.error is None and len(ran.calls)
    tried = untried_record(name, ran.calls) if can_try else None
    more: Any = {"notes": notes, "title": _facts(name, ran, table)}
    return Panel(name, ran.modules, table, shown, tried, dict(ran.sources), **more)


def _facts(name: str, ran: ModelRun, table: CallTable) -> tuple[str, ...]:
    outer = next((call for call in ran.calls if call.parent is None), None)
    mode = "" if isinstance(ran.modules, Note) else ran.modules.mode
    if outer is None:
        return (name, *filter(None, (mode,)), "no calls")
    flow = f"{outer.input_shapes} → {'raised' if outer.error else outer.return_shapes}"
    measured = [row.statistics for row in table.rows if row.statistics]
    bad = sum(s.nonfinite > 0 for s in measured)
    finite = "all finite" if len(measured) == len(table.rows) else ""
    if bad:
        finite = f"non-finite in {count_noun(bad, 'return')}"
    return tuple(filter(None, (name, flow, mode, finite)))


def _missing(what: str, error: Exception | None) -> Note:
    is_expected = isinstance(error, NoModules)
    reason = plain(str(error), 600) if is_expected else _said(error)
    return Note(what, f"no {what}: {reason}", is_error=not is_expected)


def _said(error: Exception | None) -> str:
    return plain(f"{type(error).__name__}: {error}", 600)


def _in_host_memory(calls: Calls, room: int = BUDGET) -> tuple[Calls, int]:
    """The same calls with their values on the host; those that find no room keep their statistics
    alone.
    """
    copies: dict[int, Call] = {}
    moved: dict[int, tuple[Any, Any]] = {}
    total = left_out = 0
    for call in calls:
        values, size = moved_to_host(call.values, room - total, moved)
        if values is None:
            left_out += size
            known = call.values.get("statistics")
            values = {"statistics": known or reduce_tree(call.values.get("output"))}
        else:
            total += size
        parent = copies.get(id(call.parent))
        copies[id(call)] = dataclasses.replace(call, _values=values, parent=parent)
    notes = [*calls.notes]
    if left_out:
        notes.append(f"returns of {format_bytes(left_out)} were let go")
    kept = Calls(list(copies.values()), calls.name, calls.known, notes, calls.others)
    return kept, total


class _Source(TrySource):
    """Brings what is selected in a page to the object, and the other way round."""

    noun = "panel"

    def hear(self, message: dict[str, Any]) -> None:
        if (view := self._value()) is not None:
            view.hear(message)

    def what_if(self) -> WhatIf:
        return self.value().what_if

    def ask_snapshot(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the pictures of one call at the step that a page asks for."""
        recorder = self.value().recorder
        if recorder is None:
            raise ValueGone("the recorder is gone: run the cell again")
        step, path, index = (message.get(name) for name in ("step", "path", "call"))
        if not (isinstance(step, int) and isinstance(path, str) and isinstance(index, int)):
            return {"pictures": []}
        return {"pictures": list(map(picture_payload, pictures_at(recorder, step, path, index)))}

    def joined(self, tell: Callable[[dict[str, Any]], None]) -> None:
        if (view := self._value()) is not None:
            view.tell(tell)


register_record(Inspection, lambda view: view.record)
register_source(Inspection, _Source)
