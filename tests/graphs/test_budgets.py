"""The size of a graph on a page. Times are in the benchmarks."""

from __future__ import annotations

import base64

import nbmodule as nb
from nbmodule.graphs import data, to_svg
from nbmodule.views.renderers import html


def test_the_page_of_a_transformer_takes_less_than_80_kb(make_gpt):
    graph = nb.graph(*make_gpt(layers=13))
    assert graph.operations > 1000
    picture = base64.b64encode(to_svg(graph).encode()).decode()
    image = html.tag("img", src=f"data:image/svg+xml;base64,{picture}")
    element = html.view_element("graph", html.data_text(data(graph)), image)
    assert len(element.encode()) < 80_000
