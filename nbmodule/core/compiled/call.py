"""The call of a program: check the guards, gather the arrays, call, commit.

An `Entry` is one trace of a function: its key and its guards. A `Binding` is an entry with its
program and the objects of one call. Its steady call is the whole of a call that nothing has
changed. Plain, donated and tracked calls share both, and differ only in how they gather and commit.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, tee
from operator import attrgetter, is_, itemgetter
from typing import Any

import jax

from nbmodule.base.foreign import is_native
from nbmodule.base.jax_names import is_eager
from nbmodule.core.compiled.capture import Guards
from nbmodule.core.compiled.key import (
    CallArguments,
    CallKey,
    Signature,
    aval_of,
    cells,
    is_mark,
    signature_of,
)
from nbmodule.core.compiled.program import Job, Program, TraceFacts, modules_of, split
from nbmodule.core.structure.linked import MOST_KEPT
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import is_stateful, sharing_of, unpacked, variables_of
from nbmodule.core.variables.commit import clock, targets_of, ticks
from nbmodule.core.variables.donation import NotCached, held_back, readers, unaliased
from nbmodule.core.variables.frame import Missed, slot_of, take_over
from nbmodule.core.variables.placement import join
from nbmodule.core.variables.variable import Variable

_ONE = jax.tree.structure((0, []))
SLOW: Any = object()
"""Returned by a steady call that does not apply."""
_value = attrgetter("_value")
_new_values = itemgetter(1)
_chain = chain.from_iterable


class Entry:
    """One trace of a function. If it records calls, it serves no other modules than its own.

    Args:
        key: The key of the call.
        job: The trace.
        guards: The access paths to the captured objects.
    """

    def __init__(self, key: CallKey, job: Job, guards: Guards) -> None:
        self.key, self.guards, self.cell = key, guards, cells.tick
        self._has_calls = bool(job.facts.infos)
        parts, called = _parts([*job.call.objects, *job.captured]), set(job.called)
        self._called = [i for i, part in enumerate(parts) if part in called]
        self.surroundings = self._surroundings(job.call.objects, job.captured)

    @property
    def captured(self) -> tuple[Signature, ...]:
        """The keys of the captured objects."""
        return self.surroundings[0]

    def _surroundings(self, objects: list[Any], captured: list[Any]) -> tuple[Any, ...]:
        """Return the conditions, other than the key, under which the trace serves these objects."""
        everything = [*objects, *captured]
        modules = _parts(everything) if self._has_calls else []
        signatures = tuple(map(signature_of, captured))
        return signatures, sharing_of(everything), tuple(map(slot_of, modules))

    def called(self, objects: list[Any]) -> list[Any]:
        """Return the modules that a call with these objects calls, given and captured ones."""
        parts = _parts(objects) if self._called else []
        return [parts[i] for i in self._called]

    def resolve(self, key: CallKey, objects: list[Any]) -> list[Any] | None:
        """Return the captured objects; None if this is no trace of such a call."""
        captured = self.guards.resolve() if self.cell == cells.tick and self.key == key else None
        if captured is None or not all(map(is_stateful, captured)):
            return None
        is_fitting = self._surroundings(objects, captured) == self.surroundings
        return captured if is_fitting else None


def _parts(objects: list[Any]) -> list[Any]:
    return [part for obj in objects for part in modules_of(obj)]


def unique_variables(objects: Iterable[Any]) -> list[Variable]:
    """Return the variables of these objects, each once."""
    return list(dict.fromkeys(variable for obj in objects for variable in variables_of(obj)))


def prepared_variables(objects: Iterable[Any]) -> list[Variable]:
    """Return the variables of these objects, each once, drawn and laid out for one program."""
    variables = unique_variables(objects)
    for variable in variables:
        variable.settled()
    join(variables)
    return variables


class Binding:
    """A traced program with the objects of one call; it never changes, so threads may share it.

    It holds objects weakly and their variables until one of the objects is gone.
    """

    def __init__(
        self,
        entry: Entry,
        traced: tuple[Program, TraceFacts],
        call: CallArguments,
        captured: list[Any],
    ) -> None:
        self.entry = entry
        self.program, self.facts = traced
        self.form = call.form
        self.epoch = clock.structure
        objects = [*call.objects, *captured]
        self.variables = prepared_variables(objects)
        # Weak on both sides: the callbacks must not keep the binding, nor the binding the objects.
        forget = weakref.WeakMethod(self._forget)
        references = [
            weakref.ref(obj, lambda _: (method := forget()) and method()) for obj in objects
        ]
        self.objects = references[: len(call.objects)]
        self.captured = references[len(call.objects) :]
        models = [obj for obj in objects if not isinstance(obj, Variable)]
        # Lists and dicts of the models, which change without notice, with their items.
        self.lists = [
            (live.values(), tuple(previous.values()))
            if isinstance(live, Mapping)
            else (live, tuple(previous))
            for model in models
            for live, previous in plan_of(model).watched
        ]
        self.seen = -1
        self.cached: tuple[int, list[Any]] = (-1, [])
        # A variable that is only written, and that no name leads to, is no input: the state that
        # the first step of an optimizer creates.
        written = [self.variables[i] if type(i) is int else i() for i in self.facts.targets]
        targets, self.attributes = targets_of(written)
        self.targets = list(targets)
        self.asked = any(info.request is not None for info in self.facts.infos)
        self.call = self._caller()

    def _forget(self) -> None:
        self.epoch = -1
        self.cached = (-1, [])
        for objects in (self.variables, self.targets, self.lists):
            objects.clear()

    def lowered(self, call: CallArguments) -> Any:
        """Return the program as JAX lowers it for the present values."""
        values, donated = list(map(_value, self.variables)), self.program.donated
        lists = split(values, donated) if donated else (values,)
        return self.program.call.lower(*lists, *call.args, **call.kwargs)

    # -- gather, call, commit --
    def _caller(self) -> Callable[..., Any]:
        """Return the function that gathers the variables, calls the program and commits."""
        if self.program.donated:
            return self._overwriting()
        variables, targets, attributes = self.variables, self.targets, self.attributes
        program = self.program.call

        def write(args: Sequence[Any], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006
            values = list(map(_value, variables))  # held until the new ones are in place
            outputs = program(values, *args, **kwargs)
            any(map(setattr, targets, attributes, chain(outputs[1], ticks)))
            self.seen = clock.values
            return outputs

        if self.facts.targets:
            return write
        # Arrays may be used again until a value changes: few bytes, none that is asked for.
        keeps = not any(hasattr(type(variable), "ask") for variable in variables)
        keeps = keeps and sum(variable.nbytes for variable in variables) <= MOST_KEPT

        def read(args: Sequence[Any], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006
            tick, values = self.cached
            if tick != clock.values:
                tick = clock.values  # before the values: another thread may place new ones
                values = list(map(_value, variables))
                if keeps:
                    self.cached = tick, values
            return program(values, *args, **kwargs)

        return read

    def _overwriting(self) -> Callable[..., Any]:
        """Return the function for a program that overwrites the arrays of variables.

        One call into C does both: the placing pulls the values, and with the first of them the
        program is called. No interrupt can take the place of the new arrays.
        """
        variables, targets, attributes = self.variables, self.targets, self.attributes
        program, donated = self.program.call, self.program.donated
        pick_lent, pick_retained = map(picker, split(range(len(variables)), donated))
        lock = readers.lock

        def overwrite(args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
            run = partial(program, **kwargs) if kwargs else program
            with lock:  # against readers of other threads, see `donation.py`
                values = list(map(_value, variables))
                if self.seen != clock.values or (readers.taken and readers.taken_by_others()):
                    values = unaliased(values, donated)
                outputs, again = tee(
                    map(run, (pick_lent(values),), (pick_retained(values),), *zip(args))
                )
                new_values = _chain(map(_new_values, outputs))
                any(map(setattr, targets, attributes, chain(new_values, ticks)))
                self.seen = clock.values
                return next(again)

        return overwrite

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the program and commit, outside of all frames and traces."""
        program, donated = self.program, self.program.donated
        if not donated or program.is_warm:
            return self.finish(self.call(args, kwargs))
        with held_back([self.variables[i]._value for i in donated]):
            outputs = self.call(args, kwargs)
            program.is_warm = getattr(program.call, "_cache_size", int)() > 0
        return self.finish(outputs)

    def finish(self, results: Any) -> Any:
        """Pass the records on, and return the user's outputs."""
        facts = self.facts
        outputs, records = facts.tree.unflatten(results[0])
        if facts.infos:
            take_over(facts.infos, records, asked=self.asked)
        return unpacked(outputs)

    # -- the steady call --
    def steady(self, args: tuple[Any, ...], plain: set[type]) -> Callable[..., Any] | None:
        """Return the call for arguments like these, by position; None if every call must take the
        long way.
        """
        numbers = {id(reference()): i for i, reference in enumerate(self.objects)}
        objects = [
            (i, self.objects[numbers[id(x)]]) for i, x in enumerate(args) if id(x) in numbers
        ]
        marked = self.form.unflatten(range(self.form.num_leaves))
        # Objects deeper in the arguments, and static values, take the long way.
        if len(objects) != sum(map(is_mark, jax.tree.leaves(marked, is_leaf=is_mark))):
            return None
        count = len(args)
        with_none = picker([count if id(x) in numbers else i for i, x in enumerate(args)])
        is_flat = jax.tree_util.all_leaves([x for x in args if id(x) not in numbers])
        program, run, facts = self.program, self.call, self.facts
        resolve, captured, lists = self.entry.guards.resolve, self.captured, self.lists
        is_donated, is_single = bool(program.donated), facts.tree == _ONE

        def call(args: tuple[Any, ...]) -> Any:
            # A change of structure anywhere: cheaper than to compare each module of the model.
            if self.epoch != clock.structure or not is_eager() or len(args) != count:
                return SLOW
            inputs: Any = args
            if objects:
                for i, reference in objects:
                    if reference() is not args[i]:
                        return SLOW
                inputs = with_none((*args, None))
            for x in inputs if is_flat else jax.tree.leaves(inputs):
                if type(x) not in plain and not is_native(x):
                    return SLOW
            found = resolve()
            if found is None or (is_donated and not program.is_warm):
                return SLOW
            for value, reference in zip(found, captured):
                if value is not reference():
                    return SLOW
            for live, previous in lists:
                if len(live) != len(previous) or not all(map(is_, live, previous)):
                    return SLOW
            try:
                outputs = run(inputs)
            except (Missed, NotCached):
                return SLOW
            return outputs[0][0] if is_single else self.finish(outputs)

        return call


def by_shape(steadies: dict[Any, Callable[..., Any]]) -> Callable[..., Any]:
    """Return a steady call that chooses among those for several shapes."""

    def call(args: tuple[Any, ...]) -> Any:
        try:
            steady = steadies.get(shapes_of_arrays(args))
        except (TypeError, ValueError):
            return SLOW
        return SLOW if steady is None else steady(args)

    return call


def shapes_of_arrays(args: tuple[Any, ...]) -> Any:
    """Return the shapes and dtypes of all arrays in these arguments; objects count as such."""
    leaves, tree = jax.tree.flatten(args, is_leaf=is_stateful)
    return tree, tuple([None if is_stateful(x) else aval_of(x) for x in leaves])


def picker(indices: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function that picks these items of a list, as a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda values: tuple([values[i] for i in indices])
