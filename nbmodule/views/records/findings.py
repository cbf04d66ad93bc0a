"""What is wrong with what a view shows, worked out from its record: the bug bar under a title, the
text, `view.findings`.

A finding is a sentence, a place and how bad it is. A record's maker adds what only the arrays tell;
all else is read from the rows here. Nothing to say gives nothing: a model that is well has no bar.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from nbmodule.base.format import count_noun, format_count, format_number, format_percent, plain
from nbmodule.views.records.records import (
    CallRow,
    CallTable,
    ComparisonTable,
    Finding,
    HistoryRecord,
    ModuleRow,
    ModuleTree,
    ReturnTable,
    ShownStatistics,
    VariableTree,
)

SIGNS = {"wrong": "▲", "doubt": "●", "note": "○"}
"""From worst to mildest."""
MOST_FINDINGS = 40
DEAD_SHARE = 0.9
"""Of the elements of an activation; a healthy one has about half of them at zero."""
SMALLEST_SIZE = 16
SMALLEST_FAMILY = 3
GROWTH = 100.0
"""From the first to the last of a chain of layers."""
GROWTH_A_LAYER = 1.4
OVERFIT = 1.1
_SIZES = frozenset(
    (
        "in_features out_features features num_features hidden_features normalized_shape output_size num_embeddings embedding_dim "
        "in_channels out_channels kernel_size stride padding dilation groups scale_factor"
    ).split()
)
"""Arguments that differ from layer to layer for good reasons."""
_DROPS, _REMEMBERS = "Dropout", "BatchNorm"


def findings_of(record: object) -> tuple[Finding, ...]:
    """List what is wrong with what a record shows, the worst first.

    Example:
        >>> bad = ShownStatistics(4, 0.0, 1.0, -1.0, 1.0, nan=2)
        >>> rows = [CallRow("", order=0, statistics=bad), CallRow("mlp", parent=0, order=1, depth=1, statistics=bad)]
        >>> [finding.text for finding in findings_of(CallTable("Net", rows))]
        ['NaN first in mlp']
    """
    given = getattr(record, "findings", None)
    return ranked(derived(record)) if given is None else given


def with_findings(record: Any, more: Iterable[Finding] = ()) -> Any:
    """The record with its findings: those of its rows, and what its maker saw in the arrays."""
    return dataclasses.replace(record, findings=ranked([*more, *derived(record)]))


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Worst first, each sentence once."""
    order = list(SIGNS)
    each: dict[str, Finding] = {}
    for finding in findings:
        each.setdefault(finding.text, finding)
    return tuple(sorted(each.values(), key=lambda f: (order.index(f.kind), -f.weight)))[
        :MOST_FINDINGS
    ]


def worst_of(findings: Sequence[Finding]) -> Finding | None:
    """Where a view opens: the first finding that stands at a row and is more than a note."""
    return next((f for f in findings if f.row is not None and f.kind != "note"), None)


def findings_text(findings: Sequence[Finding]) -> list[str]:
    """Each finding with its sign, as text."""
    return [f"{SIGNS[f.kind]} {f.text}" for f in findings]


@functools.singledispatch
def derived(record: object) -> list[Finding]:
    """Read findings from the rows of a record; rooms above register their own kinds here."""
    return []


# -- what ran --
@derived.register
def _(table: CallTable) -> list[Finding]:
    return [*_of_calls(table.rows, table.input_fault), *_not_called(table.not_called)]


@derived.register
def _(table: ReturnTable) -> list[Finding]:
    return _of_calls(table.rows)


def _of_calls(rows: Sequence[CallRow], input_fault: str = "") -> list[Finding]:
    return [*_raised(rows), *_nonfinite(rows, input_fault), *_dead(rows), *_growing(rows)]


def _name(row: CallRow) -> str:
    return row.path or row.class_name or "the model itself"


