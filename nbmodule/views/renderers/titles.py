"""The title line of each view: one sentence of facts, the same in text and in HTML."""

from __future__ import annotations

import functools
from collections import Counter

from nbmodule.base.format import (
    count_noun,
    format_array,
    format_bytes,
    format_count,
    format_seconds,
    plain,
)
from nbmodule.views.records.records import (
    ArrayCard,
    CallTable,
    ComparisonTable,
    DataTable,
    DifferenceTree,
    HistoryRecord,
    ModuleTree,
    Note,
    ReturnTable,
    ViewRecord,
)
from nbmodule.views.records.variables import VariableTree
from nbmodule.views.renderers.columns import COMPILING_SHARE


def title_of(record: ViewRecord) -> list[str]:
    """List the facts of the title line, the name first.

    Example:
        >>> from nbmodule.views.records.records import ModuleTree
        >>> title_of(ModuleTree("Net", [], parameters=10, bytes=40, mode="train"))
        ['Net', '10 parameters', '40 B', 'train']
    """
    title = getattr(record, "title", ())
    return [plain(fact, 300) for fact in title] if title else title_parts(record)


@functools.singledispatch
def title_parts(record: object) -> list[str]:
    """Work the title out from the rows of a record; rooms above register their own kinds here."""
    return [type(record).__name__]


@title_parts.register
def _(tree: ModuleTree) -> list[str]:
    buffers = [count_noun(tree.buffers, "buffer")] if tree.buffers else []
    size = [count_noun(tree.parameters, "parameter"), *buffers, format_bytes(tree.bytes)]
    return [plain(tree.name), *size, *filter(None, (tree.device, tree.mode))]


@title_parts.register
def _(tree: VariableTree) -> list[str]:
    measured = [row.statistics for row in tree.rows if row.statistics]
    bad = sum(s.nan + s.inf for s in measured)
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


@title_parts.register(DataTable)
@title_parts.register(Note)
def _(record: DataTable | Note) -> list[str]:
    return [plain(record.name)]
