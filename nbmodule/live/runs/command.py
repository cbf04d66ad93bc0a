"""`python -m nbmodule runs`: list, compare and report runs from a terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nbmodule.errors import NbModuleError
from nbmodule.live.runs.listing import runs


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status, 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m nbmodule runs", description="List, compare and report runs kept on disk."
    )
    parser.add_argument("folder", nargs="?", help="folder of the journals (.nbmodule_runs)")
    parser.add_argument("--sort", metavar="NAME", help="order by a series or a setting, best first")
    parser.add_argument("--compare", nargs="+", metavar="RUN", help="names or numbers of the list")
    parser.add_argument("--report", nargs=2, metavar=("RUN", "PAGE"), help="write one HTML page")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        listed = runs(options.folder)
        listed = listed.sort(options.sort) if options.sort else listed
        if options.compare:
            print(listed.compare(*map(_key, options.compare)))
        elif options.report:
            name, page = options.report
            listed[_key(name)].report(page)
            print(f"wrote {page}")
        else:
            print(listed)
    except (NbModuleError, OSError, IndexError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _key(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text