def _raised(rows: Sequence[CallRow]) -> list[Finding]:
    """The innermost call that raised: it began last."""
    failed = [k for k, row in enumerate(rows) if row.error]
    return [
        Finding(f"raised in {_name(rows[k])}", rows[k].path, "wrong", 3.0, k) for k in failed[-1:]
    ]


def _nonfinite(rows: Sequence[CallRow], input_fault: str = "") -> list[Finding]:
    """The input, if that is not finite; else the call that made the first number that is not finite: the innermost one, since a call
    returns after those within it.
    """
    bad = [
        row.statistics is not None and row.statistics.nan + row.statistics.inf > 0 for row in rows
    ]
    if True not in bad:
        return []
    if input_fault:
        return [Finding(input_fault, rows[0].path, "wrong", 2.0, 0)]
    first = bad.index(True)
    at = first + 1
    while at < len(rows) and rows[at].depth > rows[first].depth:
        first = at if bad[at] else first
        at += 1
    stats = rows[first].statistics
    word = "NaN" if stats is not None and stats.nan else "Inf"
    return [Finding(f"{word} first in {_name(rows[first])}", rows[first].path, "wrong", 2.0, first)]


def _dead(rows: Sequence[CallRow]) -> list[Finding]:
    """Activations that hardly let anything through; one that is fed by zeros is not to blame."""
    found: list[Finding] = []
    for k, row in enumerate(rows):
        s = row.statistics
        if (
            s is None
            or s.size < SMALLEST_SIZE
            or s.zero < DEAD_SHARE * s.size
            or s.low < 0
            or _is_indicator(s)
        ):
            continue
        share = s.zero / s.size
        if _is_zero(_before(rows, k)):
            continue
        if share < 1 or "relu" in row.class_name.lower():
            found.append(
                Finding(
                    f"dead {format_percent(share)} {_name(row)}", row.path, "doubt", 1 + share, k
                )
            )
        elif not any(other.parent == row.order for other in rows[k + 1 :]):
            found.append(Finding(f"only zeros from {_name(row)}", row.path, "doubt", 1.5, k))
    return found


def _before(rows: Sequence[CallRow], k: int) -> CallRow | None:
    """The call that began last before this one and does not hold it."""
    around, at = set(), rows[k].parent
    while at is not None and at < k:
        around.add(at)
        at = rows[at].parent
    return next((rows[j] for j in range(k - 1, -1, -1) if j not in around), None)


def _is_zero(row: CallRow | None) -> bool:
    return (
        row is not None
        and row.statistics is not None
        and 0 < row.statistics.size == row.statistics.zero
    )


def _is_indicator(s: ShownStatistics) -> bool:
    """Whether an array holds zeros and ones alone, as a mask and a one-hot code do."""
    return s.high == 1 and math.isclose(s.mean * s.size, s.size - s.zero, rel_tol=1e-4)


def _growing(rows: Sequence[CallRow]) -> list[Finding]:
    """Chains of layers of one kind whose returns grow or die with depth."""
    chains: dict[tuple[str, str], list[int]] = {}
    for k, row in enumerate(rows):
        family = _family(row.path, last=True)
        s = row.statistics
        if family and s is not None and s.size >= SMALLEST_SIZE and s.bins:
            chains.setdefault((family, row.class_name), []).append(k)
    found = []
    for members in chains.values():
        spreads = [getattr(rows[k].statistics, "std", 0.0) for k in members]
        if len(members) < SMALLEST_FAMILY or not all(0 < s < math.inf for s in spreads):
            continue
        ratio = spreads[-1] / spreads[0]
        size = max(ratio, 1 / ratio) if ratio else math.inf
        if size < GROWTH or size ** (1 / (len(members) - 1)) < GROWTH_A_LAYER:
            continue
        first, last = rows[members[0]].path, rows[members[-1]].path
        word = "grows" if ratio > 1 else "dies"
        factor = f"×{format_number(ratio, 2)}"
        text = f"deviation {word} {factor} from {first} to {last}"
        found.append(Finding(text, last, "doubt", 2 + math.log10(size) / 100, members[-1]))
    return sorted(found, key=lambda f: f.path.count("."))[
        :1
    ]  # what is within the layers of a chain grows as they do


