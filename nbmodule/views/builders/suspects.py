"""Faults that only arrays tell of.

A softmax over the wrong axis, a mask that is off by one, weights that are equal but not shared, and
which part of an array is not finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.base.format import plain
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.views.records.findings import derived, ranked
from nbmodule.views.records.records import CallRow, CallTable, Finding, ModuleRow

if TYPE_CHECKING:
    from jax import Array


# Elements of an array that is looked into.
LARGEST = 1 << 20
# Elements that are compared with others.
MOST_EQUAL = 1 << 24
SAMPLE = 16
SMALLEST_SQUARE = 4
TOLERANCE = 1e-3


# -- returns --
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
