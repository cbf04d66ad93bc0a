"""Verdicts as HTML that needs no script: the sentence, its evidence as one small picture, what to
try.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from nbmodule.base.format import plain
from nbmodule.live.diagnosis.rule import RuleVerdict
from nbmodule.views.renderers.drawing import LINES
from nbmodule.views.renderers.html import Markup, tag

_MOST_BARS = 64
_LOG_FROM = 1e3
_WIDTH, _HEIGHT = 240, 60
_QUIET = "font-size:12px;opacity:.8"


def verdicts_html(verdicts: Iterable[RuleVerdict]) -> Markup:
    """Return one block for each verdict."""
    return tag("div", *map(_block, verdicts))


def _block(verdict: RuleVerdict) -> Markup:
    parts = [tag("div", tag("b", plain(verdict.sentence, 400))), _pictures(verdict)]
    about = tag("code", verdict.rule)
    parts.append(tag("div", plain(verdict.explanation, 600), " ", about, style=_QUIET))
    for fix in verdict.fixes:
        code = [tag("code", fix.code)] if fix.code and fix.code != fix.label else []
        parts.append(tag("div", "Try: ", fix.label, *([" — ", *code] if code else [])))
    border = "border-left:3px solid color-mix(in srgb, currentColor 30%, transparent)"
    return tag("div", *parts, style=f"margin:8px 0;padding-left:10px;{border};max-width:720px")


def _pictures(verdict: RuleVerdict) -> Markup:
    """Draw the evidence: bars where one row of few numbers is given, else curves on one scale."""
    rows = {
        name: [float(value) for value in values]
        for name, values in verdict.evidence.items()
        if len(values) > 1
    }
    known = [value for values in rows.values() for value in values if math.isfinite(value)]
    if not known:
        return Markup("")
    is_bars = len(rows) == 1 and all(len(values) <= _MOST_BARS for values in rows.values())
    low, high = min(known), max(known)
    is_log = not is_bars and low > 0 and high > _LOG_FROM * low
    if is_log:
        with np.errstate(all="ignore"):
            rows = {f"{k} (logarithm)": np.log10(v).tolist() for k, v in rows.items()}
        low, high = math.log10(low), math.log10(high)
    if is_bars:
        low, high = min(low, 0.0), max(high, 0.0)
    shapes, legend = [], []
    for number, (name, values) in enumerate(rows.items()):
        color = LINES[number % len(LINES)]
        draw = _bars if is_bars else _curve
        shapes.append(draw(values, low, (high - low) or 1.0, color))
        mark = tag("span", "■ ", style=f"color:{color}")
        legend.append(tag("span", mark, plain(name, 60), " "))
    box = {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img"}
    style = f"width:{_WIDTH}px;max-width:100%;height:{_HEIGHT}px"
    label = f"evidence: {', '.join(rows)}"
    drawing = tag("svg", *shapes, **box, aria_label=label, style=style)
    return tag("div", drawing, tag("div", *legend, style="font-size:11px"))


def _bars(values: Sequence[float], low: float, span: float, color: str) -> Markup:
    step = _WIDTH / len(values)
    zero = _HEIGHT * (1 + low / span)
    bars = []
    for k, value in enumerate(values):
        top = _HEIGHT * (1 - (value - low) / span) if math.isfinite(value) else 0.0
        y, height = min(top, zero), max(abs(top - zero), 0.5)
        size = {"width": f"{0.85 * step:.1f}", "height": f"{height:.1f}"}
        bars.append(tag("rect", x=f"{k * step:.1f}", y=f"{y:.1f}", **size))
    return tag("g", *bars, fill=color)


def _curve(values: Sequence[float], low: float, span: float, color: str) -> Markup:
    step = _WIDTH / max(len(values) - 1, 1)
    points = [
        f"{k * step:.1f},{2 + (_HEIGHT - 4) * (1 - (value - low) / span):.1f}"
        for k, value in enumerate(values)
        if math.isfinite(value)
    ]
    return tag("polyline", points=" ".join(points), fill="none", stroke=color, stroke_width="1.5")