def _not_called(paths: Sequence[str]) -> list[Finding]:
    if not paths:
        return []
    names = {path.rpartition(".")[2] for path in paths}
    if len(paths) == 1:
        text = paths[0]
    elif len(names) == 1:
        text = count_noun(len(paths), names.pop())
    else:
        text = f"{paths[0]} + {len(paths) - 1}"
    return [Finding(f"not called: {plain(text)}", paths[0], "note")]


# -- what it is made of --
@derived.register
def _(tree: ModuleTree) -> list[Finding]:
    failed = [k for k, row in enumerate(tree.rows) if row.error]
    return [
        *(
            Finding(f"raised in {tree.rows[k].path}", tree.rows[k].path, "wrong", 3.0, k)
            for k in failed[-1:]
        ),
        *_mixed(tree),
        *_odd_ones(tree.rows),
    ]


def _mixed(tree: ModuleTree) -> list[Finding]:
    """Modules that are in another mode than most; the outermost of them is named."""
    if not tree.mode.startswith("mixed"):
        return []
    known = [(k, row.training) for k, row in enumerate(tree.rows) if row.training is not None]
    trains = sum(mode for _, mode in known)
    few = 2 * trains < len(known)
    odd = next((k for k, mode in known if mode is few), None)
    path = tree.rows[odd].path if odd is not None else ""
    text = "train and eval mixed" + (f": {path} in {'train' if few else 'eval'}" if path else "")
    return [Finding(text, path, "doubt", 1.9, odd)]


def _odd_ones(rows: Sequence[ModuleRow]) -> list[Finding]:
    """Layers that stand where others of one kind stand, and differ from all of them in one setting."""
    families: dict[str, list[int]] = {}
    for k, row in enumerate(rows):
        family = _family(row.path, last=False)
        if family and row.kind == "module":
            families.setdefault(family, []).append(k)
    found = []
    for members in families.values():
        if len(members) < SMALLEST_FAMILY:
            continue
        classes = [rows[k].class_name for k in members]
        if (odd := _odd(classes)) is not None:
            other = classes[odd - 1]
            found.append(_odd_finding(rows, members, odd, f"is {classes[odd]}", f"{other}"))
        settings = [_settings(rows[k]) for k in members]
        for name in dict.fromkeys(name for each in settings for name in each):
            values = [each.get(name, "the usual") for each in settings]
            if (odd := _odd(values)) is not None and len(set(classes)) == 1:
                found.append(
                    _odd_finding(rows, members, odd, f"has {name} {values[odd]}", values[odd - 1])
                )
    return found


def _odd_finding(
    rows: Sequence[ModuleRow], members: list[int], odd: int, has: str, others: str
) -> Finding:
    path = rows[members[odd]].path
    text = f"odd one out: {path} {has}, the other {len(members) - 1} {others}"
    return Finding(text, path, "doubt", 1.5, members[odd])


def _odd(values: Sequence[str]) -> int | None:
    """Which one differs, where all others are alike."""
    if len(set(values)) != 2:
        return None
    alone = [k for k, value in enumerate(values) if values.count(value) == 1]
    return alone[0] if len(alone) == 1 else None


def _settings(row: ModuleRow) -> dict[str, str]:
    """The arguments of a layer that are no sizes, as they stand in its text."""
    given = (part.partition("=") for part in row.arguments.split(", "))
    return {name: value for name, sign, value in given if sign and name not in _SIZES}


def _family(path: str, *, last: bool) -> str:
    """A path with `*` in place of its innermost number; empty where it has none, or only one that
    ends it and is not asked for.
    """
    steps = path.split(".")
    places = [k for k, step in enumerate(steps) if step.isdigit() and (last or k < len(steps) - 1)]
    if not places:
        return ""
    steps[places[-1]] = "*"
    return ".".join(steps)


