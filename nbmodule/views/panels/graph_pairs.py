"""The view of two graphs: what differs, as a list, and both pictures side by side with the
differences marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbmodule.base.format import plain
from nbmodule.graphs import data
from nbmodule.graphs.writing.comparing import SIGNS, GraphComparison
from nbmodule.graphs.writing.data import spelled
from nbmodule.views.builders.registry import register_record
from nbmodule.views.panels.graph_view import graph_record, still_picture
from nbmodule.views.records.records import ViewRecord
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.plain_text import lines_of
from nbmodule.views.renderers.static import body_of
from nbmodule.views.renderers.titles import title_parts

# Bytes of each graph.
BUDGET = 120_000
MOST_CHANGES = 200


@dataclass(frozen=True)
class GraphPair(ViewRecord):
    """Two graphs and what differs between them."""

    comparison: GraphComparison
    root: str = "comparison"


@title_parts.register
def _(pair: GraphPair) -> list[str]:
    return [plain(fact, 300) for fact in pair.comparison.headline.split(" · ")]


@payload_of.register
def _(pair: GraphPair) -> dict[str, Any]:
    changes, notes, sides = pair.comparison.changes, [], {}
    if len(changes) > MOST_CHANGES:
        notes = [f"{len(changes) - MOST_CHANGES:,} more differences: print(comparison)"]
    for name in ("a", "b"):
        graph = getattr(pair.comparison, name)
        sides[name] = data(graph, budget=BUDGET)
        places = (getattr(change, f"place_{name}") for change in changes)
        sides[name]["highlight"] = sorted({spelled(place) for place in places if place is not None})
    return {
        "view": "graphs",
        "title": title_parts(pair),
        "changes": [_change(change) for change in changes[:MOST_CHANGES]],
        "notes": notes,
        **sides,
    }


def _change(change: Any) -> list[Any]:
    places = (None if p is None else spelled(p) for p in (change.place_a, change.place_b))
    return [SIGNS[change.status], plain(str(change)[2:], 300), *places]


@lines_of.register(GraphPair)
def _(pair: GraphPair, width: int, color: bool) -> list[str]:
    return [plain(str(change), width) for change in pair.comparison.changes]


@body_of.register
def _(pair: GraphPair) -> Markup:
    first = pair.comparison.changes[:MOST_CHANGES]
    changes = [tag("div", plain(str(change), 300)) for change in first]
    sides = []
    for name in ("a", "b"):
        picture = still_picture(graph_record(getattr(pair.comparison, name)))
        sides.append(tag("div", tag("b", name), *picture, style="flex:1 1 380px;min-width:0"))
    return tag("div", *changes, tag("div", *sides, style="display:flex;flex-wrap:wrap;gap:12px"))


register_record(GraphComparison, GraphPair)
