"""A program together with the things it is to run on now: the steady state of a compiled call.

A binding never changes once it is made, so that threads may share a compiled function: check a few integers and
identities, gather the arrays, call, put the new ones into their boxes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from nbmodule.base.jax_names import is_eager, outside_traces
from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.frame import Effects, Missed, now, take_over, write
from nbmodule.core.boxes.layout import join
from nbmodule.core.boxes.pending import draw_lock
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.walk import plan_of
from nbmodule.tree.expression import settle as settle_expressions

if TYPE_CHECKING:
    from nbmodule.core.transforms.program import Program

_value = attrgetter("_value")
SLOW: Any = object()  # the steady state does not hold: take the long way


class Made(NamedTuple):
    """What a compiled function returns if it had effects; without any it returns its outputs alone."""

    outputs: Any
    effects: Any


def boxes_of(thing: Any) -> tuple[Variable, ...]:
    return (thing,) if isinstance(thing, Variable) else plan_of(thing).boxes


class Binding:
    """`program`, bound to the things among the arguments and to what it has captured.

    It holds boxes, not modules. When one of the things is gone, the boxes are let go.
    """

    __slots__ = (
        "__weakref__", "bindings", "boxes", "called", "cells", "codes", "compiled", "donated", "epoch", "lists", "module_lists",
        "pick_donated", "pick_kept", "program", "seen", "sequences", "things",
    )  # fmt: skip

    def __init__(self, program: Program, things: list[Any], captured: list[Any]) -> None:
        self.program = program
        self.epoch = clock.structure
        boxes: dict[Variable, None] = {}
        for thing in (*things, *captured):
            boxes.update(dict.fromkeys(boxes_of(thing)))
        self.boxes = list(boxes)
        settle(self.boxes)
        join(self.boxes)
        forget = weakref.WeakMethod(self._forget)
        self.things = tuple(weakref.ref(thing, lambda _: (call := forget()) and call()) for thing in things)
        modules = [thing for thing in (*things, *captured) if not isinstance(thing, Variable)]
        modules += [module for reference, _ in program.watched if (module := reference()) is not None]
        plans = [plan_of(module) for module in modules]
        self.module_lists = [pair for plan in plans for pair in plan.lists]
        watched = [pair for plan in plans for pair in plan.watched]
        self.lists = [
            (live.values(), tuple(then.values())) if isinstance(live, dict) else (live, tuple(then))
            for live, then in watched
        ]
        watch = program.watch
        self.codes, self.bindings, self.cells, self.sequences = (
            watch.codes,
            watch.bindings,
            watch.cells,
            watch.sequences,
        )
        self.seen = -1
        self.called: tuple[Any, Any, bool] = (
            (),
            (),
            False,
        )  # records of the program, with the modules that these things are
        self.refresh()

    def refresh(self) -> None:
        """Take over what the program has learned about donation."""
        program = self.program
        self.compiled, self.donated = program.compiled, program.donated
        donated = set(self.donated)
        self.pick_donated = _picker(self.donated)
        self.pick_kept = _picker([i for i in range(len(self.boxes)) if i not in donated])

    def _forget(self) -> None:
        """One of the things is gone: let go of all boxes."""
        self.epoch = -1
        self.boxes.clear()

    def holds(self, things: tuple[Any, ...]) -> bool:
        """Whether nothing has changed since the binding was made, for these very things."""
        if self.epoch != clock.structure:
            return False
        for reference, thing in zip(self.things, things):
            if reference() is not thing:
                return False
        try:
            for live, then in self.module_lists:
                if live != then:
                    return False
        except Exception:  # noqa: BLE001 - something else than a module was put in, whose comparison fails
            return False
        for live, then in self.lists:
            if len(live) != len(then) or not all(map(is_, live, then)):
                return False
        for fn, code in self.codes:
            if fn.__code__ is not code:
                return False
        return self.program.alive and self.program.watch.is_bound()

    def values(self) -> list[Any]:
        boxes = self.boxes
        return list(map(_value, boxes)) if now.frame is None else [box.value for box in boxes]

    def run(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call the compiled function and commit its effects; outputs may be packed."""
        boxes, donated = self.boxes, ()
        values: Any = self.values()
        outermost = now.frame is None and is_eager()
        if self.donated:
            if outermost and self.seen != clock.values:
                settle_expressions()  # unfinished arithmetic on a `v` may still want what is about to be overwritten
                values = unaliased(values, self.donated)
            donated, values = self.pick_donated(values), self.pick_kept(values)
        running = now.programs
        running.append(self)
        try:
            given = (donated, values) if self.program.donates else (values,)
            run = self.compiled if outermost else self.program.inner
            made = run(*given, *args, **kwargs)
        finally:
            running.pop()
        if type(made) is not Made:
            return made
        outputs, effects = made
        if type(effects) is not dict:
            return self._commit(outputs, effects)
        if not outermost:
            for i, value in effects.items():
                write(boxes[i], value)
        else:
            for i, value in effects.items():
                boxes[i]._value = value
            clock.value_changed()
            self.seen = clock.values
        return outputs

    def steady(self, kinds: tuple[Any, ...], plain: set[type]) -> Callable[[tuple[Any, ...]], Any]:
        """The call of the steady state, for arguments of these kinds, outside of all frames; `SLOW` where it does not hold.

        It is one function with all it needs at hand: each look-up that is saved here counts, at ten leaves a tenth of the call.
        """
        program, compiled, boxes, things = self.program, self.compiled, self.boxes, self.things
        module_lists, lists, codes, bindings = self.module_lists, self.lists, self.codes, self.bindings
        cells, sequences = self.cells, self.sequences
        name_kinds, cell_kinds, kinds_inside = program.watch.name_kinds, program.watch.cell_kinds, program.watch.kinds
        donates, donated = program.donates, self.donated
        pick_donated, pick_kept = self.pick_donated, self.pick_kept
        count, holes = len(kinds), [hole for hole in kinds if hole is not None]

        def call(args: tuple[Any, ...]) -> Any:
            __tracebackhide__ = True
            if self.epoch != clock.structure or len(args) != count or not program.alive:
                return SLOW
            number = 0
            for arg, hole in zip(args, kinds):
                if hole is None:
                    if type(arg) not in plain:
                        return SLOW
                elif things[number]() is not arg:
                    return SLOW
                else:
                    number += 1
            try:
                for live, then in module_lists:
                    if live != then:
                        return SLOW
                for cell, value in cells:
                    if id(cell.cell_contents) != value:
                        return SLOW
                for cell, kind in cell_kinds:
                    if type(cell.cell_contents) is not kind:
                        return SLOW
            except Exception:  # noqa: BLE001 - something else than a module was put in, whose comparison fails
                return SLOW
            for live, then in lists:
                if len(live) != len(then) or not all(map(is_, live, then)):
                    return SLOW
            for fn, code in codes:
                if fn.__code__ is not code:
                    return SLOW
            for names, name, value in bindings:
                if id(names.get(name)) != value:
                    return SLOW
            for sequence, values in sequences:
                if list(map(id, sequence)) != values:
                    return SLOW
            for names, name, kind in name_kinds:
                if type(names.get(name)) is not kind:
                    return SLOW
            for live, kinds_then in kinds_inside:
                if list(map(type, live)) != kinds_then:
                    return SLOW
            if holes:
                args = tuple([arg if hole is None else None for arg, hole in zip(args, kinds)])
            program.current = self
            try:
                if not donates:
                    made = compiled(list(map(_value, boxes)), *args)
                elif not is_eager():  # inside a raw transform of JAX, which may not have the memory
                    return SLOW
                else:
                    values = list(map(_value, boxes))
                    if self.seen != clock.values:
                        settle_expressions()
                        values = unaliased(values, donated)
                    made = compiled(pick_donated(values), pick_kept(values), *args)
            except Missed:  # arguments of another shape have met another variable
                return SLOW
            if type(made) is not Made:
                return made
            outputs, effects = made
            if type(effects) is not dict:
                return self._commit(outputs, effects)
            if not is_eager():  # inside a raw transform of JAX: the long way says what may not be written
                return SLOW
            for i, value in effects.items():
                boxes[i]._value = value
            clock.value_changed()
            self.seen = clock.values
            return outputs

        return call

    def _commit(self, outputs: Any, effects: Effects) -> Any:
        """Effects that are more than writes to known boxes."""
        names, infos = effects.names
        boxes, eager = self.boxes, now.frame is None and is_eager()
        for name, value in zip(names, effects.values):
            if eager and type(name) is int:
                boxes[name]._value = value
                continue
            box = boxes[name] if type(name) is int else name()
            if box is not None and not eager:
                write(box, value)
            elif box is not None:
                box.place(value)
        if eager and names:
            clock.value_changed()
            self.seen = clock.values
        if infos:
            if self.called[0] is not infos:
                called = self.program.found(infos, [reference() for reference in self.things])
                self.called = (infos, called, any(info.request is not None for info in called))
            take_over(self.called[1], effects.records, asked=self.called[2])
        return outputs


