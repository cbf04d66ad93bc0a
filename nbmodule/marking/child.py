"""The process that runs one student's notebook: `python -P -m nbmodule.marking.child`.

No code of the student runs before the process is confined. Events go to the supervisor as lines of
JSON through a pipe, with the text that the cells print.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nbmodule.marking.confine import confine


class _Output(io.StringIO):
    """The text that one cell prints, up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, text: str) -> int:
        self._left -= len(text)
        if self._left < 0:
            raise TooMuchOutputError
        return super().write(text)


class TooMuchOutputError(Exception):
    """A cell printed more than it may."""


def main(request: dict[str, Any]) -> None:
    """Run the cells one after the other; an error ends its cell, not the notebook."""
    folder, pipe = Path(request["folder"]), os.fdopen(request["pipe"], "w")

    def report(**event: object) -> None:
        pipe.write(json.dumps(event) + "\n")
        pipe.flush()

    os.chdir(folder)
    _limit(request["limits"])
    confined = confine(
        folder, network=request["network"], hidden=[Path(path) for path in request["hidden"]]
    )
    report(kind="confined", confined=confined)
    from nbmodule.calls.differences import check

    package: Any = sys.modules["nbmodule"]

    current = SimpleNamespace(cell=0, name="")  # the cell that is being run
    shell = _shell(current)

    def recorded(*args: object, **kwargs: object) -> Any:
        verdict = check(*args, **kwargs)
        report(
            kind="verdict",
            cell=current.cell,
            line=_line_of(sys._getframe(1), current.name),
            right=bool(verdict.right),
            says=str(verdict.sentence),
        )
        return verdict

    recorded.__doc__ = check.__doc__
    for number, source, checks in request["cells"]:
        current.cell, current.name = number, f"cell [{number}]"
        package.check = recorded  # also where an earlier cell has put something else in its place
        if checks and shell.user_ns.get("nb") is not None:
            shell.user_ns["nb"] = package
        report(kind="begin", cell=number)
        output = _Output(request["output"])
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            result = shell.run_cell(source, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        report(
            kind="end",
            cell=number,
            line=None if error is None else _line_in(error, current.name),
            error=None if error is None else _message(error),
            text=output.getvalue(),
        )
    report(kind="over")


def _shell(current: SimpleNamespace) -> Any:
    """Start IPython, so that magics work; each cell is compiled under a name of its own."""
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell.instance()
    shell.compile.get_code_name = lambda *_: current.name
    shell.enable_gui = lambda gui=None: None  # there is no window
    # Errors are reported, not printed.
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None
    sys.exit = builtins.exit = builtins.quit = _stay  # type: ignore[assignment]
    return shell


def _limit(limits: dict[str, int]) -> None:
    """Let the system limit processor time and file sizes, and keep no core file."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        for name, limit in (
            ("RLIMIT_CPU", limits["cpu"]),
            ("RLIMIT_FSIZE", limits["file"]),
            ("RLIMIT_CORE", 0),
        ):
            resource.setrlimit(getattr(resource, name), (limit, limit))


def _stay(*args: object) -> None:
    raise RuntimeError("the notebook asked to end; it is run on")


def _message(error: BaseException) -> str:
    if isinstance(error, TooMuchOutputError):
        return "more was printed than is allowed; the cell was ended"
    return "".join(traceback.format_exception_only(error)).strip().split("\n")[-1][:500]


def _line_in(error: BaseException, name: str) -> int | None:
    """Return the line of the cell in which an error was raised."""
    if isinstance(error, SyntaxError) and error.filename == name:
        return error.lineno
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == name
    ]
    return lines[-1] if lines else None


def _line_of(frame: Any, name: str) -> int | None:
    while frame is not None and frame.f_code.co_filename != name:
        frame = frame.f_back
    return None if frame is None else frame.f_lineno


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
