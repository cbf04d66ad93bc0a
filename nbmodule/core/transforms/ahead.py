"""What the first trace of a training step would find out, supposed before it, so that one trace does.

The state of an optimizer is made in its first step, so a trace meets boxes that are no inputs of it, and begins again; which
boxes a donated step overwrites is known after a trace alone. Both are supposed here: each optimizer steps once, and trains all
of one model, whose layers do what they do in training. Nothing is taken for granted: the trace tells whether it was so
(`Ahead.check`), before anything is computed. If it was not, the state that was made is forgotten, and the function is traced
as if nothing had been supposed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

import jax

from nbmodule.base.jax_names import is_eager
from nbmodule.core.boxes.frame import now
from nbmodule.core.boxes.variable import Parameter, Variable
from nbmodule.core.numbers import random
from nbmodule.core.shape.building import is_built
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.core.transforms.captured import names_reached

_STEPS = frozenset({"update", "step", "_taken"})  # the methods that take a step, the last one inside an optimizer


class Astray(BaseException):
    """The function does not step as was supposed. Only the call that traces it catches this."""


class Ahead:
    """What is supposed for one call that traces."""

    __slots__ = ("_before", "_begun", "_is_over", "writes")

    def __init__(self) -> None:
        self._begun: list[tuple[Any, Any]] = []  # optimizers that were given state, and what tells it from other state
        self._before: dict[int, tuple[Any, Any]] = {}  # optimizers as they were, whatever a trace makes of them
        self.writes: set[Variable] = set()  # boxes that are overwritten, as far as is supposed
        self._is_over = False

    def look(self, fn: Callable[..., Any], things: list[Any]) -> list[Any]:
        """Suppose what `fn` does with these things, in place of what was supposed before; gives what more it will meet."""
        for optimizer in _optimizers(things):
            if id(optimizer) not in self._before:
                self._before[id(optimizer)] = optimizer, optimizer._as_it_is()
        disabled = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue] - then nothing is traced
        if self._is_over or disabled or now.frame is not None or not is_eager():
            return []
        self._take_back()
        for optimizer, model in _steps_of(fn, things):
            with suppress(Exception):  # what is wrong is said by the step itself, if it is this one
                mark = optimizer._begin_ahead(model)
                if mark is not None:
                    self._begun.append((optimizer, mark))
                self.writes.update((*optimizer._written_by_update(model), *_moved_in_training(model)))
        box = random.default.state
        return [box] if box in self.writes and all(thing is not box for thing in things) else []

    def note_given(self, optimizers: list[Any]) -> None:
        """These had no state, and were given that of a first step, as a program that is taken over has it."""
        self._before |= {id(optimizer): (optimizer, optimizer._as_it_is(is_fresh=True)) for optimizer in optimizers}

    def check(self, written: Collection[Variable]) -> None:
        """After a trace, before anything is computed: has it used the state that was made for it, and all of it?"""
        if not all(optimizer._has_used_state(written) for optimizer, _ in self._begun):
            raise Astray

    def is_open(self) -> bool:
        """Whether state was made that no trace has used yet."""
        return bool(self._begun)

    def put_back(self) -> None:
        """The call has raised: optimizers are as they were before it, unless they have taken a step."""
        for optimizer, mark in self._before.values():
            optimizer._put_back(mark)

    def keep(self) -> None:
        """The trace has used it."""
        self._begun.clear()

    def give_up(self) -> None:
        """Suppose nothing any more."""
        self._is_over = True
        self._take_back()

    def _take_back(self) -> None:
        self.writes.clear()
        while self._begun:
            optimizer, mark = self._begun.pop()
            optimizer._forget_ahead(mark)


def _optimizers(things: list[Any]) -> list[Any]:
    return [thing for thing in things if hasattr(type(thing), "_written_by_update")]


def _steps_of(fn: Callable[..., Any], things: list[Any]) -> Iterator[tuple[Any, Any]]:
    optimizers = _optimizers(things)
    if not optimizers or names_reached(fn).isdisjoint(_STEPS):
        return
    models = [thing for thing in things if is_module(thing)]
    parts = {id(part) for model in models for part in plan_of(model).modules if part is not model}
    models = [model for model in models if id(model) not in parts and _may_be_trained(model)]
    if not models or not all(map(is_built, models)):
        return
    for i, optimizer in enumerate(optimizers):
        yield optimizer, models[min(i, len(models) - 1)]


def _may_be_trained(model: Any) -> bool:
    """Whether there are parameters that are not frozen, or whether none can be there yet."""
    return not is_built(model) or any(isinstance(box, Parameter) and not box._frozen for box in plan_of(model).boxes)


def _moved_in_training(model: Any) -> Iterator[Variable]:
    """What the layers write when they are called in training: statistics of batches, and the streams that they draw from."""
    for module in plan_of(model).modules:
        kind, own = type(module), vars(module)
        if module._nbm.training:
            names = getattr(kind, "_state_names", ())
            yield from (box for name in names if isinstance(box := own.get(name), Variable))
        stream = module._moved_stream if hasattr(kind, "_moved_stream") else None
        if stream is not None and isinstance(stream.state, Variable):  # and not exported
            yield stream.state
