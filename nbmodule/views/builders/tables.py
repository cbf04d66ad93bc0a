"""Records of answers that are a table or a sentence: from a summary to how a model lies on its
devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nbmodule.base.format import count_noun, describe_shape, format_bytes, plain
from nbmodule.base.trees import gap_between
from nbmodule.calls.differences import Verdict, relative_norm
from nbmodule.calls.nonfinite import NonFinite, Range
from nbmodule.calls.profile import Profile
from nbmodule.calls.rows import Memory
from nbmodule.calls.summary import Summary, SummaryRow
from nbmodule.errors import SubmoduleReturnError
from nbmodule.files.differences import TreeComparison
from nbmodule.scale.device_layout import Layout
from nbmodule.views.builders.pytrees import register_record
from nbmodule.views.builders.tracked import three_pictures
from nbmodule.views.records.outline import Outline, group_neighbors
from nbmodule.views.records.records import (
    Column,
    ComparisonTable,
    DataTable,
    DifferenceRow,
    DifferenceTree,
    Note,
    PairRow,
    ProfileTree,
    VariableRow,
    VariableTree,
)


# -- a summary --
def summary_record(summary: Summary) -> DataTable:
    """Make the record of `nb.summary`: its rows as a tree, blocks that are alike as one line, below
    the facts of the whole model.

    Example:
        >>> import nbmodule as nb
        >>> table = summary_record(nb.summary(nb.Sequential(*[nb.Linear(2, 2) for _ in range(3)])))
        >>> table.title, [table.lines.display(i) for i in range(len(table.lines))]
        (('Sequential', '18 parameters', '72 B'), ['0…2', '0', '1', '2'])
    """
    rows = summary[1:]
    lines = summary_lines(rows)
    shown = [rows[r] if r >= 0 else None for r in lines.row]

    def column(name: str) -> list[Any]:
        values = [None if row is None else getattr(row, name) for row in shown]
        for i in lines.members:
            if shown[i] is None:
                values[i] = _of_each(lines, i, name, shown)
        return values

    columns = [
        Column("class", column("class_name")),
        Column("parameters", column("parameters"), "count", True),
    ]
    if any(row.frozen for row in rows):
        columns.append(Column("frozen", column("frozen"), "count", True))
    if any(row.shared_with for row in rows):
        columns.append(Column("shared with", column("shared_with")))
    columns.append(Column("bytes", column("bytes"), "bytes", leaves=3))
    called = any(row.calls for row in summary)
    if called:
        outputs = column("outputs")
        columns += [
            Column("input", column("inputs"), leaves=1),
            Column("output", [summary.without_calls if v == "" else v for v in outputs], leaves=5),
            Column("calls", column("calls"), "count", leaves=2),
            Column("FLOPs", column("flops"), "count", True, leaves=4),
        ]
    return DataTable(
        summary[0].class_name,
        lines,
        tuple(columns),
        ["" if row is None else f'["{row.path}"]' for row in shown],
        root="nb.summary(model, x)" if called else "nb.summary(model)",
        label="module",
        empty="no submodules",
        title=summary.facts(),
    )


def summary_lines(rows: Sequence[SummaryRow]) -> Outline:
    """The lines of a summary: each module below the one that holds it, lists as levels of their
    own, blocks that are alike folded.
    """
    out, parents = Outline(), []
    for number, row in enumerate(rows):
        steps = row.path.split(".")
        while parents and parents[-1] != steps[: len(parents[-1])]:
            parents.pop()
        for depth in range(len(parents[-1]) if parents else 0, len(steps)):
            out.append(len(parents), steps[depth], number if depth == len(steps) - 1 else -1)
            parents.append(steps[: depth + 1])
    alike = [rows[r][1:] if r >= 0 else None for r in out.row]
    return group_neighbors(out, alike)


def _of_each(lines: Outline, i: int, name: str, shown: Sequence[SummaryRow | None]) -> str | None:
    """Say what each member of a group has, as `12 × Block`; None where they differ in it."""
    members = [row for j in lines.children(i) if (row := shown[j]) is not None]
    values: set[Any] = {getattr(row, name) for row in members}
    if len(values) != 1 or (value := values.pop()) in (None, "", 0):
        return None
    if name == "bytes":
        value = format_bytes(value)
    elif isinstance(value, int | float):
        value = f"{value:,.0f}"
    return f"{lines.members[i][0]} × {value}"


# -- what holds memory --
def memory_record(memory: Memory) -> DataTable:
    """Make the record of `nb.memory`: what is held, the largest first."""
    kinds = Column("kind", [row.kind for row in memory])
    sizes = Column("bytes", [row.nbytes for row in memory], "bytes", True)
    return DataTable(
        "memory",
        _flat([plain(row.what) for row in memory]),
        (kinds, sizes),
        [f"[{i}]" for i in range(len(memory))],
        root="nb.memory()",
        label="held by",
        empty="nothing is held by recorders, calls or views",
        title=(f"{format_bytes(memory.nbytes)} held", count_noun(len(memory), "holder")),
    )


def _flat(labels: Sequence[str]) -> Outline:
    return Outline([0] * len(labels), list(labels))


# -- where NaN began --
def nonfinite_record(nonfinite: NonFinite) -> DataTable:
    """Make the record of `nb.first_nonfinite`: what the operation was given and gave, with the line
    of code and who carried it on.

    Example:
        >>> found = NonFinite(
        ...     "head",
        ...     "log",
        ...     inputs=(Range("float32[2]", -1.0, 1.0, 0),),
        ...     outputs=(Range("float32[2]", 0.0, 0.0, 1),),
        ... )
        >>> table = nonfinite_record(found)
        >>> table.lines.label, sorted(table.wrong), table.title[0]
        (['given', 'gave'], [1], 'first non-finite value: log in head (forward pass)')
    """
    head, *lines = str(nonfinite).splitlines()
    ranges = [*nonfinite.inputs, *nonfinite.outputs]
    labels = [*_counted("given", nonfinite.inputs), *_counted("gave", nonfinite.outputs)]
    places = [f".inputs[{i}]" for i in range(len(nonfinite.inputs))]
    places += [f".outputs[{i}]" for i in range(len(nonfinite.outputs))]
    remarks = [line.strip() for line in lines if not line.lstrip().startswith(("given ", "gave "))]
    return DataTable(
        "first_nonfinite",
        _flat(labels),
        (
            Column("array", [r.of for r in ranges]),
            Column("lowest", [_known(r.low) for r in ranges], "number", leaves=2),
            Column("highest", [_known(r.high) for r in ranges], "number", leaves=3),
            Column("not finite", [r.nonfinite for r in ranges], "count"),
        ),
        places,
        wrong=frozenset(i for i, r in enumerate(ranges) if r.nonfinite),
        root="nb.first_nonfinite(model, x)",
        label="",
        title=(head,),
        notes=tuple(remarks),
    )


def _counted(word: str, ranges: Sequence[Range]) -> list[str]:
    count = len(ranges)
    return [f"{word} {i}" for i in range(1, count + 1)] if count > 1 else [word] * count


def _known(end: float) -> float | None:
    return None if end != end else end


# -- the time of a step --
def profile_tree(profile: Profile) -> ProfileTree:
    """Make the record of a profile."""
    facts = tuple(profile.facts)
    return ProfileTree(profile[1:], profile.best, title=facts, notes=profile.notes)


# -- a verdict --
def verdict_record(verdict: Verdict) -> Note:
    """Make the record of `nb.check`: whether it is right, and the sentence that helps."""
    title = ("right" if verdict.right else "not right yet",)
    return Note("check", repr(verdict), not verdict.right, title=title)


# -- an unexpected return --
def unexpected_record(error: SubmoduleReturnError) -> ComparisonTable | Note:
    """Make the record of what `expected_submod_rets` raises: the return at fault, what was expected
    and the difference as pictures.
    """
    details: Any = error
    text = str(error)
    if getattr(details, "actual", None) is None:
        return Note(type(error).__name__, text, True)
    actual = np.asarray(details.actual)
    expected = np.broadcast_to(np.asarray(details.expected), actual.shape)
    head = text.splitlines()[0]
    row = PairRow(
        details.path,
        details.number,
        fault="module",
        given="not compared",
        a=describe_shape(expected),
        b=describe_shape(actual),
        remark="at fault",
    )
    if actual.dtype.kind in "biufc":
        gap = gap_between(actual, expected, 0.0, 0.0)
        row = row._replace(
            change=relative_norm(expected, actual),
            largest=gap.largest,
            where=gap.where,
            values=(gap.expected, gap.actual),
            pictures=three_pictures(expected, actual, details.path),
        )
    return ComparisonTable("expected", "actual", [row], 0, "error", title=(head,))


# -- the difference of two files --

_STATUS = {
    "equal": "same",
    "renamed": "same",
    "only in first": "missing",
    "only in second": "unexpected",
    "values": "changed",
}


def files_record(comparison: TreeComparison) -> DifferenceTree:
    """Make the record of two trees compared place by place.

    Example:
        >>> from nbmodule.files.differences import compare_rows
        >>> [
        ...     (row.path, row.status)
        ...     for row in files_record(compare_rows({"a": 1}, {"a": 1, "b": 2})).rows
        ... ]
        [('a', 'same'), ('b', 'unexpected')]
    """
    rows = []
    for row in comparison.rows:
        status = _STATUS.get(row.kind, row.kind)
        rows.append(DifferenceRow(row.path, status, row.first, row.second))
    return DifferenceTree(*comparison.names, rows)


# -- how a model lies on its devices --


def layout_record(layout: Layout) -> VariableTree:
    """Make the record of a layout: a row for each variable, with its split and its bytes on each
    device.

    Example:
        >>> import nbmodule as nb
        >>> layout_record(nb.layout(nb.Linear(3, 2))).title
        ('Layout of Linear', 'cpu:0', '32 B on each', '32 B in all', 'imbalance 1.00')
    """
    rows = []
    for row in layout.rows:
        shown = VariableRow(row.name, shape=row.shape, dtype=row.dtype, bytes=row.nbytes)
        if len(row.devices) > 1:
            split = f"{row.split}: {format_bytes(row.per_device)} on each"
            device = f"{len(row.devices)} × {row.devices[0].platform}"
            shown = shown._replace(device=device, sharding=split)
        rows.append(shown)
    title = (f"Layout of {layout.name}", *layout.facts())
    return VariableTree(layout.name, rows, root="layout", title=title)


register_record(Summary, summary_record)
register_record(Memory, memory_record)
register_record(NonFinite, nonfinite_record)
register_record(Profile, profile_tree)
register_record(Verdict, verdict_record)
register_record(SubmoduleReturnError, unexpected_record)
register_record(TreeComparison, files_record)
register_record(Layout, layout_record)
