"""The lines of each kind of tree: what stands below what, under which label, and which neighbors
are one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from operator import attrgetter

from nbmodule.views.arrays.values import union_of
from nbmodule.views.records.outline import (
    MOST_GROUPED,
    SMALLEST_GROUP,
    Outline,
    group_neighbors,
    numbered,
)
from nbmodule.views.records.records import CallRow, ComparisonTable, ModuleRow, ModuleTree

# Members of a group that a text lists, one line each.
OPEN_MEMBERS = 30


def module_outline(tree: ModuleTree) -> Outline:
    """The lines of a module tree; members of a group keep their rows."""
    rows = tree.rows
    names = [row.path.rpartition(".")[2] for row in rows]
    outline = Outline([row.path.count(".") for row in rows], names)
    if len(rows) > MOST_GROUPED:
        return outline
    same = (
        "class_name summary arguments parameters buffers kind shared_with error training"
    ).split()
    return group_neighbors(outline, list(map(attrgetter(*same), rows)))


def module_lines(tree: ModuleTree, outline: Outline) -> list[ModuleRow]:
    """Return the row of each line; that of a group has the numbers of its members."""
    group = ModuleRow("", "", kind="group")
    rows = [tree.rows[r] if r >= 0 else group for r in outline.row]
    for i in outline.members:
        members = [rows[j] for j in outline.children(i)]
        first, row = members[0], rows[i]
        if row is group:
            row = first._replace(
                path="",
                kind="group",
                parameters=sum(member.parameters for member in members),
                buffers=sum(member.buffers for member in members),
                variables=(),
                input_shapes=None,
                statistics=None,
            )
        is_called = bool(row.input_shapes)
        measured = [m.statistics for m in members if m.statistics is not None]
        rows[i] = row._replace(
            class_name=outline.kinds(i, [rows[j].class_name for j in outline.pattern(i)]),
            summary="" if i in outline.period else first.summary,
            built=first.built,
            input_shapes=row.input_shapes if is_called else first.input_shapes,
            output_shapes=row.output_shapes if is_called else members[-1].output_shapes,
            statistics=row.statistics or union_of(measured),
        )
    return rows


def folded_lines(whole: Outline) -> tuple[Outline, list[list[int]]]:
    """The lines of an outline as text: what is within the first of a group stands for all.

    Returns:
        The lines, and for each the lines of `whole` that it covers.
    """
    ends, out, origins = whole.ends(), Outline(), []

    def walk(start: int, stop: int, shift: int, offsets: list[int]) -> None:
        i = start
        while i < stop:
            if i in whole.members:
                out.members[len(out)] = (whole.members[i][0] * len(offsets), "")
            out.append(whole.depth[i] - shift, whole.display(i), whole.row[i])
            origins.append([i + offset for offset in offsets])
            if i not in whole.members:
                i += 1
                continue
            inside, pattern = whole.children(i), whole.pattern(i)
            copies = [j - inside[0] + offset for j in inside[:: len(pattern)] for offset in offsets]
            # the one member of a pattern has no line of its own, unless it is a group
            hides = len(pattern) == 1 and pattern[0] not in whole.members
            walk(pattern[0] + hides, ends[pattern[-1]], shift + hides, copies)
            i = ends[i]

    walk(0, len(whole), 0, [0])
    return out, origins


def call_outline(rows: Sequence[CallRow], *, grouped: bool = False) -> Outline:
    """The lines of a table of calls; a repeated call of one path carries its number.

    Args:
        rows: The calls.
        grouped: True if neighbors of one list, or calls of one module, that are alike in class,
            shapes and all that is within them are one line, which opens to them.
    """
    labels = numbered([row.name for row in rows], [row.path for row in rows])
    lowest = min((row.depth for row in rows), default=0)
    depths = [row.depth - lowest for row in rows]
    whole = Outline(depths, labels)
    if not grouped or len(rows) > MOST_GROUPED or any(b > a + 1 for a, b in pairwise(depths)):
        return whole
    steps = _steps_within(rows, depths)
    alike = [
        (row.class_name, row.inputs, row.outputs, row.error, _without_number(step))
        for row, step in zip(rows, steps, strict=True)
    ]
    out = group_neighbors(Outline(depths, steps), alike)
    for i, r in enumerate(out.row):
        out.label[i] = labels[r] if r >= 0 else ""
    for i, (count, _) in out.members.items():
        last = out.children(i)[-1]
        out.members[i] = (count, _span(out.label[i + 1], out.label[last], out.label[i]))
    return out


def line_rows(rows: Sequence[CallRow], outline: Outline) -> list[CallRow]:
    """Return the row of each line; that of a group joins its calls."""
    return [rows[r] if r >= 0 else _joined(rows, outline, i) for i, r in enumerate(outline.row)]


def call_kinds(rows: Sequence[CallRow], outline: Outline, i: int) -> str:
    """Say what a group holds, as `24 × Block`."""
    return outline.kinds(i, [rows[outline.row[j]].class_name for j in outline.pattern(i)])


def _joined(rows: Sequence[CallRow], outline: Outline, i: int) -> CallRow:
    """Neighboring calls as one: what went into the first, what came out of the last, times and
    numbers of all.
    """
    calls = [rows[outline.row[j]] for j in outline.children(i)]
    seconds = [call.seconds for call in calls if call.seconds is not None]
    own_times = [call.own for call in calls if call.own is not None]
    return CallRow(
        "",
        order=calls[0].order,
        parent=calls[0].parent,
        depth=calls[0].depth,
        class_name=call_kinds(rows, outline, i),
        inputs=calls[0].inputs,
        outputs=calls[-1].outputs,
        seconds=sum(seconds) if seconds else None,
        compiling=sum(call.compiling or 0.0 for call in calls) or None,
        own=sum(own_times) if own_times else None,
        statistics=union_of([call.statistics for call in calls if call.statistics is not None]),
        error=next((call.error for call in calls if call.error), None),
    )


def folded_groups(outline: Outline) -> set[int]:
    """Return the lines that a text leaves folded: groups of too many members, and members of
    groups, which are alike inside.
    """
    members = {j for i in outline.members for j in outline.children(i)}
    return members | {i for i, (count, _) in outline.members.items() if count > OPEN_MEMBERS}


def _steps_within(rows: Sequence[CallRow], depths: Sequence[int]) -> list[str]:
    """Each path below that of the call around it."""
    parents: list[str] = []
    names = []
    for row, depth in zip(rows, depths, strict=True):
        parent = parents[depth - 1] if depth else ""
        names.append(row.path.removeprefix(f"{parent}.") if parent else row.path)
        parents[depth:] = [row.path]
    return names


def _without_number(step: str) -> str:
    """Items of a list differ in their number alone; what has a name of its own is something of its
    own.
    """
    head, _, tail = step.rpartition(".")
    return f"{head}." if tail.isdigit() else step


def _span(first: str, last: str, parent: str) -> str:
    """From which call to which; what the line or both of them say already is not said again.

    Example:
        >>> (
        ...     _span("blocks.0", "blocks.23", ""),
        ...     _span("blocks.0", "blocks.23", "blocks"),
        ...     _span("cell", "cell (12th)", ""),
        ... )
        ('blocks.0…23', '0…23', 'cell … (12th)')
    """
    if last.startswith(f"{first} ("):
        return f"{'' if first == parent else first} … {last[len(first) + 1 :]}".strip()
    steps, others = first.split("."), last.split(".")
    shared = next((k for k, (a, b) in enumerate(zip(steps, others, strict=False)) if a != b), 0)
    head, tail = first.removeprefix(f"{parent}.") if parent else first, ".".join(others[shared:])
    return f"{head}…{tail}"


def comparison_outline(table: ComparisonTable) -> Outline:
    """The lines of a comparison: three and more calls in a row that agree are one line, which opens
    to them.
    """
    out = Outline()
    labels = numbered([row.name for row in table.rows], [row.path for row in table.rows])
    for fault, group in groupby(range(len(labels)), lambda k: table.rows[k].fault):
        calls = list(group)
        folds = not fault and len(calls) >= SMALLEST_GROUP
        if folds:
            out.append(0, f"{len(calls)} calls agree", -1)
        for k in calls:
            out.append(int(folds), labels[k], k)
    return out


def folded_paths(paths: Sequence[str]) -> list[str]:
    """Join paths that differ in numbers alone, as the pattern that names them all.

    Example:
        >>> folded_paths(["1.blocks.0.drop", "1.blocks.1.drop", "1.blocks.2.drop", "head"])
        ['*.blocks.*.drop × 3', 'head']
    """
    families: dict[str, list[str]] = {}
    for path in paths:
        steps = ("*" if step.isdigit() else step for step in path.split("."))
        families.setdefault(".".join(steps), []).append(path)
    return [
        f"{family} × {len(members)}" if len(members) > 1 else members[0]
        for family, members in families.items()
    ]
