"""Records as text: for terminals, job logs, and readers of saved notebooks that show nothing else.

The text is the whole record; only the text saved with an HTML view is cut, to 60 lines. Color says
nothing that the words do not say, and is used on a terminal only.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

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
)
from nbmodule.base.statistics import Statistics
from nbmodule.calls.call import NOT_CAPTURED
from nbmodule.views.arrays.values import union_of
from nbmodule.views.records.findings import SIGNS, findings_of
from nbmodule.views.records.outline import MOST_GROUPED, SMALLEST_GROUP, Outline, visible
from nbmodule.views.records.records import (
    ArrayCard,
    CallTable,
    Column,
    ComparisonTable,
    DataTable,
    DifferenceTree,
    HistoryRecord,
    ModuleRow,
    ModuleTree,
    Note,
    ProfileTree,
    ReturnTable,
    SeriesRecord,
    VariableRow,
    VariableTree,
    ViewRecord,
)
from nbmodule.views.renderers.columns import (
    COMPILING_SHARE,
    cells_of,
    flow,
    spread,
    written_columns,
)
from nbmodule.views.renderers.outlines import (
    call_kinds,
    call_outline,
    comparison_outline,
    folded_groups,
    folded_lines,
    folded_paths,
    line_rows,
    module_lines,
    module_outline,
)
from nbmodule.views.renderers.text_layout import (
    MOST_LINES,
    Line,
    align,
    branches,
    is_terminal,
    paint,
    terminal_width,
)

# Columns of what goes into a call and comes out of it; where it takes more, nothing else of the row
# would be seen.
MOST_FLOW = 40
# A table may be wider than a saved text, so that it keeps its numbers; the column that leaves first
# on a page is not in it.
TABLE_WIDTH, LEAVES_FIRST = 160, 1
# Of the time of a step: modules that take less have no line.
LEAST_SHARE = 0.001
# Findings that a text names.
MOST_SAID = 6


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
        color: True colors; by default on a terminal only.

    Example:
        >>> from nbmodule.views.records.records import ModuleRow, ModuleTree
        >>> print(
        ...     text_of(ModuleTree("Net", [ModuleRow("head", "Linear", "16 → 10", 170)], 170, 680))
        ... )
        Net  170 parameters  680 B
        └─ head  Linear 16 → 10  170
    """
    width = width or terminal_width()
    color = is_terminal() if color is None else color
    head = [paint("  ".join(title_of(record)), "bold", color), *bar_of(record)]
    body = body_lines(record, width, None if limit is None else limit - len(head), color)
    return "\n".join([*head, *body, *(plain(note, 2000) for note in record.notes)])


def body_lines(
    record: ViewRecord, width: int, limit: int | None = None, color: bool = False
) -> list[str]:
    """Write what stands between title and findings, and notes, in at most `limit` lines."""
    rows, cut = getattr(record, "rows", ()), 0
    if limit is not None and len(rows) > MOST_GROUPED:  # too many to be laid out and grouped
        cut = len(rows) - limit
        record = dataclasses.replace(record, rows=rows[:limit])  # type: ignore
    lines = lines_of(record, width, color, limit)
    if limit is None or (len(lines) <= limit and not cut):
        return lines
    more = max(len(lines) - limit + 1, 0) + cut
    return [
        *lines[: limit - 1],
        f"… {more:,} more rows: print({plain(getattr(record, 'root', 'it'))})",
    ]


def bar_of(record: ViewRecord) -> list[str]:
    """The findings as text, a line each; none where nothing is wrong.

    Example:
        >>> rows = [ModuleRow("a", "ReLU", training=True), ModuleRow("b", "ReLU", training=False)]
        >>> bar_of(ModuleTree("Net", rows, mode="mixed train/eval"))
        ['● train and eval mixed: b in eval']
    """
    return [f"{SIGNS[one.kind]} {one.text}" for one in findings_of(record)[:MOST_SAID]]


def capped_text_of(record: ViewRecord) -> str:
    """Write a record as the text that is saved with its HTML in a notebook."""
    return text_of(record, width=80, limit=MOST_LINES, color=False)


