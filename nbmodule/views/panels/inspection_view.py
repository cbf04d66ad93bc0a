"""The view of an inspection: records that exist already, side by side, with the code of each
module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbmodule.base.format import plain
from nbmodule.views.builders.modules import Lines
from nbmodule.views.panels.graph_view import GraphRecord
from nbmodule.views.panels.intervention_views import InterventionRecord
from nbmodule.views.records.findings import derived, findings_of
from nbmodule.views.records.outline import group_lines
from nbmodule.views.records.records import CallTable, Finding, ModuleTree, Note, ViewRecord
from nbmodule.views.renderers.columns import filled
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.outlines import call_outline, module_outline
from nbmodule.views.renderers.payload import fitted, payload_of
from nbmodule.views.renderers.plain_text import lines_of, text_of
from nbmodule.views.renderers.static import body_of, plain_form_of
from nbmodule.views.renderers.titles import title_of, title_parts

# Letters of code in one panel.
MOST_SOURCE = 40_000
# Bytes of pictures: the code of three views and a graph stand beside them.
PICTURE_BYTES = 60_000


@dataclass(frozen=True)
class Panel(ViewRecord):
    """The parts of an inspection; one that cannot be made is a note that says why.

    Attributes:
        most: Lines of text that each part may have.
    """

    name: str
    modules: ModuleTree | Note
    calls: CallTable | Note
    graph: GraphRecord | Note
    what_if: InterventionRecord | None = None
    sources: Mapping[str, Lines] = field(default_factory=dict)
    root: str = "view"
    most: int | None = None

    def within(self, lines: int) -> Panel:
        """The same, each part with its share of the lines of a text."""
        return dataclasses.replace(self, most=lines // 4 - 2)

    def parts(self) -> Iterator[tuple[str, Any]]:
        """The parts with their names, in the order of reading."""
        yield from (("modules", self.modules), ("calls", self.calls), ("graph", self.graph))
        if self.what_if is not None:
            yield "what if", self.what_if


@title_parts.register
def _(panel: Panel) -> list[str]:
    return [plain(panel.name)]


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
        members = [call_lines[j] for j in group_lines(modules, i)] if at is None else [at]
        if lines := [member for member in members if member is not None]:
            returned[i] = lines
    return returned


def _code(lines: Lines) -> list[Any]:
    text = "\n".join(plain(line, 300) for line in lines.text.split("\n"))
    return [plain(lines.place), lines.first, text, lines.left_out]


@lines_of.register(Panel)
def _text(panel: Panel, width: int, color: bool) -> list[str]:
    lines: list[str] = []
    for name, part in panel.parts():
        body = text_of(part, width=width, limit=panel.most, color=color).split("\n")
        lines += ["", f"{name}: {body[0]}" if body[0] != name else f"{name}:", *body[1:]]
    return lines


@body_of.register
def _(panel: Panel) -> Markup:
    parts = []
    for name, part in panel.parts():
        inside = (tag("summary", tag("b", name)), plain_form_of(part))
        parts.append(tag("details", *inside, open=name == "calls", style="margin:4px 0"))
    return tag("div", *parts)
