"""Judge evidence by all rules, those of the package and those that a user has added; verdicts are
also HTML that needs no script.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nbmodule.base.format import plain, printable_repr
from nbmodule.errors import ArgumentError
from nbmodule.live.diagnosis import (  # noqa: F401 the modules register their rules
    curve_rules,
    data_rules,
    inside_rules,
    model_rules,
)
from nbmodule.live.diagnosis.evidence import Evidence
from nbmodule.live.diagnosis.rule import DiagnosisRule, RuleVerdict, table
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


_muted: set[str] = set()


def rules() -> tuple[DiagnosisRule, ...]:
    """Return all rules, those of the package and those added by `nb.rule`."""
    return tuple(table.values())


def mute_rule(name: str, *, muted: bool = True) -> None:
    """Silence a rule in this process, or let it speak again with `muted=False`.

    Raises:
        ArgumentError: If there is no rule of that name.
    """
    if name not in table:
        close = difflib.get_close_matches(name, table, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ArgumentError(f"there is no rule {name!r}.{hint}")
    (_muted.add if muted else _muted.discard)(name)


class Diagnosis(tuple[RuleVerdict, ...]):
    """Verdicts, worst first. An empty diagnosis means that no rule found a fault.

    `diagnosis["overfits"]` is the first verdict of that rule.
    """

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            found = next((verdict for verdict in self if verdict.rule == key), None)
            if found is None:
                raise KeyError(key)
            return found
        return super().__getitem__(key)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rules that spoke."""
        return tuple(dict.fromkeys(verdict.rule for verdict in self))

    @printable_repr
    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no fault found"

    def html(self) -> str:
        """Return the verdicts with their evidence as HTML that needs no script."""
        return str(verdicts_html(self)) if self else "<div>no fault found</div>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self.html()}


_ORDER = {"wrong": 0, "doubt": 1, "note": 2}
# A verdict that explains others silences them: NaN in the data makes every other number NaN.
EXPLAINS: dict[str, frozenset[str]] = {
    "nonfinite-data": frozenset(
        "nonfinite-loss nonfinite-return no-update does-not-learn input-scale target-scale".split()
    ),
    "nonfinite-return": frozenset(["nonfinite-loss"]),
    "labels-out-of-range": frozenset(
        ["nonfinite-loss", "nonfinite-return", "does-not-learn", "missing-class"]
    ),
    "no-update": frozenset(["does-not-learn", "learns-slowly", "small-update", "plateau"]),
    "diverges": frozenset(["oscillates", "does-not-learn", "spikes"]),
    "small-update": frozenset(["learns-slowly"]),
    "unused-layer": frozenset(["frozen-in-part"]),
    "target-scale": frozenset(["does-not-learn", "diverges"]),
    "loss-broadcasts": frozenset(["does-not-learn", "plateau"]),
    "overfits": frozenset(["validation-better"]),
    "rate-too-high": frozenset(
        "nonfinite-loss nonfinite-return does-not-learn diverges oscillates large-update".split()
    ),
}


def judge(evidence: Evidence) -> Diagnosis:
    """Ask every rule that has its evidence and is not muted; return the verdicts, worst first.

    A rule that raises is left out, and a note names it.
    """
    verdicts: list[RuleVerdict] = []
    for each in rules():
        if each.name in _muted or not each.has_evidence(evidence):
            continue
        try:
            for verdict in each.judge(evidence):
                explanation = verdict.explanation or each.explanation
                verdicts.append(replace(verdict, explanation=explanation))
        except Exception as error:  # noqa: BLE001 one faulty rule must not hide the others
            text = f"rule {each.name} could not judge this run: {type(error).__name__}: {error}"
            verdicts.append(RuleVerdict(each.name, text, "note"))
    named = {verdict.rule for verdict in verdicts}
    silenced = set().union(*(EXPLAINS.get(name, frozenset()) for name in named))
    kept = [verdict for verdict in verdicts if verdict.rule not in silenced]
    return Diagnosis(sorted(kept, key=lambda verdict: _ORDER[verdict.severity]))
