"""Records as text: for terminals, job logs, and readers of saved notebooks that show nothing else.

The text is the whole record; only the form beside an HTML view is cut, to 60 lines. Color says
nothing that the words do not say, and is used on a terminal only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from nbmodule.base.format import (
    count_noun,
    cut_middle,
    format_array,
    format_bytes,
    format_count,
    format_number,
    format_seconds,
    is_better_when_higher,
    plain,
    spark,
    width_of,
)
from nbmodule.calls.call import NOT_CAPTURED
from nbmodule.views.arrays.reductions import union_of
from nbmodule.views.records.findings import findings_of, findings_text
from nbmodule.views.records.outline import MOST_GROUPED, SMALLEST_GROUP, Outline, visible
from nbmodule.views.records.records import (
    ArrayCard,
    CallRow,
    CallTable,
    ComparisonTable,
    DataTable,
    DifferenceRow,
    DifferenceTree,
    HistoryRecord,
    ModuleRow,
    ModuleTree,
    Note,
    PairRow,
    ReturnTable,
    SeriesRecord,
    ShownStatistics,
    UserPicture,
    ViewRecord,
)
from nbmodule.views.records.variables import VariableRow, VariableRows, VariableTree
from nbmodule.views.renderers.axis import axis_of, strip
from nbmodule.views.renderers.outlines import (
    call_label,
    call_outline,
    comparison_outline,
    folded_groups,
    folded_modules,
    folded_paths,
    folded_variables,
    group_lines,
    line_rows,
)
from nbmodule.views.renderers.text_layout import (
    MOST_LINES,
    Line,
    align,
    branches,
    cap,
    is_terminal,
    paint,
    terminal_width,
)
from nbmodule.views.renderers.titles import COMPILING_SHARE, title_of

MOST_FLOW = 40
"""Columns of what goes into a call and comes out of it; where it takes more, nothing else of the
row would be seen.
"""
MOST_JOINED = 200
"""Variables whose numbers a text joins in one line; of more it names only their type."""
MOST_SAID = 6
"""Findings that a text names."""
_FORMS: dict[type, Callable[..., list[str]]] = {}


def text_of(
    record: ViewRecord,
    *,
    width: int | None = None,
    limit: int | None = None,
    color: bool | None = None,
) -> str:
    """Write a record as text.

    Args:
        record: Any record of `views.records`.
        width: Columns; the terminal's, or 80 where there is none.
        limit: Most lines; None writes all.
        color: Whether to color; by default on a terminal only.

    Example:
        >>> from nbmodule.views.records.records import ModuleRow, ModuleTree
        >>> print(
        ...     text_of(
        ...         ModuleTree(
        ...             "Net", [ModuleRow("head", "head", "Linear", "16 → 10", 170, 680)], 170, 680
        ...         )
        ...     )
        ... )
        Net  170 parameters  680 B
        └─ head  Linear 16 → 10  170
    """
    width = width or terminal_width()
    color = is_terminal() if color is None else color
    lines = [paint("  ".join(title_of(record)), "bold", color)]
    lines += bar_of(record, width)
    rows = getattr(record, "rows", ())
    cut = 0
    within = getattr(record, "within", None)
    if limit is not None and within is not None:  # it shares the lines out among its parts
        record = within(limit)
    if limit is not None and len(rows) > max(
        limit, _laid_out(record)
    ):  # what will not be shown is not laid out
        cut = len(rows) - limit
        record = dataclasses.replace(record, rows=first_rows(rows, limit))  # type: ignore
    lines += _FORMS[type(record)](record, width, color)
    lines = cap(lines, limit, cut, plain(getattr(record, "root", "it")))
    return "\n".join([*lines, *(plain(note, 2000) for note in getattr(record, "notes", ()))])


def first_rows(rows: Sequence[Any], count: int) -> Sequence[Any]:
    """Return the first rows, as columns if they are."""
    return rows.first(count) if isinstance(rows, VariableRows) else rows[:count]


def _laid_out(record: ViewRecord) -> int:
    """How many rows are looked at, however few are shown: those that are alike are one line
    wherever they stand.
    """
    return MOST_GROUPED if isinstance(record, ModuleTree | VariableTree | CallTable) else 0


def bar_of(record: ViewRecord, width: int) -> list[str]:
    """The findings as lines of text; none where nothing is wrong.

    Example:
        >>> rows = [
        ...     ModuleRow("a", "a", "ReLU", training=True),
        ...     ModuleRow("b", "b", "ReLU", training=False),
        ... ]
        >>> bar_of(ModuleTree("Net", rows, mode="mixed train/eval"), 80)
        ['● train and eval mixed: b in eval']
    """
    lines: list[str] = []
    for finding in findings_text(findings_of(record)[:MOST_SAID]):
        if lines and width_of(lines[-1]) + 3 + width_of(finding) <= width:
            lines[-1] += f"   {finding}"
        else:
            lines.append(finding)
    return lines


def capped_text_of(record: ViewRecord) -> str:
    """Write a record as the text that stands beside its HTML in a saved notebook."""
    return text_of(record, width=80, limit=MOST_LINES, color=False)


def text_form(cls: type) -> Callable[[Callable[..., list[str]]], Callable[..., list[str]]]:
    """Register how one kind of record is written: `fn(record, width, color)` gives the lines below
    the title.
    """

    def keep(fn: Callable[..., list[str]]) -> Callable[..., list[str]]:
        _FORMS[cls] = fn
        return fn

    return keep


@text_form(ModuleTree)
def _modules(tree: ModuleTree, width: int, color: bool) -> list[str]:
    outline, members = folded_modules(tree)
    lines = []
    for i, (r, lead) in enumerate(zip(outline.row, branches(outline), strict=True)):
        name = lead + plain(outline.label[i])
        if i not in members:
            lines.append(module_line(tree.rows[r], name))
            continue
        lines.append(_group_line(outline, i, [tree.rows[k] for k in members[i]], name))
    if not lines and tree.variables:
        return [f"   {plain(v)}" for v in tree.variables]
    return align(lines, frozenset({2}), width, color)


def _group_line(outline: Outline, i: int, alike: list[ModuleRow], name: str) -> Line:
    """The cells of neighbors that are alike, or whose pattern comes again."""
    kinds = [module_line(row, "").cells[1] for row in alike[: outline.period.get(i, 1)]]
    sizes = {
        "parameters": sum(row.parameters for row in alike),
        "output_shapes": alike[-1].output_shapes,
    }
    whole = alike[0]._replace(**sizes, variables=())
    line = module_line(whole, name)
    outline.members[i] = (len(alike), "")
    return line._replace(cells=(name, outline.kinds(i, kinds), *line.cells[2:]))


def module_line(row: ModuleRow, name: str) -> Line:
    """The cells of a module: name, class, parameters, shapes, own variables."""
    cells = (
        name,
        plain(f"{row.class_name} {row.summary}".strip()),
        format_count(row.parameters) if row.parameters else "",
        _shapes(row),
        " ".join(plain(v.partition(" ")[2]) for v in row.variables),
    )
    remark = ", ".join(module_badges(row))
    return Line(
        cells,
        f"<- {remark}" if remark else "",
        "red" if row.error else "dim" if not row.parameters else "",
    )


def _shapes(row: ModuleRow) -> str:
    inputs, returned = row.input_shapes, row.output_shapes
    return (
        f"{inputs or '?'} → {'same' if inputs == returned else returned or '?'}"
        if inputs or returned
        else ""
    )


def module_badges(row: ModuleRow) -> list[str]:
    """What is worth a word about a module."""
    return [
        *([count_noun(row.buffers, "buffer")] if row.buffers else []),
        *([f"shared with {plain(row.shared_with)}"] if row.shared_with else []),
        *([] if row.built else ["built on first call"]),
        *([plain(row.error)] if row.error else []),
    ]


@text_form(VariableTree)
def _variables(tree: VariableTree, width: int, color: bool) -> list[str]:
    outline, rows = folded_variables(tree)
    lines = []
    for i, (members, lead) in enumerate(zip(rows, branches(outline), strict=True)):
        name = lead + plain(outline.label[i])
        if members:
            lines.append(_variables_line(tree.rows, members, name))
        else:
            alike = f"{outline.members[i][0]} alike" if i in outline.members else ""
            lines.append(Line((name, alike) if alike else (name,)))
    return align(lines, frozenset({2}), width, color, leaving=(2,))


def _variables_line(rows: Sequence[VariableRow], members: Sequence[int], name: str) -> Line:
    """The cells of variables of the same kind in modules that are alike, as those of one array."""
    first = rows[members[0]]
    if len(members) == 1:
        return variable_line(first, name)
    type_text = f"{len(members)} × {plain(format_array(first.shape, first.dtype))}"
    if len(members) > MOST_JOINED:
        return Line((name, type_text))
    every = [rows[i] for i in members]
    measured = [row.statistics for row in every if row.statistics is not None]
    joined = first._replace(
        bytes=sum(row.bytes for row in every if not row.shared_with),
        statistics=union_of(measured) if len(measured) == len(every) else None,
        values=None,
        shared_with=first.shared_with if len({row.shared_with for row in every}) == 1 else None,
    )
    line = variable_line(joined, name)
    return line._replace(cells=(name, type_text, *line.cells[2:]))


def variable_line(row: VariableRow, name: str) -> Line:
    """The cells of a variable: name, type, bytes, histogram, mean and deviation or value."""
    stats = row.statistics
    value = plain(row.values) if isinstance(row.values, str) else spread(stats, row.dtype)
    cells = (
        name,
        plain(format_array(row.shape, row.dtype)),
        format_bytes(row.bytes) if row.shape is not None else "",
        spark(stats.bins) if stats else "",
        value,
    )
    remark = ", ".join(variable_badges(row))
    wrong = row.error or (stats and stats.nan + stats.inf)
    return Line(cells, f"<- {remark}" if remark else "", "red" if wrong else "")


def spread(stats: ShownStatistics | None, dtype: str | None = "") -> str:
    """Write mean and deviation; of complex numbers those of their sizes, which is said.

    Example:
        >>> spread(ShownStatistics(4, -0.0031, 0.19, -1, 1))
        '-0.0031 ± 0.19'
        >>> spread(ShownStatistics(4, 0.31, 0.19, 0, 1), "complex64")
        '|x| 0.31 ± 0.19'
    """
    if stats is None or not stats.size or stats.nan + stats.inf == stats.size:
        return ""
    sign = "|x| " if (dtype or "").startswith("complex") else ""
    return f"{sign}{format_number(stats.mean, 2)} ± {format_number(stats.std, 2)}"


def variable_badges(row: VariableRow) -> list[str]:
    """What is worth a word about a variable."""
    return [
        *number_badges(row.statistics),
        *(["buffer"] if row.kind == "buffer" else []),
        *(["frozen"] if row.frozen else []),
        *([f"shared with {plain(row.shared_with)}"] if row.shared_with else []),
        *([plain(row.sharding)] if row.sharding else []),
        *([plain(row.error)] if row.error else []),
    ]


def number_badges(stats: ShownStatistics | None, *, zeros: bool = True) -> list[str]:
    """Words for what is wrong or odd in the numbers."""
    if stats is None:
        return []
    return [
        *([f"NaN {format_count(stats.nan)}"] if stats.nan else []),
        *([f"Inf {format_count(stats.inf)}"] if stats.inf else []),
        *(["zeros"] if zeros and stats.size and stats.zero == stats.size else []),
    ]


@text_form(CallTable)
@text_form(ReturnTable)
def _calls(table: CallTable | ReturnTable, width: int, color: bool) -> list[str]:
    rows = table.rows
    outline = call_outline(rows, grouped=len(rows) > MOST_LINES)
    shown, axis = line_rows(rows, outline), axis_of(row.statistics for row in rows)
    head = ("#", "call", "in → out", "time", "mean ± std", axis.legend() if axis else "")
    lines = [Line(head, color="dim")] if rows else []
    room = max(MOST_FLOW, width - 60)
    for i in visible(outline, folded_groups(outline)):
        inside = (
            [rows[outline.row[j]].statistics for j in group_lines(outline, i)]
            if i in outline.members
            else []
        )
        drawn = (
            strip(axis, [s for s in inside or [shown[i].statistics] if s is not None])
            if axis
            else ""
        )
        lines.append(
            _call_line(
                shown[i], "  " * outline.depth[i] + plain(call_label(rows, outline, i)), room, drawn
            )
        )
    out = align(lines, frozenset({0, 3}), width, color, leaving=(3, 5))
    missing = getattr(table, "not_called", ())
    return [
        *out,
        *([f"not called: {plain(', '.join(folded_paths(missing)), 2000)}"] if missing else []),
    ]


def _call_line(row: CallRow, label: str, room: int, drawn: str) -> Line:
    stats = row.statistics
    cells = (
        str(row.order),
        label,
        cut_middle(plain(flow(row)), room),
        _time(row),
        spread(stats, row.outputs),
        drawn,
    )
    wrong = [*number_badges(stats, zeros=False), *([plain(row.error)] if row.error else [])]
    remark = ", ".join(
        [*wrong, *([NOT_CAPTURED.strip(" ()")] if row.outputs.endswith(NOT_CAPTURED) else [])]
    )
    return Line(cells, f"<- {remark}" if remark else "", "red" if wrong else "")


def _time(row: CallRow) -> str:
    """Write the time of a call, that of compiling apart."""
    if row.seconds is None:
        return ""
    compiling = row.compiling or 0.0
    if compiling < COMPILING_SHARE * row.seconds:
        return format_seconds(row.seconds)
    return f"{format_seconds(row.seconds - compiling)} + compiling {format_seconds(compiling)}"


def flow(row: CallRow) -> str:
    """Write what went into a call and what came out; `same` where nothing changed."""
    if row.error:
        return f"{row.inputs} → raised"
    return f"{row.inputs} → {'same' if row.inputs == row.outputs else row.outputs}"


@text_form(DifferenceTree)
def _differences(tree: DifferenceTree, width: int, color: bool) -> list[str]:
    lines = [_difference_line(row) for row in tree.rows if row.status != "same"]
    return align(
        [Line(("", "path", plain(tree.a), plain(tree.b), "change"), color="dim"), *lines],
        frozenset({4}),
        width,
        color,
    )


_SIGNS = {
    "same": " ",
    "changed": "~",
    "missing": "−",
    "unexpected": "+",
    "shape": "≠",
    "dtype": "≠",
}


def _difference_line(row: DifferenceRow) -> Line:
    change = "" if row.change is None else format_number(row.change, 3)
    if (
        row.change == math.inf and row.largest is not None and math.isfinite(row.largest)
    ):  # it was zero, and has moved by no share of itself
        change = f"from 0 by {format_number(row.largest, 3)}"
    remark = plain(row.error) if row.error else "" if row.status == "changed" else row.status
    cells = (_SIGNS[row.status], plain(row.chain or row.path), plain(row.a), plain(row.b), change)
    return Line(
        cells, f"<- {remark}" if remark else "", "red" if row.status in ("missing", "shape") else ""
    )


@text_form(HistoryRecord)
def _history(history: HistoryRecord, width: int, color: bool) -> list[str]:
    lines = []
    for series in history.series:
        if not series.values:
            lines.append(Line((plain(series.name), "no values yet")))
            continue
        best = best_of(series)
        at = series.steps[series.values.index(best)]
        said = f"best {format_number(best)} @{format_count(int(at))}" if math.isfinite(best) else ""
        lines.append(
            Line(
                (plain(series.name), format_number(series.values[-1]), said, heights(series.values))
            )
        )
    return align(lines, frozenset({1}), width, color)


def best_of(series: SeriesRecord) -> float:
    """The best value of a series: the highest of a score, the lowest of anything else.

    Example:
        >>> (
        ...     best_of(SeriesRecord("accuracy", (1, 2), (0.5, 0.9))),
        ...     best_of(SeriesRecord("loss", (1, 2), (0.5, 0.9))),
        ... )
        (0.9, 0.5)
    """
    finite = [v for v in series.values if abs(v) < float("inf")] or list(series.values)
    return max(finite) if is_better_when_higher(series.name) else min(finite)


def heights(values: tuple[float, ...], width: int = 24) -> str:
    """Draw values over steps as a row of blocks, each the mean of its share; `x` where one is not
    finite.

    Example:
        >>> heights((4.0, 2.0, 1.0, 0.0))
        '█▅▃▁'
    """
    n = min(width, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(p) / len(p) for p in parts]
    finite = [m for m in means if abs(m) < float("inf")]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = (high - low) or 1.0
    return "".join(
        "▁▂▃▄▅▆▇█"[round(7 * (m - low) / span)] if abs(m) < float("inf") else "x" for m in means
    )


@text_form(ArrayCard)
def _array(card: ArrayCard, width: int, color: bool) -> list[str]:
    stats = card.statistics
    lines = [paint(plain(card.error), "red", color)] if card.error else []
    if stats and stats.size:
        reach = f"{format_number(stats.low)} … {format_number(stats.high)}" if stats.bins else ""
        words = [spread(stats, card.dtype), reach, *number_badges(stats)]
        lines.append("  ".join([spark(stats.bins, 32), *filter(None, words)]))
    lines += align([Line(row) for row in card.corner], frozenset(range(8)), width)
    return lines


@text_form(Note)
def _note(note: Note, _: int, color: bool) -> list[str]:
    return [
        paint(plain(line, 2000), "red" if note.is_error else "", color)
        for line in note.text.splitlines()
    ]


# -- two runs --
CELLS = {"": "▒", "module": "█", "tap": "█", "inside": "▓", "input": "░"}
"""One letter for each call: it agrees, is at fault, contains the fault, carries it."""


@text_form(ComparisonTable)
def _comparison(table: ComparisonTable, width: int, color: bool) -> list[str]:
    outline = comparison_outline(table)
    lines = [Line(("call", "input", "off by", "largest"), color="dim")]
    carried: list[Line] = []

    def flush() -> None:
        short = [Line((f"{len(carried)} calls carry it on",), color="dim")]
        lines.extend(carried if len(carried) < SMALLEST_GROUP else short)
        carried.clear()

    for depth, label, k in zip(outline.depth, outline.label, outline.row, strict=True):
        if depth:
            continue
        line = Line((plain(label),)) if k < 0 else _pair_line(table.rows[k], plain(label))
        if k >= 0 and table.rows[k].fault == "input":
            carried.append(line)
            continue
        flush()
        lines.append(line)
    flush()
    letters = [fault_strip(table, width)] if len(table.rows) > 1 else []
    return [*letters, *align(lines, frozenset({2}), width, color)]


def fault_strip(table: ComparisonTable, width: int) -> str:
    """Write one letter for each call, in the order in which they began, with the legend.

    Example:
        >>> rows = [
        ...     PairRow("", 0, fault="inside"),
        ...     PairRow("a", 1),
        ...     PairRow("b", 2, fault="module"),
        ... ]
        >>> fault_strip(ComparisonTable("expected", "actual", rows), 80)
        '▓▒█  ▒ agrees  █ at fault  ▓ holds it  ░ carries it'
    """
    legend = "▒ agrees  █ at fault  ▓ holds it  ░ carries it"
    letters = [CELLS[row.fault] for row in sorted(table.rows, key=lambda row: row.order)]
    n, parts = len(letters), min(max(width - len(legend) - 2, 10), len(letters))
    shares = [letters[k * n // parts : (k + 1) * n // parts] for k in range(parts)]
    return f"{''.join(min(share, key='█▓░▒'.index) for share in shares)}  {legend}"


def _pair_line(row: PairRow, name: str) -> Line:
    change = "" if row.change is None else format_number(row.change, 3)
    where = f" at {list(row.where)}" if row.where else ""
    largest = "" if row.largest is None else f"{format_number(row.largest, 3)}{where}"
    if row.status == "shape":
        largest = f"{row.b}, expected {row.a}"
    wrong = row.fault in ("module", "tap")
    words = [row.remark, row.source or ""] if wrong or row.fault == "inside" else []
    remark = plain(", ".join(filter(None, words)))
    cells = (name, row.given, change, plain(largest))
    return Line(cells, f"<- {remark}" if remark else "", "red" if wrong else "dim")


# -- tables and pictures of users --
@text_form(DataTable)
def _table(table: DataTable, width: int, color: bool) -> list[str]:
    del width, color
    return [plain(line, 2000) for line in table.text]


@text_form(UserPicture)
def _user_picture(picture: UserPicture, width: int, color: bool) -> list[str]:
    del width, color
    shown = picture.picture
    texts = shown.notes if shown.kind == "text" else (shown.about,)
    return [plain(line, 2000) for text in texts for line in text.splitlines()]
