"""The process that runs one student's notebook: `python -P -m nbmodule.marking.child`.

No code of the student runs before the process is confined. The supervisor gets lines of JSON
through a pipe: whether the process is confined, then a line for each cell that has run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import sys
import traceback
from collections.abc import Iterable
from typing import Any

from nbmodule.marking.confine import confine
from nbmodule.marking.results import Limits


class TooMuchOutputError(Exception):
    """A cell printed more than it may."""


class _Output(io.StringIO):
    """The text that one cell prints, up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, text: str) -> int:
        self._left -= len(text)
        if self._left < 0:
            raise TooMuchOutputError("more was printed than is allowed; the cell was ended")
        return super().write(text)


def main(request: dict[str, Any]) -> None:
    """Run the cells one after the other; an error ends its cell, not the notebook."""
    folder, limits, pipe = request["folder"], request["limits"], os.fdopen(request["pipe"], "w")

    def report(record: object) -> None:
        print(json.dumps(record), file=pipe, flush=True)

    os.chdir(folder)
    _limit(limits)
    report(confine(folder, network=limits.network, hidden=request["hidden"]))
    from IPython.core.interactiveshell import InteractiveShell

    from nbmodule.calls.differences import check

    package: Any = sys.modules["nbmodule"]
    shell: Any = InteractiveShell.instance()  # so that magics work
    name = ""  # under which the present cell is compiled
    checks: list[tuple[int | None, bool, str]] = []  # of the present cell
    shell.compile.get_code_name = lambda *_: name
    shell.enable_gui = lambda gui=None: None  # there is no window
    # Errors are reported, not printed.
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None

    def recorded(*args: object, **kwargs: object) -> Any:
        verdict = check(*args, **kwargs)
        line = _line_of(name, traceback.walk_stack(sys._getframe(1)))
        checks.append((line, bool(verdict.right), str(verdict.sentence)))
        return verdict

    recorded.__doc__ = check.__doc__
    for number, source, is_check in request["cells"]:
        name = f"cell [{number}]"
        checks.clear()
        package.check = recorded  # also where an earlier cell has put something else in its place
        if is_check and shell.user_ns.get("nb") is not None:
            shell.user_ns["nb"] = package
        output = _Output(limits.output)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            result = shell.run_cell(source, store_history=False)
        error, message, line = result.error_before_exec or result.error_in_exec, None, None
        if error is not None:
            message, line = _message(error), _line_in(name, error)
        report((output.getvalue(), message, line, checks))


def _limit(limits: Limits) -> None:
    """Let the system limit processor time and file sizes, and keep no core file."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        seconds, size = int(limits.cpu) + 60, limits.disk
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _message(error: BaseException) -> str:
    if isinstance(error, TooMuchOutputError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip().split("\n")[-1][:500]


def _line_in(name: str, error: BaseException) -> int | None:
    """Return the line of the cell in which an error was raised."""
    if isinstance(error, SyntaxError) and error.filename == name:
        return error.lineno
    return _line_of(name, reversed(list(traceback.walk_tb(error.__traceback__))))


def _line_of(name: str, frames: Iterable[tuple[Any, int]]) -> int | None:
    """Return the line of the innermost frame in a cell."""
    return next((line for frame, line in frames if frame.f_code.co_filename == name), None)


if __name__ == "__main__":
    main(pickle.load(sys.stdin.buffer))
