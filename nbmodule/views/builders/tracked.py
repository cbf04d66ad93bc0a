"""Records of what ran: calls, returns, recorders, comparisons of two runs.

Values reduced inside compiled code are shown unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import count_noun, format_number, ordinal
from nbmodule.base.statistics import Statistics
from nbmodule.calls.call import Call
from nbmodule.calls.calls import Calls
from nbmodule.calls.compare import Comparison, Pair
from nbmodule.calls.differences import Difference, relative_norm
from nbmodule.calls.nonfinite import find_input_fault
from nbmodule.calls.recorder import Recorder
from nbmodule.calls.track import last_tracked
from nbmodule.core.call.capture import CallOrder, SubmodRets
from nbmodule.core.call.module import CoreModule
from nbmodule.core.recording.tracker import describe
from nbmodule.views.arrays.scales import most_of
from nbmodule.views.arrays.values import is_array_like, statistics_of
from nbmodule.views.builders.modules import container_record, module_tree, source_of
from nbmodule.views.builders.pytrees import (
    PICTURED_ELEMENTS,
    PICTURED_LEAVES,
    drawn_by_user,
    picture_for,
    register_record,
)
from nbmodule.views.records.findings import call_findings
from nbmodule.views.records.outline import occurrences
from nbmodule.views.records.records import (
    CallRow,
    CallTable,
    ComparisonTable,
    DifferenceRow,
    DifferenceTree,
    ModuleTree,
    PairRow,
    Picture,
    ReturnTable,
    StepSnapshot,
    VariableTree,
)

MEASURED_CALLS = 400
MEASURED_ELEMENTS = 1 << 22
# Recorded steps whose numbers a page brings along.
MOST_SNAPSHOTS = 100
# Rows of all of them together.
MOST_SNAPSHOT_ROWS = 4000
# Cells, a byte each, of the small pictures of earlier steps: those of 12 rows at 10 steps.
SNAPSHOT_PICTURES = 32_000
SNAPSHOT_SIDE = 16


# -- what ran --
def call_table(calls: Calls, example: int = 0) -> CallTable:
    """Make the record of calls: those of the last step, if there are several. Pictures of a batch
    show one example.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.ones((2, 3)))
        >>> [(row.path, row.depth, row.outputs) for row in call_table(calls).rows]
        [('', 0, 'float32[2, 4]'), ('0', 1, 'float32[2, 4]'), ('1', 1, 'float32[2, 4]')]
    """
    steps = calls.steps
    listed = shown_calls(calls)
    notes = list(calls.notes)
    if len(steps) > 1:
        kept = f"{count_noun(len(steps), 'step')} kept ({steps[0]} to {steps[-1]})"
        notes.insert(0, f"step {steps[-1]} of {kept}; calls.step(n) shows another")
    rows, returned = _rows(listed, example)
    lifted = sorted({name for call in listed for name in call.lifted})
    if lifted:
        notes.append(f"values are stacked by {', '.join(lifted)}")
    sampled = max((row.statistics.sampled for row in rows if row.statistics is not None), default=0)
    if sampled:
        notes.append(
            f"mean and range are of a sample of {sampled} elements of each return; NaN and Inf "
            "are counted in all of them"
        )
    profiled = any(call.seconds is not None and call.start is None for call in listed)
    if rows and all(row.seconds is None for row in rows):
        notes.append(
            "no times: the calls ran inside a compiled function; "
            "nb.track(model, profile=True) measures each module alone"
        )
    elif profiled:
        notes.append("times: each module measured alone, compiled")
    root = f"calls.step({steps[-1]})" if len(steps) > 1 else "calls"
    table = CallTable(
        calls.name or "calls",
        with_own_times(rows),
        calls.not_called,
        root,
        notes=tuple(notes),
        input_fault=_input_fault(listed, rows),
    )
    return dataclasses.replace(table, findings=call_findings(table, returned))


def _input_fault(listed: Sequence[Any], rows: Sequence[CallRow]) -> str:
    """Name the first element of the model's input that is not finite, if a return holds one too."""
    is_bad = any(row.statistics is not None and row.statistics.nonfinite for row in rows)
    whole = next((call for call in listed if call.parent is None), None)
    if not is_bad or whole is None or whole.inputs is None:
        return ""
    return str(find_input_fault(whole.module, whole.inputs, whole.keywords or {}) or "")


def with_own_times(rows: Sequence[CallRow]) -> list[CallRow]:
    """Add what each call took without the calls within it and without compiling, where it was
    measured as it ran.
    """
    spent = [(row.seconds or 0.0) - (row.compiling or 0.0) for row in rows]
    times = list(spent)
    for row, seconds in zip(rows, spent, strict=True):
        if row.parent is not None:
            times[row.parent] -= seconds
    return [
        row if row.seconds is None or row.start is None else row._replace(own=max(seconds, 0.0))
        for row, seconds in zip(rows, times, strict=True)
    ]


