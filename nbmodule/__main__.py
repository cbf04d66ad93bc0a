"""The command line: `python -m nbmodule COMMAND`. `--help` lists the commands."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from nbmodule.base.version import __version__
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import NbModuleError, printable_lines

# Commands with an argument parser of their own. They receive the remaining arguments.
_DELEGATED = {
    "mark": (
        "nbmodule.marking.mark",
        "run and mark the notebooks of students in confined processes",
    ),
    "course": (
        "nbmodule.marking.course",
        "write each lesson without solutions for students, with them for the teacher",
    ),
    "runs": ("nbmodule.live.runs.listing", "list, compare and report runs kept on disk"),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nbmodule", description="Inspect files and check the installation."
    )
    parser.add_argument("--version", action="version", version=f"nbmodule {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("doctor", help="check JAX, displays and live control, and name fixes")
    show = commands.add_parser("show", help="print the variables of a weights file")
    show.add_argument("file", metavar="FILE")
    show.add_argument("--check", action="store_true", help="read everything and verify checksums")
    diff = commands.add_parser(
        "diff", help="compare two weights files; exit status 1 if they differ"
    )
    diff.add_argument("first", metavar="FILE")
    diff.add_argument("second", metavar="FILE")
    for command in (show, diff):
        command.add_argument("--html", metavar="PAGE", help="also write the result as an HTML page")
    for name, (_, description) in _DELEGATED.items():
        commands.add_parser(name, help=description, add_help=False)
    return parser


def main(arguments: list[str]) -> int:
    """Run a command and return its exit status.

    Returns:
        0 for success, 1 if two files differ or the installation has a fault, 2 for an error.
    """
    if arguments and arguments[0] in _DELEGATED:
        return import_module(_DELEGATED[arguments[0]][0]).main(arguments[1:])
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:  # argparse has printed the usage
        return int(stop.code or 0)
    if options.command == "doctor":
        from nbmodule.api.health import doctor

        report = doctor()
        print(report)
        return 0 if report.is_well else 1
    return _run_on_files(options)


def _run_on_files(options: argparse.Namespace) -> int:
    from nbmodule.files import listing, read

    try:
        if options.command == "show":
            text, status = listing.show_text(options.file, check=options.check), 0
            title, value = Path(options.file).name, None
        else:
            value = listing.diff_files(options.first, options.second)
            text, status = str(value), int(not value.is_equal)
            title = f"{Path(options.first).name} {Path(options.second).name}"
    except (NbModuleError, OSError) as error:
        print(printable_lines(str(error)), file=sys.stderr)
        return 2
    print(printable_lines(text))
    if options.html:
        from nbmodule.views import html_of

        shown = html_of(read(options.file).variables if value is None else value)
        head = f'<!doctype html><meta charset="utf-8"><title>{title}</title>'
        with whole_file(options.html) as file:
            file.write(f'{head}<body style="margin:16px">{shown}</body>'.encode())
    return status


def run(arguments: list[str]) -> int:
    """Run `main`; end quietly when the reader of the output closes it, as in `doctor | head`."""
    try:
        status = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13  # what a shell reports for SIGPIPE
    return status


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
