"""The view of a profile: a tree with a bar for each pass, and a flame graph of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbmodule.base.format import plain
from nbmodule.calls.profile import Profile, ProfileRow
from nbmodule.views.builders.registry import register_record
from nbmodule.views.records.outline import Outline, open_at_first
from nbmodule.views.records.records import ViewRecord
from nbmodule.views.renderers.columns import PROFILE, cells_of, columns_of
from nbmodule.views.renderers.payload import MOST_ROWS, common, payload_of
from nbmodule.views.renderers.plain_text import head_line, lines_of, table_lines
from nbmodule.views.renderers.text_layout import Line


@dataclass(frozen=True)
class ProfileTree(ViewRecord):
    """The time of a step by module: rows in the order of the tree, the dearest first.

    Attributes:
        best: FLOP/s that the device has been seen to do.
    """

    rows: Sequence[ProfileRow]
    best: float
    root: str = "profile"


def profile_tree(profile: Profile) -> ProfileTree:
    """Make the record of a profile."""
    facts = tuple(profile.facts)
    return ProfileTree(profile[1:], profile.best, title=facts, notes=profile.notes)


@payload_of.register
def _(tree: ProfileTree) -> dict[str, Any]:
    depth, labels = [row.depth - 1 for row in tree.rows], [row.name for row in tree.rows]
    outline = Outline(depth, labels)
    return {
        **common(tree, "profile", outline.row, "nb.profile(step, *args)"),
        "depth": depth,
        "open": open_at_first(outline),
        "label": [plain(label) for label in labels],
        "best": tree.best,
        **columns_of(PROFILE, tree.rows),
    }


@lines_of.register(ProfileTree)
def _text(tree: ProfileTree, width: int, color: bool, limit: int | None) -> list[str]:
    lines = [head_line("profile", "")]
    for row in tree.rows:
        if row.share >= 0.001:
            name = "  " * (row.depth - 1) + plain(row.name)
            lines.append(Line((name, *cells_of("profile", row))))
    return table_lines("profile", lines, width, color)


MOST_ROWS[ProfileTree] = 4000
register_record(Profile, profile_tree)
