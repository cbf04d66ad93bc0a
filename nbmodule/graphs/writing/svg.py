"""Draw a scene as SVG text with a light background of its own, ready for a page, a file or a
printer.
"""

from __future__ import annotations

import html
import math

from nbmodule.base.format import printable_lines
from nbmodule.graphs.layout.forms import PILLS, Form, Label
from nbmodule.graphs.layout.labels import group_facts, group_note, group_title, node_note
from nbmodule.graphs.layout.scene import Box, EdgeLine, Place, Scene
from nbmodule.graphs.writing.hover import Look, hover_texts

MARGIN = 12.0
STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica "
    "Neue',Arial,sans-serif;fill:#1c2430}"
    ".n{font-size:10px;fill:#5b6776}.m{font-weight:600}"
    ".k{font-size:11px;fill:#5b6776;font-weight:400}"
    ".l{font-size:10px;fill:#5b6776;paint-order:stroke;stroke:#fff;"
    "stroke-width:3px;stroke-linejoin:round}"
    ".e{fill:none;stroke:#8b97a7}.f{fill:#1d4f91;fill-opacity:.035;stroke:#a9b8cc}"
    ".g{fill:#e6edf7;stroke:#7d96b8}.q{fill:#eef0f2;stroke:#8b97a7}"
    ".s{fill:none;stroke:#8b97a7;stroke-dasharray:3 3}"
    ".o{fill:#fff;stroke:#b3bcc8}.p{fill:#f4efe2;stroke:#b9a876}.i{fill:#eaf3ec;stroke:#7fa88b}"
    ".x{fill:#fdeceb;stroke:#c4302b;stroke-width:2}.d{opacity:.45}"
    ".h{fill:none;stroke:#c4302b;stroke-width:2.5}"
)


def escape(text: str) -> str:
    """Text between tags; signs that XML cannot hold (all but a few control signs, lone surrogates)
    are written out.
    """
    return html.escape(printable_lines(text))


def draw(scene: Scene, labels: list[Label], look: Look | None = None, title: str = "") -> str:
    """SVG text of a scene.

    Args:
        scene: What is visible.
        labels: Full names of variables, as in `Forms.labels`.
        look: What to point out.
        title: What the picture is called for readers that do not see it.
    """
    look = look or Look()
    bottom = 26.0 if look.legend else 0.0
    if not scene.boxes:
        scene = Scene(230.0, 20.0, [], [], [], [(0.0, 14.0, "no output depends on any operation")])
    width, height = scene.width + 2 * MARGIN, scene.height + 2 * MARGIN + bottom
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="{_n(-MARGIN)} {_n(-MARGIN)} {_n(width)} {_n(height)}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect x="{_n(-MARGIN)}" y="{_n(-MARGIN)}" width="{_n(width)}" height="{_n(height)}" '
        f'fill="#fff"/>',
    ]
    boxes = {box.place: box for box in scene.boxes}
    parts += [_frame(box) for box in scene.boxes if box.is_open]
    parts += [_arrow(posts, "") for posts in scene.ends]
    parts += [_line(line, boxes) for line in scene.lines]
    parts += [f'<path class="s" d="{curve(line.posts)}"/>' for line in scene.sides if look.writes]
    hover = hover_texts(scene, labels, look)
    parts += [_box(box, labels, look, hover[box.place]) for box in scene.boxes if not box.is_open]
    parts += [_heading(box) for box in scene.boxes if box.is_open]
    parts += [_label(x, y, text) for x, y, text in scene.labels]
    inner = 22 if scene.labels else 11
    parts += [
        _label(
            boxes[location].x + boxes[location].width / 2 + 5,
            boxes[location].y + boxes[location].height + inner,
            text,
        )
        for location, text in look.returns.items()
    ]
    parts += [_marked(boxes[location]) for location in sorted(look.highlight) if location in boxes]
    if look.legend:
        parts.append(_legend(look.legend, scene.height + MARGIN))
    return "".join(parts) + "</svg>\n"


def curve(posts: list[tuple[float, float, float]]) -> str:
    """Path data of a line: straight along its posts, a curve from one to the next.

    >>> curve([(0, 0, 10), (20, 30, 40)])
    'M0 0V10C0 20 20 20 20 30V40'
    """
    x, top, bottom = posts[0]
    parts = [f"M{_n(x)} {_n(top)}"]
    for next_x, next_top, next_bottom in posts[1:]:
        if next_x == x:
            bottom = next_bottom
            continue
        middle = (bottom + next_top) / 2
        if bottom != top:
            parts.append(f"V{_n(bottom)}")
        parts.append(f"C{_n(x)} {_n(middle)} {_n(next_x)} {_n(middle)} {_n(next_x)} {_n(next_top)}")
        x, top, bottom = next_x, next_top, next_bottom
    return "".join(parts) + (f"V{_n(bottom)}" if bottom != top else "")


