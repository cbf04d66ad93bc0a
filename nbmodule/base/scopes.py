"""Read the submodule call and the pass of an equation from its name stack.

A module call opens `jax.named_scope` with the child's own name, `name#2` for its second call within
one parent call; the characters `/`, `(` and `)` come as %2F, %28 and %29. Transforms add marks of
their own, which say nothing about modules.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from nbmodule.base.jax_names import source_info_util
from nbmodule.base.notebook import running_shell

_REPEAT = re.compile(r"^(.+)#([1-9]\d*)$", re.DOTALL)
_ESCAPES = (("%2F", "/"), ("%28", "("), ("%29", ")"))
_CLASSES = "eqx.nn."
"""Equinox names the classes of its layers here too, which say less than their places."""
RECOMPUTED = "rematted_computation"


class Scope(NamedTuple):
    """One level of the stack: name, which call it is (None: the text does not say), and the
    pass.
    """

    name: str
    call: int | None
    phase: str


class Mark(NamedTuple):
    """One element of JAX's stack as JAX tells it: a scope's text, or the name of a transform."""

    text: str
    is_transform: bool


@lru_cache(maxsize=65536)
def read_scopes(stack: tuple[Mark, ...], phase: str = "forward") -> tuple[tuple[Scope, ...], str]:
    """The scopes of a name stack, outermost first, and the pass in which the equation was made.

    Args:
        stack: Elements of the stack, outermost first.
        phase: The pass of the enclosing equation; the inside of a backward loop is backward too.

    >>> read_scopes((Mark("jvp", True), Mark("layers.0", False), Mark("norm#2", False)))[0][1]
    Scope(name='norm', call=1, phase='forward')
    >>> read_scopes((Mark("transpose", True), Mark("jvp", True), Mark("head", False)))[1]
    'backward'
    """
    scopes = []
    for text, is_transform in _without_repetition(stack):
        if is_transform:
            phase = "backward" if text == "transpose" else phase
        elif text == RECOMPUTED:
            phase = "recomputed"
        else:
            name, call = _split(text)
            if name.startswith(_CLASSES):
                continue
            scopes.append(Scope(name, call, phase))
    return tuple(scopes), phase


def _without_repetition(stack: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Drop the second copy that JAX appends to a rematerialized equation's stack in the backward
    pass.

    There the stack reads `X + Y` where `Y` is `X` without its `transpose` marks.
    """
    transpose = Mark("transpose", True)
    if transpose not in stack:
        return stack
    for end in range(stack.index(transpose) + 2, len(stack)):
        head = stack[:end]
        plain = tuple(mark for mark in head if mark != transpose)
        if stack[end : end + len(plain)] == plain:
            return head + stack[end + len(plain) :]
    return stack


def _split(text: str) -> tuple[str, int | None]:
    match = _REPEAT.match(text)
    name, call = (match[1], int(match[2]) - 1) if match and int(match[2]) > 1 else (text, None)
    for escaped, character in _ESCAPES:
        name = name.replace(escaped, character)
    return name, call


_WRAPPED = re.compile(r"^([\w.\-]+)\((.*)\)$", re.DOTALL)
_FUNCTIONS = frozenset(("jit", "pjit", "xla_call", "xla_pmap"))
_STRUCTURE = re.compile(
    r"^(while|body|cond|scan|closed_call|core_call|core_closed_call|checkpoint|remat2?"
    r"|custom_(jvp|vjp)_call(_jaxpr)?|branch_\d+_fun|shard_map)$"
)


@lru_cache(maxsize=65536)
def marks_in(stack: tuple[Any, ...]) -> tuple[Mark, ...]:
    """The marks of the name stack of an equation."""
    return tuple(Mark(element.name, type(element).__name__ == "Transform") for element in stack)


def marks_of(text: str) -> tuple[tuple[Mark, ...], str]:
    """The stack that a compiled instruction carries as text, outermost first, and the name of its
    operation.

    What JAX adds for functions and loops says nothing about modules and is left out.

    >>> marks_of("jit(step)/transpose(jvp(Net))/head/dot_general")[1]
    'dot_general'
    >>> read_scopes(marks_of("jit(step)/transpose(jvp(Net))/head/dot_general")[0])
    ((Scope(name='Net', call=None, phase='backward'), Scope(name='head', call=None,
    phase='backward')), 'backward')
    """
    *scopes, operation = _parts(text)
    marks: list[Mark] = []
    for scope in scopes:
        while (match := _WRAPPED.match(scope)) and match[1] not in _FUNCTIONS:
            marks.append(Mark(match[1], True))
            scope = match[2]
        if scope and not match and not _STRUCTURE.match(scope):
            marks.append(Mark(scope, False))
    return tuple(marks), operation


def _parts(text: str) -> list[str]:
    """Cut at each `/` that is in no parentheses."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "/" and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LAYERS = os.path.join(PACKAGE, "nn") + os.sep


def place_in_code(file: str, line: int) -> str:
    """Name a line of code: a cell by its number, since the name of its temporary file says nothing.

    Args:
        file: As a code object names it.
        line: Counted from 1.

    Example:
        >>> place_in_code("/home/ada/train.py", 25)
        'train.py:25'
    """
    cells = getattr(getattr(running_shell(), "compile", None), "_filename_map", {})
    if file in cells:
        return f"cell [{cells[file]}] line {line}"
    return f"{os.path.basename(file)}:{line}"


source_info_util.register_exclusion(PACKAGE)
for _checker in ("jaxtyping", "beartype", "typeguard"):
    _found = find_spec(_checker)
    for _folder in (_found.submodule_search_locations or ()) if _found else ():
        source_info_util.register_exclusion(_folder + os.sep)