@functools.singledispatch
def lines_of(record: object, width: int, color: bool, limit: int | None) -> list[str]:
    """Write the lines below the title, of which the first `limit` are shown; each kind of record
    registers its own.
    """
    raise TypeError(f"{type(record).__name__} has no text.")


# -- titles --
def title_of(record: ViewRecord) -> list[str]:
    """List the facts of the title line, the name first.

    Example:
        >>> from nbmodule.views.records.records import ModuleTree
        >>> title_of(ModuleTree("Net", [], parameters=10, bytes=40, mode="train"))
        ['Net', '10 parameters', '40 B', 'train']
    """
    return [plain(fact, 300) for fact in record.title] or title_parts(record)


@functools.singledispatch
def title_parts(record: object) -> list[str]:
    """Work the title out from the rows of a record, where it is more than its name."""
    return [plain(getattr(record, "name", type(record).__name__))]


@title_parts.register
def _(tree: ModuleTree) -> list[str]:
    buffers = [count_noun(tree.buffers, "buffer")] if tree.buffers else []
    size = [count_noun(tree.parameters, "parameter"), *buffers, format_bytes(tree.bytes)]
    return [plain(tree.name), *size, *filter(None, (tree.device, tree.mode))]


@title_parts.register
def _(tree: VariableTree) -> list[str]:
    measured = [row.statistics for row in tree.rows if row.statistics]
    bad = sum(s.nonfinite for s in measured)
    parts = [plain(tree.name), count_noun(len(tree.rows), tree.noun), format_bytes(tree.bytes)]
    if bad:
        parts.append(f"{format_count(bad)} non-finite")
    elif measured and len(measured) == sum(row.shape is not None for row in tree.rows):
        parts.append("all finite")
    return parts


@title_parts.register
def _(table: CallTable) -> list[str]:
    if not table.rows:
        return [plain(table.name), "no calls yet"]
    roots = [r for r in table.rows if r.parent is None]
    title = [f"{count_noun(len(roots), 'call')} of {plain(table.name)}"]
    if len(table.rows) > len(roots):
        title.append(count_noun(len(table.rows) - len(roots), "submodule call"))
    seconds = [r.seconds for r in roots if r.seconds is not None]
    if seconds:
        compiling = sum(r.compiling or 0.0 for r in roots)
        title.append(format_seconds(sum(seconds)))
        if compiling >= COMPILING_SHARE * sum(seconds):
            title[-1] += f" (first call: compiling {format_seconds(compiling)})"
    if len(roots) == 1 and not roots[0].error:
        title.append(plain(f"{roots[0].inputs} → {roots[0].outputs}"))
    failed = sum(1 for r in table.rows if r.error)
    return [*title, *([f"{failed} raised"] if failed else [])]


@title_parts.register
def _(table: ReturnTable) -> list[str]:
    count = count_noun(len(table.rows), "return") if table.rows else "no returns yet"
    return [plain(table.name), count]


@title_parts.register
def _(tree: DifferenceTree) -> list[str]:
    counts = Counter(row.status for row in tree.rows)
    words = {"changed": "changed", "shape": "of another shape", "dtype": "of another dtype"}
    words |= {"same": "same", "missing": f"only in {plain(tree.a)}"}
    words |= {"unexpected": f"only in {plain(tree.b)}"}
    facts = [f"{format_count(counts[s])} {words[s]}" for s in words if s in counts]
    return [f"{plain(tree.a)} → {plain(tree.b)}", *(facts or ["nothing to compare"])]


@title_parts.register
def _(history: HistoryRecord) -> list[str]:
    last = max((s.steps[-1] for s in history.series if s.steps), default=None)
    step = [f"{history.axis} {format_count(int(last))}"] if last is not None else ["no values yet"]
    state = [plain(history.state)] if history.state else []
    return [plain(history.name), *(() if f"{history.axis} " in history.state else step), *state]


@title_parts.register
def _(card: ArrayCard) -> list[str]:
    size = "" if card.shape is None else format_bytes(card.bytes)
    facts = (plain(card.name), plain(format_array(card.shape, card.dtype)), size)
    return [fact for fact in (*facts, card.device, card.sharding) if fact]


