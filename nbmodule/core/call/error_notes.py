"""The notes on an exception that passes through modules: path, class and shapes of the arguments of
each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from nbmodule.base.format import printable
from nbmodule.base.migration import error_hint
from nbmodule.base.paths import closest
from nbmodule.core.call.stages import OPTIONS
from nbmodule.core.recording.tracker import describe_arguments
from nbmodule.core.structure.walk import name_within, plan_of

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

_ENDS = 5  # modules at each end of a long way out that an exception tells of


def annotate(
    error: BaseException, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Add a note with path, class and argument shapes for each module that the exception passes
    through.
    """
    trail = getattr(error, "_nbm_trail", None)
    if trail is None:
        trail = []
        try:
            error._nbm_trail = trail  # type: ignore[attr-defined]
        # Exceptions with slots take no notes.
        except AttributeError:
            return
        add_cure(error, args)
    if trail:
        trail[-1].name = name_within(module, trail[-1].module)
    trail.append(_Passed(module, describe_arguments(args, kwargs)))
    notes = [note for note in getattr(error, "__notes__", []) if not isinstance(note, _Note)]
    error.__notes__ = [*notes, *map(_Note, _told(module, trail))]


def add_cure(error: BaseException, args: tuple[Any, ...] = ()) -> None:
    """Say what to do in place of a word or a method of another framework, such as `model(x,
    training=True)` or `x.view(2, -1)`.
    """
    cure = error_hint(error)
    if cure is None and type(error) is TypeError and any(map(_is_list_of_numbers, args)):
        cure = "A list of numbers was given: convert it first, by jnp.asarray(x)."
    if cure is None and type(error) is TypeError:
        cure = _closest_option(str(error))
    if cure is not None:
        error.add_note(cure)


def _closest_option(text: str) -> str | None:
    """What a call may be asked for by a name like the one that forward does not take."""
    result = re.search(r"unexpected keyword argument '(\w+)'", text)
    near = closest(result[1], OPTIONS - {"v"}) if result else None
    return None if near is None else f'Did you mean "{near}", which every call of a module takes?'


def _is_list_of_numbers(value: Any) -> bool:
    """Return True if a plain list, of lists or not, begins with a number."""
    while type(value) in (list, tuple) and value:
        value, within = value[0], True
        if type(value) in (int, float):
            return within
    return False


class _Passed:
    """A module that an exception has passed through; its name within the one that called it, once
    that is known.
    """

    __slots__ = ("module", "name", "shapes")

    def __init__(self, module: CoreModule, shapes: str) -> None:
        self.module, self.shapes, self.name = module, shapes, None


def _told(called: Any, trail: list[_Passed]) -> list[str]:
    """Return one line for each module, the innermost first; of many those at both ends."""
    paths, path = ["the called module"], ""
    for passed in reversed(trail[:-1]):
        name = passed.name if passed.name is not None and path is not None else None
        if name is None:
            location = plan_of(called).modules.get(passed.module)
            path = location.name if location is not None else None
        else:
            path = f"{path}.{name}" if path else name
        paths.append("a module it uses" if path is None else path)
    lines = [
        printable(
            f"in {path} ({type(passed.module).__name__}), called with "
            f"{passed.shapes or 'no arguments'}"
        )
        for passed, path in zip(trail, reversed(paths))
    ]
    if len(lines) <= 2 * _ENDS:
        return lines
    return [*lines[:_ENDS], f"in {len(lines) - 2 * _ENDS} modules between", *lines[-_ENDS:]]


class _Note(str):
    """A note of ours, made again when the exception passes the next module up."""

    __slots__ = ()
