"""Time and size: twice the budget of the issue is allowed here, since machines differ; the
benchmark holds the figures.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import pytest

import nbmodule as nb
from nbmodule.graphs import data, to_svg
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.scene import PlacedGraph


def best_seconds(fn: Callable[[], object], repeats: int = 3) -> float:
    """Least processor time of several runs; other processes on the machine do not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        fn()
        times.append(time.process_time() - start)
    return min(times)


@pytest.fixture(scope="module")
def gpt(make_gpt):
    return nb.graph(*make_gpt(layers=13))


def test_the_folded_graph_of_a_transformer_is_drawn_in_100_ms(gpt):
    assert gpt.operations > 1000
    assert best_seconds(lambda: to_svg(gpt)) < 0.2


def test_its_page_takes_less_than_80_kb(gpt):
    html = pytest.importorskip("nbmodule.views.renderers.html")
    picture = base64.b64encode(to_svg(gpt).encode()).decode()
    element = html.view_element(
        "graph",
        html.data_text(data(gpt)),
        html.tag("img", src=f"data:image/svg+xml;base64,{picture}"),
    )

    assert len(element.encode()) < 80_000


def test_5000_different_operations_are_laid_out_in_200_ms(make_gpt):
    graph = nb.graph(*make_gpt(layers=66, width=16, heads=2))
    for node in graph.nodes:
        if node.kind == "operation":
            node.parameters = str(
                node.index
            )  # so that no two blocks are equal and nothing is shared
    assert graph.operations > 5000

    assert best_seconds(lambda: PlacedGraph(fold(graph)).scene(())) < 0.4
