"""Pickles and copies of what another thread trains: all values are those of one moment, between two steps.

A pickler asks for one object after the other, and tells nobody when it has come to the end. But it holds what `__reduce_ex__`
returned until all that is in it has been written. So the values of the moment hang on that tuple, and boxes that are pickled
meanwhile find them there.
"""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from nbmodule.base.jax_names import is_eager
from nbmodule.core.boxes.frame import framed, now
from nbmodule.core.boxes.handing import own_values, snapshot

_CHECKERS = ("beartype", "jaxtyping")  # of types, whose calls stand around a method
_PICKLER: Any = getattr(pickle, "_Pickler", ())


class _Moment:
    """What boxes held at a moment, for one call of a pickler."""

    __slots__ = ("__weakref__", "_asked_from", "parts", "values")

    def __init__(self, plan: Any) -> None:
        self.parts, self._asked_from = plan.modules, _asked_from()
        boxes = own_values(plan.boxes)
        self.values = {box: value for box in boxes if (value := _known(box)) is not None}
        rest = [box for box in boxes if box not in self.values]
        self.values.update(zip(rest, snapshot(rest)))

    def is_under_way(self) -> bool:
        """Whether the call goes on: an exception that somebody looks at, or a name, may hold what one that is over was given."""
        if self._asked_from is None:
            return True
        depth, code, step = self._asked_from
        frames = _frames()
        frame = frames[-depth] if depth <= len(frames) else None
        return frame is not None and frame.f_code is code and step in (None, frame.f_lasti)


class _Reduced(tuple):
    """What `__reduce_ex__` returns, and the moment at which it was read."""

    moment: _Moment


class _Moments(threading.local):
    def __init__(self) -> None:
        self.references: list[weakref.ref[_Moment]] = []

    def under_way(self) -> Iterator[_Moment]:
        """Those of this thread, the outermost first."""
        if self.references:
            self.references = [each for each in self.references if each() is not None]
        for reference in self.references:
            moment = reference()
            if moment is not None and moment.is_under_way():
                yield moment


_moments = _Moments()


def reduced_at_one_moment(
    thing: Any, plan_of: Callable[[Any], Any], reduce: Callable[[], tuple[Any, ...] | str]
) -> Any:
    """What `thing.__reduce_ex__` returns: `reduce()`, read at one moment, and so are its boxes until it has been written.

    Args:
        thing: A module or an optimizer.
        plan_of: Gives its walk.
        reduce: Describes it for a pickler.
    """
    if now.frame is not None or not is_eager() or any(thing in moment.parts for moment in _moments.under_way()):
        return reduce()
    moment = _Moment(plan_of(thing))
    described = framed(lambda _: reduce(), moment.values.items())
    if isinstance(described, str):  # the name of something that there is one of
        return described
    found = _Reduced(described)
    found.moment = moment
    _moments.references.append(weakref.ref(moment))
    return found


def value_to_copy(box: Any) -> Any:
    """The value with which a box is pickled or copied."""
    if now.frame is not None or not is_eager() or not own_values((box,)):
        return box.value
    known = _known(box)
    return snapshot((box,))[0] if known is None else known


def _known(box: Any) -> Any:
    """The value of a moment that is under way; None where there is none."""
    return next((moment.values[box] for moment in _moments.under_way() if box in moment.values), None)


def _asked_from() -> tuple[int, CodeType, int | None] | None:
    """The place of a pickler or copier that is written in Python; else of the call of the one in C. None if there is neither.

    A place is told by its depth, its code and the step at which it stands: the objects for frames come and go.
    """
    found, was_asked, frames = None, False, _frames()
    for i, frame in enumerate(frames):
        code, depth = frame.f_code, len(frames) - i
        if code is copy.deepcopy.__code__ or (
            code.co_name == "save" and isinstance(frame.f_locals.get("self"), _PICKLER)
        ):
            return depth, code, None
        if was_asked and frame.f_globals.get("__name__", "").partition(".")[0] in _CHECKERS:
            continue
        found, was_asked = (depth, code, frame.f_lasti) if was_asked else found, code.co_name == "__reduce_ex__"
    return found


def _frames() -> list[FrameType]:
    """The calls that are under way in this thread, the innermost first."""
    found, frame = [], sys._getframe(1).f_back
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found
