"""Two runs side by side, in each form: the fault first, then the calls, those that agree in one
line.
"""

from __future__ import annotations

import functools
from typing import Any

from nbmodule.base.format import count_noun, format_number, plain
from nbmodule.views.records.outline import SMALLEST_GROUP
from nbmodule.views.records.records import ComparisonTable, PairRow
from nbmodule.views.renderers.drawing import image_of
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.outlines import comparison_outline
from nbmodule.views.renderers.payload import LONG_TEXT, at_lines, common, payload_of, sparse, texts
from nbmodule.views.renderers.payload_values import filled, number, numbers, picture_payload
from nbmodule.views.renderers.plain_text import text_form
from nbmodule.views.renderers.static import PRE, body_of
from nbmodule.views.renderers.text_layout import Line, align
from nbmodule.views.renderers.titles import title_facts

CELLS = {"": "▒", "module": "█", "tap": "█", "inside": "▓", "input": "░"}
"""One letter for each call: it agrees, is at fault, holds what is at fault, carries."""
WIDTH = 110


@title_facts.register
def _(table: ComparisonTable) -> list[str]:
    if not table.rows:
        return ["nothing to compare"]
    return [
        f"{plain(table.a)} → {plain(table.b)}",
        f"{count_noun(len(table.rows), 'call')}, all agree",
    ]


@payload_of.register
def _(table: ComparisonTable) -> dict[str, Any]:
    outline = comparison_outline(table)
    rows = table.rows
    at = functools.partial(at_lines, outline.row)
    return common(table, "comparison", outline.row) | filled(
        {
            "a": plain(table.a),
            "b": plain(table.b),
            "depth": outline.depth,
            "open": [],
            "label": [plain(text) for text in outline.label],
            "row": outline.row,
            "path": texts(at([r.path for r in rows])),
            "place": at([plain(r.place) for r in rows]),
            "order": at([r.order for r in rows]),
            "fault": texts(at([r.fault for r in rows])),
            "cls": texts(at([r.class_name for r in rows])),
            "in": texts(at([r.inputs for r in rows]), 400),
            "given": texts(at([r.given for r in rows])),
            "ca": texts(at([r.a for r in rows]), 400),
            "cb": texts(at([r.b for r in rows]), 400),
            "change": numbers(at([r.change for r in rows])),
            "largest": numbers(at([r.largest for r in rows])),
            "where": sparse((i, r) for i, r in enumerate(at([r.where for r in rows]))),
            "values": sparse(
                (i, v and [number(x) for x in v])
                for i, v in enumerate(at([r.values for r in rows]))
            ),
            "pic": sparse(
                (i, [picture_payload(p) for p in ps])
                for i, ps in enumerate(at([r.pictures for r in rows]))
                if ps
            ),
            "src": texts(at([r.source for r in rows])),
            "remark": texts(at([r.remark for r in rows]), LONG_TEXT),
        }
    )


@text_form(ComparisonTable)
def _text(table: ComparisonTable, width: int, color: bool) -> list[str]:
    outline = comparison_outline(table)
    lines = [Line(("call", "input", "off by", "largest"), color="dim")]
    carried: list[Line] = []

    def flush() -> None:
        short = [Line((f"{len(carried)} calls carry it on",), color="dim")]
        lines.extend(carried if len(carried) < SMALLEST_GROUP else short)
        carried.clear()

    for depth, label, k in zip(outline.depth, outline.label, outline.row, strict=True):
        if depth:
            continue
        line = Line((plain(label),)) if k < 0 else _line(table.rows[k], plain(label))
        if k >= 0 and table.rows[k].fault == "input":
            carried.append(line)
            continue
        flush()
        lines.append(line)
    flush()
    strip = [blame(table, width)] if len(table.rows) > 1 else []
    return [*strip, *align(lines, frozenset({2}), width, color)]


def blame(table: ComparisonTable, width: int) -> str:
    """One letter for each call, in the order in which they began, with what the letters mean.

    Example:
        >>> rows = [PairRow("", 0, fault="inside"), PairRow("a", 1), PairRow("b", 2, fault="module")]
        >>> blame(ComparisonTable("expected", "actual", rows), 80)
        '▓▒█  ▒ agrees  █ at fault  ▓ holds it  ░ carries it'
    """
    ordered = sorted(table.rows, key=lambda row: row.order)
    legend = "▒ agrees  █ at fault  ▓ holds it  ░ carries it"
    room = max(width - len(legend) - 2, 10)
    letters = [CELLS[row.fault] for row in ordered]
    parts = min(room, len(letters))
    worst = "█▓░▒"
    shown = [
        min(letters[k * len(letters) // parts : (k + 1) * len(letters) // parts], key=worst.index)
        for k in range(parts)
    ]
    return f"{''.join(shown)}  {legend}"


def _line(row: PairRow, name: str) -> Line:
    change = "" if row.change is None else format_number(row.change, 3)
    at = f" at {list(row.where)}" if row.where else ""
    largest = "" if row.largest is None else f"{format_number(row.largest, 3)}{at}"
    if row.status == "shape":
        largest = f"{row.b}, expected {row.a}"
    wrong = row.fault in ("module", "tap")
    said = (
        ", ".join(filter(None, [row.remark, row.source])) if wrong or row.fault == "inside" else ""
    )
    return Line(
        (name, row.given, change, plain(largest)),
        f"<- {plain(said)}" if said else "",
        "red" if wrong else "dim",
    )


@body_of.register
def _(table: ComparisonTable) -> Markup:
    lines = _text(table, WIDTH, False)
    shown = table.rows[table.first] if table.first is not None else None
    pictures = []
    if shown is not None:
        names = (table.a, table.b, "difference")
        pictures = [
            tag(
                "div",
                tag("b", plain(name)),
                image_of(picture),
                style="display:inline-block;margin:4px 16px 4px 0",
            )
            for name, picture in zip(names, shown.pictures, strict=False)
        ]
    return tag("div", *pictures, tag("pre", "\n".join(lines), style=PRE))