@title_parts.register
def _(table: ComparisonTable) -> list[str]:
    if not table.rows:
        return ["nothing to compare"]
    count = count_noun(len(table.rows), "call")
    return [f"{plain(table.a)} → {plain(table.b)}", f"{count}, all agree"]


# -- trees and tables of rows --
@functools.singledispatch
def tree_text(record: object) -> tuple[str, Outline, list[Line]]:
    """Write the cells of each line of a tree, of which the text and the folding HTML are made.

    Returns:
        The name of the view, the outline, and one line for each of its lines.
    """
    raise TypeError(f"{type(record).__name__} is no tree")


def table_lines(
    view: str, lines: Sequence[Line], width: int, color: bool, *, lead: int = 1
) -> list[str]:
    """Align lines whose cells are `lead` cells and the columns of a view."""
    columns = written_columns(view)
    right = {k for k, column in enumerate(columns, lead) if "right" in column.style}
    first = sorted((column.drop, k) for k, column in enumerate(columns, lead) if column.drop)
    return align(lines, frozenset(right), width, color, [k for _, k in first])


def head_line(view: str, *names: str, **titles: str) -> Line:
    """Write the titles above the columns of a view."""
    columns = written_columns(view)
    return Line((*names, *(titles.get(c.name, c.title) for c in columns)), color="dim")


@lines_of.register(ModuleTree)
@lines_of.register(VariableTree)
def _tree(tree: ModuleTree | VariableTree, width: int, color: bool, limit: int | None) -> list[str]:
    view, outline, lines = tree_text(tree)
    if not lines and isinstance(tree, ModuleTree):
        return [f"   {plain(v)}" for v in tree.variables]
    drawn = [
        line._replace(cells=(lead + line.cells[0], *line.cells[1:]))
        for lead, line in zip(branches(outline), lines, strict=True)
    ]
    return table_lines(view, drawn, width, color)


def _remark(words: Iterable[str]) -> str:
    text = ", ".join(words)
    return f"<- {text}" if text else ""


@tree_text.register
def _(tree: ModuleTree) -> tuple[str, Outline, list[Line]]:
    whole = module_outline(tree)
    rows = module_lines(tree, whole)
    outline, origins = folded_lines(whole)
    lines = []
    for label, (i, *_) in zip(outline.label, origins, strict=True):
        row = rows[i]
        color = "red" if row.error else "dim" if not row.parameters else ""
        cells = (plain(label), *cells_of("modules", row))
        lines.append(Line(cells, _remark(module_badges(row)), color))
    return "modules", outline, lines


def module_badges(row: ModuleRow) -> list[str]:
    """List what is worth a word about a module."""
    words = [count_noun(row.buffers, "buffer")] if row.buffers else []
    words += [f"shared with {plain(row.shared_with)}"] if row.shared_with else []
    words += [] if row.built else ["built on first call"]
    return [*words, *([plain(row.error)] if row.error else [])]


@tree_text.register
def _(tree: VariableTree) -> tuple[str, Outline, list[Line]]:
    outline, origins = folded_lines(tree.lines)
    lines = []
    for i, copies in enumerate(origins):
        members = [tree.rows[r] for j in copies if (r := tree.lines.row[j]) >= 0]
        alike = f"{outline.members[i][0]} alike" if i in outline.members else ""
        name = plain(outline.label[i])
        lines.append(_variables_line(name, members) if members else Line((name, alike)))
    return "variables", outline, lines


def _variables_line(name: str, alike: Sequence[VariableRow]) -> Line:
    """Write variables of the same kind in modules that are alike as those of one array."""
    row, given = alike[0], {}
    if len(alike) > 1:
        measured = [one.statistics for one in alike if one.statistics is not None]
        given = {"type": f"{len(alike)} × {plain(row.text)}"}
        row = row._replace(
            bytes=sum(one.bytes for one in alike if not one.shared_with),
            statistics=union_of(measured) if len(measured) == len(alike) else None,
            value=None,
            shared_with=row.shared_with if len({one.shared_with for one in alike}) == 1 else None,
        )
    is_wrong = row.error or (row.statistics and row.statistics.nonfinite)
    cells = (name, *cells_of("variables", row, **given))
    return Line(cells, _remark(variable_badges(row)), "red" if is_wrong else "")