# -- its numbers --
@derived.register
def _(tree: VariableTree) -> list[Finding]:
    rows = tree.rows
    facts = getattr(
        rows, "statistics", None
    )  # a large PyTree keeps what was measured, and makes no row before one is read
    found = []
    for k, stats in enumerate(row.statistics for row in rows) if facts is None else facts.items():
        if stats is not None and stats.nan + stats.inf:
            word = (
                f"NaN {format_count(stats.nan)}" if stats.nan else f"Inf {format_count(stats.inf)}"
            )
            found.append(
                Finding(
                    f"{word} in {_path(rows[k])}", _path(rows[k]), "wrong", stats.nan + stats.inf, k
                )
            )
    frozen = [k for k, row in enumerate(rows) if row.frozen] if facts is None else []
    if frozen:
        found.append(frozen_finding([rows[k].path for k in frozen], len(rows), frozen[0]))
    return found


def _path(row: Any) -> str:
    return plain(row.path or row.chain.replace("/", "."))


def frozen_finding(paths: Sequence[str], total: int, row: int | None) -> Finding:
    """What is not trained, as one note."""
    text = paths[0] if len(paths) == 1 else f"{len(paths)} of {total} variables, first {paths[0]}"
    return Finding(f"frozen: {plain(text)}", paths[0], "note", 1.0, row)


# -- two runs, a run over time --
@derived.register
def _(table: ComparisonTable) -> list[Finding]:
    faults = [k for k, row in enumerate(table.rows) if row.fault == "module"]
    if not faults:
        faults = [k for k, row in enumerate(table.rows) if row.fault][:1]
    found = []
    for k in faults:
        row = table.rows[k]
        apart = (
            "another shape" if row.change is None else f"{format_number(row.change, 2)} of its norm"
        )
        first = k == table.first
        text = f"{'first fault' if first else 'at fault'} {row.path}: off by {apart}"
        size = row.change if row.change is not None and math.isfinite(row.change) else 1.0
        found.append(Finding(text, row.path, "wrong", math.inf if first else size, k))
    return found


@derived.register
def _(history: HistoryRecord) -> list[Finding]:
    found = []
    for series in history.series:
        pairs = list(zip(map(int, series.steps), series.values, strict=True))
        bad = next((pair for pair in pairs if not math.isfinite(pair[1])), None)
        finite = [pair for pair in pairs if math.isfinite(pair[1])]
        best = min(finite, key=lambda pair: pair[1]) if finite else None
        last = series.values[-1] if pairs else math.nan
        found += [
            finding
            for finding, _ in of_series(series.name, history.axis, bad, best, last, len(pairs))
        ]
    return found


def of_series(
    name: str,
    axis: str,
    bad: tuple[int, float] | None,
    best: tuple[int, float] | None,
    last: float,
    count: int,
) -> list[tuple[Finding, int]]:
    """What one curve tells, each with the step that shows it.

    Args:
        name: Of the curve.
        axis: What it goes over.
        bad: The first point that is not finite.
        best: The best point.
        last: The newest value.
        count: How many points there are.
    """
    if bad is not None:
        word = "NaN" if math.isnan(bad[1]) else "Inf"
        return [
            (
                Finding(
                    f"{word} in {plain(name)} from {axis} {format_count(bad[0])}",
                    name,
                    "wrong",
                    2.0,
                ),
                bad[0],
            )
        ]
    if best is None or count < 5 or not name.startswith(("val_loss", "valid_loss", "test_loss")):
        return []
    if not 0 < best[1] * OVERFIT < last:
        return []
    went = f"{format_number(best[1], 3)} → {format_number(last, 3)}"
    text = f"{plain(name)} rises since {axis} {format_count(best[0])}: {went}"
    return [(Finding(text, name, "doubt", 1.0), best[0])]
