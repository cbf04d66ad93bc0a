"""Find the functions that made the equations of a jaxpr, by the call stacks that JAX keeps with
them.

A function is worth a box if its equations are more than one, all of one submodule, and not all that
there is: `relu`, `softmax`, `cross_entropy` and a user's own helper are; a `forward`, and a loss
that calls the model, hold submodules and are seen through. A stack names the code and the position
in it, not the call, so calls are told apart by what a program can do: within one call positions
grow, or go back where that code has a loop around them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

import jax

from nbmodule.base.jax_names import raw_frames
from nbmodule.base.scopes import LAYERS, PACKAGE, Scope

Step = tuple[CodeType, int]  # the code of a frame, and the offset of the instruction it has come to
Stack = tuple[Step, ...]  # outermost first
Scopes = tuple[tuple[Scope, ...], str]  # of an equation, with the pass in which it was made

_JAX = os.path.dirname(jax.__file__) + os.sep
_OF_FUNCTIONS = tuple(
    os.path.join(_JAX, "_src", name) for name in ("nn", "numpy", "scipy", "image")
)
# an operation with its broadcast reads best as these two
_OPERATORS = tuple(
    os.path.join(_JAX, "_src", "numpy", name)
    for name in ("ufuncs.py", "array_methods.py", "array_creation.py")
)
# Beside Python's own folders that of JAX: packages may lie in a folder that is only on the path.
_INSTALLED = tuple(
    {os.path.join(path, "") for path in map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))}
    | {os.path.join(os.path.dirname(os.path.dirname(jax.__file__)), "")}
)
_FUNCTIONAL, _KERNEL = (
    os.path.join(LAYERS, "functional") + os.sep,
    os.path.join(LAYERS, "kernel.py"),
)
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMES = {"rewriting_take": "getitem"}  # said better than JAX does


class Called(NamedTuple):
    """One call of a function; `number` tells it from all other calls."""

    name: str
    number: int
    phase: str


class _Frame(NamedTuple):
    """One call on a stack: of what, and which."""

    code: CodeType
    number: int


@lru_cache(maxsize=4096)
def _kind(code: CodeType) -> str:
    """Classify code: `user`, `layer` (a function of this package), `library`, or empty for what
    has no name to show.
    """
    file, name = code.co_filename, code.co_name
    if name.startswith("<") or (name.startswith("__") and name.endswith("__")):
        return ""
    is_public = not name.startswith("_")
    if file.startswith(PACKAGE):
        return "layer" if is_public and file.startswith((_FUNCTIONAL, _KERNEL)) else ""
    if file.startswith(_JAX):
        is_shown = file.startswith(_OF_FUNCTIONS) and not file.startswith(_OPERATORS)
        return "library" if is_public and is_shown else ""
    # of the environment, of a user, of the system
    is_installed = file.startswith(_INSTALLED) or f"-packages{os.sep}" in file
    return "" if is_installed else "user"


@lru_cache(maxsize=4096)
def _loops(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return first and last offset of each loop and comprehension of a code, from its source.

    Code without a source has no known loops: each of their iterations counts as a call.
    """
    try:
        lines, start = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return ()
    offsets: dict[int, list[int]] = {}
    for index, (line, *_) in enumerate(code.co_positions()):
        offsets.setdefault(line or 0, []).append(2 * index)
    loops = []
    for node in ast.walk(tree):
        if isinstance(node, _LOOPS):
            inside = range(start - 1 + node.lineno, start + (node.end_lineno or node.lineno))
            loops.append([offset for line in inside for offset in offsets.get(line, ())])
    return tuple((min(loop), max(loop)) for loop in loops if loop)


def _may_repeat(code: CodeType, first: int, last: int) -> bool:
    return any(start <= first and last <= end for start, end in _loops(code))


def _shared(before: Sequence[Step], current: Sequence[Step], backward: bool) -> int:
    """Count the outermost calls that are the same for two stacks that follow each other."""
    for depth, ((code, at), (next_code, next_at)) in enumerate(zip(before, current, strict=False)):
        if code is not next_code:
            return depth
        if at != next_at:
            goes_on = (next_at > at) is not backward
            if goes_on or _may_repeat(code, *sorted((at, next_at))):
                return depth + 1
            return _repeated(before, depth)
    if len(before) != len(current):
        return min(len(before), len(current))
    return _repeated(before, len(before)) or len(before)


def _repeated(stack: Sequence[Step], depth: int) -> int:
    """The innermost call above a depth whose loop has brought the program back; 0 if there is
    none.
    """
    for i in range(depth - 1, -1, -1):
        code, at = stack[i]
        if _may_repeat(code, at, at):
            return i + 1
    return 0


class FunctionFinder:
    """Gives the calls of functions that made each equation of a jaxpr; numbers are never used
    twice.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def find(self, equations: Sequence[Any], scopes: Sequence[Scopes]) -> list[tuple[Called, ...]]:
        """For each equation the functions that have a box, outermost first.

        Args:
            equations: Of one jaxpr, in its order.
            scopes: For each equation its scopes and its pass.
        """
        if len(equations) < 3:
            return [()] * len(equations)
        named = [_named(stack) for stack in self._frames(equations, scopes)]
        content = Counter(
            (names[:depth], phase) for names, phase in scopes for depth in range(len(names) + 1)
        )
        locations: dict[int, list[Scopes]] = {}
        for stack, location in zip(named, scopes, strict=True):
            for frame in stack:
                locations.setdefault(frame.number, []).append(location)
        # of one submodule alone: how many equations a call has made
        sizes = {n: len(found) for n, found in locations.items() if len(set(found)) == 1}
        return [
            _worthy(stack, location[1], sizes, content[location])
            for stack, location in zip(named, scopes, strict=True)
        ]

    def _frames(self, equations: Sequence[Any], scopes: Sequence[Scopes]) -> list[list[_Frame]]:
        """The calls on the stack of each equation, numbered."""
        result: list[list[_Frame]] = []
        before: dict[str, tuple[Any, Stack, list[_Frame]]] = {}
        for equation, (_, phase) in zip(equations, scopes, strict=True):
            traceback = equation.source_info.traceback
            last = before.get(phase)
            if last is not None and last[0] is traceback:
                result.append(last[2])
                continue
            outward = zip(*raw_frames(traceback), strict=True) if traceback is not None else ()
            stack = tuple(outward)[::-1]
            retained = _shared(last[1], stack, phase == "backward") if last is not None else 0
            frames = last[2][:retained] if last is not None else []
            frames += [_Frame(code, next(self._numbers)) for code, _ in stack[retained:]]
            before[phase] = (traceback, stack, frames)
            result.append(frames)
        return result


def _named(stack: Sequence[_Frame]) -> list[_Frame]:
    """The calls of functions with a name to show: the user's, this package's, and of another
    library the outermost.
    """
    results: list[_Frame] = []
    library: _Frame | None = None
    for frame in stack:
        category = _kind(frame.code)
        if category in ("user", "layer"):
            results.append(frame)
            library = None
        elif category == "library":
            library = library or frame
    return [*results, library] if library else results


def _worthy(
    stack: Sequence[_Frame], phase: str, sizes: dict[int, int], content: int
) -> tuple[Called, ...]:
    """Select calls of several equations, in one submodule, that are not all of their parent."""
    chosen = []
    for frame in stack:
        size = sizes.get(frame.number, 0)
        if 1 < size < content:
            name = frame.code.co_name
            chosen.append(Called(_NAMES.get(name, name), frame.number, phase))
            content = size
    return tuple(chosen)