def variable_badges(row: VariableRow) -> list[str]:
    """List what is worth a word about a variable."""
    words = {
        "buffer": row.kind == "buffer",
        "frozen": row.frozen,
        f"shared with {plain(row.shared_with)}": row.shared_with,
        plain(row.sharding): row.sharding,
        plain(row.error): row.error,
    }
    return [*number_badges(row.statistics), *(word for word, holds in words.items() if holds)]


def number_badges(stats: Statistics | None, *, zeros: bool = True) -> list[str]:
    """List what is wrong or odd in the numbers."""
    if stats is None:
        return []
    words = [f"NaN {format_count(stats.nan)}"] if stats.nan else []
    words += [f"Inf {format_count(stats.inf)}"] if stats.inf else []
    return [*words, *(["zeros"] if zeros and 0 < stats.size == stats.zero_count else [])]


@lines_of.register(CallTable)
def _calls(table: CallTable, width: int, color: bool, limit: int | None) -> list[str]:
    rows = table.rows
    outline = call_outline(rows, grouped=len(rows) > MOST_LINES)
    shown = line_rows(rows, outline)
    lines = [head_line("calls", "#", "call")] if rows else []
    room = max(MOST_FLOW, width - 60)
    for i in visible(outline, folded_groups(outline)):
        row, label = shown[i], outline.label[i]
        if i in outline.members:
            label = f"{outline.display(i)} · {call_kinds(rows, outline, i)}"
        label = "  " * outline.depth[i] + plain(label)
        wrong = number_badges(row.statistics, zeros=False)
        wrong += [plain(row.error)] if row.error else []
        missing = [NOT_CAPTURED.strip(" ()")] if row.outputs.endswith(NOT_CAPTURED) else []
        cells = (str(row.order), label, *cells_of("calls", row, flow=cut_middle(flow(row), room)))
        lines.append(Line(cells, _remark([*wrong, *missing]), "red" if wrong else ""))
    out = table_lines("calls", lines, width, color, lead=2)
    names = plain(", ".join(folded_paths(table.not_called)), 2000)
    return [*out, *([f"not called: {names}"] if names else [])]


@lines_of.register(DifferenceTree)
def _differences(tree: DifferenceTree, width: int, color: bool, limit: int | None) -> list[str]:
    lines = [head_line("difference", "path", a=plain(tree.a), b=plain(tree.b))]
    for row in tree.rows:
        if row.status == "same":
            continue
        remark = "" if row.status == "changed" else row.status
        name = f"{_SIGNS[row.status]} {plain(row.path)}"
        red = "red" if row.status in ("missing", "shape") else ""
        cells = (name, *cells_of("difference", row))
        lines.append(Line(cells, _remark([remark] if remark else []), red))
    return table_lines("difference", lines, width, color)


_SIGNS = {"changed": "~", "missing": "−", "unexpected": "+", "shape": "≠", "dtype": "≠"}


@lines_of.register(HistoryRecord)
def _history(history: HistoryRecord, width: int, color: bool, limit: int | None) -> list[str]:
    lines = []
    for series in history.series:
        if not series.values:
            lines.append(Line((plain(series.name), "no values yet")))
            continue
        best = best_of(series)
        at = series.steps[series.values.index(best)]
        said = f"best {format_number(best)} @{format_count(int(at))}" if math.isfinite(best) else ""
        last = format_number(series.values[-1])
        lines.append(Line((plain(series.name), last, said, heights(series.values))))
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


def heights(values: tuple[float, ...]) -> str:
    """Draw values over steps as a row of blocks, each the mean of its share; `x` where one is not
    finite.

    Example:
        >>> heights((4.0, 2.0, 1.0, 0.0))
        '█▅▃▁'
    """
    n = min(24, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(part) / len(part) for part in parts]
    finite = list(filter(math.isfinite, means))
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    marks = [
        "▁▂▃▄▅▆▇█"[round(7 * (m - low) / (high - low or 1.0))] if math.isfinite(m) else "x"
        for m in means
    ]
    return "".join(marks)


