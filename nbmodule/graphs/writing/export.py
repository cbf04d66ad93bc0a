"""Write a graph to a file whose ending says how: .svg, .dot (the language of Graphviz, whose
program makes .png and .pdf of it), .txt, or .html through the views.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbmodule.base.format import printable_lines
from nbmodule.base.sockets import socket
from nbmodule.base.whole_file import file_name, whole_file
from nbmodule.errors import ArgumentError, MissingDependencyError, TraceError
from nbmodule.graphs.layout.labels import shape_text
from nbmodule.graphs.layout.scene import Box, Place
from nbmodule.graphs.model import Computation
from nbmodule.graphs.writing.look import PAINT, paint_of, text_in
from nbmodule.graphs.writing.options import Drawing, chosen, prepare
from nbmodule.graphs.writing.outline import headline, outline
from nbmodule.graphs.writing.svg import draw, stroke_width

FONT = {"fontname": "Helvetica", "fontsize": "11"}
GRAPH = FONT | {"rankdir": "TB", "labeljust": "l", "nodesep": "0.25", "ranksep": "0.4"}
NODE = FONT | {"shape": "box", "style": "filled", "color": "#8b97a7", "height": "0.3"}
EDGE = FONT | {"color": "#8b97a7", "fontcolor": "#5b6776", "arrowsize": "0.6", "fontsize": "9"}
CLUSTER = {"color": "#a9b8cc", "style": "filled", "fillcolor": "#1d4f910a"}
MARKED = {"color": "#c4302b", "penwidth": "2.5"}


def dot_text(drawing: Drawing) -> str:
    """The visible part of a graph in the language of Graphviz; open groups are clusters."""
    from graphviz import Digraph

    scene = drawing.scene()
    inside: dict[Place, list[Box]] = {}
    for box in scene.boxes:
        inside.setdefault(box.place[:-1] if box.place != drawing.focus else (-1,), []).append(box)

    def write(level: Any, location: Place) -> None:
        for box in inside.get(location, []):
            marked = MARKED if box.is_marked else {}
            name, note, facts = text_in(box)
            label = f"{name} {note}".strip()
            if box.is_open:
                with level.subgraph(name=f"cluster_{_id(box.place)}") as cluster:
                    cluster.attr(label=_plain(label), **CLUSTER | marked)
                    write(cluster, box.place)
                continue
            label = "\n".join(filter(None, [label, facts]))
            paint = paint_of(box)
            style = {"fillcolor": box.fill or PAINT[paint][0]}
            if paint == "pill":
                style |= {"shape": "oval", "height": "0.2"}
            if paint == "failure":
                style |= {"color": PAINT[paint][1]}
            hover = _plain(box.hover)
            level.node(_id(box.place), _plain(label), tooltip=hover, **style | marked)

    name = _plain(drawing.forms.name or "graph")
    written = Digraph(name, graph_attr=GRAPH, node_attr=NODE, edge_attr=EDGE)
    write(written, drawing.focus)
    for line in scene.lines:
        first, *others = line.slots.values()
        text = f"{len(line.slots)} edges" if others else shape_text(first)
        words = [text if drawing.options.with_edge_labels else "", line.source.returned]
        label = _plain("\n".join(filter(None, words))) or None
        wide = str(stroke_width(line.bytes))
        written.edge(_id(line.source.place), _id(line.target.place), label, penwidth=wide)
    for line in scene.sides:
        ends = _id(line.source.place), _id(line.target.place)
        written.edge(*ends, style="dashed", constraint="false")
    return written.source


def render(text: str, form: str) -> bytes:
    """Let Graphviz draw a text in its language, as `png`, `pdf` or `svg`.

    Raises:
        MissingDependencyError: if the program is not installed.
        TraceError: if it fails.
    """
    import graphviz

    try:
        return graphviz.pipe("dot", form, text.encode())
    except graphviz.ExecutableNotFound as error:
        raise MissingDependencyError(
            f"a .{form} picture needs the program `dot` of Graphviz, which is not on the PATH "
            f"(`apt-get install graphviz`, `brew install graphviz`). Without it: .svg, .html "
            f"and .dot."
        ) from error
    except graphviz.CalledProcessError as error:
        reason = (error.stderr or b"").decode(errors="replace").strip()
        raise TraceError(f"Graphviz could not draw the picture: {reason}") from error


def _id(location: Place) -> str:
    return "n" + "_".join(map(str, location))


def _plain(text: str) -> str:
    """Text that Graphviz writes as it is: no markup, no escapes but those of a line's end."""
    from graphviz import escape, nohtml

    return nohtml(escape(printable_lines(text)).replace("\n", r"\n"))


ENDINGS = (".html", ".svg", ".png", ".pdf", ".dot", ".txt")
MOST_FOR_GRAPHVIZ = 200


def to_svg(graph: Computation, **options: object) -> str:
    """The graph as SVG text, drawn without Graphviz.

    Args:
        graph: The graph to draw.
        options: See `Options`.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> to_svg(trace_graph(jnp.sin, jnp.ones(3))).startswith("<svg")
    True
    """
    return draw(prepare(graph, chosen(graph, options)).scene(), headline(graph))


def to_dot(graph: Computation, **options: object) -> str:
    """The graph in the language of Graphviz.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> print(to_dot(trace_graph(jnp.sin, jnp.ones(3))).splitlines()[0])
    digraph sin {
    """
    return dot_text(prepare(graph, chosen(graph, options)))


def write_graph(graph: Computation, path: str | os.PathLike[str], **options: object) -> Path:
    """Write the graph to a file; the file appears whole or not at all.

    Args:
        graph: The graph to write.
        path: Its ending chooses the format. Missing folders are made.
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
        ".html": socket("page"),
        ".svg": to_svg,
        ".dot": to_dot,
        ".txt": lambda graph: outline(graph, options=graph.options) + "\n",
    }
    ending = target.suffix.lower()
    if ending not in ENDINGS:
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
