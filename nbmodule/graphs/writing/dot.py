"""A scene as text in the language of Graphviz, and through its program as a picture."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from nbmodule.base.format import printable_lines
from nbmodule.errors import MissingDependencyError, TraceError
from nbmodule.graphs.layout.forms import PILLS, Form
from nbmodule.graphs.layout.labels import (
    group_facts,
    group_note,
    group_title,
    node_note,
    shape_text,
)
from nbmodule.graphs.layout.scene import Box, Place
from nbmodule.graphs.writing.hover import Look, hover_texts
from nbmodule.graphs.writing.options import Drawing
from nbmodule.graphs.writing.svg import stroke_width

SECONDS = 20.0
GRAPH = {
    "rankdir": "TB",
    "fontname": "Helvetica",
    "fontsize": "12",
    "labeljust": "l",
    "nodesep": "0.25",
    "ranksep": "0.4",
}
NODE = {
    "shape": "box",
    "style": "filled",
    "fillcolor": "white",
    "color": "#8b97a7",
    "fontname": "Helvetica",
    "fontsize": "11",
    "height": "0.3",
}
EDGE = {
    "color": "#8b97a7",
    "fontname": "Helvetica",
    "fontsize": "9",
    "fontcolor": "#5b6776",
    "arrowsize": "0.6",
}
MARKED = {"color": "#c4302b", "penwidth": "2.5"}


def dot_text(drawing: Drawing) -> str:
    """The visible part of a graph in the language of Graphviz; open groups are clusters."""
    from graphviz import Digraph

    scene = drawing.scene()
    look = drawing.look(scene)
    inside: dict[Place, list[Box]] = {}
    for box in scene.boxes:
        inside.setdefault(box.place[:-1] if box.place != drawing.focus else (-1,), []).append(box)
    written = Digraph(
        _plain(drawing.forms.name or "graph"), graph_attr=GRAPH, node_attr=NODE, edge_attr=EDGE
    )
    _level(
        written,
        drawing.focus,
        inside,
        drawing,
        look,
        hover_texts(scene, drawing.forms.labels, look),
    )
    for line in scene.lines:
        value = next(iter(line.slots.values()))
        text = shape_text(value) if len(line.slots) == 1 else f"{len(line.slots)} edges"
        words = [
            text if drawing.options.with_edge_labels else "",
            look.returns.get(line.source, ""),
        ]
        label = _plain("\n".join(filter(None, words))) if any(words) else None
        written.edge(
            _id(line.source), _id(line.target), label, penwidth=str(stroke_width(line.bytes))
        )
    for line in scene.sides if drawing.options.with_writes else ():
        written.edge(_id(line.source), _id(line.target), style="dashed", constraint="false")
    return written.source


def render(text: str, form: str, seconds: float = SECONDS) -> bytes:
    """Let Graphviz draw a text.

    Args:
        text: In its language.
        form: `png`, `pdf` or `svg`.
        seconds: How long it may take.

    Raises:
        MissingDependencyError: if the program is not installed.
        TraceError: if it takes too long or fails.
    """
    from graphviz.backend import dot_command, execute

    try:  # `Source.pipe` is the same, without a limit of time
        command = dot_command.command("dot", form)
        done = execute.run_check(
            command, input=text.encode(), capture_output=True, timeout=seconds, quiet=True
        )
    except execute.ExecutableNotFound as error:
        raise MissingDependencyError(
            f"a .{form} picture needs the program `dot` of Graphviz, which is not on the PATH "
            f"(`apt-get install graphviz`, `brew install graphviz`). Without it: .svg, .html "
            f"and .dot."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise TraceError(
            f"Graphviz did not finish the .{form} picture within {seconds:g} s and was stopped. "
            f"Show less of the graph "
            f"(depth=, focus=), or save it as .svg, which needs no Graphviz."
        ) from error
    except subprocess.CalledProcessError as error:
        raise TraceError(
            f"Graphviz could not draw the picture: {error.stderr.decode(errors='replace').strip()}"
        ) from error
    return done.stdout


def _level(
    written: Any,
    location: Place,
    inside: dict[Place, list[Box]],
    drawing: Drawing,
    look: Look,
    hover: Mapping[Place, str],
) -> None:
    for box in inside.get(location, []):
        marked = MARKED if box.place in drawing.highlight else {}
        if not box.is_open:
            label, style = _style(box, look.fills.get(box.place))
            written.node(
                _id(box.place),
                _plain(label),
                **{"tooltip": _plain(hover[box.place])} | style | marked,
            )
            continue
        label = f"{group_title(box.child)} {group_note(box.child.form)}".strip()
        with written.subgraph(name=f"cluster_{_id(box.place)}") as cluster:
            cluster.attr(
                **{
                    "label": _plain(label),
                    "color": "#a9b8cc",
                    "style": "filled",
                    "fillcolor": "#1d4f910a",
                }
                | marked
            )
            _level(cluster, box.place, inside, drawing, look, hover)


def _style(box: Box, fill: str | None) -> tuple[str, dict[str, str]]:
    """What is written in a box, and how the box is drawn."""
    value = box.child.content
    if isinstance(value, Form):
        label = "\n".join(
            filter(
                None, [f"{group_title(box.child)} {group_note(value)}".strip(), group_facts(value)]
            )
        )
        return label, {"fillcolor": fill or ("#eef0f2" if value.is_function else "#e6edf7")}
    label = f"{box.child.name} {node_note(box.child)}".strip()
    colors = {"input": "#eaf3ec", "output": "#eaf3ec", "failure": "#fdeceb"}
    style = {"fillcolor": fill or colors.get(value.kind, "white")}
    if value.kind in PILLS:
        style = {"shape": "oval", "height": "0.2", "fillcolor": "#f4efe2"}
    return label, style | ({"color": "#c4302b"} if value.kind == "failure" else {})


def _id(location: Place) -> str:
    return "n" + "_".join(map(str, location))


def _plain(text: str) -> str:
    """Text that Graphviz writes as it is: no markup, no escapes but those of a line's end."""
    from graphviz import escape, nohtml

    return nohtml(escape(printable_lines(text)).replace("\n", r"\n"))
