"""The table of rules, the verdicts of all rules on a run, and verdicts as HTML without a script.

A rule is a function of `Evidence` that yields verdicts. Its row in the table says what it needs,
so that a rule without its evidence stays silent, and links to the page that explains it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, SupportsFloat

import numpy as np

from nbmodule.base.format import format_count, format_number, plain, printable_repr
from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentError
from nbmodule.live.diagnosis.evidence import Evidence, Snapshot
from nbmodule.views.records.records import HistoryRecord, SeriesRecord
from nbmodule.views.renderers.drawing import curve_image
from nbmodule.views.renderers.html import Markup, tag

Severity = Literal["wrong", "doubt", "note"]
SIGNS: dict[str, str] = {"wrong": "▲", "doubt": "●", "note": "○"}
PAGE = "docs/views/diagnosis.md"


@dataclass(frozen=True)
class Fix:
    """A change to try.

    Attributes:
        label: The words of a button, such as `rate 0.001`.
        code: A line that does the same.
        message: The message of a page to a running loop; empty if only code can apply the fix.
        rate: Factor of the learning rate that it tries, None for another fix.
    """

    label: str
    code: str
    message: Mapping[str, Any] = field(default_factory=dict)
    rate: float | None = None


TRIED_STEPS = 50
"""Steps of a branch that tries a fix."""


def scale_rate(factor: float) -> list[Fix]:
    """Return the fix to multiply the learning rate, compared with the current rate.

    The factor stays within the range of the rate's slider: a hundredth to a hundred times.
    """
    factor = float(f"{min(max(factor, 0.01), 100):.2g}")
    code = f"live.what_if({TRIED_STEPS}, rates=[{factor:g}, 1])"
    message = {"kind": "what_if", "steps": TRIED_STEPS, "rates": [factor, 1.0]}
    return [Fix(f"learning rate x {format_number(factor)}", code, message, factor)]


def go_back(step: int) -> list[Fix]:
    """Return the fix to go on from an earlier step."""
    message = {"kind": "rewind", "step": step}
    return [Fix(f"back to step {format_count(step)}", f"live.rewind({step})", message)]


def short(value: SupportsFloat) -> str:
    """Return a number with three digits, as verdicts write numbers."""
    return format_number(float(value), 3)


def histogram_of(name: str, values: object) -> dict[str, list[float]]:
    """Return the counts of the finite values in equal intervals, as evidence of a verdict."""
    wide = np.ravel(np.asarray(values)).astype(np.float64)
    wide = wide[np.isfinite(wide)]
    if not wide.size:
        return {}
    limits = f"{name} from {short(wide.min())} to {short(wide.max())}"
    return {limits: np.histogram(wide, 32)[0].astype(float).tolist()}


@dataclass(frozen=True)
class RuleVerdict:
    """One fault, or a possible one.

    Attributes:
        rule: Name of the rule; empty for the rule that yields it.
        text: The fault and its location, in one sentence.
        severity: `wrong` (the result cannot be used), `doubt` (probably a fault) or `note`.
        path: Submodule or variable that it is about, empty for the whole run.
        step: First step that shows it, None where that is not known.
        explanation: Its effect and its usual causes.
        evidence: Numbers for one small picture, by name: a curve, a histogram, bars.
        fixes: Changes to try.
        button: The fix that the view of a run offers as a button, or None.
    """

    rule: str
    text: str
    severity: Severity = "doubt"
    path: str = ""
    step: int | None = None
    explanation: str = ""
    evidence: Mapping[str, Sequence[float]] = field(default_factory=dict)
    fixes: Sequence[Fix] = ()
    button: Fix | None = None

    @property
    def page(self) -> str:
        """The page that explains the rule."""
        return f"{PAGE}#{self.rule}"

    @property
    def sentence(self) -> str:
        """Its sign, its text, and the first step that shows it."""
        since = f"step {self.step:,}" if self.step else ""
        ending = "" if since in self.text else f" (since {since})"
        return f"{SIGNS[self.severity]} {self.text}{ending}"

    def __str__(self) -> str:
        fixes = "; ".join(fix.label for fix in self.fixes)
        return self.sentence + (f". Try: {fixes}" if fixes else "")


def found(text: str, severity: Severity = "doubt", path: str = "", **more: Any) -> RuleVerdict:
    """Return a verdict of the rule that is asked: `judge` adds the name."""
    return RuleVerdict("", text, severity, path, **more)


def and_more(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


Judge = Callable[[Evidence], Iterator[RuleVerdict]]


@dataclass(frozen=True)
class DiagnosisRule:
    """A row of the table.

    Attributes:
        name: Words joined by hyphens, as `nb.mute_rule` takes it.
        judge: Yields verdicts.
        needs: The evidence that it reads.
        category: `curve`, `data`, `model` or `inside`.
        explanation: Up to three lines.
    """

    name: str
    judge: Judge
    needs: tuple[str, ...]
    category: str
    explanation: str


NEEDS: dict[str, Callable[[Evidence], Any]] = {
    "curve": lambda e: e.curves,
    "batch": lambda e: any(s.batch.inputs or s.batch.targets for s in e.snapshots),
    "calls": lambda e: any(s.root is not None or s.calls for s in e.snapshots),
    "variables": lambda e: any(s.variables for s in e.snapshots),
    "modes": lambda e: any(s.modes for s in e.snapshots),
    "compiles": lambda e: e.new_shapes,
}
table: dict[str, DiagnosisRule] = {}


def rule(
    name: str, *, needs: Sequence[str] = ("curve",), category: str = "own"
) -> Callable[[Judge], Judge]:
    """Add a rule that judges runs: decorate a function that takes `Evidence` and yields verdicts.

    Args:
        name: Words joined by hyphens. A rule of that name is replaced.
        needs: Evidence without which the rule is not asked: `curve`, `batch`, `calls`,
            `variables`, `modes`, `compiles`.
        category: Heading under which the rule is listed.

    Raises:
        ArgumentError: If `needs` names unknown evidence.

    Example:
        >>> import nbmodule as nb
        >>> @nb.rule("loss-is-negative")
        ... def loss_is_negative(evidence):
        ...     if evidence.loss is not None and evidence.loss.values[-1] < 0:
        ...         yield nb.RuleVerdict("loss-is-negative", "the loss is negative")
        >>> nb.mute_rule("loss-is-negative")
    """
    unknown = [need for need in needs if need not in NEEDS]
    if unknown:
        raise ArgumentError(
            f"needs must name evidence among {', '.join(NEEDS)}, got {unknown[0]!r}."
        )

    def add(judge: Judge) -> Judge:
        explanation = " ".join((judge.__doc__ or "").split())
        table[name] = DiagnosisRule(name, judge, tuple(needs), category, explanation)
        return judge

    return add


def of_snapshot(
    name: str,
    *,
    needs: Sequence[str] = ("calls",),
    category: str = "model",
    steps: slice = slice(None),
) -> Callable[[Callable[[Snapshot], Iterator[RuleVerdict]]], Judge]:
    """Add a rule that judges single observed steps: of all its verdicts the first counts.

    Args:
        name: As for `rule`.
        needs: As for `rule`.
        category: As for `rule`.
        steps: Which of the observed steps it judges.
    """

    def add(judge: Callable[[Snapshot], Iterator[RuleVerdict]]) -> Judge:
        @rule(name, needs=needs, category=category)
        @functools.wraps(judge)
        def ask(evidence: Evidence) -> Iterator[RuleVerdict]:
            observed = evidence.snapshots[steps]
            verdicts = (
                replace(found, step=each.step) for each in observed for found in judge(each)
            )
            return itertools.islice(verdicts, 1)

        return ask

    return add


# -- the verdicts of all rules --
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
    """Return the sentence, its evidence as one small picture, and its fixes."""
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
