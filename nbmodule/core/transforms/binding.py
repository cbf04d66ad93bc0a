"""A program together with the function and the things it is to run on now: the steady state of a compiled call.

A binding never changes once it is made, so that threads may share a compiled function: check a few integers and
identities, gather the arrays, call, put the new ones into their boxes.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, tee
from operator import attrgetter, is_, itemgetter
from threading import get_ident
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.foreign import is_native
from nbmodule.base.jax_names import is_eager, outside_traces
from nbmodule.core.boxes.clock import clock, ticks
from nbmodule.core.boxes.commit import targets_of
from nbmodule.core.boxes.frame import Missed, now, take_over, write_all
from nbmodule.core.boxes.handing import Cold, handed_over, held_back, new_values, readers
from nbmodule.core.boxes.layout import join
from nbmodule.core.boxes.pending import draw_lock
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.walk import MOST_KEPT, are_same, lists_hold, plan_of
from nbmodule.tree.expression import settle as settle_expressions

if TYPE_CHECKING:
    from nbmodule.core.transforms.closure import Closure

_value = attrgetter("_value")
chain_all = chain.from_iterable
SLOW: Any = object()  # the steady state does not hold: take the long way


class MadeFacts(list):
    """What the values and records of a `Made` are: a node without leaves.

    It is a list only so that the sum of it and of no leaves, which is how JAX makes it again, is the very same object.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MadeFacts) and tuple(self) == tuple(other)

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] - static data is hashed, and this list is filled once
        return hash(tuple(self))


class Made(tuple):
    """What a compiled function returns if it had effects; without any it returns its outputs alone.

    It is outputs, new values, records, and facts: the place of each value (the number of a box that is an input, else a
    slot), the calls that the records are of, and the structures of outputs and records where these are leaves. JAX makes it without
    running any Python: after a donated step no interrupt may come before the values are placed.
    """

    __slots__ = ()


jax.tree_util.register_pytree_node(Made, lambda made: (tuple(made), Made), operator.call)  # pyright: ignore[reportArgumentType] - in C: not to be interrupted
jax.tree_util.register_pytree_node(MadeFacts, lambda facts: ((), facts), operator.iconcat)  # pyright: ignore[reportArgumentType]
Aim = tuple[Any, Any, Any, bool]
"""The facts of a program, what a commit of its values sets (objects, and the attribute of each), and whether that is all."""
NO_AIM: Aim = (None, (), (), False)
_NOTHING_KEPT: tuple[int, list[Any]] = (-1, [])


def boxes_of(thing: Any) -> tuple[Variable, ...]:
    return (thing,) if isinstance(thing, Variable) else plan_of(thing).boxes


