"""Tables of facts, and pictures that users give for kinds of values, in each form."""

from __future__ import annotations

from typing import Any

from nbmodule.base.format import plain
from nbmodule.views.records.outline import open_at_first
from nbmodule.views.records.records import Column, Drawn, FactTable
from nbmodule.views.renderers.drawing import image_of
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.payload import column, common, payload_of
from nbmodule.views.renderers.payload_values import filled, number, picture_payload
from nbmodule.views.renderers.plain_text import text_form
from nbmodule.views.renderers.static import body_of
from nbmodule.views.renderers.titles import title_facts


@title_facts.register
def _(table: FactTable) -> list[str]:
    return [plain(table.name)]


@payload_of.register
def _(table: FactTable) -> dict[str, Any]:
    lines = table.lines
    return common(table, "facts", lines.row) | filled(
        {
            "depth": lines.depth,
            "open": open_at_first(lines),
            "label": [plain(lines.display(i)) for i in range(len(lines))],
            "first_title": table.label or None,
            "empty": plain(table.empty),
            "places": [plain(place) for place in table.places] or None,
            "wrong": sorted(table.wrong) or None,
            "columns": [_column(each) for each in table.columns],
        }
    )


def _column(given: Column) -> dict[str, Any]:
    values = [
        plain(v, 400) if isinstance(v, str) else None if v is None else number(v)
        for v in given.values
    ]
    more = {"bar": given.has_bar or None, "drop": given.leaves or None}
    return filled(
        {"title": given.title, "kind": given.kind, "values": column(values) or values, **more}
    )


@text_form(FactTable)
def _text(table: FactTable, width: int, color: bool) -> list[str]:
    del width, color
    return [plain(line, 2000) for line in table.text]


@title_facts.register
def _(drawn: Drawn) -> list[str]:
    return [plain(drawn.name)]


@payload_of.register
def _(drawn: Drawn) -> dict[str, Any]:
    return common(drawn, "array") | {"picture": picture_payload(drawn.picture), "drawn": True}


@text_form(Drawn)
def _drawn_text(drawn: Drawn, width: int, color: bool) -> list[str]:
    del width, color
    said = drawn.picture.notes if drawn.picture.kind == "text" else (drawn.picture.about,)
    return [plain(line, 2000) for text in said for line in text.splitlines()]


@body_of.register
def _(drawn: Drawn) -> Markup:
    return tag("div", image_of(drawn.picture))
