"""The view of a graph: what it computes, as text, as a still picture with its outline, and as a
page to walk through.

The record holds the graph itself, which is facts only: no array, no module, no tracer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from nbmodule.base.format import plain
from nbmodule.base.notebook import running_shell
from nbmodule.core.call.staging import Staged, staged
from nbmodule.graphs import Graph, Options, data, headline, outline, read_graph, to_svg
from nbmodule.graphs.writing.comparing import SIGNS, GraphComparison
from nbmodule.graphs.writing.data import spelled
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.arrays.values import is_array_like
from nbmodule.views.builders.pytrees import register_record
from nbmodule.views.display.show import mimebundle
from nbmodule.views.records.records import ViewRecord
from nbmodule.views.renderers.drawing import address_of, image_source
from nbmodule.views.renderers.html import Markup, data_text, tag, view_element
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.plain_text import lines_of, title_parts
from nbmodule.views.renderers.static import body_of, plain_form_of, pre

MOST_LINES = 150
# Bytes of the still picture; a larger one is drawn less open, then left out.
MOST_SVG = 120_000
MOST_PICTURES = 64
# Cells along one side of a small picture.
SIDE = 24
_PAGE = "margin:0 auto;padding:16px;max-width:1400px;font:14px/1.45 system-ui,sans-serif"
_THEME = (
    "@media (prefers-color-scheme: dark){body{background:#111418;color:#e6e8ea;color-scheme:dark}}"
)


@dataclass(frozen=True)
class GraphRecord(ViewRecord):
    """A graph, and how it is to be drawn.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.graphs import trace_graph
        >>> from nbmodule.views.renderers.plain_text import title_of
        >>> title_of(GraphRecord(trace_graph(jnp.sin, jnp.ones(3))))
        ['sin', '1 operation', '3 FLOP', 'float32[3] → float32[3]']
    """

    graph: Graph
    root: str = "graph"

    @property
    def options(self) -> Options:
        """The options of its drawing."""
        return self.graph.options or Options()

    def outline(self, lines: int | None = None) -> list[str]:
        """The outline below the title, in at most so many lines."""
        return outline(self.graph, lines=lines, options=self.options).split("\n")[1:]


def graph_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """Trace a module or a function with its variables taken out; see `nbmodule.graph` for what
    comes of it.

    Example:
        >>> graph_of(nb.Linear(3, 2), (jnp.ones((4, 3)),), {}).flops
        56
    """

    def read(staged_call: Staged) -> Graph:
        return read_graph(
            staged_call.whole,
            [staged_call.values, *staged_call.args],
            staged_call.kwargs,
            variables=1,
            names=staged_call.names,
            titles=staged_call.titles,
            aliases=staged_call.aliases,
            written=True,
        )

    return staged(fn, args, kwargs, read)


def graph_page(graph: Graph) -> str:
    """Write a graph as a page that stands alone: one file, no request.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.graphs import trace_graph
        >>> page = graph_page(trace_graph(jnp.sin, jnp.ones(3)))
        >>> page[:15], page.count("<nbm-view")
        ('<!DOCTYPE html>', 1)
    """
    record = GraphRecord(graph)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", headline(graph)),
        tag("style", Markup(_THEME)),
    )
    view = view_element("graph", data_text(payload_of(record)), plain_form_of(record))
    return "<!DOCTYPE html>\n" + tag("html", head, tag("body", view, style=_PAGE), lang="en")


def show_inline(record: GraphRecord) -> bool:
    """Display a graph below the cell, as IPython does it; False where there is no IPython."""
    try:
        from IPython.display import display
    except ImportError:
        return False
    display(mimebundle(record), raw=True)
    return True


def running_cell() -> int | None:
    """Return the number of the cell that runs now; None outside of IPython."""
    return getattr(running_shell(), "execution_count", None)


@title_parts.register
def _(record: GraphRecord) -> list[str]:
    return [plain(fact, 300) for fact in headline(record.graph).split(" · ")]


@payload_of.register
def _(record: GraphRecord) -> dict[str, Any]:
    drawing = data(record.graph)
    _add_pictures(drawing["returns"], record.options.values)
    notes = [note for note in (*drawing["notes"], *record.notes) if note]
    return drawing | ({"title": list(record.title)} if record.title else {}) | {"notes": notes}


def _add_pictures(returns: dict[str, list[dict[str, Any]]], values: Any) -> None:
    """A small picture of what each tracked call returned, as far as the arrays were kept."""
    room = MOST_PICTURES
    for call in () if isinstance(values, Mapping) else values:
        returned = returns[call.path]
        array = next((leaf for leaf in jax.tree.leaves(call.returns) if is_array_like(leaf)), None)
        is_new = call.index < len(returned) and "picture" not in returned[call.index]
        if room and array is not None and is_new:
            room -= 1
            picture = picture_of(array, side=SIDE, tiles=1)
            high, wide = picture.shape[-2:] if len(picture.shape) > 1 else (1, 2)
            size = [max(SIDE * x // max(high, wide), SIDE // 3) for x in (wide, high)]
            returned[call.index] |= {"picture": image_source(picture), "size": size}


@lines_of.register(GraphRecord)
def _text(record: GraphRecord, width: int, color: bool, limit: int | None) -> list[str]:
    return record.outline()


@body_of.register
def _(record: GraphRecord) -> Markup:
    text = tag("details", tag("summary", "outline"), pre(record.outline(MOST_LINES)))
    return tag("div", *still_picture(record), text)


def still_picture(record: GraphRecord) -> list[Markup]:
    """The still picture, less open where it would be too large."""
    for depth in dict.fromkeys((record.options.depth, 1, 0)):
        svg = to_svg(record.graph, depth=depth)
        if len(svg) <= MOST_SVG:
            style = "max-width:100%;background:#fff"
            source = address_of("image/svg+xml", svg.encode())
            return [tag("img", src=source, alt=headline(record.graph), style=style)]
    return []


register_record(Graph, GraphRecord)


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
def _(pair: GraphPair, width: int, color: bool, limit: int | None) -> list[str]:
    return [plain(str(change), width) for change in pair.comparison.changes]


@body_of.register
def _(pair: GraphPair) -> Markup:
    first = pair.comparison.changes[:MOST_CHANGES]
    changes = [tag("div", plain(str(change), 300)) for change in first]
    sides = []
    for name in ("a", "b"):
        picture = still_picture(GraphRecord(getattr(pair.comparison, name)))
        sides.append(tag("div", tag("b", name), *picture, style="flex:1 1 380px;min-width:0"))
    return tag("div", *changes, tag("div", *sides, style="display:flex;flex-wrap:wrap;gap:12px"))


register_record(GraphComparison, GraphPair)
