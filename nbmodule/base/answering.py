"""Calls of functions that `jax.jit` has made, asked of somebody else: a model of another framework is watched inside its compiled step.

All that it stands on is private to JAX, and tried out once by `can_answer`: where that fails nobody is asked.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from nbmodule.base.jax_names import call_places, jit_state, jit_switch, make_user_context, pjit

_switch_kind: Any = getattr(jit_state, "_Config", None)
_set_switch: Any = getattr(jit_state, "set_disable_jit_state", None)
_own: dict[str, Any] = {name: getattr(pjit, name, None) for name in call_places}
_asked_anew = make_user_context(None)
_answering: dict[object, None] = {}  # blocks that are open
_lock = threading.Lock()

GO_ON = object()
"""Answer to a call that JAX is to carry out as ever."""


class _Answered:
    """Stands for the program of a call that was answered; it has neither effects nor constants."""

    effects = consts = ()

    def __init__(self, outputs: Any) -> None:
        self.outputs = outputs


@functools.cache
def _never() -> Any:
    return _switch_kind("nbmodule_never", False, include_in_jit_key=False, include_in_trace_context=False)


@contextmanager
def answering(answer: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """While the block runs, calls of compiled functions in this thread are asked of `answer(function, settings, args, kwargs)`.

    It gives the outputs, or `GO_ON`. It is asked under `jax.disable_jit` too, and then has to call the function itself; there are the
    calls from other threads among these. All blocks that are open at a time give the same `answer`.
    """
    block, before = object(), _asked_anew.value
    try:
        try:
            with _lock:
                _answering[block] = None
                _set_switch(_never())  # what was compiled asks it, and would call the function without asking anybody
                for name in call_places:
                    setattr(pjit, name, functools.partial(_ways[name], answer))
            _asked_anew(1).__enter__()
            yield
        finally:
            _stop(block, before)
    finally:  # again: an interrupt may have come before the first time
        _stop(block, before)


def _stop(block: object, before: object) -> None:
    _asked_anew(before).__enter__()  # its `__exit__` would be called once, and an interrupt may come in it
    with _lock:
        _answering.pop(block, None)
        if not _answering:
            for name, own in _own.items():
                setattr(pjit, name, own)
            _set_switch(jit_switch)


def _inferred(answer: Any, function: Any, settings: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    if sys._getframe(1).f_code.co_name != "cache_miss":  # `lower` and its like
        return _own["_infer_params"](function, settings, args, kwargs)
    outputs = answer(function, settings, args, kwargs)
    if outputs is not GO_ON:
        return _Answered(outputs), []
    with _asked_anew(None):  # as it was compiled before
        return _own["_infer_params"](function, settings, args, kwargs)


def _run(_: Any, found: Any, *call: Any) -> Any:
    __tracebackhide__ = True
    if type(found) is _Answered:
        return _as_run(found)
    with _asked_anew(None):
        return _own["_run_python_pjit"](found, *call)


def _inferred_and_run(answer: Any, function: Any, settings: Any, /, *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    outputs = answer(function, settings, args, kwargs)
    if outputs is not GO_ON:
        return _as_run(_Answered(outputs))
    with _asked_anew(None):
        return _own["_python_pjit_helper"](function, settings, *args, **kwargs)


def _as_run(answered: _Answered) -> Any:
    return answered.outputs, [], None, [], answered, None, None, []


_ways = {"_infer_params": _inferred, "_run_python_pjit": _run, "_python_pjit_helper": _inferred_and_run}


def is_answering() -> bool:
    """Whether a block of `answering` is open, in any thread."""
    return bool(_answering)


@functools.cache
def can_answer() -> bool:
    """Whether `answering` works with this JAX: tried out on a function that is never compiled."""
    if None in (pjit, jit_switch, _switch_kind, _set_switch, *_own.values()):
        return False

    def tried(x: object) -> Any:
        return x

    called: Any = jax.jit(tried)
    try:
        with answering(lambda function, *_: "answered" if function is tried else GO_ON), jax.disable_jit():
            return (called(1), called(1)) == ("answered", "answered")
    except (TypeError, ValueError, AttributeError):
        return False
