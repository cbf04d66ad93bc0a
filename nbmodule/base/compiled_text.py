"""Read the text of a compiled program: of each instruction where it comes from, what it works out and what it moves.

The profiler names an instruction as the text does; the text says under which scopes it was written. FLOPs follow from the
shapes: a product and a sum are two, whatever is done to one element is one; moving counts nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_SCOPE = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_CALLED = re.compile(r"\b(?:calls|to_apply|body|condition)=%?([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CONTRACTED = re.compile(r'lhs_contracting_dim\w*(?:=\{|":\[)([\d,"]*)[}\]]')
_LABELS = re.compile(r"dim_labels=\w+_(\w+)->")
CONTAINERS = frozenset(("while", "conditional", "call"))
"""They last as long as what runs inside them, which is listed by itself."""
_MOVING = (
    "parameter constant bitcast copy tuple get-tuple-element reshape transpose broadcast slice dynamic-slice dynamic-update-slice "
    "concatenate pad reverse gather scatter iota convert copy-start copy-done partition-id replica-id after-all optimization-barrier "
    "bitcast-convert"
)
_FREE = frozenset(_MOVING.split())


@dataclass
class Instruction:
    """One instruction of a compiled program.

    Attributes:
        name: As the profiler tells it.
        opcode: What it is, `fusion` or `dot`.
        scopes: The scopes under which it was written, `jit(step)/jvp(Net)/head/dot_general`; empty where the compiler made it.
        flops: Floating-point operations of one run.
        bytes: What one run reads and writes.
    """

    name: str
    opcode: str
    scopes: str = ""
    flops: float = 0.0
    bytes: float = 0.0
    shapes: list[tuple[str, tuple[int, ...]]] = field(default_factory=list, repr=False)
    operands: list[str] = field(default_factory=list, repr=False)
    called: list[str] = field(default_factory=list, repr=False)
    rest: str = field(default="", repr=False)


def read_instructions(text: str) -> dict[str, Instruction]:
    """The instructions of all computations by name; a name stands once in a program.

    >>> text = '''
    ... ENTRY %main (a: f32[2,3], b: f32[3,4]) -> f32[2,4] {
    ...   %a = f32[2,3]{1,0} parameter(0)
    ...   %b = f32[3,4]{1,0} parameter(1)
    ...   ROOT %dot.1 = f32[2,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, metadata={op_name="jit(f)/head/dot_general"}
    ... }'''
    >>> made = read_instructions(text)["dot.1"]
    >>> made.scopes, made.flops, made.bytes
    ('jit(f)/head/dot_general', 48, 104.0)
    """
    computations: dict[str, list[Instruction]] = {}
    found: dict[str, Instruction] = {}
    inside: list[Instruction] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            inside = computations.setdefault(head[1], [])
        elif made := _read(line):
            inside.append(made)
            found[made.name] = made
    for made in found.values():
        made.bytes = sum(map(_bytes, (made, *(found[name] for name in made.operands if name in found))))
        made.scopes = made.scopes or _scopes_inside(made, computations)
    known: dict[str, float] = {}
    for made in found.values():
        made.flops = _flops(made, found, computations, known)
    return found


def _read(line: str) -> Instruction | None:
    match = _LINE.match(line)
    if match is None:
        return None
    name, result, opcode, rest = match.groups()
    scopes = _SCOPE.search(rest)
    shapes = [(kind, tuple(int(n) for n in dims.split(",") if n)) for kind, dims in _SHAPE.findall(result)]
    given = _OPERAND.findall(_arguments(rest))
    where = scopes[1] if scopes and "/" in scopes[1] else ""
    return Instruction(name, opcode, where, 0.0, 0.0, shapes, given, _CALLED.findall(rest), rest)


def _arguments(rest: str) -> str:
    depth = 1
    for i, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return rest[:i]
    return rest


def _scopes_inside(made: Instruction, computations: dict[str, list[Instruction]]) -> str:
    """What a fusion without scopes of its own was made of: those that most of its instructions have."""
    if made.opcode not in ("fusion", "custom-call"):
        return ""
    scopes = [each.scopes for name in made.called for each in computations.get(name, ()) if each.scopes]
    return max(scopes, key=scopes.count, default="")


def _bytes(made: Instruction) -> float:
    return sum(_width(kind) * math.prod(dims) for kind, dims in made.shapes)


def _width(kind: str) -> float:
    digits = re.match(r"[a-z]+(\d+)", kind)
    return int(digits[1]) / 8 if digits else 1


def _size(made: Instruction) -> int:
    return sum(math.prod(dims) for _, dims in made.shapes)


def _flops(
    made: Instruction,
    found: dict[str, Instruction],
    computations: dict[str, list[Instruction]],
    known: dict[str, float],
) -> float:
    if made.opcode in CONTAINERS or made.opcode in _FREE:
        return 0
    rule = _RULES.get(made.opcode)
    operands = [found[name] for name in made.operands if name in found]
    if rule is not None:
        return rule(made, operands)
    if made.opcode == "fusion":
        for name in made.called:
            if name not in known:
                known[name] = sum(_flops(each, found, computations, known) for each in computations.get(name, ()))
        return sum(known[name] for name in made.called)
    return _size(made)


def _dot(made: Instruction, operands: list[Instruction]) -> float:
    axes = _CONTRACTED.search(made.rest)
    if not operands or not operands[0].shapes or axes is None:
        return 0
    dims = operands[0].shapes[0][1]
    contracted = [int(n) for n in axes[1].replace('"', "").split(",") if n]
    return 2 * math.prod(made.shapes[0][1]) * math.prod(dims[axis] for axis in contracted if axis < len(dims))


def _convolution(made: Instruction, operands: list[Instruction]) -> float:
    labels = _LABELS.search(made.rest)
    if len(operands) < 2 or not operands[1].shapes or labels is None:
        return 0
    kernel = operands[1].shapes[0][1]
    outputs = kernel[labels[1].index("o")] if len(labels[1]) == len(kernel) else 1
    return 2 * math.prod(made.shapes[0][1]) * math.prod(kernel) // max(outputs, 1)


def _library(made: Instruction, operands: list[Instruction]) -> float:
    """A call of a library: a product or a convolution by what it is told, else nothing is known of it."""
    return _convolution(made, operands) if _LABELS.search(made.rest) else _dot(made, operands)


def _reduction(made: Instruction, operands: list[Instruction]) -> float:
    return sum(map(_size, operands[:1]))


_RULES: dict[str, Callable[[Instruction, list[Instruction]], float]] = {
    "dot": _dot,
    "convolution": _convolution,
    "custom-call": _library,
    "reduce": _reduction,
    "reduce-window": _reduction,
}
