"""The instructions of a compiled program: scopes and bytes from its text, times from JAX's
profiler.

The profiler and the text use the same names of instructions; the text has their scopes.

On a CPU several threads run one program, and instructions overlap. Time in which several
instructions run is divided equally among them, so that all times add up to the time of the step.
"""

from __future__ import annotations

import glob
import math
import os
import re
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from nbmodule.errors import TraceError

_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_SCOPE = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_JOINED = re.compile(r";(?=(?:jit|pjit)\()")  # of fused instructions, the places of all
_CALLED = re.compile(r"\b(?:calls|to_apply|body|condition)=%?([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+)")
# They last as long as the instructions inside them, which are listed too.
CONTAINERS = frozenset(("while", "conditional", "call"))


@dataclass
class Instruction:
    """One instruction of a compiled program.

    Attributes:
        name: Its name in the program and in the profile.
        opcode: Its kind, such as `fusion` or `dot`.
        scopes: Its scopes, `jit(step)/jvp(Net)/head/dot_general`; empty if the compiler added it.
        bytes: Bytes that one run reads and writes.
    """

    name: str
    opcode: str
    scopes: str = ""
    bytes: float = 0.0
    shapes: list[tuple[str, tuple[int, ...]]] = field(default_factory=list, repr=False)
    operands: list[str] = field(default_factory=list, repr=False)
    called: list[str] = field(default_factory=list, repr=False)
    attributes: str = field(default="", repr=False)


def read_instructions(text: str) -> dict[str, Instruction]:
    """Return the instructions of all computations by name; names are unique in a program.

    >>> text = '''
    ... ENTRY %main (a: f32[2,3], b: f32[3,4]) -> f32[2,4] {
    ...   %a = f32[2,3]{1,0} parameter(0)
    ...   %b = f32[3,4]{1,0} parameter(1)
    ...   ROOT %dot.1 = f32[2,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, META
    ... }'''.replace("META", 'metadata={op_name="jit(f)/head/dot_general"}')
    >>> made = read_instructions(text)["dot.1"]
    >>> made.scopes, made.bytes
    ('jit(f)/head/dot_general', 104.0)
    """
    computations: dict[str, list[Instruction]] = {}
    results: dict[str, Instruction] = {}
    inside: list[Instruction] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            inside = computations.setdefault(head[1], [])
        elif result := _read(line):
            inside.append(result)
            results[result.name] = result
    for result in results.values():
        result.bytes = sum(
            map(_bytes, (result, *(results[name] for name in result.operands if name in results)))
        )
        result.scopes = result.scopes or _scopes_inside(result, computations)
    _give_scopes_of_readers(results, computations)
    return results


def _read(line: str) -> Instruction | None:
    match = _LINE.match(line)
    if match is None:
        return None
    name, result, opcode, remaining = match.groups()
    scopes = _SCOPE.search(remaining)
    shapes = [
        (category, tuple(int(n) for n in dims.split(",") if n))
        for category, dims in _SHAPE.findall(result)
    ]
    supplied = _OPERAND.findall(_arguments(remaining))
    where = ""
    if scopes and "/" in scopes[1]:
        # the compiler writes quotes and all bytes beyond ASCII as escapes
        raw = scopes[1].encode().decode("unicode_escape").encode("latin-1")
        where = _JOINED.split(raw.decode(errors="replace"))[-1]
    called = _CALLED.findall(remaining)
    return Instruction(name, opcode, where, 0.0, shapes, supplied, called, remaining)


def _arguments(remaining: str) -> str:
    depth = 1
    for i, character in enumerate(remaining):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return remaining[:i]
    return remaining


def _scopes_inside(result: Instruction, computations: dict[str, list[Instruction]]) -> str:
    """Return the scopes of a fusion without own scopes: those of most of its instructions."""
    if result.opcode not in ("fusion", "custom-call"):
        return ""
    scopes = [
        item.scopes for name in result.called for item in computations.get(name, ()) if item.scopes
    ]
    return max(scopes, key=scopes.count, default="")