def stroke_width(size: float) -> float:
    """Thickness of a line by the bytes that run along it: 1 pixel up to 1 KiB, half of one more for
    each factor of 10.

    >>> stroke_width(4), stroke_width(1024 * 100), stroke_width(1e12)
    (1.0, 2.0, 3.0)
    """
    return round(min(3.0, 1.0 + max(0.0, math.log(max(size, 1) / 1024, 100))), 2)


def _n(x: float) -> str:
    return f"{x:.1f}".rstrip("0").rstrip(".") if x != int(x) else str(int(x))


def _line(line: EdgeLine, boxes: dict[Place, Box]) -> str:
    wide = stroke_width(line.bytes)
    style = f' stroke-width="{wide}"' if wide != 1 else ""
    target = boxes[line.target]
    if line.posts:
        return _arrow(line.posts, style)
    source = boxes[line.source]
    y = min(max(source.y + source.height / 2, target.y + 4), target.y + target.height - 4)
    return (
        f'<path class="e"{style} d="M{_n(source.x + source.width)} '
        f'{_n(source.y + source.height / 2)}L{_n(target.x)} {_n(y)}"/>'
    )


def _arrow(posts: list[tuple[float, float, float]], style: str) -> str:
    x, _, y = posts[-1]
    head = f"M{_n(x - 3.5)} {_n(y - 6)}L{_n(x)} {_n(y)}L{_n(x + 3.5)} {_n(y - 6)}"
    return f'<path class="e"{style} d="{curve(posts)}{head}"/>'


def _rect(box: Box, style: str, radius: float = 3, extra: str = "") -> str:
    return (
        f'<rect class="{style}" x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" '
        f'height="{_n(box.height)}" '
        f'rx="{_n(radius)}"{extra}/>'
    )


def _label(x: float, y: float, text: str) -> str:
    return f'<text class="l" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _frame(box: Box) -> str:
    return _rect(box, "f")


def _heading(box: Box) -> str:
    note = group_note(box.child.form)
    tail = f' <tspan class="k" dx="4">{escape(note)}</tspan>' if note else ""
    return (
        f'<text class="m" x="{_n(box.x + 9)}" '
        f'y="{_n(box.y + 17)}">{escape(group_title(box.child))}{tail}</text>'
    )


def _box(box: Box, labels: list[Label], look: Look, hover: str) -> str:
    value = box.child.content
    fill = look.fills.get(box.place)
    extra = f' style="fill:{fill}"' if fill else ""
    middle = box.x + box.width / 2
    if isinstance(value, Form):
        note = group_note(value)
        tail = f' <tspan class="k" dx="3">{escape(note)}</tspan>' if note else ""
        body = _rect(box, "q" if value.is_function else "g", 3, extra) + (
            f'<text class="m" x="{_n(middle)}" y="{_n(box.y + 17)}" text-anchor="middle">'
            f'{escape(group_title(box.child))}{tail}</text><text class="n" x="{_n(middle)}" '
            f'y="{_n(box.y + 32)}" '
            f'text-anchor="middle">{escape(group_facts(value))}</text>'
        )
    else:
        style = "p" if value.kind in PILLS else "i" if value.kind in ("input", "output") else "o"
        style = "x" if value.kind == "failure" else style
        note = node_note(box.child)
        tail = f' <tspan class="n" dx="3">{escape(note)}</tspan>' if note else ""
        size = ' style="font-size:11px"' if value.kind in PILLS else ""
        base = box.y + box.height / 2 + 4
        mark = labels[box.first_label].mark if value.kind in PILLS else ""
        name = f"{box.child.name} {mark}".strip()
        body = _rect(box, style, box.height / 2 if value.kind in PILLS else 3, extra) + (
            f'<text x="{_n(middle)}" y="{_n(base)}" '
            f'text-anchor="middle"{size}>{escape(name)}{tail}</text>'
        )
    dead = ' class="d"' if not isinstance(value, Form) and value.dead else ""
    return f"<g{dead}><title>{escape(hover)}</title>{body}</g>"


def _marked(box: Box) -> str:
    return (
        f'<rect class="h" x="{_n(box.x - 2)}" y="{_n(box.y - 2)}" width="{_n(box.width + 4)}" '
        f'height="{_n(box.height + 4)}" rx="4"/>'
    )


def _legend(legend: tuple[str, str, str], y: float) -> str:
    text, low, high = legend
    return (
        '<defs><linearGradient id="nbm-scale"><stop offset="0" stop-color="'
        + low
        + '"/><stop offset="1" stop-color="'
        + high
        + f'"/></linearGradient></defs><rect x="0" y="{_n(y - 9)}" width="80" height="10" '
        f'fill="url(#nbm-scale)" '
        f'stroke="#8b97a7" stroke-width=".5"/><text class="n" x="88" '
        f'y="{_n(y)}">{escape(text)}</text>'
    )
