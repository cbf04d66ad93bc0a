"""`python -m nbmodule mark FOLDER`, as a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nbmodule.base.whole_file import whole_file
from nbmodule.errors import NbModuleError
from nbmodule.marking.confine import can_confine
from nbmodule.marking.mark import Limits, Marks, mark
from nbmodule.marking.report import as_csv, first_fault, page, table


def main(arguments: Sequence[str]) -> int:
    """Mark a folder and write `marks.csv` and a page for each notebook; gives 0, or 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m nbmodule mark",
        description="Runs each notebook of a folder in a confined process and marks the cells that ask nb.check.",
    )
    usual = Limits()
    parser.add_argument("folder", help="the folder with the notebooks (.ipynb)")
    parser.add_argument("--against", metavar="NOTEBOOK", help="the notebook that was handed out; its checks count")
    parser.add_argument("--out", metavar="FOLDER", help="where marks.csv and the pages go; FOLDER/marks by default")
    parser.add_argument("--seconds", type=_positive, default=usual.seconds, help="for each notebook (%(default)g)")
    parser.add_argument(
        "--memory", type=_positive, default=usual.memory / 2**20, help="MiB of main memory (%(default)g)"
    )
    parser.add_argument(
        "--output", type=_positive, default=usual.output, help="characters that a cell may print (%(default)g)"
    )
    parser.add_argument("--network", action="store_true", help="let the notebooks open connections")
    given = parser.parse_args(arguments)
    limits = Limits(given.seconds, int(given.memory * 2**20), int(given.output), usual.disk, given.network)
    out = Path(given.out) if given.out else Path(given.folder) / "marks"
    if not can_confine():
        print(
            "This system cannot keep a notebook from writing elsewhere: run it in a container, or trust what is marked.",
            file=sys.stderr,
        )
    try:
        found = mark(given.folder, given.against, limits, _told)
        out.mkdir(parents=True, exist_ok=True)
        for marks in found:
            _write(out / f"{marks.name}.html", page(marks))
        _write(out / "marks.csv", as_csv(found))
    except (NbModuleError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(found))
    print(f"{out / 'marks.csv'} and a page for each notebook were written.")
    return 0


def _told(marks: Marks) -> None:
    print(
        f"{marks.name}: {marks.points} of {len(marks.exercises)} {first_fault(marks)}".rstrip(),
        file=sys.stderr,
        flush=True,
    )


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"a number above 0 is wanted, found {text}")
    return number


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
