"""A scene as text in the language of Graphviz, and through its program as a picture."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from nbmodule.base.format import printable_lines
from nbmodule.errors import MissingDependencyError, TraceError
from nbmodule.flow.placing.forms import PILLS, Form
from nbmodule.flow.placing.labels import group_facts, group_note, group_title, node_note, shape_text
from nbmodule.flow.placing.scene import Box, Place
from nbmodule.flow.writing.hover import Look, hover_texts
from nbmodule.flow.writing.options import Drawing
from nbmodule.flow.writing.svg import stroke_width

SECONDS = 20.0
HEAD = (
    '  graph [rankdir=TB, fontname="Helvetica", fontsize=12, labeljust=l, nodesep=0.25, ranksep=0.4];\n'
    '  node [shape=box, style=filled, fillcolor=white, color="#8b97a7", fontname="Helvetica", fontsize=11, height=0.3];\n'
    '  edge [color="#8b97a7", fontname="Helvetica", fontsize=9, fontcolor="#5b6776", arrowsize=0.6];\n'
)


def dot_text(drawing: Drawing) -> str:
    """The visible part of a graph in the language of Graphviz; open groups are clusters."""
    scene = drawing.scene()
    look = drawing.look(scene)
    inside: dict[Place, list[Box]] = {}
    for box in scene.boxes:
        inside.setdefault(box.place[:-1] if box.place != drawing.focus else (-1,), []).append(box)
    lines = [f"digraph {_quote(drawing.forms.name or 'graph')} {{", HEAD.rstrip("\n")]
    hover = hover_texts(scene, drawing.forms.labels, look)
    lines += _level(drawing.focus, inside, drawing, look, hover, "  ")
    for line in scene.lines:
        value = next(iter(line.slots.values()))
        text = shape_text(value) if len(line.slots) == 1 else f"{len(line.slots)} edges"
        words = [text if drawing.options.with_edge_labels else "", look.returns.get(line.source, "")]
        label = f"label={_quote(chr(10).join(filter(None, words)))}, " if any(words) else ""
        lines.append(f"  {_id(line.source)} -> {_id(line.target)} [{label}penwidth={stroke_width(line.bytes)}];")
    return "\n".join([*lines, "}"]) + "\n"


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
    command = ["dot", f"-T{form}"]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=seconds, check=True)
    except FileNotFoundError as error:
        raise MissingDependencyError(
            f"a .{form} picture needs the program `dot` of Graphviz, which is not on the PATH "
            f"(`apt-get install graphviz`, `brew install graphviz`). Without it: .svg, .html and .dot."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise TraceError(
            f"Graphviz did not finish the .{form} picture within {seconds:g} s and was stopped. Show less of the graph "
            f"(depth=, focus=), or save it as .svg, which needs no Graphviz."
        ) from error
    except subprocess.CalledProcessError as error:
        raise TraceError(
            f"Graphviz could not draw the picture: {error.stderr.decode(errors='replace').strip()}"
        ) from error
    return done.stdout


def _level(
    place: Place,
    inside: dict[Place, list[Box]],
    drawing: Drawing,
    look: Look,
    hover: Mapping[Place, str],
    indent: str,
) -> list[str]:
    lines = []
    for box in inside.get(place, []):
        tip = f", tooltip={_quote(hover[box.place])}"
        marked = ', color="#c4302b", penwidth=2.5' if box.place in drawing.highlight else ""
        if box.is_open:
            note = group_note(box.child.form)
            label = f"{group_title(box.child)} {note}".strip()
            lines.append(f"{indent}subgraph cluster_{_id(box.place)} {{")
            color = '; color="#c4302b"; penwidth=2.5' if marked else '; color="#a9b8cc"'
            lines.append(f'{indent}  label={_quote(label)}{color}; style=filled; fillcolor="#1d4f910a";')
            lines += _level(box.place, inside, drawing, look, hover, indent + "  ")
            lines.append(f"{indent}}}")
        else:
            lines.append(f"{indent}{_id(box.place)} [{_style(box, look.fills.get(box.place))}{tip}{marked}];")
    return lines


def _style(box: Box, fill: str | None) -> str:
    thing = box.child.thing
    if isinstance(thing, Form):
        label = "\n".join(filter(None, [f"{group_title(box.child)} {group_note(thing)}".strip(), group_facts(thing)]))
        return f'label={_quote(label)}, fillcolor="{fill or "#e6edf7"}"'
    label = f"{box.child.name} {node_note(box.child)}".strip()
    colors = {"input": "#eaf3ec", "output": "#eaf3ec", "failure": "#fdeceb"}
    shape = ', shape=oval, height=0.2, fillcolor="#f4efe2"' if thing.kind in PILLS else ""
    default = colors.get(thing.kind, "white")
    failed = ', color="#c4302b"' if thing.kind == "failure" else ""
    return f"label={_quote(label)}" + (shape or f', fillcolor="{fill or default}"') + failed


def _id(place: Place) -> str:
    return "n" + "_".join(map(str, place))


def _quote(text: str) -> str:
    return '"' + printable_lines(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
