"""Write a graph to a file whose ending says how: .svg, .dot, .png, .pdf, .txt, or .html through the
views.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbmodule.base.whole_file import file_name, whole_file
from nbmodule.errors import ArgumentError
from nbmodule.graphs.model import Computation
from nbmodule.graphs.writing.dot import dot_text, render
from nbmodule.graphs.writing.options import chosen, prepare
from nbmodule.graphs.writing.outline import headline, outline
from nbmodule.graphs.writing.svg import draw

ENDINGS = (".html", ".svg", ".png", ".pdf", ".dot", ".txt")
MOST_FOR_GRAPHVIZ = 200


def to_svg(graph: Computation, **options: object) -> str:
    """The graph as SVG text, drawn without Graphviz.

    Args:
        graph: What to draw.
        options: See `Options`.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> to_svg(trace_graph(jnp.sin, jnp.ones(3))).startswith("<svg")
    True
    """
    drawing = prepare(graph, chosen(graph, options))
    scene = drawing.scene()
    return draw(scene, drawing.forms.labels, drawing.look(scene), headline(graph))


def to_dot(graph: Computation, **options: object) -> str:
    """The graph in the language of Graphviz.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> print(to_dot(trace_graph(jnp.sin, jnp.ones(3))).splitlines()[0])
    digraph sin {
    """
    return dot_text(prepare(graph, chosen(graph, options)))


def write_graph(
    graph: Computation,
    path: str | os.PathLike[str],
    *,
    html: Callable[[Any], str],
    **options: object,
) -> Path:
    """Write the graph to a file; the file appears whole or not at all.

    Args:
        graph: What to write.
        path: Its ending chooses the format. Missing folders are made.
        html: Makes the page for a file that ends in `.html`.
        options: See `Options`.

    Returns:
        The path.

    Raises:
        ArgumentError: if the ending is unknown; the message lists those that are known.
        FileWriteError: if nothing can be written there; an `OSError`.
        MissingDependencyError: if Graphviz is needed and not there.
    """
    target = Path(file_name(path, "save the graph"))
    graph = replace(graph, options=chosen(graph, options))
    writers: dict[str, Callable[[Any], str]] = {
        ".html": html,
        ".svg": to_svg,
        ".dot": to_dot,
        ".gv": to_dot,
        ".txt": lambda graph: outline(graph, options=graph.options) + "\n",
    }
    ending = target.suffix.lower()
    if ending not in (*writers, *ENDINGS):
        ending_found = f'"{target.suffix}"' if target.suffix else "no ending"
        raise ArgumentError(
            f'cannot save the graph as "{target}": expected an ending of {", ".join(ENDINGS)}, '
            f"found {ending_found}."
        )
    if ending in writers:
        content = writers[ending](graph).encode()
    else:
        drawing = prepare(graph, graph.options, most=MOST_FOR_GRAPHVIZ)
        content = render(dot_text(drawing), ending[1:])
    with whole_file(target) as file:
        file.write(content)
    return target
