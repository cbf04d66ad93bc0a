"""Notes on an exception that passes through modules: path, class and argument shapes of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from nbmodule.base.format import printable
from nbmodule.base.migration import error_hint
from nbmodule.base.paths import closest
from nbmodule.core.recording.tracker import describe_arguments
from nbmodule.core.structure.attributes import is_list_of_numbers
from nbmodule.core.structure.building import OPTIONS
from nbmodule.core.structure.naming import joined
from nbmodule.core.structure.walk import name_within, plan_of

_ENDS = 5
"""Of a long trail, modules that are listed at each end."""


@dataclass
class _Passed:
    """A module that an exception has passed through, and its name within its caller."""

    module: Any
    shapes: str
    name: str | None = None


class _Note(str):
    """A note of this package, replaced when the exception passes the next module."""

    __slots__ = ()


def annotate(
    error: BaseException, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Add a note with path, class and argument shapes for each module on the way out."""
    trail = getattr(error, "_nbm_trail", None)
    if trail is None:
        trail = []
        try:
            error._nbm_trail = trail  # type: ignore[attr-defined]
        except AttributeError:  # exceptions with slots take no notes
            return
        fix = _fix_for(error, args)
        if fix is not None:
            error.add_note(fix)
    # The innermost module does not know its caller; the caller names it.
    if trail:
        trail[-1].name = name_within(module, trail[-1].module)
    trail.append(_Passed(module, describe_arguments(args, kwargs)))
    notes = [note for note in getattr(error, "__notes__", []) if not isinstance(note, _Note)]
    error.__notes__ = [*notes, *map(_Note, _lines(module, trail))]


def _fix_for(error: BaseException, args: tuple[Any, ...]) -> str | None:
    """Return a fix for a word of another framework, as in `model(x, training=True)`, or None."""
    fix = error_hint(error)
    if fix is not None or type(error) is not TypeError:
        return fix
    if any(map(is_list_of_numbers, args)):
        return "A list of numbers was given: convert it first, by jnp.asarray(x)."
    unexpected = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    near = closest(unexpected[1], OPTIONS - {"v"}) if unexpected else None
    return None if near is None else f'Did you mean "{near}", which every call of a module takes?'


def _lines(called: Any, trail: list[_Passed]) -> list[str]:
    """Return one line for each module, the innermost first; of many those at both ends."""
    lines: list[str] = []
    path: str | None = ""
    for passed in reversed(trail):
        if not lines:
            name = "the called module"
        elif passed.name is not None and path is not None:
            name = path = joined(path, passed.name)
        else:
            location = plan_of(called).modules.get(passed.module)
            path = None if location is None else location.name
            name = path or "a module it uses"
        shapes = passed.shapes or "no arguments"
        line = f"in {name} ({type(passed.module).__name__}), called with {shapes}"
        lines.insert(0, printable(line))
    if len(lines) <= 2 * _ENDS:
        return lines
    return [*lines[:_ENDS], f"in {len(lines) - 2 * _ENDS} modules between", *lines[-_ENDS:]]