def _give_scopes_of_readers(
    result: dict[str, Instruction], computations: dict[str, list[Instruction]]
) -> None:
    """Give an instruction without scopes those of the instruction that reads its result.

    XLA rewrites convolutions with channels first without their metadata; the transposition of
    their result keeps it.
    """
    readers: dict[str, list[tuple[Instruction, int]]] = {}
    for created in result.values():
        for position, name in enumerate(created.operands):
            readers.setdefault(name, []).append((created, position))
    quiet = CONTAINERS | {"parameter", "constant"}
    for created in reversed(result.values()):  # a reader comes after what it reads
        if created.scopes or created.opcode in quiet:
            continue
        for reader, position in readers.get(created.name, ()):
            inside = [item for name in reader.called for item in computations.get(name, ())]
            parameters = [
                item.name
                for item in inside
                if item.opcode == "parameter" and item.attributes.startswith(f"{position})")
            ]
            within = [item for name in parameters[:1] for item, _ in readers.get(name, ())]
            scopes = next((item.scopes for item in within if item.scopes), reader.scopes)
            if scopes:
                operation = _OPERATIONS.get(created.opcode, created.opcode)
                created.scopes = f"{scopes.rpartition('/')[0]}/{operation}"
                break


_OPERATIONS = {"convolution": "conv_general_dilated", "dot": "dot_general"}


def _bytes(result: Instruction) -> float:
    total = 0.0
    for dtype, dims in result.shapes:
        bits = re.search(r"\d+", dtype)  # none in `pred`, a byte
        total += (int(bits[0]) / 8 if bits else 1) * math.prod(dims)
    return total


class Event(NamedTuple):
    """One run of one instruction, on one thread or stream; times in nanoseconds."""

    name: str
    start: float
    end: float
    line: int


def record_events(run: Callable[[], Any], module: str) -> list[Event]:
    """Call a function under JAX's profiler, and return the instructions of one program that ran.

    Args:
        run: The function; it must wait for its arrays.
        module: The name of the compiled program, `jit_step`.

    Raises:
        TraceError: another profile is running.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # recording Python calls takes longer than a small step
    with tempfile.TemporaryDirectory() as folder:
        try:
            jax.profiler.start_trace(folder, profiler_options=options)
        except RuntimeError as error:
            raise TraceError(
                f"nb.profile could not start JAX's profiler: {error} Another profile is being "
                f"taken; end it first "
                "(jax.profiler.stop_trace())."
            ) from error
        try:
            run()
        finally:
            jax.profiler.stop_trace()
        files = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        with warnings.catch_warnings():
            # jaxlib makes classes when a profile is first read, of which Python 3.13 warns; as an
            # error that would end the process.
            warnings.simplefilter("ignore", DeprecationWarning)
            return [
                event
                for file in files
                for event in _events(jax.profiler.ProfileData.from_file(file), module)
            ]


def _events(data: Any, module: str) -> list[Event]:
    """Return the runs of instructions of one program, from the device if it lists them, else from
    the host.
    """
    planes = list(data.planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    results: list[Event] = []
    for group in (devices, planes):  # the host lists only what it dispatched
        for number, line in enumerate(line for plane in group for line in plane.lines):
            for event in line.events:
                stats, start = dict(event.stats), event.start_ns
                if stats.get("hlo_module") == module and "hlo_op" in stats:
                    end = start + event.duration_ns
                    results.append(Event(str(stats["hlo_op"]), start, end, number))
        if results:
            break
    return results


class Shares(NamedTuple):
    """Seconds of each instruction, and how often it ran."""

    seconds: dict[str, float]
    counts: Counter[str]


def share_out(events: list[Event]) -> Shares:
    """Divide time equally among the instructions that run in it.

    Of nested events on one line the inner one counts.

    Args:
        events: In any order.

    Example:
        >>> share_out([Event("a", 0, 10e9, 0), Event("b", 4e9, 10e9, 1), Event("a", 12e9, 13e9, 0)])
        Shares(seconds={'a': 8.0, 'b': 3.0}, counts=Counter({'a': 2, 'b': 1}))
    """
    seconds: dict[str, float] = defaultdict(float)
    moments = [(event.start, 1, number) for number, event in enumerate(events)]
    moments += [(event.end, 0, number) for number, event in enumerate(events)]
    open_on: dict[int, list[int]] = {}
    before = 0.0
    for time, begins, number in sorted(moments):  # an end comes before a beginning at the same time
        for stack in open_on.values():
            seconds[events[stack[-1]].name] += (time - before) / 1e9 / len(open_on)
        before = time
        stack = open_on.setdefault(events[number].line, [])
        if begins:
            stack.append(number)
        elif number in stack:
            stack.remove(number)
        if not stack:
            del open_on[events[number].line]
    return Shares(dict(seconds), Counter(event.name for event in events))