@lines_of.register(ArrayCard)
def _array(card: ArrayCard, width: int, color: bool, limit: int | None) -> list[str]:
    shown, stats = card.picture, card.statistics
    if shown is not None and card.shape is None:
        texts = shown.notes if shown.kind == "text" else (shown.about,)
        return [plain(line, 2000) for text in texts for line in text.splitlines()]
    lines = [paint(plain(card.error), "red", color)] if card.error else []
    if stats and stats.size:
        reach = (
            f"{format_number(stats.min)} … {format_number(stats.max)}" if stats.histogram else ""
        )
        words = [spread(stats, card.dtype), reach, *number_badges(stats)]
        lines.append("  ".join([spark(stats.histogram, 32), *filter(None, words)]))
    lines += align([Line(row) for row in card.corner], frozenset(range(8)), width)
    return lines


@lines_of.register(Note)
def _note(note: Note, width: int, color: bool, limit: int | None) -> list[str]:
    red = "red" if note.is_error else ""
    return [paint(plain(line, 2000), red, color) for line in note.text.splitlines()]


@lines_of.register(ProfileTree)
def _profile(tree: ProfileTree, width: int, color: bool, limit: int | None) -> list[str]:
    lines = [head_line("profile", "")]
    for row in tree.rows:
        if row.share >= LEAST_SHARE:
            name = "  " * (row.depth - 1) + plain(row.name)
            lines.append(Line((name, *cells_of("profile", row))))
    return table_lines("profile", lines, width, color)


# -- two runs --
# One letter for each call: it agrees, is at fault, contains the fault, carries it.
CELLS = {"": "▒", "module": "█", "tap": "█", "inside": "▓", "input": "░"}


@lines_of.register(ComparisonTable)
def _comparison(table: ComparisonTable, width: int, color: bool, limit: int | None) -> list[str]:
    outline = comparison_outline(table)
    lines = [head_line("comparison", "call")]
    top = (i for i, depth in enumerate(outline.depth) if not depth)
    for carries, group in itertools.groupby(top, lambda i: _carries(table, outline.row[i])):
        pairs = [_pair_line(table, outline.row[i], plain(outline.label[i])) for i in group]
        if carries and len(pairs) >= SMALLEST_GROUP:
            pairs = [Line((f"{len(pairs)} calls carry it on",), color="dim")]
        lines += pairs
    letters = [fault_strip(table, width)] if len(table.rows) > 1 else []
    return [*letters, *table_lines("comparison", lines, width, color)]


def _carries(table: ComparisonTable, k: int) -> bool:
    return k >= 0 and table.rows[k].fault == "input"


def _pair_line(table: ComparisonTable, k: int, name: str) -> Line:
    if k < 0:
        return Line((name,))
    row = table.rows[k]
    wrong = row.fault in ("module", "tap")
    words = [row.remark, row.source or ""] if wrong or row.fault == "inside" else []
    remark = _remark(plain(word) for word in words if word)
    return Line((name, *cells_of("comparison", row)), remark, "red" if wrong else "dim")


def fault_strip(table: ComparisonTable, width: int) -> str:
    """Write one letter for each call, in the order in which they began, with the legend.

    Example:
        >>> from nbmodule.views.records.records import PairRow
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


# -- tables --
@lines_of.register(DataTable)
def _table(table: DataTable, width: int, color: bool, limit: int | None) -> list[str]:
    if not table.lines:
        return [plain(table.empty)]
    columns = [column for column in table.columns if column.leaves != LEAVES_FIRST]
    lines = [Line((table.label, *(column.title for column in columns)), color="dim")]
    shown, origins = folded_lines(table.lines)
    leads = branches(shown) if any(shown.depth) else [""] * len(shown)
    for lead, label, (i, *_) in zip(leads, shown.label, origins, strict=True):
        lines.append(Line((lead + plain(label), *(_cell(column, i) for column in columns))))
    right = frozenset(k for k, column in enumerate(columns, 1) if column.kind != "text")
    return align(lines, right, max(width, TABLE_WIDTH), color)


def _cell(column: Column, i: int) -> str:
    value = column.values[i]
    if value is None or isinstance(value, str):
        return cut_middle(plain(value or ""), MOST_FLOW)
    if column.kind == "bytes":
        return format_bytes(int(value))
    return f"{value:,.0f}" if column.kind == "count" else format_number(value)
