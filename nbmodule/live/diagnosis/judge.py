"""Judge evidence by all rules, those of the package and those that a user has added, and show the
verdicts as HTML that needs no script.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nbmodule.base.format import plain, printable_repr
from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentError

# They register their rules.
from nbmodule.live.diagnosis import curve_rules, data_rules, inside_rules, model_rules  # noqa: F401
from nbmodule.live.diagnosis.evidence import Evidence
from nbmodule.live.diagnosis.rule import NEEDS, SIGNS, DiagnosisRule, RuleVerdict, table
from nbmodule.views.records.records import HistoryRecord, SeriesRecord
from nbmodule.views.renderers.drawing import curve_image
from nbmodule.views.renderers.html import Markup, tag

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
        raise ArgumentError(f"there is no rule {name!r}{hint(name, table)}")
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
        return str(tag("div", *map(_block, self)) if self else tag("div", "no fault found"))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self.html()}


_ORDER = list(SIGNS)
# A verdict that explains others silences them: NaN in the data makes every other number NaN.
EXPLAINS = {
    "nonfinite-data": "nonfinite-loss nonfinite-return no-update does-not-learn input-scale "
    "target-scale",
    "nonfinite-return": "nonfinite-loss",
    "labels-out-of-range": "nonfinite-loss nonfinite-return does-not-learn missing-class",
    "no-update": "does-not-learn learns-slowly small-update plateau",
    "diverges": "oscillates does-not-learn spikes",
    "small-update": "learns-slowly",
    "unused-layer": "frozen-in-part",
    "target-scale": "does-not-learn diverges",
    "loss-broadcasts": "does-not-learn plateau",
    "overfits": "validation-better",
    "rate-too-high": "nonfinite-loss nonfinite-return does-not-learn diverges oscillates "
    "large-update",
}


def judge(evidence: Evidence) -> Diagnosis:
    """Ask every rule that has its evidence and is not muted; return the verdicts, worst first.

    A rule that raises is left out, and a note names it.
    """
    verdicts: list[RuleVerdict] = []
    for each in rules():
        if each.name in _muted or not all(NEEDS[need](evidence) for need in each.needs):
            continue
        try:
            for verdict in each.judge(evidence):
                name = verdict.rule or each.name
                explanation = verdict.explanation or each.explanation
                verdicts.append(replace(verdict, rule=name, explanation=explanation))
        except Exception as error:  # noqa: BLE001 one faulty rule must not hide the others
            text = f"rule {each.name} could not judge this run: {type(error).__name__}: {error}"
            verdicts.append(RuleVerdict(each.name, text, "note"))
    silenced = {name for each in verdicts for name in EXPLAINS.get(each.rule, "").split()}
    kept = [verdict for verdict in verdicts if verdict.rule not in silenced]
    return Diagnosis(sorted(kept, key=lambda verdict: _ORDER.index(verdict.severity)))


_QUIET = "font-size:12px;opacity:.8"


def _block(verdict: RuleVerdict) -> Markup:
    """Return the sentence, its evidence as one small picture, and what to try."""
    parts = [tag("div", tag("b", plain(verdict.sentence, 400))), _picture(verdict)]
    about = tag("code", verdict.rule)
    parts.append(tag("div", plain(verdict.explanation, 600), " ", about, style=_QUIET))
    for fix in verdict.fixes:
        code = [tag("code", fix.code)] if fix.code and fix.code != fix.label else []
        parts.append(tag("div", "Try: ", fix.label, *([" — ", *code] if code else [])))
    border = "border-left:3px solid color-mix(in srgb, currentColor 30%, transparent)"
    return tag("div", *parts, style=f"margin:8px 0;padding-left:10px;{border};max-width:720px")


def _picture(verdict: RuleVerdict) -> Markup:
    """Draw the evidence as curves on one scale."""
    rows = {plain(n, 60): np.asarray(v, np.float64) for n, v in verdict.evidence.items()}
    series = tuple(
        SeriesRecord(name, tuple(range(len(values))), tuple(values.tolist()), "evidence")
        for name, values in rows.items()
        if len(values) > 1 and np.isfinite(values).any()
    )
    image = curve_image(HistoryRecord("evidence", series, axis="point"), 320, 120)
    return image if series else Markup("")
