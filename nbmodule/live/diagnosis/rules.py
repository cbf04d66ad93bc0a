"""The table of rules, and how a run is judged by it.

A rule is a function of `Evidence` that yields verdicts. Its row in the table says what it needs,
so that a rule without its evidence stays silent, and links to the page that explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nbmodule.errors import ArgumentError
from nbmodule.live.diagnosis.evidence import Evidence

Severity = Literal["wrong", "doubt", "note"]
SIGNS: dict[str, str] = {"wrong": "▲", "doubt": "●", "note": "○"}
NEEDS = ("curve", "batch", "calls", "variables", "modes")
PAGE = "docs/views/diagnosis.md"


@dataclass(frozen=True)
class Fix:
    """Something to try.

    Attributes:
        label: The words of a button, such as `rate 0.001`.
        code: A line that does the same.
        message: What a page sends to a running loop, empty where only code can do it.
    """

    label: str
    code: str
    message: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleVerdict:
    """One thing that looks wrong.

    Attributes:
        rule: Name of the rule.
        text: What and where, in one sentence.
        severity: `wrong` (the result cannot be used), `doubt` (probably a fault) or `note`.
        path: Submodule or variable that it is about, empty for the whole run.
        step: First step that shows it, None where that is not known.
        explanation: Why it matters and what usually causes it.
        evidence: Numbers for one small picture, by name: a curve, a histogram, bars.
        fixes: What to try.
    """

    rule: str
    text: str
    severity: Severity = "doubt"
    path: str = ""
    step: int | None = None
    explanation: str = ""
    evidence: Mapping[str, Sequence[float]] = field(default_factory=dict)
    fixes: Sequence[Fix] = ()

    @property
    def page(self) -> str:
        """Where the rule is explained."""
        return f"{PAGE}#{self.rule}"

    def __str__(self) -> str:
        since = f" (since step {self.step:,})" if self.step is not None else ""
        fixes = "; ".join(fix.label for fix in self.fixes)
        return f"{SIGNS[self.severity]} {self.text}{since}" + (f". Try: {fixes}" if fixes else "")


Judge = Callable[[Evidence], Iterator[RuleVerdict]]


@dataclass(frozen=True)
class DiagnosisRule:
    """A row of the table.

    Attributes:
        name: Words joined by hyphens; what a user mutes.
        judge: Yields verdicts.
        needs: What evidence it reads.
        category: `curve`, `data`, `model` or `inside`.
        explanation: Up to three lines.
    """

    name: str
    judge: Judge
    needs: tuple[str, ...]
    category: str
    explanation: str

    def has_evidence(self, evidence: Evidence) -> bool:
        return all(_HAS[need](evidence) for need in self.needs)


_HAS: dict[str, Callable[[Evidence], bool]] = {
    "curve": lambda e: bool(e.curves),
    "batch": lambda e: any(s.batch.inputs or s.batch.targets for s in e.snapshots),
    "calls": lambda e: any(s.root is not None or s.calls for s in e.snapshots),
    "variables": lambda e: any(s.variables for s in e.snapshots),
    "modes": lambda e: (
        any(s.modes for s in e.snapshots) or e.validated_in_training_mode is not None
    ),
}
table: dict[str, DiagnosisRule] = {}


def rule(
    name: str, *, needs: Sequence[str] = ("curve",), category: str = "own"
) -> Callable[[Judge], Judge]:
    """Add a rule that judges runs: decorate a function that takes `Evidence` and yields verdicts.

    Args:
        name: Words joined by hyphens. A rule of that name is replaced.
        needs: Evidence without which the rule is not asked: `curve`, `batch`, `calls`,
            `variables`, `modes`.
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
