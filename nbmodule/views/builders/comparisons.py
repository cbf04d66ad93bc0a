"""Records of two runs side by side: who is at fault, and the pictures of what was expected, what
came out and the difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nbmodule.base.format import describe_shape, format_number, ordinal
from nbmodule.calls.compare import Comparison, Pair
from nbmodule.calls.differences import relative_norm
from nbmodule.views.arrays.scales import most_of
from nbmodule.views.arrays.values import is_array_like
from nbmodule.views.builders.modules import source_of
from nbmodule.views.builders.pictured import picture_for
from nbmodule.views.builders.pytrees import PICTURED_ELEMENTS, PICTURED_LEAVES
from nbmodule.views.builders.registry import register_record
from nbmodule.views.records.records import ComparisonTable, PairRow, Picture

# Of the scale of what was expected; a difference below that has a scale of its own, else nothing of
# it would be seen.
SEEN_SHARE = 0.05
_REMARKS = {
    "input": "carried",
    "inside": "holds what is at fault",
    "tap": "the first named value that differs",
}


def comparison_record(comparison: Comparison) -> ComparisonTable:
    """Make the record of a comparison: a row for each pair of calls; those at fault have three
    pictures.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.ones((2, 3)))
        >>> [row.fault for row in comparison_record(nb.compare(calls, calls)).rows]
        ['', '', '']
    """
    first = comparison.first
    title = () if first is None else (f"first fault: {first.sentence()}",)
    wrong = [k for k, pair in enumerate(comparison) if pair.fault]
    compared = {k: arrays for k in wrong if (arrays := _compared(comparison[k])) is not None}
    changes = {k: relative_norm(*arrays) for k, arrays in compared.items()}
    ranks = _ranks(comparison, changes)
    culprits_first = sorted(compared, key=lambda k: comparison[k].fault not in ("module", "tap"))
    drawn = culprits_first[: PICTURED_LEAVES // 3]
    pictures = {k: three_pictures(*compared[k], comparison[k].path) for k in drawn}
    rows = [
        _pair_row(pair, changes.get(k), pictures.get(k, ()), ranks.get(k, ""))
        for k, pair in enumerate(comparison)
    ]
    notes = tuple(
        f"{words}: {', '.join(call.path or call.class_name for call in calls)}"
        for words, calls in comparison.left_out.items()
        if calls
    )
    at = next((k for k, pair in enumerate(comparison) if pair is first), None)
    return ComparisonTable("expected", "actual", rows, at, title=title, notes=notes)


def _ranks(comparison: Comparison, changes: dict[int, float]) -> dict[int, str]:
    """Rank the modules at fault: the worst is the 1st, where there are several."""
    faults = [k for k, pair in enumerate(comparison) if pair.fault == "module"]
    if len(faults) < 2:
        return dict.fromkeys(faults, "at fault")
    sizes = {k: np.nan_to_num(changes.get(k, np.inf), nan=np.inf) for k in faults}
    ranked = sorted(faults, key=lambda k: -sizes[k])
    return {k: f"at fault, {ordinal(n)} of {len(ranked)}" for n, k in enumerate(ranked, 1)}


def _pair_row(
    pair: Pair, change: float | None, pictures: tuple[Picture, ...], rank: str
) -> PairRow:
    gap, call = pair.gap, pair.actual
    source: Any = call.source or None
    if call.module is not None and pair.fault == "module":
        lines = source_of(type(call.module))
        source = source if lines is None else lines.place
    inputs, expected, actual = _shapes(pair)
    row = PairRow(
        pair.path,
        call.order,
        call.class_name,
        pair.fault,
        inputs,
        _given(pair),
        expected,
        actual,
        change,
        pictures=pictures,
        source=source,
        remark=rank or _REMARKS.get(pair.fault, ""),
    )
    if gap.reason:
        return row
    values = (gap.expected, gap.actual) if pair.fault else None
    return row._replace(largest=gap.largest, where=gap.where, values=values)


def _shapes(pair: Pair) -> tuple[str, str, str]:
    """Shapes of the input, of what was expected and of what came out, in the layout in which they
    are compared.
    """
    a, b = pair.actual, pair.expected
    if not pair.mixes_layouts:
        return a.input_shapes, b.return_shapes, a.return_shapes
    actual, expected = pair.returns
    inputs = a.input_shapes if pair.inputs is None else _listed(pair.inputs[0])
    return inputs, _listed(expected), _listed(actual)


def _listed(arrays: list[Any]) -> str:
    return ", ".join(describe_shape(x) if is_array_like(x) else repr(x) for x in arrays)


def _given(pair: Pair) -> str:
    """Say what is known of the input of a module."""
    gap = pair.input_gap
    if gap is None:
        return "was not kept"
    if gap.agrees:
        return f"agrees to {gap.largest:.1g}" if gap.largest else "agrees exactly"
    return f"already differs by {format_number(gap.largest, 3)}"


def _compared(pair: Pair) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the expected and the actual array that were compared."""
    actual, expected = pair.returns
    at = pair.gap.leaf
    if pair.gap.reason or not actual or not is_array_like(actual[at]):
        return None
    return np.asarray(expected[at]), np.asarray(actual[at])


def three_pictures(b: np.ndarray, a: np.ndarray, path: str) -> tuple[Picture, ...]:
    """Draw expected, actual and their difference on one scale; a difference that would not be seen
    on it has its own.
    """
    if not 2 <= a.size <= PICTURED_ELEMENTS or a.dtype.kind not in "fiub":
        return ()
    difference_array = a.astype(np.float64) - b.astype(np.float64)
    limits, finer = shared_limits(a, b), shared_limits(difference_array)
    if limits is None:
        return tuple(picture_for(x, path) for x in (b, a, difference_array))
    drawn = [picture_for(x, path, limits=limits) for x in (b, a)]
    if finer is None or finer[1] >= SEEN_SHARE * limits[1]:
        whole = (-limits[1], limits[1])
        return (*drawn, picture_for(difference_array, path, limits=whole))
    last = picture_for(difference_array, path, limits=finer)
    note = f"scale {format_number(limits[1] / finer[1], 2)} times finer"
    return (*drawn, last._replace(notes=(note, *last.notes)))


def shared_limits(*arrays: np.ndarray) -> tuple[float, float] | None:
    """Return the ends of one scale for all, so that the same color is the same number; None where
    there is nothing to scale.
    """
    if any(x.dtype.kind not in "f" for x in arrays):
        return None
    finite = [x[np.isfinite(x)] for x in arrays]
    high = max(map(most_of, finite))
    return (-high if any((x < 0).any() for x in finite) else 0.0, high) if high else None


register_record(Comparison, comparison_record)
