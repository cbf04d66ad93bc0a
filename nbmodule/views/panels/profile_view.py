"""The view of a profile: a tree with a bar for each pass, and a flame graph of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbmodule.base.format import format_number, format_percent, format_seconds, plain
from nbmodule.calls.profile import PASSES, Profile, ProfileRow
from nbmodule.views.builders.registry import register_record
from nbmodule.views.records.outline import Outline, open_at_first
from nbmodule.views.records.records import Titled
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.payload_values import numbers
from nbmodule.views.renderers.plain_text import text_form
from nbmodule.views.renderers.text_layout import Line, align
from nbmodule.views.renderers.titles import title_facts

MOST_ROWS = 4000
"""Rows of one view; the cheapest are left out."""


@dataclass(frozen=True)
class ProfileTree(Titled):
    """Where the time of a step goes: rows in the order of the tree, the dearest first."""

    rows: Sequence[ProfileRow]
    best: float
    """FLOP/s that the device has been seen to do."""
    root: str = "profile"


def profile_tree(profile: Profile) -> ProfileTree:
    """Make the record of a profile."""
    rows = list(profile)[1:]
    notes = profile.notes
    if len(rows) > MOST_ROWS:
        least = sorted((row.share for row in rows), reverse=True)[MOST_ROWS - 1]
        kept = [row for row in rows if row.share >= least][:MOST_ROWS]
        notes = (*notes, f"{len(rows) - len(kept):,} rows of the least time left out")
        rows = kept
    return ProfileTree(rows, profile.best, title=tuple(profile.facts), notes=notes)


@title_facts.register
def _(tree: ProfileTree) -> list[str]:
    return [tree.root]


@payload_of.register
def _(tree: ProfileTree) -> dict[str, Any]:
    rows, depth = tree.rows, [row.depth - 1 for row in tree.rows]
    outline = Outline(depth, [row.name for row in rows], list(range(len(rows))))
    passes = {each: numbers([getattr(row, each) for row in rows]) for each in PASSES}
    return {
        "view": "profile",
        "title": [plain(fact, 300) for fact in tree.title] or title_facts(tree),
        "root": tree.root,
        "code": "nb.profile(step, *args)",
        "notes": [plain(note, 2000) for note in tree.notes],
        "depth": depth,
        "open": open_at_first(outline),
        "label": [plain(row.name) for row in rows],
        "path": [plain(row.path) for row in rows],
        "kind": [row.kind for row in rows],
        "share": numbers([row.share for row in rows]),
        "flops": numbers([row.flops for row in rows]),
        "bytes": numbers([row.bytes for row in rows]),
        "best": tree.best,
        **passes,
    }


@text_form(ProfileTree)
def _text(tree: ProfileTree, width: int, color: bool) -> list[str]:
    lines = [Line(("", "share", *PASSES, "FLOP/s"), color="dim")]
    lines += [Line(_cells(row)) for row in tree.rows if row.share >= 0.001]
    return align(lines, frozenset(range(1, 7)), width, color)


def _cells(row: ProfileRow) -> tuple[str, ...]:
    spent = [format_seconds(seconds) if (seconds := getattr(row, each)) else "" for each in PASSES]
    speed = format_number(row.flops_per_second, 3) if row.flops else ""
    return ("  " * (row.depth - 1) + plain(row.name), format_percent(row.share), *spent, speed)


register_record(Profile, profile_tree)
