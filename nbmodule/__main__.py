"""`python -m nbmodule show FILE` and `diff A B`: what weights files hold, and how two of them differ; `--html PAGE` writes a page."""

from __future__ import annotations

import sys
from pathlib import Path

from nbmodule.files import compare_trees, read, report
from nbmodule.files.atomic import whole_file

_STATUS = {
    "equal": "same", "only in first": "missing", "only in second": "unexpected", "shape": "shape", "dtype": "dtype", "values": "changed",
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run a command and give its exit code: 0, 1 if two files differ, 2 for an error."""
    if "--html" not in arguments:
        return report.main(arguments)
    place = arguments.index("--html")
    page, words = arguments[place + 1 : place + 2], arguments[:place] + arguments[place + 2 :]
    code = report.main(words)
    if code == 2 or not page:
        return 2
    with whole_file(page[0]) as file:
        file.write(_page([word for word in words if word != "--check"]).encode())
    return code


def _page(words: list[str]) -> str:
    """The same as a page that stands alone: a tree of arrays, or a table of differences."""
    from nbmodule.views import html_of
    from nbmodule.views.records import DifferenceRow, DifferenceTree

    title = " ".join(Path(word).name for word in words[1:])
    if words[0] == "show":
        value: object = read(words[1]).variables
    else:
        rows = compare_trees(read(words[1]).variables, read(words[2]).variables).rows
        found = [DifferenceRow(row.path, row.path, _STATUS[row.kind], row.first, row.second) for row in rows]
        value = DifferenceTree(a=Path(words[1]).name, b=Path(words[2]).name, rows=found)
    return (
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><body style="margin:16px">{html_of(value)}</body>'
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
