"""Calls inside a foreign compiled function: while a model is watched it runs as another program, which gives what is recorded as well.

The function is traced anew around its own arguments, with the settings that it was given to `jax.jit`; the calls of the model's parts
are seen meanwhile, and leave the program as those of a module of ours do. The program is kept with the function for the next time.
What is called in a loop, a branch or a checkpoint of JAX has no values there that could leave: then the function runs uncompiled.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from nbmodule.base.answering import GO_ON
from nbmodule.base.jax_names import current_trace, is_eager
from nbmodule.core.boxes.frame import Frame, Slot, framed, now, slot_of, take_over
from nbmodule.core.boxes.record import CallInfo
from nbmodule.core.recording.parcel import pack
from nbmodule.interop.beneath import within
from nbmodule.interop.frameworks.function import Path
from nbmodule.interop.slopes import forget

MOST = 8  # programs that are kept of a function
_SETTINGS = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused")
_PLACING = ("in_shardings_leaves", "out_shardings_leaves", "in_layouts_leaves", "out_layouts_leaves")


class CalledPart(NamedTuple):
    """A part of one of the models that are watched, whichever these are."""

    model: int
    path: Path
    kind: str


class Same:
    """A model as part of a key: equal to itself alone, and held by nobody."""

    __slots__ = ("_number", "_reference")

    def __init__(self, model: Any) -> None:
        self._reference, self._number = weakref.ref(model), id(model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._reference() is not None and self._reference() is other._reference()

    def __hash__(self) -> int:
        return self._number


class Unseen(BaseException):
    """A function that was traced has calls whose values cannot leave it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Local(threading.local):
    def __init__(self) -> None:
        self.watched: list[Any] = []  # stand-ins that are open in this thread
        self.tracing: _Tracing | None = None


local = _Local()


class _Tracing:
    """What is met while a program is traced."""

    def __init__(self, models: tuple[Any, ...]) -> None:
        self.models = models
        self.places: dict[Slot, CalledPart] = {}
        self.is_of_these = False  # whether a model was known as the very one that is watched, not as a copy of it


def meet(stand_in: Any, part: Any, path: Path, kind: str, *, is_copy: bool) -> None:
    """A call of a part that may be one of a program that is traced now."""
    tracing = local.tracing
    if tracing is not None and stand_in in tracing.models:
        tracing.places[slot_of(part)] = CalledPart(tracing.models.index(stand_in), path, kind)
        tracing.is_of_these = tracing.is_of_these or not is_copy


