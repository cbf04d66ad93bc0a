"""Records of what the room of files hands out: the difference of two files, or of a file and a model."""

from __future__ import annotations

from nbmodule.files.compare import TreeComparison
from nbmodule.views.makers.registry import register_record
from nbmodule.views.records.records import DifferenceRow, DifferenceTree

_STATUS = {
    "equal": "same", "renamed": "same", "only in first": "missing", "only in second": "unexpected", "shape": "shape",
    "dtype": "dtype", "values": "changed",
}  # fmt: skip


def files_record(comparison: TreeComparison) -> DifferenceTree:
    """Make the record of two trees compared place by place.

    Example:
        >>> from nbmodule.files import compare_trees
        >>> [(row.path, row.status) for row in files_record(compare_trees({"a": 1}, {"a": 1, "b": 2})).rows]
        [('a', 'same'), ('b', 'unexpected')]
    """
    rows = [
        DifferenceRow(row.path.replace("/", "."), row.path, _STATUS[row.kind], row.first, row.second)
        for row in comparison.rows
    ]
    return DifferenceTree(*comparison.names, rows)


register_record(TreeComparison, files_record)
