"""`python -m nbmodule show FILE`, `diff A B`, `doctor`, `mark FOLDER`: weights files, whether all works here, students' notebooks.

`show` and `diff` also write a page, with `--html PAGE`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nbmodule.base.whole_file import whole_file
from nbmodule.files import read, report


def main(arguments: list[str]) -> int:
    """Run a command and give its exit code: 0, 1 if two files differ or something is to be mended, 2 for an error."""
    if arguments == ["doctor"]:
        from nbmodule.doors.health import doctor

        found = doctor()
        print(found)
        return 0 if found.is_well else 1
    if arguments[:1] == ["mark"]:
        from nbmodule.marking.command import main as mark

        return mark(arguments[1:])
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

    title = " ".join(Path(word).name for word in words[1:])
    value = read(words[1]).variables if words[0] == "show" else report.diff_files(words[1], words[2])
    return (
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><body style="margin:16px">{html_of(value)}</body>'
    )


def run(arguments: list[str]) -> int:
    """`main`, ended quietly where the reader of its output has gone, as after `doctor | head`."""
    try:
        code = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to be written goes nowhere
        return 128 + 13  # as a program that the signal has ended
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
