"""The call of a program: check the guards, gather the arrays, call, commit.

An `Entry` is what a function needs for objects of one structure: guards, and a program for each shape
of the arguments. A `Binding` is an entry with the objects of one call. Its `steady` function is the
whole of a call that nothing has changed; plain, donated and tracked calls share it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, tee
from operator import attrgetter, is_, itemgetter
from threading import get_ident
from typing import Any

import jax

from nbmodule.base.foreign import is_native
from nbmodule.base.jax_names import is_eager, outside_traces
from nbmodule.core.compiled.capture import Guards
from nbmodule.core.compiled.cells import cells
from nbmodule.core.compiled.key import CallArguments, aval_of, signature_of
from nbmodule.core.compiled.program import Traced, TraceFacts, of_these
from nbmodule.core.structure.walk import MOST_KEPT, are_same, is_module, lists_hold, plan_of
from nbmodule.core.transforms.carried import Packed, boxes_of, sharing_of, unpacked
from nbmodule.core.variables.clock import clock, ticks
from nbmodule.core.variables.commit import targets_of
from nbmodule.core.variables.donation import Cold, held_back, readers
from nbmodule.core.variables.frame import Missed, now, take_over, write_all
from nbmodule.core.variables.layout import join
from nbmodule.core.variables.pending import draw_lock
from nbmodule.core.variables.variable import Variable

SLOW: Any = object()
"""Returned by a steady call that does not apply."""
_value = attrgetter("_value")
_new_values = itemgetter(1)
_chain = chain.from_iterable
_LOST = (LookupError, AttributeError, TypeError, ValueError, ReferenceError)


class Entry:
    """What a function needs to be called with objects of one structure.

    Args:
        captured: Stateful objects from the surrounding code.
        things: Those among the arguments.
        guards: Where the captured ones stand.
    """

    def __init__(self, captured: list[Any], things: list[Any], guards: Guards) -> None:
        self.guards, self.count = guards, len(captured)
        self.signatures = tuple(map(signature_of, captured))
        self.sharing = sharing_of([*things, *captured])
        self.cell = cells.tick
        self.traced: dict[Any, Traced] = {}
        self.inner: dict[Any, Any] = {}
        """For calls inside other transforms: a `jax.jit` for each form of the arguments."""

    def resolve(self, things: list[Any]) -> list[Any] | None:
        """Return what is captured now; None if the function must be traced again."""
        if self.cell != cells.tick:
            return None
        captured = self.guards.resolve(self.count)
        if captured is None or tuple(map(signature_of, captured)) != self.signatures:
            return None
        return captured if sharing_of([*things, *captured]) == self.sharing else None


def variables_of(things: Sequence[Any]) -> list[Variable]:
    """Return the variables of these objects, each once, drawn and laid out for one program."""
    found: dict[Variable, None] = {}
    for thing in things:
        found.update(dict.fromkeys(boxes_of(thing)))
    boxes = list(found)
    settle(boxes)
    join(boxes)
    return boxes


class Binding:
    """A traced program with the objects of one call; it never changes, so that threads may share it.

    It holds objects weakly and their variables until one of the objects is gone.
    """

    def __init__(
        self, entry: Entry, traced: Traced, call: CallArguments, captured: list[Any]
    ) -> None:
        self.entry, self.traced, self.form = entry, traced, call.form
        self.epoch = clock.structure
        things = [*call.things, *captured]
        self.boxes = variables_of(things)
        forget = weakref.WeakMethod(self._forget)
        references = [
            weakref.ref(thing, lambda _: (found := forget()) and found()) for thing in things
        ]
        self.things, self.captured = references[: len(call.things)], references[len(call.things) :]
        plans = [plan_of(thing) for thing in things if not isinstance(thing, Variable)]
        self.module_lists = [pair for plan in plans for pair in plan.lists]
        self.lists = [
            (live.values(), tuple(then.values())) if type(then) is dict else (live, tuple(then))
            for plan in plans
            for live, then in plan.watched
        ]
        self.codes = list(dict.fromkeys(code for thing in things for code in _codes_of(thing)))
        self.seen = -1
        self.kept: tuple[int, list[Any]] = (-1, [])
        facts, donated = traced.facts, set(traced.donated)
        self.pick_donated = _picker(traced.donated)
        self.pick_kept = _picker([i for i in range(len(self.boxes)) if i not in donated])
        written = [self.boxes[place] for place in facts.places if type(place) is int]
        self.is_simple = len(written) == len(facts.places)
        self.targets, self.attributes = targets_of(written)
        self.infos: tuple[Any, bool] | None = None

    def _forget(self) -> None:
        self.epoch = -1
        self.kept = (-1, [])
        for held in (self.boxes, self.module_lists, self.lists):
            held.clear()
        self.targets = ()

    def finish(self, made: Any) -> Any:
        """After the values are placed: pass the records on, and return the outputs."""
        facts = self.traced.facts
        if facts.infos:
            if self.infos is None:
                things = [reference() for reference in self.things]
                infos = of_these(facts.infos, things)
                self.infos = infos, any(info.request is not None for info in infos)
            records = facts.records.unflatten(made[2])
            take_over(self.infos[0], records, asked=self.infos[1])
        if facts.is_single:
            return made[0][0]
        outputs = facts.tree.unflatten(made[0])
        return unpacked(outputs) if type(outputs) is Packed else outputs

    def run(self, arrays: Sequence[Any]) -> Any:
        """Call the program and commit, outside of all frames and traces."""
        program = self.traced.program
        if self.traced.donated:
            return self._run_donated(arrays)
        values = list(map(_value, self.boxes))
        made = program.call(values, *arrays)
        self.commit(made[1])
        return self.finish(made)

    def commit(self, values: Sequence[Any]) -> None:
        """Put the new values into the variables, all or none."""
        if self.is_simple:
            if values:
                any(map(setattr, self.targets, self.attributes, chain(values, ticks)))
                self.seen = clock.values
            return
        write_places(self.traced.facts, self.boxes, values)

    def _run_donated(self, arrays: Sequence[Any]) -> Any:
        """Call a program that overwrites what it is given, as one act, or with signals held back."""
        program = self.traced.program
        _before_donation()
        values = unaliased(list(map(_value, self.boxes)), self.traced.donated)
        donated, kept = self.pick_donated(values), self.pick_kept(values)
        if program.is_warm and self.is_simple:
            return self.finish(self._handed_over(donated, kept, arrays))
        with held_back(donated):
            if self.is_simple:
                made = self._handed_over(donated, kept, arrays)
            else:
                made = program.call(donated, kept, *arrays)
                self.commit(made[1])
            program.is_warm = getattr(program.call, "_cache_size", int)() > 0
        return self.finish(made)

    def _handed_over(self, donated: Any, kept: Any, arrays: Sequence[Any]) -> Any:
        # One call into C does both: the placing pulls the values, and with the first of them the
        # function is called. No interrupt can take the place of the new arrays.
        made, again = tee(map(self.traced.program.call, (donated,), (kept,), *zip(arrays)))
        any(
            map(
                setattr,
                self.targets,
                self.attributes,
                chain(_chain(map(_new_values, made)), ticks),
            )
        )
        self.seen = clock.values
        return next(again)

    # -- the steady state --
    def steady(self, args: tuple[Any, ...], plain: set[type]) -> Callable[..., Any] | None:
        """Return the call of the steady state for arguments like these, by position; None if there
        is none. It is one function with all that it needs at hand.
        """
        _, marks, static = self.form
        if static or not self.is_simple:
            return None
        flat_tree = jax.tree.structure(
            (tuple(None if _number_of(arg, self.things) >= 0 else arg for arg in args), {})
        )
        holes = [
            (i, self.things[number])
            for i, arg in enumerate(args)
            if (number := _number_of(arg, self.things)) >= 0
        ]
        if len(holes) != sum(mark >= 0 for mark in marks):
            return None  # objects stand deeper in the arguments
        is_flat = all(_number_of(arg, self.things) >= 0 or _is_array(arg, plain) for arg in args)
        traced, boxes, guards = self.traced, self.boxes, self.entry.guards
        compiled, facts = traced.program.call, traced.facts
        program, donated = traced.program, traced.donated
        pick_donated, pick_kept = self.pick_donated, self.pick_kept
        module_lists, lists, codes = self.module_lists, self.lists, self.codes
        references = self.captured
        names, cells_then, paths = [], [], []
        for (_, start, steps), number in guards.ends:
            if len(steps) == 1 and type(start) is dict:
                names.append((start, steps[0][1], id(references[number]())))
            elif len(steps) == 1 and hasattr(start, "cell_contents"):
                cells_then.append((start, id(references[number]())))
            else:
                paths.append((start, steps, id(references[number]())))
        has_more = bool(lists or paths or guards.pinned or guards.agreeing or guards.sizes)
        keeps = not donated and not facts.places and self._may_keep()
        count, attributes = len(args), self.attributes
        is_single, has_records = facts.is_single, bool(facts.infos)
        tree_of = facts.tree

        def holds() -> bool:
            for live, then in lists:
                if len(live) != len(then) or not all(map(is_, live, then)):
                    return False
            for start, steps, value in paths:
                found = start
                for get, key in steps:
                    found = get(found, key)
                if id(found) != value:
                    return False
            return guards.lead()

        def call(args: tuple[Any, ...]) -> Any:
            __tracebackhide__ = True
            if self.epoch != clock.structure or len(args) != count:
                return SLOW
            given: Any = args
            if holes:
                for i, thing in holes:
                    if thing() is not args[i]:
                        return SLOW
                given = [*args]
                for i, _ in reversed(holes):
                    given[i] = None
            if is_flat:
                if holes:
                    given = [x for x in given if x is not None]
                for arg in given:
                    if type(arg) not in plain and not is_native(arg):
                        return SLOW
            else:
                given, found_tree = jax.tree.flatten((tuple(given), {}))
                if found_tree != flat_tree:
                    return SLOW
                for arg in given:
                    if type(arg) not in plain and not is_native(arg):
                        return SLOW
            try:
                for live, then in module_lists:
                    if live != then:
                        return SLOW
                for cell, value in cells_then:
                    if id(cell.cell_contents) != value:
                        return SLOW
                if has_more and not holds():
                    return SLOW
            except Exception as error:
                if type(error) in _LOST or not are_same(module_lists):
                    return SLOW
                raise
            for kind, run, code in codes:
                if kind._run is not run or getattr(run, "__code__", None) is not code:
                    return SLOW
            for held, name, value in names:
                if id(held.get(name)) != value:
                    return SLOW
            try:
                if donated:
                    if not program.is_warm or not is_eager():
                        return SLOW
                    if readers.reading:
                        readers.wait()
                    readers.writers.add(get_ident())
                    values = list(map(_value, boxes))
                    if self.seen != clock.values:
                        values = unaliased(values, donated)
                    # As `_handed_over`, which is not called: that would be a fiftieth of a small step.
                    made, again = tee(
                        map(compiled, (pick_donated(values),), (pick_kept(values),), *zip(given))
                    )
                    any(
                        map(
                            setattr,
                            self.targets,
                            attributes,
                            chain(_chain(map(_new_values, made)), ticks),
                        )
                    )
                    self.seen = clock.values
                    made = next(again)
                else:
                    tick, values = self.kept
                    if tick != clock.values:
                        tick = clock.values  # before the values: another thread may place new ones
                        values = list(map(_value, boxes))  # held until the new ones are in place
                        if keeps and is_eager():
                            self.kept = tick, values
                    made = compiled(values, *given)
                    if made[1]:
                        if not is_eager():  # the slow call says what may not be written
                            return SLOW
                        any(map(setattr, self.targets, attributes, chain(made[1], ticks)))
                        self.seen = clock.values
            except (Missed, Cold, AttributeError) as error:
                if isinstance(error, AttributeError) and all(map(_has_value, boxes)):
                    raise
                return SLOW
            if has_records:
                return self.finish(made)
            if is_single:
                return made[0][0]
            outputs = tree_of.unflatten(made[0])
            return outputs if type(outputs) is not Packed else unpacked(outputs)

        return call

    def _may_keep(self) -> bool:
        """Return True if arrays may be used again until a value changes: few bytes, none asked for."""
        if any(hasattr(type(box), "ask") for box in self.boxes):
            return False
        return sum(box.nbytes for box in self.boxes) <= MOST_KEPT

    def holds(self) -> bool:
        """Return True if the lists in the models are as they were; for calls that are not steady."""
        return self.epoch == clock.structure and lists_hold(self.module_lists)


def by_shape(steadies: dict[Any, Callable[..., Any]]) -> Callable[..., Any]:
    """Return a steady call that chooses among those for several shapes."""

    def call(args: tuple[Any, ...]) -> Any:
        __tracebackhide__ = True
        try:
            steady = steadies.get(shapes_of_arrays(args))
        except (TypeError, ValueError):
            return SLOW
        return SLOW if steady is None else steady(args)

    return call


def shapes_of_arrays(args: tuple[Any, ...]) -> Any:
    """Return the shapes and dtypes of all arrays in these arguments; objects count as such."""
    leaves, tree = jax.tree.flatten(
        args, is_leaf=lambda x: hasattr(type(x), "_nbm") or is_module(x)
    )
    return tree, tuple(
        None if hasattr(type(x), "_is_stateful") or is_module(x) else aval_of(x) for x in leaves
    )


def write_places(facts: TraceFacts, boxes: list[Variable], values: Sequence[Any]) -> None:
    """Write new values through the frame where there is one."""
    targets = [boxes[place] if type(place) is int else place() for place in facts.places]
    alive = [i for i, box in enumerate(targets) if box is not None]
    write_all([targets[i] for i in alive], [values[i] for i in alive])


def _number_of(arg: Any, references: Sequence[Any]) -> int:
    return next((i for i, reference in enumerate(references) if reference() is arg), -1)


def _is_array(arg: Any, plain: set[type]) -> bool:
    return type(arg) in plain or is_native(arg)


def _has_value(box: Any) -> bool:
    return hasattr(box, "_value")


def _codes_of(thing: Any) -> Iterator[tuple[type, Any, Any]]:
    """Yield the classes of modules with their forward and its code."""
    for part in () if isinstance(thing, Variable) else (thing, *plan_of(thing).modules):
        run = getattr(type(part), "_run", None)
        if run is not None and not type(part).__module__.startswith("nbmodule."):
            yield type(part), run, getattr(run, "__code__", None)


def _before_donation() -> None:
    if readers.reading:
        readers.wait()
    readers.writers.add(get_ident())


def _picker(indices: Any) -> Callable[[list[Any]], Any]:
    indices = tuple(indices)
    if not indices:
        return lambda values: ()
    if len(indices) == 1:
        return lambda values, i=indices[0]: (values[i],)
    return itemgetter(*indices)


def settle(boxes: list[Variable]) -> None:
    """Draw what is still pending, and put it on its device, all in one go.

    A draw may settle another variable that it depends on.
    """
    pending = [box for box in boxes if box.is_pending]
    if len(pending) == 1:
        pending[0].settled()
    elif pending:
        with draw_lock, outside_traces():
            plain = [
                box
                for box in pending
                if box.is_pending and box._pending.device is None and box._home is None
            ]
            drawn = [(box, box.drawn()) for box in plain if box.is_pending]
            arrays = jax.device_put([value for _, value in drawn])
            for (box, _), array in zip(drawn, arrays):
                if box.is_pending:
                    box._value = array
                    del box._pending
        for box in pending:
            box.settled()


def unaliased(values: list[Any], donated: tuple[int, ...]) -> list[Any]:
    """Return the same values, with a copy of each donated array that stands twice."""
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


@contextmanager
def running(job: Any) -> Iterator[None]:
    """While a program inside another transform is called: it is traced with this job."""
    depth = len(now.programs)
    try:
        try:
            now.programs.append(job)
            yield
        finally:
            del now.programs[depth:]
    finally:  # see `frame.calling`
        del now.programs[depth:]
