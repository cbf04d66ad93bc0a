"""Raises an interrupt at each point of a piece of code in turn, as a signal could, and by real
signals.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbmodule
from nbmodule.core.variables.commit import draw_lock
from nbmodule.core.variables.donation import readers
from nbmodule.core.variables.frame import gate, now

HOME = str(Path(nbmodule.__file__).parent)
FILES = f"{HOME}/files/"  # reads in threads, before anything is committed
CLOSE = tuple(
    f"{HOME}/core/{name}"
    for name in (
        *(f"variables/{file}.py" for file in ("commit", "donation", "frame")),
        "compiled/call.py",
    )
)


class Injected(KeyboardInterrupt):
    """Stands for an interrupt."""


def interrupt() -> None:
    raise Injected


def points(
    run: Callable[[], Any], *, most: int = 150, strike: Callable[[], None] = interrupt
) -> Iterator[int]:
    """Run `run` again and again, with an interrupt at another point each time; gives each point
    beforehand.

    Points are the lines of this package, and the bytecodes of the files that commit.

    Args:
        run: the code.
        most: how many points to take, spread evenly, where there are more.
        strike: what happens at such a point.
    """
    gc.collect()  # garbage that goes meanwhile would take points away
    total = _passed(run, sys.maxsize, strike)
    for point in range(0, total, -(-total // most)):
        yield point
        _passed(run, point, strike)
    yield total


def _passed(run: Callable[[], Any], stop: int, strike: Callable[[], None]) -> int:
    """Run with an interrupt at point `stop`; gives how many points were passed."""
    passed = 0

    def local(frame: Any, event: str, arg: Any) -> Any:
        nonlocal passed
        if event in ("line", "opcode") and frame.f_lasti not in _without_signals(frame.f_code):
            passed += 1
            if passed == stop + 1:
                strike()
        if (
            event == "line"
        ):  # again: since Python 3.13 the end of another call of this code turns it off
            frame.f_trace_opcodes = frame.f_code.co_filename in CLOSE
        return local

    def called(frame: Any, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(HOME) or file.startswith(FILES) or _is_finalizing(frame):
            return None
        frame.f_trace_opcodes = file in CLOSE
        return local

    before = sys.gettrace()
    gc.disable()  # a finalizer would swallow the interrupt, see `_is_finalizing`
    sys.settrace(called)
    try:
        run()
    except BaseException as error:
        if not _comes_from_ours(error):
            raise
    finally:
        sys.settrace(before)
        gc.enable()
    return passed


@functools.cache
def _without_signals(code: Any) -> frozenset[int]:
    """Where no signal is handled: in front of a `try`, which does nothing, and at the end of a
    `with` block before its `__exit__` is called.
    """
    steps = list(dis.get_instructions(code))
    found = {each.offset for each in steps if each.opname == "NOP"}
    for start in range(len(steps) - 3):
        if all(
            each.opname == "LOAD_CONST" and each.argval is None for each in steps[start : start + 3]
        ):
            i, call = (
                start,
                next(
                    (j for j in range(start + 3, len(steps)) if steps[j].opname.startswith("CALL")),
                    start,
                ),
            )
            while i and steps[i - 1].opname in ("SWAP", "NOP"):  # what is returned steps aside
                i -= 1
            found.update(each.offset for each in steps[i : call + 1])
    return frozenset(found)


def _is_finalizing(frame: Any) -> bool:
    """Whether this is called, nearly at once, by a `weakref.finalize`: Python swallows what is
    raised there.
    """
    for _ in range(5):
        frame = frame.f_back
        if frame is None:
            return False
        if frame.f_code.co_filename == weakref.__file__ and frame.f_code.co_name == "__call__":
            return True
    return False


def _comes_from_ours(error: BaseException | None) -> bool:
    """Whether it is our interrupt, or what somebody in between (JAX, comparing structures) has made
    of it.
    """
    while error is not None and not isinstance(error, Injected):
        error = error.__cause__ or error.__context__
    return error is not None


def assert_nothing_is_open() -> None:
    """No frame, tracker, gate or lock was left open."""
    assert not draw_lock._is_owned()
    assert not readers.lock._is_owned()
    assert now.frame is None
    assert now.tracker is None
    assert not gate.open
    assert not now.stack and not now.counts and now.job is None
    assert now.taps is None and now.lent is None
