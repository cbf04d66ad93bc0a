"""Draw a scene as SVG text with a light background of its own, ready for a page, a file or a
printer.
"""

from __future__ import annotations

import html
import math

from nbmodule.base.format import printable_lines
from nbmodule.graphs.layout.forms import Form
from nbmodule.graphs.layout.scene import Box, EdgeLine, Post, Scene
from nbmodule.graphs.writing.look import PAINT, paint_of, text_in

MARGIN = 12.0
_CLASSES = dict(zip(PAINT, "gqopix", strict=True))
STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica "
    "Neue',Arial,sans-serif;fill:#1c2430}"
    ".n{font-size:10px;fill:#5b6776}.m{font-weight:600}"
    ".k{font-size:11px;fill:#5b6776;font-weight:400}"
    ".l{font-size:10px;fill:#5b6776;paint-order:stroke;stroke:#fff;"
    "stroke-width:3px;stroke-linejoin:round}"
    ".e{fill:none;stroke:#8b97a7}.f{fill:#1d4f91;fill-opacity:.035;stroke:#a9b8cc}"
    ".s{fill:none;stroke:#8b97a7;stroke-dasharray:3 3}.d{opacity:.45}"
    ".h{fill:none;stroke:#c4302b;stroke-width:2.5}"
) + "".join(
    f".{_CLASSES[name]}{{fill:{fill};stroke:{border}}}" for name, (fill, border) in PAINT.items()
)


def escape(text: str) -> str:
    """Text between tags; signs that XML cannot hold (all but a few control signs, lone surrogates)
    are written out.
    """
    return html.escape(printable_lines(text))


def draw(scene: Scene, title: str) -> str:
    """SVG text of a scene; `title` is what it is called for readers that do not see it."""
    bottom = 26.0 if scene.legend else 0.0
    if not scene.boxes:
        scene = Scene(230.0, 20.0, [], [], [], [(0.0, 14.0, "no output depends on any operation")])
    width, height = _n(scene.width + 2 * MARGIN), _n(scene.height + 2 * MARGIN + bottom)
    corner = _n(-MARGIN)
    opened = [box for box in scene.boxes if box.is_open]
    offset = 22 if scene.labels else 11
    words = scene.labels + [
        (box.x + box.width / 2 + 5, box.y + box.height + offset, box.returned)
        for box in scene.boxes
        if box.returned
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{corner} {corner} {width} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f'<rect x="{corner}" y="{corner}" width="{width}" height="{height}" fill="#fff"/>',
        *(_rect(box, "f") for box in opened),
        *(_arrow(posts) for posts in scene.ends),
        *map(_line, scene.lines),
        *(f'<path class="s" d="{curve(line.posts)}"/>' for line in scene.sides),
        *(_box(box) for box in scene.boxes if not box.is_open),
        *map(_heading, opened),
        *(f'<text class="l" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>' for x, y, text in words),
        *(_rect(box, "h", 4, margin=2) for box in scene.boxes if box.is_marked),
        _legend(*scene.legend, scene.height + MARGIN) if scene.legend else "",
    ]
    return "".join(parts) + "</svg>\n"


def curve(posts: list[Post]) -> str:
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


def _line(line: EdgeLine) -> str:
    wide = stroke_width(line.bytes)
    style = f' stroke-width="{wide}"' if wide != 1 else ""
    if line.posts:
        return _arrow(line.posts, style)
    source, target = line.source, line.target
    x, y = source.x + source.width, source.y + source.height / 2
    end = min(max(y, target.y + 4), target.y + target.height - 4)
    return f'<path class="e"{style} d="M{_n(x)} {_n(y)}L{_n(target.x)} {_n(end)}"/>'


def _arrow(posts: list[Post], style: str = "") -> str:
    x, _, y = posts[-1]
    head = f"M{_n(x - 3.5)} {_n(y - 6)}L{_n(x)} {_n(y)}L{_n(x + 3.5)} {_n(y - 6)}"
    return f'<path class="e"{style} d="{curve(posts)}{head}"/>'


def _rect(box: Box, name: str, radius: float = 3, extra: str = "", margin: float = 0) -> str:
    x, y = _n(box.x - margin), _n(box.y - margin)
    width, height = _n(box.width + 2 * margin), _n(box.height + 2 * margin)
    location = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="{_n(radius)}"'
    return f'<rect class="{name}" {location}{extra}/>'


def _note(text: str, name: str, dx: int = 3) -> str:
    return f' <tspan class="{name}" dx="{dx}">{escape(text)}</tspan>' if text else ""


def _heading(box: Box) -> str:
    name, note, _ = text_in(box)
    text = escape(name) + _note(note, "k", 4)
    return f'<text class="m" x="{_n(box.x + 9)}" y="{_n(box.y + 17)}">{text}</text>'


def _box(box: Box) -> str:
    value, paint = box.child.content, paint_of(box)
    extra = f' style="fill:{box.fill}"' if box.fill else ""
    location = f'x="{_n(box.x + box.width / 2)}" text-anchor="middle"'
    name, note, facts = text_in(box)
    round_ends = paint == "pill"
    body = _rect(box, _CLASSES[paint], box.height / 2 if round_ends else 3, extra)
    if isinstance(value, Form):
        text = escape(name) + _note(note, "k")
        body += f'<text class="m" {location} y="{_n(box.y + 17)}">{text}</text>'
        body += f'<text class="n" {location} y="{_n(box.y + 32)}">{escape(facts)}</text>'
    else:
        size = ' style="font-size:11px"' if round_ends else ""
        text = escape(name) + _note(note, "n")
        body += f'<text {location} y="{_n(box.y + box.height / 2 + 4)}"{size}>{text}</text>'
    dead = ' class="d"' if not isinstance(value, Form) and value.dead else ""
    return f"<g{dead}><title>{escape(box.hover)}</title>{body}</g>"


def _legend(text: str, low: str, high: str, y: float) -> str:
    return (
        '<defs><linearGradient id="nbm-scale">'
        f'<stop offset="0" stop-color="{low}"/><stop offset="1" stop-color="{high}"/>'
        f'</linearGradient></defs><rect x="0" y="{_n(y - 9)}" width="80" height="10" '
        f'fill="url(#nbm-scale)" stroke="#8b97a7" stroke-width=".5"/>'
        f'<text class="n" x="88" y="{_n(y)}">{escape(text)}</text>'
    )
