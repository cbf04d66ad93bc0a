"""A scene as text in the language of Graphviz, and through its program as a picture."""

from __future__ import annotations

from typing import Any

from nbmodule.base.format import printable_lines
from nbmodule.errors import MissingDependencyError, TraceError
from nbmodule.graphs.layout.labels import group_note, group_title, shape_text
from nbmodule.graphs.layout.scene import Box, Place
from nbmodule.graphs.writing.look import PAINT, paint_of, text_in
from nbmodule.graphs.writing.options import Drawing
from nbmodule.graphs.writing.svg import stroke_width

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
    look, labels = drawing.look(scene), drawing.forms.labels
    inside: dict[Place, list[Box]] = {}
    for box in scene.boxes:
        inside.setdefault(box.place[:-1] if box.place != drawing.focus else (-1,), []).append(box)

    def write(level: Any, location: Place) -> None:
        for box in inside.get(location, []):
            marked = MARKED if box.place in drawing.highlight else {}
            if box.is_open:
                label = f"{group_title(box.child)} {group_note(box.child.form)}".strip()
                with level.subgraph(name=f"cluster_{_id(box.place)}") as cluster:
                    cluster.attr(label=_plain(label), **CLUSTER | marked)
                    write(cluster, box.place)
                continue
            name, note, facts = text_in(box, labels)
            label = "\n".join(filter(None, [f"{name} {note}".strip(), facts]))
            paint = paint_of(box)
            style = {"fillcolor": look.fills.get(box.place) or PAINT[paint][0]}
            if paint == "pill":
                style |= {"shape": "oval", "height": "0.2"}
            if paint == "failure":
                style |= {"color": PAINT[paint][1]}
            hover = _plain(look.hover[box.place])
            level.node(_id(box.place), _plain(label), tooltip=hover, **style | marked)

    name = _plain(drawing.forms.name or "graph")
    written = Digraph(name, graph_attr=GRAPH, node_attr=NODE, edge_attr=EDGE)
    write(written, drawing.focus)
    for line in scene.lines:
        first, *others = line.slots.values()
        text = f"{len(line.slots)} edges" if others else shape_text(first)
        words = [text if drawing.options.with_edge_labels else "", look.returns.get(line.source)]
        label = _plain("\n".join(filter(None, words))) or None
        wide = str(stroke_width(line.bytes))
        written.edge(_id(line.source), _id(line.target), label, penwidth=wide)
    for line in scene.sides if look.writes else ():
        written.edge(_id(line.source), _id(line.target), style="dashed", constraint="false")
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
