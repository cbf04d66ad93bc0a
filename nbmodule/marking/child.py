"""The process that runs one student's notebook: `python -P -m nbmodule.marking.child REQUEST`.

Nothing of the student's runs before the process is confined. What happens is told to the parent as lines of JSON, through a pipe of its
own; what the cells print goes with them, and nowhere else.
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
from typing import Any

from nbmodule.marking.confine import confine

_NAME = "cell [{}]"


class _Teller:
    """Tells the parent, on a descriptor that no name in the student's namespace stands for."""

    def __init__(self, pipe: int) -> None:
        self._pipe = os.fdopen(pipe, "w", encoding="utf-8", errors="backslashreplace")

    def __call__(self, **event: object) -> None:
        self._pipe.write(json.dumps(event) + "\n")
        self._pipe.flush()


class _Printed(io.StringIO):
    """What one cell prints, up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, text: str) -> int:
        self._left -= len(text)
        if self._left < 0:
            raise TooMuchOutput
        return super().write(text)

    def isatty(self) -> bool:
        return False


class TooMuchOutput(Exception):
    """A cell printed more than it may."""


def main(request: dict[str, Any]) -> None:
    """Run the cells one after the other; an error ends its cell, not the notebook."""
    tell, folder = _Teller(request["pipe"]), Path(request["folder"])
    os.chdir(folder)
    _bounded(request["limits"])
    confined = confine(folder, network=request["network"], hidden=[Path(each) for each in request["hidden"]])
    tell(kind="confined", confined=confined)
    from nbmodule.calls.differences import check

    package: Any = sys.modules["nbmodule"]

    at = _Place()
    shell = _shell(at)

    def recorded(*args: object, **kwargs: object) -> Any:
        verdict = check(*args, **kwargs)
        tell(
            kind="verdict",
            cell=at.cell,
            line=_line_of(sys._getframe(1), at.name),
            right=verdict.right,
            says=verdict.sentence,
        )
        return verdict

    recorded.__doc__ = check.__doc__
    for number, source, checks in request["cells"]:
        at.cell, at.name = number, _NAME.format(number)
        package.check = recorded  # also where an earlier cell has put something else in its place
        if checks and shell.user_ns.get("nb") is not None:
            shell.user_ns["nb"] = package
        tell(kind="begin", cell=number)
        printed = _Printed(request["output"])
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            result = shell.run_cell(source, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        said = None if error is None else {"what": _said(error), "line": _line_in(error, at.name)}
        tell(kind="end", cell=number, error=said, text=printed.getvalue())
    tell(kind="over")


class _Place:
    """Which cell is being run."""

    cell, name = 0, ""


def _shell(at: _Place) -> Any:
    """IPython, so that magics and `get_ipython()` work; each cell is compiled under its own name."""
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.interactiveshell import InteractiveShell

    class Named(CachingCompiler):
        def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
            return at.name

    class Shell(InteractiveShell):
        def enable_gui(self, gui: object = None) -> None:
            """There is no window to be fed: `%matplotlib inline` finds nothing to do."""

    shell = Shell.instance(compiler_class=Named)
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None  # errors are told, not printed
    sys.exit = builtins.exit = builtins.quit = _stay  # type: ignore[assignment]
    return shell


def _bounded(limits: dict[str, int]) -> None:
    """Limits that the system keeps: seconds of the processor, bytes of one file, and no image of a process that crashes."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        for name, most in (("RLIMIT_CPU", limits["cpu"]), ("RLIMIT_FSIZE", limits["file"]), ("RLIMIT_CORE", 0)):
            resource.setrlimit(getattr(resource, name), (most, most))


def _stay(*args: object) -> None:
    raise RuntimeError("the notebook asked to end; it is run on")


def _said(error: BaseException) -> str:
    if isinstance(error, TooMuchOutput):
        return "more was printed than is allowed; the cell was ended"
    return "".join(traceback.format_exception_only(error)).strip().split("\n")[-1][:500]


def _line_in(error: BaseException, name: str) -> int | None:
    """The line of the cell in which an error arose."""
    if isinstance(error, SyntaxError) and error.filename == name:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    return lines[-1] if lines else None


def _line_of(frame: Any, name: str) -> int | None:
    while frame is not None and frame.f_code.co_filename != name:
        frame = frame.f_back
    return None if frame is None else frame.f_lineno


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
