"""The graph of a model: tracing it, drawing it folded, laying out thousands of operations; peers
that draw graphs, where they run.

The model is a GPT of 12 layers, width 768. Tracing is apart from drawing, since a peer runs or
traces the model too. The large graphs are of operations that all differ, so that nothing is shared:
the worst case of the layout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import nbmodule as nb
from benchmarks.models import Transformer
from benchmarks.peers import graphs as peers
from benchmarks.timing import Row, Table, interleave
from nbmodule.graphs import Graph, to_svg
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.scene import PlacedGraph
from nbmodule.views.display.show import html_of
from nbmodule.views.panels.graph_view import graph_page

SIZE = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50257, "context": 64}
SVG_MS, CELL_KB = 100, 80
LAID_OUT = {5_000: 0.2, 50_000: 3.0}


def run(quick: bool = False) -> list[Table]:
    """A table for the GPT, one for large graphs; sizes beside the times."""
    size = SIZE | ({"layers": 2, "width": 64, "heads": 4, "vocabulary": 512} if quick else {})
    counts = [5_000] if quick else list(LAID_OUT)
    return [_gpt(size, quick), *(_large(count, quick) for count in counts)]


def _gpt(size: dict[str, int], quick: bool) -> Table:
    model, tokens = Transformer(**size), jnp.zeros(size["context"], jnp.int32)
    graph = nb.graph(model, tokens)
    cell, page = (len(text.encode()) for text in (html_of(graph), graph_page(graph)))
    ours = {
        "nb.graph: trace": lambda: nb.graph(model, tokens),
        "folded graph to SVG, after tracing": lambda: to_svg(graph),
        "folded graph to a cell's HTML, after tracing": lambda: html_of(graph),
    }
    others = peers.gpt(
        size["layers"], size["width"], size["heads"], size["vocabulary"], size["context"]
    )
    title = f"Graph of a GPT of {size['layers']} layers, width {size['width']}: {graph.operations:,} operations"
    note = (
        f"Targets: SVG under {SVG_MS} ms, HTML of a cell under {CELL_KB} KB ({cell / 1000:.1f} KB here; a page that stands alone, "
        f"with the front end in it, takes {page / 1000:.0f} KB). Peers trace or run their model of the same size, and draw it "
        "without folding; those that are not installed have no row."
    )
    found = interleave(
        title, ours | others, rounds=3 if quick else 7, seconds=0.05, warm=1, note=note
    )
    for row in found.rows:
        if row.name.startswith("folded graph to SVG"):
            row.more = {"target ms": SVG_MS, "met": _met(row.us / 1e3, SVG_MS)}
    return found


def _large(count: int, quick: bool) -> Table:
    graph = chain_of_blocks(count)
    pictures = {
        "fold and lay out, as it opens": lambda: _laid_out(graph),
        "to SVG": lambda: to_svg(graph),
        "a cell's HTML": lambda: html_of(graph),
    }
    rows = []
    for name, fn in pictures.items():
        seconds, cpu = min(_seconds(fn) for _ in range(1 if quick else 3))
        limit = LAID_OUT[count] if name.startswith("fold") else None
        more = {"target s": limit, "met": _met(seconds, limit)} if limit else {}
        rows.append(Row(name, 1e6 * seconds, 1e6 * cpu, more=more))
    note = "No two blocks are equal. Best of three runs."
    return Table(f"A graph of {graph.operations:,} operations that all differ", rows, note=note)


def _seconds(fn: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of wall and processor time for one call."""
    wall, cpu = time.perf_counter(), time.thread_time()
    fn()
    return time.perf_counter() - wall, time.thread_time() - cpu


def _laid_out(graph: Graph) -> Any:
    picture = PlacedGraph(fold(graph))
    return picture.scene(picture.open_at_first())


def _met(found: float, limit: float) -> str:
    return "yes" if found < limit else "**missed**"


def chain_of_blocks(count: int) -> Graph:
    """A graph of so many operations in nested scopes with residual connections, in which nothing is
    equal to anything else.
    """

    def layer(x: jax.Array) -> jax.Array:
        for part in ("norm", "attention", "mlp"):
            with jax.named_scope(part):
                y = jnp.tanh(x)
                for _ in range(7):
                    y = jnp.sin(y) + x
                x = x + y
        return x

    def model(x: jax.Array) -> jax.Array:
        for i in range(count // 48):
            with jax.named_scope(f"stage.{i // 12}"), jax.named_scope(f"blocks.{i}"):
                x = layer(x)
        return x

    graph = nb.graph(model, jnp.ones(8))
    for node in graph.nodes:
        if node.kind == "operation":
            node.parameters = str(node.index)
    return graph
