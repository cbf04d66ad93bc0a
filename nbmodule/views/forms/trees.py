"""The lines of each kind of tree: what stands below what, under which label, and which neighbors are one line."""

from __future__ import annotations

from collections.abc import Sequence

from nbmodule.base.format import ordinal
from nbmodule.views.arrays.columns import LeafRows
from nbmodule.views.records.outline import SMALLEST_GROUP, Outline, group_neighbors, outline_of_keys
from nbmodule.views.records.records import (
    CallRow,
    ComparisonTable,
    DifferenceTree,
    ModuleTree,
    VariableRow,
    VariableTree,
)

MOST_GROUPED = 20_000
"""Rows beyond which neighbors are not looked for: such a tree is searched, not read."""


def module_outline(tree: ModuleTree, *, grouped: bool = True) -> Outline:
    """The lines of a module tree; members of a group keep their rows."""
    rows = tree.rows
    outline = Outline([r.depth for r in rows], [r.name for r in rows], list(range(len(rows))))
    if not grouped or len(rows) > MOST_GROUPED:
        return outline
    alike = [
        (r.class_name, r.summary, r.arguments, r.parameters, r.buffers, r.kind, r.shared_with, r.error, r.training)
        for r in rows
    ]
    return group_neighbors(outline, alike)


def folded_modules(tree: ModuleTree) -> tuple[Outline, dict[int, list[int]]]:
    """The lines of a module tree as text: layers that are alike are one line, and what is within the first stands for all.

    Returns:
        The lines, and for those that stand for several modules the rows of these.
    """
    whole = module_outline(tree)
    ends = whole.ends()
    out, members = Outline(), {}

    def write(start: int, stop: int, shift: int) -> None:
        i = start
        while i < stop:
            if i in whole.members:
                inside = [j for j in range(i + 1, ends[i]) if whole.depth[j] == whole.depth[i] + 1]
                members[len(out)] = [whole.row[j] for j in inside]
                _append(out, whole.depth[i] - shift, whole.display(i), whole.row[inside[0]])
                write(inside[0] + 1, ends[inside[0]], shift + 1)
            else:
                _append(out, whole.depth[i] - shift, whole.label[i], whole.row[i])
                write(i + 1, ends[i], shift)
            i = ends[i]

    write(0, len(whole), 0)
    return out, members


def keys_of(row: VariableRow) -> tuple[str, ...]:
    """The steps from the root of a tree to one of its leaves."""
    if row.keys:
        return row.keys
    return tuple(row.chain.split("/")) if row.chain else tuple(row.path.split("."))


def variable_outline(tree: VariableTree, *, grouped: bool = True) -> Outline:
    """The lines of a variable tree, levels included; leaves are never grouped, they differ in meaning."""
    rows = tree.rows
    if isinstance(rows, LeafRows):
        return rows.outline if not grouped or len(rows) > MOST_GROUPED else rows.grouped
    outline = outline_of_keys([row.keys or keys_of(row) for row in rows])
    if not grouped or len(rows) > MOST_GROUPED:
        return outline
    alike = [(r.kind, r.shape, r.dtype, r.frozen, r.error) if i >= 0 and (r := rows[i]) else None for i in outline.row]
    return group_neighbors(outline, alike, leaves=False)


def difference_outline(tree: DifferenceTree) -> Outline:
    """The lines of a difference, levels included."""
    return outline_of_keys([r.keys or tuple((r.chain or r.path.replace(".", "/")).split("/")) for r in tree.rows])


def call_outline(rows: Sequence[CallRow]) -> Outline:
    """The lines of a table of calls; a repeated call of one path carries its number."""
    seen: dict[str, int] = {}
    labels = []
    for row in rows:
        n = seen[row.path] = seen.get(row.path, 0) + 1
        name = row.path or row.class_name or "(root)"
        labels.append(name if n == 1 else f"{name} ({ordinal(n)})")
    return Outline([row.depth for row in rows], labels, list(range(len(rows))))


def comparison_outline(table: ComparisonTable) -> Outline:
    """The lines of a comparison: three and more calls in a row that agree are one line, which opens to them."""
    out = Outline()
    seen: dict[str, int] = {}
    labels = []
    for row in table.rows:
        n = seen[row.path] = seen.get(row.path, 0) + 1
        labels.append(row.path if n == 1 else f"{row.path} ({ordinal(n)})")
    k = 0
    while k < len(table.rows):
        end = k
        while end < len(table.rows) and table.rows[end].status == "same":
            end += 1
        folds = end - k >= SMALLEST_GROUP
        if folds:
            _append(out, 0, f"{end - k} calls agree", -1)
        for i in range(k, max(end, k + 1)):
            _append(out, int(folds), labels[i], i)
        k = max(end, k + 1)
    return out


def _append(out: Outline, depth: int, label: str, row: int) -> None:
    out.depth.append(depth)
    out.label.append(label)
    out.row.append(row)


def folded_paths(paths: Sequence[str]) -> list[str]:
    """Join paths that differ in one number and follow each other.

    Example:
        >>> folded_paths(["blocks.0.drop", "blocks.1.drop", "blocks.2.drop", "head"])
        ['blocks.0…2.drop', 'head']
    """
    families: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        steps = path.split(".")
        at = next((k for k, step in enumerate(steps) if step.isdigit()), None)
        if at is None:
            families[(path,)] = []
        else:
            families.setdefault((".".join(steps[:at]), ".".join(steps[at + 1 :])), []).append(steps[at])
    out = []
    for family, numbers in families.items():
        span = numbers[0] if len(numbers) == 1 else f"{numbers[0]}…{numbers[-1]}" if numbers else ""
        out.append(".".join(filter(None, [family[0], span, *family[1:]])))
    return out