def shown_calls(calls: Calls) -> list[Call]:
    """The calls that are a row each: those of the last step."""
    steps = calls.steps
    return [call for call in calls if call.step == steps[-1]] if len(steps) > 1 else list(calls)


def _rows(calls: Sequence[Call], example: int = 0) -> tuple[list[CallRow], dict[int, Any]]:
    """A row for each call, and the first array of each return that was measured here."""
    begin = min((call.start for call in calls if call.start is not None), default=0.0)
    places = {id(call): number for number, call in enumerate(calls)}
    measured, returned = _measured(calls)
    rows: list[CallRow] = []
    budget = PICTURED_LEAVES
    for number, call in enumerate(calls):
        pictures = _pictures(call, budget, example)
        budget -= len(pictures)
        parent = places.get(id(call.parent))
        row = CallRow(
            call.path,
            parent,
            number,
            0 if parent is None else rows[parent].depth + 1,
            call.class_name if call.kind == "call" else f"{call.class_name} ({call.kind})",
            call.input_shapes,
            call.return_shapes + call.mark,
            call.seconds,
            None if call.start is None else call.start - begin,
            measured.get(number),
            call.error or None,
            pictures,
            call.source or None,
        )
        if call.compiling and call.seconds:
            row = row._replace(compiling=min(call.compiling, call.seconds))
        rows.append(row)
    return rows, returned


def _measured(calls: Sequence[Call]) -> tuple[dict[int, Statistics], dict[int, Any]]:
    """Statistics of the first return of each call: those reduced in the program, else computed
    here, as far as the work allows.

    Returns:
        The statistics, and the arrays that were measured here, each by the number of its call.
    """
    statistics: dict[int, Statistics] = {}
    arrays: dict[int, Any] = {}
    elements = 0
    for number, call in enumerate(calls[:MEASURED_CALLS]):
        reduced: Any = call.statistics if "statistics" in call.values else None
        several = reduced if isinstance(reduced, list) else [reduced]
        first = next((one for one in several if one is not None), None)
        if first is not None:
            statistics[number] = first
            continue
        array = next((leaf for leaf in jax.tree.leaves(call.returns) if is_array_like(leaf)), None)
        if array is not None and elements + array.size <= MEASURED_ELEMENTS:
            arrays[number], elements = array, elements + array.size
    found = zip(arrays, statistics_of([*arrays.values()]), strict=True)
    return statistics | {k: stats for k, stats in found if stats is not None}, arrays


def _pictures(call: Call, budget: int, example: int) -> tuple[Picture, ...]:
    if budget <= 0 or not call.captured:
        return ()
    if not is_array_like(call.returns) and (drawn := drawn_by_user(call.returns)) is not None:
        return (drawn,)
    shown = (_first_drawable(call.returns), _first_drawable(call.gradient))
    return tuple(
        picture_for(leaf, call.path, example=example) for leaf in shown if leaf is not None
    )


def _first_drawable(tree: object) -> Any:
    leaves = (leaf for leaf in jax.tree.leaves(tree) if is_array_like(leaf))
    return next((leaf for leaf in leaves if 1 < leaf.size <= PICTURED_ELEMENTS), None)


# -- what `model(x, track_submod_rets=True)` fills --
def return_table(returns: SubmodRets) -> ReturnTable:
    """Make the record of `model.submod_rets`: a row for each return, with its picture."""
    rows, _ = _rows(listed_returns(returns))
    return ReturnTable("submod_rets", rows, root="model.submod_rets")


def listed_returns(returns: SubmodRets) -> list[Call]:
    """Each return as a call, one for each row of the record."""
    return [
        Call(
            key.replace("__", "."),
            {"output": value},
            index=index,
            return_shapes=describe(value),
            depth=0,
        )
        for key, values in returns.items()
        for index, value in enumerate(values if isinstance(values, list) else [values])
    ]


TWO_CALLS = "shapes are of the first call, histograms of the last tracked call"


def called_tree(module: CoreModule) -> ModuleTree:
    """Make the record of a module with what its submodules last returned, as far as that was
    tracked and is still there.
    """
    tree = module_tree(module)
    returns, last = module._nbm.results[0], last_tracked(module)
    calls = [] if last is None else shown_calls(last)
    if returns is not None:
        calls = listed_returns(returns)
    if not calls:
        return tree
    last_of = {calls[number].path: stats for number, stats in _measured(calls)[0].items()}
    rows = [row._replace(statistics=last_of.get(row.path, row.statistics)) for row in tree.rows]
    return dataclasses.replace(tree, rows=rows, notes=(*tree.notes, TWO_CALLS))


