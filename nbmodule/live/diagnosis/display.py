"""Verdicts as HTML that needs no script: the sentence, its evidence as one small picture, what to
try.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nbmodule.base.format import plain
from nbmodule.live.diagnosis.rule import RuleVerdict
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.records.records import HistoryRecord, SeriesRecord
from nbmodule.views.renderers.drawing import curve_image, image_of
from nbmodule.views.renderers.html import Markup, tag

_MOST_BARS = 64
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
    rows = {plain(n, 60): np.asarray(v, np.float64) for n, v in verdict.evidence.items()}
    rows = {name: v for name, v in rows.items() if len(v) > 1 and np.isfinite(v).any()}
    if len(rows) == 1 and all(len(values) <= _MOST_BARS for values in rows.values()):
        ((name, values),) = rows.items()
        ends = np.append(values[np.isfinite(values)], 0.0)
        bars = picture_of(values, exact=_MOST_BARS, limits=(float(ends.min()), float(ends.max())))
        return tag("div", image_of(bars), tag("div", name, style=_QUIET))
    series = (
        SeriesRecord(name, tuple(range(len(values))), tuple(values.tolist()), "evidence")
        for name, values in rows.items()
    )
    history = HistoryRecord("evidence", tuple(series), axis="point")
    return curve_image(history, 320, 120) if rows else Markup("")
