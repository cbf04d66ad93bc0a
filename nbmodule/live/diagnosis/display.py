"""Verdicts as HTML that needs no script: the sentence, its evidence as one small picture, what to
try.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import plain
from nbmodule.live.diagnosis.rule import RuleVerdict
from nbmodule.views.renderers.drawing import LINES
from nbmodule.views.renderers.html import Markup, tag

Values = NDArray[np.floating]

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
    rows = {n: np.asarray(v, np.float64) for n, v in verdict.evidence.items() if len(v) > 1}
    known = np.concatenate([*rows.values(), [math.nan]])
    known = known[np.isfinite(known)]
    if not known.size:
        return Markup("")
    is_bars = len(rows) == 1 and known.size <= _MOST_BARS
    if is_bars:
        known = np.append(known, 0.0)
    elif 0 < _LOG_FROM * known.min() < known.max():
        with np.errstate(all="ignore"):
            rows = {f"{name} (logarithm)": np.log10(values) for name, values in rows.items()}
        known = np.log10(known)
    shapes, legend = [], []
    for (name, values), color in zip(rows.items(), itertools.cycle(LINES)):
        shapes.append((_bars if is_bars else _curve)(values, known.min(), np.ptp(known), color))
        mark = tag("span", "■ ", style=f"color:{color}")
        legend.append(tag("span", mark, plain(name, 60), " "))
    box = {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img"}
    style = f"width:{_WIDTH}px;max-width:100%;height:{_HEIGHT}px"
    label = f"evidence: {', '.join(rows)}"
    drawing = tag("svg", *shapes, **box, aria_label=label, style=style)
    return tag("div", drawing, tag("div", *legend, style="font-size:11px"))


def _bars(values: Values, low: float, span: float, color: str) -> Markup:
    step, unit = _WIDTH / len(values), _HEIGHT / (span or 1)
    bars = []
    for k, value in enumerate(np.nan_to_num(values, posinf=0, neginf=0)):
        y = _HEIGHT + unit * (low - max(value, 0))
        size = {"width": f"{0.85 * step:.1f}", "height": f"{max(unit * abs(value), 0.5):.1f}"}
        bars.append(tag("rect", x=f"{k * step:.1f}", y=f"{y:.1f}", **size))
    return tag("g", *bars, fill=color)


def _curve(values: Values, low: float, span: float, color: str) -> Markup:
    x = np.linspace(0, _WIDTH, len(values))
    y = _HEIGHT - 2 - (_HEIGHT - 4) * (values - low) / (span or 1)
    known = np.isfinite(values)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[known], y[known]))
    return tag("polyline", points=points, fill="none", stroke=color, stroke_width="1.5")