def order_table(order: CallOrder) -> CallTable | VariableTree:
    """Make the record of `model.submod_call_order`: its calls; a changed copy is shown as any
    Container.
    """
    if order._facts is None:
        return container_record(order)
    rows = [CallRow(**fact) for fact in order._facts]
    return CallTable(rows[0].class_name if rows else "calls", rows, root="model.submod_call_order")


# -- two trees --
def difference_record(difference: Difference) -> DifferenceTree:
    """Make the record of `nb.diff`."""
    rows = []
    for change in difference:
        a = describe(change.a) if change.status != "unexpected" else ""
        b = describe(change.b) if change.status != "missing" else ""
        numbers = (change.relative, change.largest, change.where)
        rows.append(DifferenceRow(change.path, change.status, a, b, *numbers))
    return DifferenceTree("a", "b", rows, "nb.diff(a, b)")


def recorder_record(recorder: Recorder) -> CallTable:
    """Make the record of a recorder: the calls of the last recorded step, and which others there
    are.
    """
    note, steps = repr(recorder).strip("<>"), recorder.steps
    if not steps:
        return CallTable(recorder.name, [], notes=(note,))
    table = recorded_table(recorder, steps[-1])
    snapshots = _snapshots(recorder, table)
    said = f"step {steps[-1]}"
    if snapshots:
        part = f"{len(snapshots)} of " if len(snapshots) < len(steps) else ""
        pictured = sum(bool(snapshot.pictures) for snapshot in snapshots)
        more = f", small ones of {count_noun(pictured, 'earlier step')}" if pictured else ""
        said = f"{part}{count_noun(len(steps), 'step')} in this page, pictures of {said}{more}"
    notes = (f"{said}; recorder[n] shows another", note, *table.notes)
    return dataclasses.replace(table, snapshots=snapshots, notes=notes)


def _snapshots(recorder: Recorder, table: CallTable) -> tuple[StepSnapshot, ...]:
    """The numbers of the recorded steps, evenly chosen where there are many, with small pictures of
    as many earlier steps as there is room for.
    """
    most = max(2, min(MOST_SNAPSHOTS, MOST_SNAPSHOT_ROWS // max(len(table.rows), 1)))
    if len(recorder.steps) < 2:
        return ()
    steps = _evenly(recorder.steps, most)
    cells = SNAPSHOT_SIDE**2 * sum(bool(row.pictures) for row in table.rows)
    room = min(len(steps) - 1, SNAPSHOT_PICTURES // cells if cells else 0)
    pictured = {steps[k * (len(steps) - 1) // room] for k in range(room)}
    places = _places(row.path for row in table.rows)
    snapshots = []
    for step in steps:
        calls = list(recorder[step])
        measured, _ = _measured(calls)
        at = {key: k for k, key in enumerate(_places(call.path for call in calls))}
        numbers = [at.get(key, -1) for key in places]
        pictures = {}
        for k, number in enumerate(numbers if step in pictured else ()):
            is_kept = number >= 0 and table.rows[k].pictures and calls[number].captured
            array = _first_drawable(calls[number].returns) if is_kept else None
            if array is not None:
                path = calls[number].path
                pictures[k] = picture_for(array, path, side=SNAPSHOT_SIDE, tiles=1)
        snapshots.append(StepSnapshot(step, tuple(map(measured.get, numbers)), pictures))
    return tuple(snapshots)


def _evenly(steps: Sequence[int], most: int) -> Sequence[int]:
    """At most so many of the steps, the first and the last among them."""
    if len(steps) <= most:
        return steps
    return sorted({steps[round(k * (len(steps) - 1) / (most - 1))] for k in range(most)})


def pictures_at(recorder: Recorder, step: int, path: str, index: int) -> tuple[Picture, ...]:
    """The pictures of one call of a recorded step; none where that call was not made, or its return
    was not kept.

    Args:
        recorder: Whose steps they are.
        step: Its number.
        path: Of the submodule.
        index: How many calls of it came before.
    """
    same = [call for call in recorder[step] if call.path == path]
    return _pictures(same[index], 2, 0) if 0 <= index < len(same) else ()


def _places(paths: Iterable[str]) -> list[tuple[str, int]]:
    """Return each path with how many calls of it came before."""
    paths = list(paths)
    return list(zip(paths, occurrences(paths), strict=True))


def recorded_table(recorder: Recorder, step: int) -> CallTable:
    """Make the record of one recorded step."""
    return dataclasses.replace(call_table(recorder[step]), root=f"recorder[{step}]")


register_record(CoreModule, called_tree)
register_record(Calls, call_table)
register_record(SubmodRets, return_table)
register_record(CallOrder, order_table)
register_record(Difference, difference_record)
register_record(Recorder, recorder_record)


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
    inputs = a.input_shapes if pair.inputs is None else ", ".join(map(describe, pair.inputs[0]))
    return inputs, ", ".join(map(describe, expected)), ", ".join(map(describe, actual))


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