def _picker(indices: Any) -> Callable[[list[Any]], Any]:
    indices = tuple(indices)
    if not indices:
        return lambda values: ()
    if len(indices) == 1:
        return lambda values, i=indices[0]: (values[i],)
    return itemgetter(*indices)


def settle(boxes: list[Variable]) -> None:
    """Draw what is still pending, and put it on its device, all in one go. A draw may settle another box that it looks at."""
    pending = [box for box in boxes if box.is_pending]
    if len(pending) == 1:
        pending[0].settled()
    elif pending:
        with draw_lock, outside_traces():
            plain = [box for box in pending if box.is_pending and box._pending.device is None and box._home is None]
            drawn = [(box, box.drawn()) for box in plain if box.is_pending]
            arrays = jax.device_put([value for _, value in drawn])
            for (box, _), array in zip(drawn, arrays):
                if box.is_pending:
                    box._value = array
                    del box._pending
        for box in pending:
            box.settled()


def unaliased(values: list[Any], donated: tuple[int, ...]) -> list[Any]:
    """The same values, with a copy for each donated array that stands in another slot as well."""
    count: dict[int, int] = {}
    for value in values:
        count[id(value)] = count.get(id(value), 0) + 1
    if len(count) == len(values):
        return values
    values = list(values)
    for i in donated:
        if count[id(values[i])] > 1:
            count[id(values[i])] -= 1
            values[i] = jax.numpy.copy(values[i])
    return values