class Binding:
    """The program of a closure, bound to the things among the arguments and to what the closure has captured.

    It holds boxes, not modules. When one of the things is gone, the boxes are let go.
    """

    __slots__ = (
        "__weakref__",
        "aim",
        "boxes",
        "called",
        "closure",
        "codes",
        "compiled",
        "donated",
        "epoch",
        "kept",
        "lists",
        "module_lists",
        "pick_donated",
        "pick_kept",
        "program",
        "seen",
        "things",
    )

    def __init__(self, closure: Closure, things: list[Any], captured: list[Any]) -> None:
        self.closure, self.program = closure, closure.program
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
        modules += [module for reference, _ in closure.watched if (module := reference()) is not None]
        plans = [plan_of(module) for module in modules]
        self.module_lists = [pair for plan in plans for pair in plan.lists]
        watched = [pair for plan in plans for pair in plan.watched]
        self.lists = [
            (live.values(), tuple(then.values())) if type(then) is dict else (live, tuple(then))
            for live, then in watched
        ]
        self.codes = closure.watch.codes
        self.seen = -1
        self.kept = _NOTHING_KEPT  # the arrays of the last call, and the tick of the clock at which they were read
        self.aim = NO_AIM
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
        self.kept = _NOTHING_KEPT
        self.boxes.clear()

    def holds(self, things: tuple[Any, ...]) -> bool:
        """Whether nothing has changed since the binding was made, for these very things."""
        if self.epoch != clock.structure:
            return False
        for reference, thing in zip(self.things, things):
            if reference() is not thing:
                return False
        if not lists_hold(self.module_lists):
            return False
        for live, then in self.lists:
            if len(live) != len(then) or not all(map(is_, live, then)):
                return False
        for fn, code in self.codes:
            if fn.__code__ is not code:
                return False
        return self.closure.alive and self.closure.watch.is_bound()

    def values(self) -> list[Any]:
        boxes = self.boxes
        return list(map(_value, boxes)) if now.frame is None else [box.value for box in boxes]

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the compiled function and commit its effects; outputs may be packed."""
        outermost = now.frame is None and is_eager()
        if self.donated and outermost:
            return self._run_donated(args, kwargs)
        values = self.values()
        given = (self.pick_donated(values), self.pick_kept(values)) if self.program.donates else (values,)
        with self.called_cold():
            made = (self.compiled if outermost else self.program.inner)(*given, *args, **kwargs)
        return self._taken(made)

    def _run_donated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a function that overwrites what it is given: as one act, or while it is new, with signals held back."""
        program = self.program
        if readers.reading:
            readers.wait()
        readers.writers.add(get_ident())
        values = list(map(_value, self.boxes))
        if self.seen != clock.values:
            settle_expressions()  # unfinished arithmetic on a `v` may still want what is about to be overwritten
            values = unaliased(values, self.donated)
        donated, kept = self.pick_donated(values), self.pick_kept(values)
        compiled = partial(self.compiled, **kwargs) if kwargs else self.compiled
        if program.is_warm:
            with suppress(Cold):
                return self._finished(self._handed_over(compiled, donated, kept, args))
        with held_back(donated), self.called_cold():
            made = None
            if program.is_even:
                with suppress(Cold):  # it turns out to write this for arguments of one shape and that for others
                    made = self._handed_over(compiled, donated, kept, args)
            outputs = self._taken(compiled(donated, kept, *args)) if made is None else self._finished(made)
        program.note_warm()
        return outputs

    def _handed_over(self, compiled: Any, donated: Any, kept: Any, args: tuple[Any, ...]) -> Any:
        if self.aim is NO_AIM:
            self.aim = self._aimed(self.program.facts)
        with self.being_called():
            return handed_over(compiled, donated, kept, tuple(zip(args)), self.aim[1], self.aim[2])

    def _aimed(self, facts: Any) -> Aim:
        """What a commit of values with these facts sets; none if some belong to boxes that are no inputs."""
        if facts is None or not all(type(place) is int for place in facts[0]):
            return NO_AIM
        return (facts, *targets_of([self.boxes[place] for place in facts[0]]), not facts[1] and facts[2] is None)

    @contextmanager
    def being_called(self) -> Iterator[None]:
        """While the compiled function is called: these are the things to trace it with."""
        running = now.programs
        depth = len(running)
        try:
            try:
                running.append(self)
                yield
            finally:
                del running[depth:]
        finally:  # see `frame.calling`
            del running[depth:]

    @contextmanager
    def called_cold(self) -> Iterator[None]:
        """While it is called and may be traced."""
        before = now.cold
        try:
            try:
                now.cold = self.program
                with self.being_called():
                    yield
            finally:
                now.cold = before
        finally:
            now.cold = before

    def steady(self, kinds: tuple[Any, ...], plain: set[type]) -> Callable[[tuple[Any, ...]], Any]:
        """The call of the steady state, for arguments of these kinds, outside of all frames; `SLOW` where it does not hold.

        It is one function with all it needs at hand: each look-up that is saved here counts, at ten leaves a tenth of the call.
        """
        program, compiled, boxes, things = self.program, self.compiled, self.boxes, self.things
        closure, own, watch = self.closure, weakref.ref(self), self.closure.watch
        module_lists, lists, codes, bindings = self.module_lists, self.lists, self.codes, watch.bindings
        cells, sequences, paths, defaults = watch.cells, watch.sequences, watch.paths, watch.defaults
        name_kinds, cell_kinds, kinds_inside = watch.name_kinds, watch.cell_kinds, watch.kinds
        donates, donated = program.donates, self.donated
        pick_donated, pick_kept = self.pick_donated, self.pick_kept
        count, holes = len(kinds), [(i, things[hole]) for i, hole in enumerate(kinds) if hole is not None]
        # What most functions have none of is asked for at once. It is fixed when the closure is made, and only ever let go.
        has_more = any((lists, sequences, name_kinds, kinds_inside, defaults, paths))
        keeps = not donates and self.aim is NO_AIM and self._may_keep()

        def is_more_as_it_was() -> bool:
            for live, then in lists:
                if len(live) != len(then) or not all(map(is_, live, then)):
                    return False
            for sequence, values in sequences:
                if list(map(id, sequence)) != values:
                    return False
            for names, name, kind in name_kinds:
                if type(names.get(name)) is not kind:
                    return False
            for live, kinds_then in kinds_inside:
                if list(map(type, live)) != kinds_then:
                    return False
            for fn, given, named in defaults:
                if fn.__defaults__ is not given or fn.__kwdefaults__ is not named:
                    return False
            for path in paths:
                if not path.leads():
                    return False
            return True

        def call(args: tuple[Any, ...]) -> Any:
            __tracebackhide__ = True
            if self.epoch != clock.structure or len(args) != count or not closure.alive:
                return SLOW
            given: Any = args
            if holes:
                given = [*args]
                for i, thing in holes:
                    if thing() is not given[i]:
                        return SLOW
                    given[i] = None
            for arg in given:
                if type(arg) not in plain and not is_native(arg):
                    return SLOW
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
            except Exception:  # something else than a module was put in, or a cell was emptied
                if are_same(module_lists) and all(map(_is_full, cells)) and all(map(_is_full, cell_kinds)):
                    raise  # none of these: an exception of a signal
                return SLOW
            for fn, code in codes:
                if fn.__code__ is not code:
                    return SLOW
            for names, name, value in bindings:
                if id(names.get(name)) != value:
                    return SLOW
            if has_more and not is_more_as_it_was():
                return SLOW
            program.current = own
            try:
                if donates:
                    aim = self.aim
                    if (
                        not program.is_warm or aim is NO_AIM or not is_eager()
                    ):  # a raw transform may not have the memory
                        return SLOW
                    if readers.reading:
                        readers.wait()
                    readers.writers.add(get_ident())
                    values = list(map(_value, boxes))
                    if self.seen != clock.values:
                        settle_expressions()
                        values = unaliased(values, donated)
                    # As `handed_over`, which is not called: that would be a fiftieth of a small step.
                    made, again = tee(map(compiled, (pick_donated(values),), (pick_kept(values),), *zip(given)))
                    any(map(setattr, aim[1], aim[2], chain(chain_all(map(new_values, made)), ticks)))
                    made = next(again)
                    if made[3] is not aim[0] or not aim[3]:
                        return self._finished(made)
                    self.seen = clock.values
                    return made[0]
                tick, values = self.kept
                if tick != clock.values:
                    tick = clock.values  # before the values: another thread may place new ones
                    values = list(map(_value, boxes))  # held until the new ones are in place, see `core/commit.py`
                    if keeps and is_eager():
                        self.kept = tick, values
                made = compiled(values, *given)
            except (Missed, Cold):  # arguments of another shape have met another variable, or are yet unknown to JAX
                return SLOW
            if type(made) is not Made:
                return made
            aim = self.aim
            if made[3] is not aim[0] or not aim[3]:
                return self._taken(made)
            if not is_eager():  # inside a raw transform of JAX: the long way says what may not be written
                return SLOW
            any(map(setattr, aim[1], aim[2], chain(made[1], ticks)))
            self.seen = clock.values
            return made[0]

        return call

    def _may_keep(self) -> bool:
        """Whether arrays that were read may be used again until any value changes: they are few bytes, and none is asked for anew."""
        if any(hasattr(type(box), "ask") for box in self.boxes):
            return False
        return sum(box.nbytes for box in self.boxes) <= MOST_KEPT

    def _taken(self, made: object) -> Any:
        """Commit what a compiled function has returned; gives its outputs."""
        if type(made) is not Made:
            return made
        _, values, _, facts = made
        boxes, places = self.boxes, facts[0]
        if facts is self.aim[0] and now.frame is None and is_eager():
            any(map(setattr, self.aim[1], self.aim[2], chain(values, ticks)))
            return self._finished(made)
        targets = [boxes[place] if type(place) is int else place() for place in places]
        alive = [i for i, box in enumerate(targets) if box is not None]
        write_all([targets[i] for i in alive], [values[i] for i in alive])
        return self._finished(made)

    def _finished(self, made: Made) -> Any:
        """After the values are placed: hand on the records, and give the outputs."""
        outputs, values, records, facts = made
        _, infos, tree, tree_of_records = facts
        if values and now.frame is None and is_eager():
            self.seen = clock.values
            if facts is not self.aim[0]:
                self.aim = self._aimed(facts)
        if infos:
            records = records if tree_of_records is None else jax.tree.unflatten(tree_of_records, records)
            if self.called[0] is not infos:
                called = self.program.found(infos, [reference() for reference in self.things])
                self.called = (infos, called, any(info.request is not None for info in called))
            take_over(self.called[1], records, asked=self.called[2])
        return outputs if tree is None else jax.tree.unflatten(tree, outputs)


def _is_full(known: tuple[Any, Any]) -> bool:
    """Whether a cell, the first of a pair, still holds anything."""
    try:
        return known[0].cell_contents is not known
    except ValueError:
        return False


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
