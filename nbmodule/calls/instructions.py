"""How long each instruction of a compiled program takes, from JAX's own profiler.

On a CPU several threads work at one program, and an instruction may wait while another one runs: each moment is counted once,
in equal parts for the instructions that are at work in it. So the times add up to the time of the step, and never to more.
"""

from __future__ import annotations

import glob
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax

from nbmodule.errors import TraceError


class Event(NamedTuple):
    """One run of one instruction, on one thread or stream; times in nanoseconds."""

    name: str
    start: float
    end: float
    line: int


def record_events(run: Callable[[], Any], module: str) -> list[Event]:
    """Run something under JAX's profiler; gives the instructions of one program that ran meanwhile.

    Args:
        run: What is to run; it must wait for its arrays.
        module: The name of the compiled program, `jit_step`.

    Raises:
        TraceError: another profile is being taken.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            jax.profiler.start_trace(folder, **_options())
        except RuntimeError as error:
            raise TraceError(
                f"nb.profile could not start JAX's profiler: {error} Another profile is being taken; end it first "
                "(jax.profiler.stop_trace()). Nothing was run or changed."
            ) from error
        try:
            run()
        finally:
            jax.profiler.stop_trace()
        files = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        with warnings.catch_warnings():
            # jaxlib makes classes when a profile is first read, of which Python 3.13 warns; as an error that would end the process.
            warnings.simplefilter("ignore", DeprecationWarning)
            return [event for file in files for event in _events(jax.profiler.ProfileData.from_file(file), module)]


def _options() -> dict[str, Any]:
    """Without what the profiler records of Python, which would take longer than a small step."""
    if not hasattr(jax.profiler, "ProfileOptions"):
        return {}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return {"profiler_options": options}


def _events(data: Any, module: str) -> Iterable[Event]:
    planes = list(data.planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    found: list[Event] = []
    for group in (devices, planes):  # of a device its own lines; the host only tells what it handed over
        lines = [line for plane in group for line in plane.lines]
        for number, line in enumerate(lines):
            for event in line.events:
                facts = dict(event.stats)
                if facts.get("hlo_module") == module and "hlo_op" in facts:
                    start = event.start_ns
                    found.append(Event(str(facts["hlo_op"]), start, start + event.duration_ns, number))
        if found:
            break
    return found


class Shares(NamedTuple):
    """The time of a stretch, given out among those at work in it; in seconds."""

    seconds: dict[str, float]
    counts: dict[str, int]
    idle: float
    """In which none was at work, between the first and the last event of each run."""


def share_out(events: list[Event]) -> Shares:
    """Give each moment, in equal parts, to the instructions that are at work in it.

    Of events one in another on the same line the inner one is at work.

    Args:
        events: In any order.

    Example:
        >>> share_out([Event('a', 0, 10e9, 0), Event('b', 4e9, 10e9, 1), Event('a', 12e9, 13e9, 0)])
        Shares(seconds={'a': 8.0, 'b': 3.0}, counts={'a': 2, 'b': 1}, idle=2.0)
    """
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    moments: list[tuple[float, int, int]] = []  # an end comes before a beginning at the same time
    for number, event in enumerate(events):
        seconds.setdefault(event.name, 0.0)
        counts[event.name] = counts.get(event.name, 0) + 1
        moments += [(event.start, 1, number), (event.end, 0, number)]
    open_on: dict[int, list[int]] = {}
    idle, before = 0.0, None
    for time, begins, number in sorted(moments):
        passed = (time - before) / 1e9 if before is not None else 0.0
        if open_on:
            for stack in open_on.values():
                seconds[events[stack[-1]].name] += passed / len(open_on)
        else:
            idle += passed
        before = time
        stack = open_on.setdefault(events[number].line, [])
        if begins:
            stack.append(number)
        elif number in stack:
            stack.remove(number)
        if not stack:
            del open_on[events[number].line]
    return Shares(seconds, counts, idle)
