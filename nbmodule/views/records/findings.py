"""Faults in what a view shows: the bug bar below a title, the text, `view.findings`.

A finding is a sentence, a path and a severity. Most are derived from the rows of a record; builders
add what only arrays tell: a softmax over the wrong axis, a mask that is off by one, weights that
are equal but not shared. A healthy model has no findings and no bar.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.base.format import count_noun, format_count, format_number, format_percent, plain
from nbmodule.base.statistics import Statistics
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.views.records.records import (
    CallRow,
    CallTable,
    ComparisonTable,
    Finding,
    HistoryRecord,
    ModuleRow,
    ModuleTree,
    VariableTree,
)

# From worst to mildest.
SIGNS = {"wrong": "▲", "doubt": "●", "note": "○"}
MOST_FINDINGS = 40
# Of the elements of an activation; a healthy one has about half of them at zero.
DEAD_SHARE = 0.9
SMALLEST_SIZE = 16
SMALLEST_FAMILY = 3
# From the first to the last of a chain of layers.
GROWTH = 100.0
GROWTH_A_LAYER = 1.4
# Arguments that differ from layer to layer for good reasons.
_SIZES = frozenset(
    (
        "in_features out_features features num_features hidden_features normalized_shape "
        "output_size num_embeddings embedding_dim in_channels out_channels kernel_size stride "
        "padding dilation groups scale_factor"
    ).split()
)


def findings_of(record: object) -> tuple[Finding, ...]:
    """List what is wrong with what a record shows, the worst first.

    Example:
        >>> bad = Statistics(4, 0.0, 1.0, -1.0, 1.0, nan=2)
        >>> rows = [
        ...     CallRow("", order=0, statistics=bad),
        ...     CallRow("mlp", parent=0, order=1, depth=1, statistics=bad),
        ... ]
        >>> [finding.text for finding in findings_of(CallTable("Net", rows))]
        ['NaN first in mlp']
    """
    stored = getattr(record, "findings", None)
    return ranked(derived(record)) if stored is None else stored


def with_findings(record: Any, more: Iterable[Finding] = ()) -> Any:
    """Return the record with the findings of its rows and those of its builder."""
    return dataclasses.replace(record, findings=ranked([*more, *derived(record)]))


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort by severity, each sentence once."""
    order = list(SIGNS)
    unique: dict[str, Finding] = {}
    for finding in findings:
        unique.setdefault(finding.text, finding)
    worst_first = sorted(unique.values(), key=lambda f: (order.index(f.kind), -f.weight))
    return tuple(worst_first[:MOST_FINDINGS])