# -- a call of a compiled function -------------------------------------------------------------------
def answer(function: Any, settings: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a compiled function gives while a model is watched; `GO_ON` where JAX is to go on."""
    __tracebackhide__ = True
    users = getattr(function, "__module__", "") or ""
    is_users = type(function) is not _Flat and users.partition(".")[0] not in ("jax", "jaxlib", "nbmodule")
    if not jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return function(*args, **kwargs) if is_users and local.tracing is not None else GO_ON
    models = tuple(local.watched)
    if not (is_users and models and now.tracker is not None and now.frame is None and is_eager()):
        return function(*args, **kwargs)
    program = _program_of(function, settings, models)
    why = program.why or _changed()
    if not why:
        try:
            return program.run(args, kwargs, models)
        except Unseen as unseen:
            why = program.why = unseen.why
    _say(models, f"{program.name} ran as it is written, with jax.jit off: {why}")
    return function(*args, **kwargs)


def _changed() -> str:
    """Why nothing may be compiled now."""
    tracker = now.tracker
    while tracker is not None:
        if tracker.replacements or tracker.changes:
            return "a return is replaced"
        if tracker.ready is not None:
            return "a view that only looks on is open"
        tracker = tracker.around()
    return ""


def _say(models: tuple[Any, ...], text: str) -> None:
    for model in models:
        model.ways[text] = None


_programs: dict[
    int, tuple[Any, dict[Any, list[_Program]]]
] = {}  # by the function that JAX has compiled, as long as it is there


def _program_of(function: Any, settings: Any, models: tuple[Any, ...]) -> _Program:
    """The program of a function for what is asked of it now."""
    number = id(function)
    if number not in _programs:
        gone = weakref.ref(function, lambda _: _programs.pop(number, None))
        _programs[number] = (gone, {})
    kept = _programs[number][1]
    stand_ins = {slot_of(each.module): i for i, each in enumerate(models)}
    key = (_apart_from(now.tracker.key, stand_ins), tuple(each.signature for each in models))
    known = kept.pop(key, [])
    fitting = [each for each in known if each.serves(models)]
    if not fitting:
        fitting = [_Program(function, settings, models)]
        known = [*known[1 - MOST :], *fitting]
    kept[key] = known  # the newest stands last
    for old in list(kept)[:-MOST]:
        del kept[old]
    return fitting[0]


def _apart_from(key: Any, stand_ins: dict[Slot, int]) -> Any:
    """What was asked, whichever stand-ins it was asked of."""
    if type(key) is tuple:
        return tuple([_apart_from(each, stand_ins) for each in key])
    return stand_ins.get(key, key) if type(key) is Slot else key


class _Flat:
    """What JAX compiles in place of a function."""

    def __init__(self, program: _Program) -> None:
        self.program, self.__name__ = program, program.name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        __tracebackhide__ = True
        return self.program.traced(args, kwargs)


class _Made:
    """What a program gives: outputs and values, and beside them which calls these are of."""

    __slots__ = ("infos", "outputs", "values")

    def __init__(self, infos: tuple[CallInfo, ...], outputs: Any, values: Any) -> None:
        self.infos, self.outputs, self.values = infos, outputs, values


jax.tree_util.register_pytree_node(
    _Made, lambda made: ((made.outputs, made.values), made.infos), lambda infos, parts: _Made(infos, *parts)
)


class _Program:
    """A function of a framework, compiled with its calls among what it gives.

    Attributes:
        why: Why it cannot be; empty as far as is known.
    """

    def __init__(self, function: Any, settings: Any, models: tuple[Any, ...]) -> None:
        self.function = weakref.ref(function)
        self.name = getattr(function, "__name__", type(function).__name__)
        self.models: tuple[Any, ...] | None = tuple(each.identity for each in models)
        self.is_of_these = False
        self.why = _unfit(settings)
        if not self.why:
            self.compiled = jax.jit(_Flat(self), **{name: getattr(settings, name) for name in _SETTINGS})

    def serves(self, models: tuple[Any, ...]) -> bool:
        """Whether what was traced says the same of these models."""
        return not self.is_of_these or self.models == tuple(each.identity for each in models)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], models: tuple[Any, ...]) -> Any:
        __tracebackhide__ = True
        with jax.disable_jit(False), _tracing(models):
            made = self.compiled(*args, **kwargs)
        if made.infos:
            infos = models[0].found(made.infos, models)
            _say(models, f"{self.name} ran as a compiled function that gives its calls as well")
            take_over(infos, made.values, asked=False)
        return made.outputs

    def traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Made:
        """The function with its calls, while JAX traces it."""
        __tracebackhide__ = True
        function, tracing = self.function(), local.tracing
        assert function is not None
        assert tracing is not None
        with within(current_trace()) as numbers:
            try:
                outputs, infos, values = framed(lambda frame: _body(frame, function, args, kwargs))
            finally:
                forget(numbers)
        if tracing.is_of_these:
            self.is_of_these = True
            if self.models != tuple(each.identity for each in tracing.models):
                self.models = None  # it says something of these, and something of others
        return _Made(tuple([_placed(info, tracing.places) for info in infos]), outputs, values)


def _body(frame: Frame, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    outputs = function(*args, **kwargs)
    if frame.written:
        raise Unseen("a variable of nbmodule is written in it")
    lost = next((info for info in frame.log.infos if info.kept and not info.captured), None)
    if lost is not None:
        raise Unseen(f"{lost.name} is called in a loop, a branch or a checkpoint of JAX")
    return outputs, tuple(frame.log.infos), pack(frame.log.values)


@contextmanager
def _tracing(models: tuple[Any, ...]) -> Iterator[None]:
    before = local.tracing
    try:
        try:
            local.tracing = _Tracing(models)
            yield
        finally:
            local.tracing = before
    finally:  # see `frame.calling`
        local.tracing = before


def _unfit(settings: object) -> str:
    """What keeps a function from being compiled once more with more outputs."""
    given = [leaf for name in _PLACING for leaf in getattr(settings, name, ())]
    if any(leaf is not None and type(leaf).__name__ != "UnspecifiedValue" for leaf in given):
        return "its shardings are given for the outputs that it has"
    if getattr(settings, "device", None) or getattr(settings, "backend", None):
        return "its device is given"
    return ""


def _placed(info: CallInfo, places: dict[Slot, CalledPart]) -> CallInfo:
    return replace(info, module=places.get(info.module, info.module))


def with_parts(
    infos: tuple[CallInfo, ...], models: tuple[Any, ...], part: Callable[[Any, CalledPart], Any]
) -> tuple[CallInfo, ...]:
    """Calls with the parts of the models that are watched this time."""
    return tuple(
        [
            replace(info, module=slot_of(part(models[info.module.model], info.module)))
            if type(info.module) is CalledPart
            else info
            for info in infos
        ]
    )
