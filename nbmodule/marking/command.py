"""`python -m nbmodule mark FOLDER`, as a command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from nbmodule.base.whole_file import whole_file
from nbmodule.errors import NbModuleError
from nbmodule.marking.confine import can_confine
from nbmodule.marking.mark import can_drop_root, mark
from nbmodule.marking.pages import as_csv, first_mistake, student_page, summary_page, table
from nbmodule.marking.results import Limits, Marks

_ANYWHERE = (
    "This system cannot keep a notebook from writing elsewhere: run the marking in a container, "
    "or trust the notebooks."
)
_AS_ROOT = (
    "This runs as root, and no other user can run what is installed here, so notebooks run as "
    "root: mark as another user."
)


def main(arguments: Sequence[str]) -> int:
    """Mark a folder; return 0, or 2 for an error.

    Marks are written as they are known: `marks.csv`, a page for each notebook, and `summary.html`.
    """
    usual = Limits()
    parser = argparse.ArgumentParser(
        prog="python -m nbmodule mark",
        description="Run each notebook of a class in a confined process and mark the cells that "
        "call nb.check.",
    )
    add = parser.add_argument
    add("folder", nargs="+", help="the notebooks (.ipynb), or one folder for each student")
    add("--against", metavar="NOTEBOOK", help="the notebook that was handed out; its checks count")
    add("--out", metavar="FOLDER", help="where marks go; marks in the first folder by default")
    add("--jobs", type=int, default=1, help="how many notebooks run at once (%(default)s)")
    add("--seconds", type=_positive, default=usual.seconds, help="for each notebook (%(default)g)")
    add("--cpu", type=_positive, default=usual.cpu, help="processor seconds (%(default)g)")
    add("--memory", type=_positive, default=usual.memory / 2**20, help="MiB (%(default)g)")
    add("--output", type=_positive, default=usual.output, help="characters of a cell (%(default)g)")
    add("--network", action="store_true", help="let the notebooks open connections")
    options = parser.parse_args(arguments)
    limits = Limits(
        seconds=options.seconds,
        cpu=options.cpu,
        memory=int(options.memory * 2**20),
        output=int(options.output),
        network=options.network,
    )
    out = Path(options.out) if options.out else Path(options.folder[0]) / "marks"
    if not can_confine():
        print(_ANYWHERE, file=sys.stderr)
    if hasattr(os, "geteuid") and os.geteuid() == 0 and not can_drop_root():
        print(_AS_ROOT, file=sys.stderr)
    results: list[Marks] = []

    def write(marks: Marks) -> None:
        results.append(marks)
        out.mkdir(parents=True, exist_ok=True)
        _write(out / f"{marks.name}.html", student_page(marks))
        _write(out / "marks.csv", as_csv(sorted(results, key=lambda each: each.name)))
        print(
            f"{marks.name}: {marks.points} of {len(marks.exercises)}",
            first_mistake(marks),
            file=sys.stderr,
            flush=True,
        )

    try:
        ordered = mark(options.folder, options.against, limits, write, jobs=options.jobs)
        _write(out / "marks.csv", as_csv(ordered))
        _write(out / "summary.html", summary_page(ordered, Path(options.folder[0]).resolve().name))
    except (NbModuleError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(ordered))
    print(f"Wrote {out / 'marks.csv'}, {out / 'summary.html'} and a page for each notebook.")
    return 0


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return number


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