def worst_of(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding at which a view opens: the first at a row that is more than a note."""
    return next((f for f in findings if f.row is not None and f.kind != "note"), None)


@functools.singledispatch
def derived(record: object) -> list[Finding]:
    """Read findings from the rows of a record; panels register their own records here."""
    return []


# -- calls --
@derived.register
def _(table: CallTable) -> list[Finding]:
    rows = table.rows
    raised = [k for k, row in enumerate(rows) if row.error][-1:]  # the innermost starts last
    return [
        *(Finding(f"raised in {rows[k].name}", rows[k].path, "wrong", 3.0, k) for k in raised),
        *_nonfinite(rows, table.input_fault),
        *_dead(rows),
        *_growing(rows),
        *_not_called(table.not_called),
    ]


def _nonfinite(rows: Sequence[CallRow], input_fault: str) -> list[Finding]:
    """Name the input, if it is not finite; else the innermost call that made the first non-finite
    number, since a call returns after those inside of it.
    """
    bad = [r.statistics is not None and r.statistics.nonfinite > 0 for r in rows]
    if True not in bad:
        return []
    if input_fault:
        return [Finding(input_fault, rows[0].path, "wrong", 2.0, 0)]
    first = bad.index(True)
    depth = rows[first].depth
    for k in range(first + 1, len(rows)):
        if rows[k].depth <= depth:
            break
        if bad[k]:
            first, depth = k, rows[k].depth
    stats = rows[first].statistics
    word = "NaN" if stats is not None and stats.nan else "Inf"
    return [Finding(f"{word} first in {rows[first].name}", rows[first].path, "wrong", 2.0, first)]


def _dead(rows: Sequence[CallRow]) -> list[Finding]:
    """Name activations that are nearly all zero, unless their input is zero too."""
    findings: list[Finding] = []
    for k, row in enumerate(rows):
        s = row.statistics
        if s is None or s.size < SMALLEST_SIZE or s.zeros < DEAD_SHARE or s.min < 0:
            continue
        if _is_indicator(s) or _is_zero(_previous(rows, k)):
            continue
        share = s.zeros
        if share < 1 or "relu" in row.class_name.lower():
            text = f"dead {format_percent(share)} {row.name}"
            findings.append(Finding(text, row.path, "doubt", 1 + share, k))
        elif not any(inner.parent == row.order for inner in rows[k + 1 :]):
            findings.append(Finding(f"only zeros from {row.name}", row.path, "doubt", 1.5, k))
    return findings


def _previous(rows: Sequence[CallRow], k: int) -> CallRow | None:
    """Return the call that began last before this one and does not contain it."""
    outer, parent = set(), rows[k].parent
    while parent is not None and parent < k:
        outer.add(parent)
        parent = rows[parent].parent
    return next((rows[j] for j in range(k - 1, -1, -1) if j not in outer), None)


def _is_zero(row: CallRow | None) -> bool:
    s = None if row is None else row.statistics
    return s is not None and 0 < s.size == s.zero_count


def _is_indicator(s: Statistics) -> bool:
    """Return True for arrays of zeros and ones, as a mask or a one-hot code."""
    return s.max == 1 and math.isclose(s.mean * s.size, s.size - s.zero_count, rel_tol=1e-4)


def _growing(rows: Sequence[CallRow]) -> list[Finding]:
    """Name chains of layers of one class whose returns grow or vanish with depth."""
    chains: dict[tuple[str, str], list[int]] = {}
    for k, row in enumerate(rows):
        family, s = _family(row.path, last=True), row.statistics
        if family and s is not None and s.size >= SMALLEST_SIZE and s.histogram:
            chains.setdefault((family, row.class_name), []).append(k)
    findings = []
    for members in chains.values():
        spreads = [getattr(rows[k].statistics, "std", 0.0) for k in members]
        if len(members) < SMALLEST_FAMILY or not all(0 < s < math.inf for s in spreads):
            continue
        ratio = spreads[-1] / spreads[0]
        size = max(ratio, 1 / ratio) if ratio else math.inf
        if size < GROWTH or size ** (1 / (len(members) - 1)) < GROWTH_A_LAYER:
            continue
        first, last = rows[members[0]].path, rows[members[-1]].path
        change = f"{'grows' if ratio > 1 else 'dies'} ×{format_number(ratio, 2)}"
        text = f"deviation {change} from {first} to {last}"
        findings.append(Finding(text, last, "doubt", 2 + math.log10(size) / 100, members[-1]))
    return sorted(findings, key=lambda f: f.path.count("."))[:1]  # inner layers grow with outer


def _not_called(paths: Sequence[str]) -> list[Finding]:
    if not paths:
        return []
    names = {path.rpartition(".")[2] for path in paths}
    text = paths[0] if len(paths) == 1 else f"{paths[0]} + {len(paths) - 1}"
    if len(paths) > 1 and len(names) == 1:
        text = count_noun(len(paths), names.pop())
    return [Finding(f"not called: {plain(text)}", paths[0], "note")]


# -- modules --
@derived.register
def _(tree: ModuleTree) -> list[Finding]:
    raised = [
        Finding(f"raised in {row.path}", row.path, "wrong", 3.0, k)
        for k, row in enumerate(tree.rows)
        if row.error
    ][-1:]
    return [*raised, *_mixed(tree), *_odd_ones(tree.rows)]


def _mixed(tree: ModuleTree) -> list[Finding]:
    """Name the outermost of the modules that are in another mode than most."""
    rare = tree.rarer_mode
    if rare is None:
        return []
    odd = next((k for k, row in enumerate(tree.rows) if row.training is rare), None)
    path = "" if odd is None else tree.rows[odd].path
    where = f": {path} in {'train' if rare else 'eval'}" if path else ""
    return [Finding(f"train and eval mixed{where}", path, "doubt", 1.9, odd)]


def _odd_ones(rows: Sequence[ModuleRow]) -> list[Finding]:
    """Name layers that differ in one setting from all that stand in their place elsewhere."""
    families: dict[str, list[int]] = {}
    for k, row in enumerate(rows):
        family = _family(row.path, last=False)
        if family and row.kind == "module":
            families.setdefault(family, []).append(k)
    findings = []
    for members in families.values():
        classes = [rows[k].class_name for k in members]
        settings = [_settings(rows[k]) for k in members]
        columns = [("is", classes)]
        if len(set(classes)) == 1:
            names = dict.fromkeys(name for some in settings for name in some)
            columns = [(f"has {n}", [some.get(n, "the usual") for some in settings]) for n in names]
        for verb, values in columns:
            odd = _odd(values)
            if odd is not None and len(members) >= SMALLEST_FAMILY:
                path, most = rows[members[odd]].path, f"the other {len(members) - 1}"
                text = f"odd one out: {path} {verb} {values[odd]}, {most} {values[odd - 1]}"
                findings.append(Finding(text, path, "doubt", 1.5, members[odd]))
    return findings


def _odd(values: Sequence[str]) -> int | None:
    """Return the index of the one value that differs, if all others are equal."""
    single = [k for k, value in enumerate(values) if values.count(value) == 1]
    return single[0] if len(set(values)) == 2 and len(single) == 1 else None


def _settings(row: ModuleRow) -> dict[str, str]:
    """Return the arguments of a layer that are no sizes, as text."""
    parts = (part.partition("=") for part in row.arguments.split(", "))
    return {name: value for name, sign, value in parts if sign and name not in _SIZES}


def _family(path: str, *, last: bool) -> str:
    """Return a path with `*` in place of its innermost number; empty where it has none.

    A number at the end counts only with `last`.
    """
    steps = path.split(".")
    numbers = [k for k, step in enumerate(steps) if step.isdigit() and (last or k < len(steps) - 1)]
    if not numbers:
        return ""
    steps[numbers[-1]] = "*"
    return ".".join(steps)


# -- variables --
@derived.register
def _(tree: VariableTree) -> list[Finding]:
    findings = []
    for k, row in enumerate(tree.rows):
        stats = row.statistics
        if stats is not None and stats.nonfinite:
            word, count = ("NaN", stats.nan) if stats.nan else ("Inf", stats.inf)
            text, path = f"{word} {format_count(count)} in {plain(row.path)}", plain(row.path)
            findings.append(Finding(text, path, "wrong", stats.nonfinite, k))
    frozen = [k for k, row in enumerate(tree.rows) if row.frozen]
    if frozen:
        text = path = plain(tree.rows[frozen[0]].path)
        if len(frozen) > 1:
            text = f"{len(frozen)} of {len(tree.rows)} variables, first {path}"
        findings.append(Finding(f"frozen: {text}", path, "note", 1.0, frozen[0]))
    return findings


# -- two runs, a run over time --
@derived.register
def _(table: ComparisonTable) -> list[Finding]:
    faults = [k for k, row in enumerate(table.rows) if row.fault == "module"]
    findings = []
    for k in faults or [k for k, row in enumerate(table.rows) if row.fault][:1]:
        row, is_first = table.rows[k], k == table.first
        size = row.change if row.change is not None and math.isfinite(row.change) else 1.0
        by = "another shape"
        if row.change is not None:
            by = f"{format_number(row.change, 2)} of its norm"
        text = f"{'first fault' if is_first else 'at fault'} {row.name}: off by {by}"
        findings.append(Finding(text, row.path, "wrong", math.inf if is_first else size, k))
    return findings


@derived.register
def _(history: HistoryRecord) -> list[Finding]:
    """Name the first point of each series that is not finite."""
    findings = []
    for series in history.series:
        points = zip(series.steps, series.values, strict=True)
        bad = next(((step, v) for step, v in points if not math.isfinite(v)), None)
        if bad is not None:
            word, at = "NaN" if math.isnan(bad[1]) else "Inf", format_count(int(bad[0]))
            text = f"{word} in {plain(series.name)} from {history.axis} {at}"
            findings.append(Finding(text, series.name, "wrong", 2.0))
    return findings


if TYPE_CHECKING:
    from jax import Array


# -- faults that only arrays tell --
# Elements of an array that is examined.
LARGEST = 1 << 20
# Elements that are compared with others.
MOST_EQUAL = 1 << 24
SAMPLE = 16
SMALLEST_SQUARE = 4
TOLERANCE = 1e-3


def call_findings(table: CallTable, returned: Mapping[int, Any]) -> tuple[Finding, ...]:
    """The findings of a table of calls, with what its returns tell.

    Args:
        table: The record.
        returned: By row, the first array of the return, where it was kept.
    """
    findings = []
    for finding in derived(table):
        array = returned.get(-1 if finding.row is None else finding.row)
        if array is not None and finding.text.startswith(("NaN", "Inf")):
            finding = finding._replace(text=f"{finding.text}{_part_of(array)}")
        findings.append(finding)
    for k, array in returned.items():
        findings += _of_weights(k, table.rows[k], array)
    return ranked(findings)


def _part_of(array: Array) -> str:
    """Name the part of one axis along which values are not finite, if it is not all of it.

    Example:
        >>> x = np.ones((2, 4, 3))
        >>> x[:, 1] = np.nan
        >>> _part_of(x)
        ' (1 of 4 along axis 1)'
    """
    if array.size > LARGEST or array.ndim < 2:
        return ""
    bad = ~np.isfinite(np.asarray(array, np.float64))
    spans = []
    for axis in range(1, array.ndim):
        hit = np.flatnonzero(bad.any(tuple(k for k in range(array.ndim) if k != axis)))
        if 0 < len(hit) < array.shape[axis]:
            spans.append((len(hit) / array.shape[axis], axis, hit))
    if not spans:
        return ""
    _, axis, hit = min(spans, key=lambda span: span[0])
    which = f"{len(hit)} indices"
    if hit[-1] - hit[0] == len(hit) - 1:
        which = f"{hit[0]}…{hit[-1]}" if len(hit) > 1 else f"{hit[0]}"
    return f" ({which} of {array.shape[axis]} along axis {axis})"


def _of_weights(k: int, row: CallRow, array: Array) -> Iterator[Finding]:
    """Yield what is odd in an array that looks like weights: between 0 and 1, summing to one."""
    s = row.statistics
    if s is None or s.nonfinite or s.min < 0 or s.max > 1 + TOLERANCE or not s.zeros + s.mean > 0:
        return
    if array.ndim < 2 or array.size > LARGEST or np.dtype(array.dtype).kind not in "fV":
        return
    sizes = enumerate(array.shape)
    axes = [axis for axis, n in sizes if n > 1 and abs(s.mean * n - 1) < TOLERANCE]
    if not axes:
        return
    x = np.asarray(array, np.float64)
    summing = [a for a in axes if np.abs(x.sum(a) - 1).max() < TOLERANCE]
    name = row.name
    if summing and array.ndim - 1 not in summing:
        text = f"sums to 1 over axis {summing[-1]}, not over the last: {name}"
        yield Finding(text, row.path, "doubt", 2.5, k)
    elif summing and x.shape[-1] == x.shape[-2] >= SMALLEST_SQUARE:
        yield from _of_mask(k, row, x, name)


def _of_mask(k: int, row: CallRow, x: Any, name: str) -> Iterator[Finding]:
    """Attention that looks backward, but one position too far or too few."""
    is_attended = np.abs(x).reshape(-1, *x.shape[-2:]).max(0) > 0
    sees = ""
    if not np.triu(is_attended, 2).any() and np.diagonal(is_attended, 1).all():
        sees = "each position sees the next"
    elif not np.triu(is_attended)[1:].any() and np.tril(is_attended, -1).any():
        sees = "no position sees itself"
    if sees:
        yield Finding(f"mask off by one: {sees} in {name}", row.path, "doubt", 2.6, k)


# -- variables --
def equal_findings(places: Iterable[tuple[str, Variable, int | None]]) -> Iterator[Finding]:
    """Yield weights that hold the same values in variables of their own: tied by a copy, or one
    layer copied many times.

    Args:
        places: Path, variable and row of each, in the order of reading.
    """
    like: dict[Any, list[tuple[str, Variable, int | None]]] = {}
    for entry in places:
        weight = entry[1]
        if not isinstance(weight, Parameter) or weight.is_pending or weight.is_released:
            continue
        if weight.ndim >= 2:
            like.setdefault((weight.shape, weight.dtype), []).append(entry)
    left = MOST_EQUAL
    for members in like.values():
        if len(members) < 2 or (left := left - len(members) * members[0][1].size) < 0:
            continue
        same: dict[bytes, list[tuple[str, Variable, int | None]]] = {}
        for entry in members:
            x = np.asarray(entry[1].value).reshape(-1)
            if not (x[:SAMPLE] == x[0]).all():
                same.setdefault(x[:SAMPLE].tobytes(), []).append(entry)
        for group in same.values():
            first = np.asarray(group[0][1].value)
            alike = [entry for entry in group if np.array_equal(first, np.asarray(entry[1].value))]
            if len(alike) > 1:
                yield _equal(alike)


def _equal(group: Sequence[tuple[str, Variable, int | None]]) -> Finding:
    first, *others = [path for path, _, _ in group]
    with_what = others[0] if len(others) == 1 else f"{len(others)} others, as {others[0]}"
    path, _, row = group[-1]
    return Finding(f"equal, not shared: {first} and {with_what}", path, "doubt", 1.2, row)


# -- modules --
def frozen_findings(
    rows: Sequence[ModuleRow], places: Sequence[tuple[str, Variable]]
) -> Iterator[Finding]:
    """Yield what of a model is not trained: the outermost modules all of whose parameters are
    frozen, else the parameters.
    """
    trained = [(path, x.requires_grad) for path, x in places if isinstance(x, Parameter)]
    if all(trains for _, trains in trained):
        return
    if not any(trains for _, trains in trained):
        yield Finding("all is frozen", "", "note", 1.0)
        return
    names: list[str] = []
    left = [path for path, trains in trained if not trains]
    for row in rows:
        inside = [trains for path, trains in trained if path.startswith(f"{row.path}.")]
        is_within = any(row.path.startswith(f"{name}.") for name in names)
        if inside and not any(inside) and not is_within:
            names.append(row.path)
    at = {row.path: k for k, row in enumerate(rows)}
    names += [path for path in left if not any(path.startswith(f"{name}.") for name in names)]
    holder = names[0] if names[0] in at else names[0].rpartition(".")[0]
    more = f" + {len(names) - 1}" if len(names) > 1 else ""
    yield Finding(f"frozen: {plain(names[0])}{more}", names[0], "note", 1.0, at.get(holder))
