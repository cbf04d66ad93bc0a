"""Records as the data that a page reads: what each view has, and the columns of its rows."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import count_noun, format_array, plain
from nbmodule.base.statistics import Statistics
from nbmodule.views.records.findings import findings_of, worst_of
from nbmodule.views.records.outline import Outline, open_at_first, outline_of_keys
from nbmodule.views.records.records import (
    ArrayCard,
    CallRow,
    CallTable,
    Column,
    ComparisonTable,
    DataTable,
    DifferenceTree,
    Finding,
    HistoryRecord,
    ModuleTree,
    Note,
    Picture,
    ProfileTree,
    ReturnTable,
    SeriesRecord,
    VariableTree,
    ViewRecord,
    mapped_pictures,
)
from nbmodule.views.renderers.columns import (
    CALLS,
    DIFFERENCES,
    LONG_TEXT,
    MODULES,
    PAIRS,
    PROFILE,
    SNAPSHOT_BINS,
    VARIABLES,
    columns_of,
    filled,
    number,
    packed,
    picture_payload,
    sparse,
    statistics_payload,
)
from nbmodule.views.renderers.outlines import (
    call_kinds,
    call_outline,
    comparison_outline,
    folded_paths,
    line_rows,
    module_lines,
    module_outline,
)
from nbmodule.views.renderers.plain_text import title_of

# The call that makes a view, as it is copied.
CODE = {
    **dict.fromkeys(("modules", "variables", "array", "table"), "nb.show({root})"),
    "calls": "with nb.track(model) as calls:\n    model(x)\nnb.show(calls)",
    "recorded": "recorder = nb.Recorder(model)\nwith recorder:\n    model(x)\nnb.show(recorder)",
    "returns": "model(x, track_submod_rets=True)\nnb.show({root})",
    "difference": "nb.diff(a, b)",
    "comparison": "nb.compare(calls, reference)",
    "profile": "nb.profile(step, *args)",
}
# Bytes of picture data in one view, with the values of their cells; base64 makes a third more.
PICTURE_BYTES = 150_000
MOST_ROWS: dict[type, int] = {
    VariableTree: 100_000,
    ModuleTree: 20_000,
    CallTable: 20_000,
    ComparisonTable: 20_000,
    ReturnTable: 500,
    DifferenceTree: 50_000,
    ProfileTree: 4000,
}
MOST_POINTS = 2000
# How many times larger than the smallest of a linear axis the largest is at most.
SEEN = 50.0
# Of the largest on an axis: what is smaller is near zero.
FINEST = 1e-12
MOST_OPEN = 200


@functools.singledispatch
def payload_of(record: ViewRecord) -> dict[str, Any]:
    """Write a record as the data that a page reads.

    Example:
        >>> data = payload_of(Note("grad", "nothing was called"))
        >>> data["view"], data["title"], data["text"]
        ('note', ['grad'], 'nothing was called')
    """
    raise TypeError(f"no view is registered for {type(record).__name__}")


def common(record: Any, view: str, lines: Sequence[int] = (), code: str = "") -> dict[str, Any]:
    """Write what every view has: title, notes, root, the call that makes it, findings.

    Args:
        record: The record.
        view: The name of its view.
        lines: For each line of the view the row of the record that it stands for.
        code: The call that makes the view; by default that of `CODE`.
    """
    root = getattr(record, "root", None)
    return filled(
        {
            "view": view,
            "title": title_of(record),
            "code": code or CODE.get(view, "").format(root=root) or None,
            "notes": [plain(note, LONG_TEXT) for note in record.notes] or None,
            "root": None if root is None else plain(root),
            **_findings(findings_of(record), lines),
        }
    )


def _findings(findings: Sequence[Finding], lines: Sequence[int]) -> dict[str, Any]:
    """Write the bug bar, `kind, text, line, part, path`, and the line at which the view opens."""
    if not findings:
        return {}
    rows = {finding.row for finding in findings} - {None}
    at = {row: line for line, row in enumerate(lines) if row in rows} if rows else {}
    bar = [
        [f.kind, plain(f.text, 300), at.get(f.row or 0) if f.row is not None else None,
         f.part or None, plain(f.path)]
        for f in findings
    ]  # fmt: skip
    worst = worst_of(findings)
    first = None if worst is None or worst.row is None else at.get(worst.row)
    return {"findings": bar, "first": first}


def _tree(outline: Outline, opened: list[int] | None = None) -> dict[str, Any]:
    """Write the lines of a tree whose labels are single steps."""
    members = outline.members
    return {
        "depth": outline.depth,
        "open": open_at_first(outline) if opened is None else opened,
        "step": packed(outline.label, plain),
        "more": {i: [plain(name) for name in names] for i, names in outline.joined.items()} or None,
        "ranges": {i: plain(text) for i, (_, text) in members.items()} or None,
        "members": {i: count for i, (count, _) in members.items()} or None,
        "at": _row_numbers(outline),
    }


def _listed(outline: Outline, opened: list[int] | None = None) -> dict[str, Any]:
    """Write the lines of a tree with whole labels."""
    return {
        "depth": outline.depth,
        "open": open_at_first(outline) if opened is None else opened,
        "label": [plain(outline.display(i)) for i in range(len(outline))],
    }


def _row_numbers(outline: Outline) -> list[int] | None:
    """Return the row of each line; None where lines that have one count them from 0."""
    rows = [row for row in outline.row if row >= 0]
    return None if rows == list(range(len(rows))) else outline.row


def _colors(color: Mapping[str, float], names: Iterable[Sequence[str]]) -> dict[int, Any] | None:
    """Write the number of each line that has one under any of its names."""
    if not color:
        return None
    matches = ([number(color[name]) for name in some if name in color] for some in names)
    return sparse(next(iter(match), None) for match in matches)


# -- modules and variables --
@payload_of.register
def _(tree: ModuleTree) -> dict[str, Any]:
    outline = module_outline(tree)
    rows = module_lines(tree, outline)
    rare = tree.rarer_mode
    modes = [row.training if row.training is rare else None for row in rows]
    words = {True: "train", False: "eval", None: None}
    empty = f"no submodules; {', '.join(map(plain, tree.variables))}"
    return common(tree, "modules", outline.row) | filled(
        {
            **_listed(outline),
            "total": tree.parameters,
            "empty": empty if tree.variables and not rows else None,
            "color": _colors(tree.color, [(row.path,) for row in rows]),
            "at": _row_numbers(outline),
            "training": None if rare is None else packed([words[mode] for mode in modes]),
            **columns_of(MODULES, rows),
        }
    )


@payload_of.register
def _(tree: VariableTree) -> dict[str, Any]:
    rows, outline = tree.rows, tree.lines
    names = (rows[r].spellings if r >= 0 else () for r in outline.row)
    return common(tree, "variables", outline.row) | filled(
        {
            **_tree(outline),
            **columns_of(VARIABLES, rows, outline.row),
            "color": _colors(tree.color, names),
            "spelled": dict(tree.spelled) or None,
        }
    )


# -- calls --
@payload_of.register
def _(table: CallTable) -> dict[str, Any]:
    outline = call_outline(table.rows, grouped=True)
    groups = {
        i: [plain(call_kinds(table.rows, outline, i)), outline.children(i)] for i in outline.members
    }
    view = "recorded" if len(table.snapshots) > 1 else "calls"
    return common(table, view, outline.row) | filled(
        {
            **_call_lines(table.rows, outline),
            **({"at": outline.row, "groups": groups} if groups else {}),
            **(_snapshots(table, outline) if view == "recorded" else {}),
            "not_called": [plain(p) for p in folded_paths(table.not_called)] or None,
        }
    )


@payload_of.register
def _(table: ReturnTable) -> dict[str, Any]:
    lines = _call_lines(table.rows, call_outline(table.rows))
    return common(table, "returns", range(len(table.rows))) | lines


def _call_lines(rows: Sequence[CallRow], outline: Outline) -> dict[str, Any]:
    lines = [
        row if r >= 0 else row._replace(path=None)  # pyright: ignore[reportArgumentType]
        for r, row in zip(outline.row, line_rows(rows, outline), strict=True)
    ]
    return filled(
        {
            **_listed(outline, open_at_first(outline, groups=True)),
            "axis": _axis(row.statistics for row in rows),
            **columns_of(CALLS, lines),
        }
    )


def axis_of(statistics: Iterable[Statistics | None]) -> tuple[float, float, float] | None:
    """Choose the axis on which the mean and deviation of all of these are seen, so that a depth
    along which they grow or die is a slanted line.

    Returns:
        The lowest and highest number, of which zero is between, and the size up to which the axis
        is linear, and logarithmic beyond; 0: it is linear throughout. None where there is nothing
        to see.

    Example:
        >>> axis_of([Statistics(4, 0.5, 1.0, -1, 2, histogram=(4,)), None])
        (-0.5, 1.5, 0.0)
    """
    measured = [s for s in statistics if s is not None and s.histogram]
    present = [s for s in measured if math.isfinite(s.mean) and math.isfinite(s.std)]
    low = min((s.mean - s.std for s in present), default=0.0)
    high = max((s.mean + s.std for s in present), default=0.0)
    low, high = min(low, 0.0), max(high, 0.0)
    if not (high > low and math.isfinite(high - low)):
        return None
    sizes = [size for s in present if (size := abs(s.mean) + s.std) > FINEST * (high - low)]
    smallest = min(sizes, default=0.0)
    return low, high, smallest if max(sizes, default=0.0) > SEEN * smallest else 0.0


def _axis(statistics: Iterable[Statistics | None]) -> list[Any] | None:
    return [number(end) for end in axis_of(statistics) or ()] or None


def _snapshots(table: CallTable, outline: Outline) -> dict[str, Any]:
    """Write the numbers of each line at each recorded step, and the axis that all share."""
    line = {row: i for i, row in enumerate(outline.row) if row >= 0}
    steps, pictures = [], {}
    for k, snapshot in enumerate(table.snapshots):
        pairs = zip(table.rows, snapshot.statistics, strict=True)
        rows = line_rows([row._replace(statistics=s) for row, s in pairs], outline)
        steps.append([statistics_payload(row.statistics, SNAPSHOT_BINS) for row in rows])
        if snapshot.pictures:
            drawn = snapshot.pictures.items()
            pictures[k] = {line[row]: picture_payload(picture) for row, picture in drawn}
    return {
        "steps": [snapshot.step for snapshot in table.snapshots],
        "snapshots": steps,
        "axis": _axis(s for snapshot in table.snapshots for s in snapshot.statistics),
        "small": pictures or None,
    }


# -- two trees, two runs --
@payload_of.register
def _(tree: DifferenceTree) -> dict[str, Any]:
    rows = tree.rows
    outline = outline_of_keys([tuple(row.path.split("/")) for row in rows])
    ends = outline.ends()
    differs = [r >= 0 and rows[r].status != "same" for r in outline.row]
    opened = [i for i in range(len(outline)) if ends[i] > i + 1 and any(differs[i + 1 : ends[i]])]
    return common(tree, "difference", outline.row) | filled(
        {
            "names": [plain(tree.a), plain(tree.b)],
            **_tree(outline, opened if len(opened) <= MOST_OPEN else None),
            **columns_of(DIFFERENCES, rows, outline.row),
        }
    )


@payload_of.register
def _(table: ComparisonTable) -> dict[str, Any]:
    outline = comparison_outline(table)
    return common(table, "comparison", outline.row) | filled(
        {
            "names": [plain(table.a), plain(table.b)],
            **_listed(outline, []),
            "row": outline.row,
            **columns_of(PAIRS, table.rows, outline.row),
        }
    )


@payload_of.register
def _(tree: ProfileTree) -> dict[str, Any]:
    outline = Outline([row.depth - 1 for row in tree.rows], [row.name for row in tree.rows])
    return {
        **common(tree, "profile", outline.row),
        **_listed(outline),
        "best": tree.best,
        **columns_of(PROFILE, tree.rows),
    }


# -- curves --
@payload_of.register
def _(history: HistoryRecord) -> dict[str, Any]:
    series = [_series(one) for one in history.series]
    return common(history, "curve") | {"axis": plain(history.axis), "series": series}


def _series(series: SeriesRecord) -> dict[str, Any]:
    whole = Curve(np.array(series.steps), np.array(series.values))
    curve = reduce_curve(whole, MOST_POINTS // 2)
    return {
        "name": plain(series.name),
        "steps": [number(step) for step in curve.steps.tolist()],
        "values": [number(value) for value in curve.values.tolist()],
        **({"unit": plain(series.unit)} if series.unit else {}),
    }


# -- arrays, tables, notes --
@payload_of.register
def _(card: ArrayCard) -> dict[str, Any]:
    return common(card, "array") | filled(
        {
            "stats": statistics_payload(card.statistics),
            "picture": picture_payload(card.picture) if card.picture else None,
            "corner": [list(map(plain, row)) for row in card.corner] or None,
            "whole": sum(map(len, card.corner)) == math.prod(card.shape or ()),
            "of": plain(format_array(card.shape, card.dtype)),
            "err": plain(card.error, LONG_TEXT) if card.error else None,
            "drawn": (card.shape is None and card.picture is not None) or None,
        }
    )


@payload_of.register
def _(table: DataTable) -> dict[str, Any]:
    return common(table, "table", table.lines.row) | filled(
        {
            **_listed(table.lines),
            "first_title": table.label or None,
            "empty": plain(table.empty),
            "places": [plain(place) for place in table.places] or None,
            "wrong": sorted(table.wrong) or None,
            "columns": [_column(column) for column in table.columns],
        }
    )


def _column(column: Column) -> dict[str, Any]:
    values = [plain(v, 400) if isinstance(v, str) else number(v) for v in column.values]
    return filled(
        {
            "title": column.title,
            "kind": column.kind,
            "values": packed(values) or values,
            "bar": column.has_bar or None,
            "drop": column.leaves or None,
        }
    )


@payload_of.register
def _(note: Note) -> dict[str, Any]:
    text = "\n".join(plain(line, LONG_TEXT) for line in note.text.splitlines()[:200])
    return common(note, "note") | {"text": text} | ({"error": True} if note.is_error else {})


# -- limits --
def fitted(record: ViewRecord, pictures: int = PICTURE_BYTES) -> ViewRecord:
    """Leave out what would make a view too large.

    Args:
        record: Any record.
        pictures: Bytes that its pictures may have.

    Example:
        >>> from nbmodule.views.records.records import VariableRow
        >>> tree = VariableTree("v", [VariableRow(f"w{i}") for i in range(100_001)])
        >>> fitted(tree).notes
        ('1 row left out: ask for a part',)
    """
    most = MOST_ROWS.get(type(record))
    if most is None:
        return record
    rows: Any = getattr(record, "rows", ())
    notes = list(record.notes)
    if len(rows) > most:
        notes.append(f"{count_noun(len(rows) - most, 'row')} left out: ask for a part")
        record = dataclasses.replace(record, rows=rows[:most])  # type: ignore[call-arg]
    used = dropped = 0

    def within(picture: Picture) -> Picture | None:
        nonlocal used, dropped
        fits = used + picture.size <= pictures
        used, dropped = used + fits * picture.size, dropped + (not fits)
        return picture if fits else None

    record = mapped_pictures(record, within)
    if dropped:
        notes.append(f"{count_noun(dropped, 'picture')} left out: show one of them")
    return dataclasses.replace(record, notes=tuple(notes))
