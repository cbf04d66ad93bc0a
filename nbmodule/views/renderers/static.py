"""The plain form inside each view: what a reader sees who strips scripts, styles and unknown
elements.

Trees are nested `details`, tables are aligned text, pictures are images with their own background.
Only inline styles are used, since nothing else survives in an untrusted notebook or on a page that
shows one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import plain
from nbmodule.views.records.outline import MOST_GROUPED, open_at_first
from nbmodule.views.records.records import (
    ArrayCard,
    ComparisonTable,
    HistoryRecord,
    ModuleTree,
    ReturnTable,
    VariableTree,
)
from nbmodule.views.renderers.drawing import curve_image, image_of
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.outlines import call_outline
from nbmodule.views.renderers.plain_text import bar_of, body_lines, table_lines, title_of, tree_text
from nbmodule.views.renderers.text_layout import align

MOST_ROWS = 60
MOST_IMAGES = 12
WIDTH = 110
PRE = (
    "margin:0 0 0 18px;font:12px/1.45 monospace;white-space:pre;overflow:auto;"
    "background:none;color:inherit"
)


def plain_form_of(record: Any) -> Markup:
    """Write a record as HTML that needs no script."""
    title = title_of(record)
    # so large a tree is not grouped, its first rows are all that is shown
    if len(getattr(record, "rows", ())) > MOST_GROUPED:
        record = dataclasses.replace(record, rows=record.rows[: MOST_ROWS + 1])
    head = tag("div", tag("b", title[0]), *[f" · {fact}" for fact in title[1:]])
    bar = [tag("div", line, style="white-space:pre-wrap") for line in bar_of(record)]
    notes = (tag("div", plain(note, 2000)) for note in record.notes)
    return tag("div", head, *bar, body_of(record), *notes)


@functools.singledispatch
def body_of(record: Any) -> Markup:
    """Write what stands below the title; panels register their own kinds here."""
    return pre(body_lines(record, WIDTH, MOST_ROWS))


@body_of.register(ModuleTree)
@body_of.register(VariableTree)
def _(tree: ModuleTree | VariableTree) -> Markup:
    view, outline, lines = tree_text(tree)
    opened, left = set(open_at_first(outline)), MOST_ROWS

    def level(siblings: list[int]) -> list[Markup]:
        """Neighbors without children become one aligned block, the others fold."""
        nonlocal left
        out: list[Markup] = []
        for folds, group in itertools.groupby(siblings, lambda i: bool(outline.children(i))):
            shown = list(group)
            if not folds:
                leaves = [lines[i] for i in shown[:left]]
                left -= len(leaves)
                out += [pre(table_lines(view, leaves, WIDTH, color=False))] if leaves else []
                continue
            for i in shown:
                if left > 0:
                    left -= 1
                    head = "  ".join(align([lines[i]], frozenset(), WIDTH))
                    summary = tag("summary", tag("code", head))
                    inside, style = level(outline.children(i)), "margin-left:12px"
                    out.append(tag("details", summary, *inside, open=i in opened, style=style))
        return out

    parts = level(outline.children())
    missing = len(outline) + left - MOST_ROWS
    if missing > 0:
        parts.append(tag("div", f"… {missing:,} more rows need scripts, or print()"))
    return tag("div", *parts)


def pre(lines: Sequence[str]) -> Markup:
    """Write lines in a font of one width."""
    return tag("pre", "\n".join(lines), style=PRE)


@body_of.register
def _(table: ReturnTable) -> Markup:
    outline = call_outline(table.rows)
    parts, images = [], 0
    for i, row in enumerate(table.rows):
        about = f" {plain(row.class_name)} {plain(row.outputs)}"
        head = tag("div", tag("b", plain(outline.label[i])), about)
        pictures = [image_of(p) for p in row.pictures if images < MOST_IMAGES]
        images += len(pictures)
        error = [tag("div", plain(row.error), style="color:#b3261e")] if row.error else []
        style = f"margin:4px 0 8px {min(row.depth, 6) * 12}px"
        parts.append(tag("div", head, *pictures, *error, style=style))
        if images >= MOST_IMAGES and i + 1 < len(table.rows):
            parts.append(tag("div", f"… {len(table.rows) - i - 1} more returns need scripts"))
            break
    return tag("div", *parts)


@body_of.register
def _(history: HistoryRecord) -> Markup:
    return tag("div", curve_image(history))


@body_of.register
def _(card: ArrayCard) -> Markup:
    image = [image_of(card.picture)] if card.picture else []
    lines = body_lines(card, WIDTH) if card.shape is not None else []
    return tag("div", *image, pre(lines))


@body_of.register
def _(table: ComparisonTable) -> Markup:
    pictures = () if table.first is None else table.rows[table.first].pictures
    style = "display:inline-block;margin:4px 16px 4px 0"
    drawn = [
        tag("div", tag("b", plain(name)), image_of(picture), style=style)
        for name, picture in zip((table.a, table.b, "difference"), pictures, strict=False)
    ]
    return tag("div", *drawn, pre(body_lines(table, WIDTH, MOST_ROWS)))
