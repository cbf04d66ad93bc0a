"""Repeats what a tape holds: variables are put back, calls are made again, and at the end everything is as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from nbmodule.core.boxes.commit import commit
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.core.transforms.carried import Packed, unpacked
from nbmodule.core.transforms.listening import deaf
from nbmodule.live.again.tape import (
    KeptCall,
    Moved,
    Output,
    Segment,
    Switch,
    Tape,
    Turn,
    as_arrays,
    leaves_of,
    overwrites_arguments,
)


class RepeatMark(NamedTuple):
    """A place in a repeat: the turn that comes next, values of all variables, modes, what the last calls returned."""

    next: int
    values: list[Any]
    settings: list[Any]
    outputs: dict[KeptCall, list[Any]]
    calls: list[list[KeptCall]]


class Repeat:
    """Steps of one segment, made again one after the other."""

    def __init__(self, tape: Tape, segment: Segment) -> None:
        self.tape, self.segment = tape, segment
        self.next = segment.first
        """The turn that comes next."""
        self._outputs: dict[KeptCall, list[Any]] = {}
        self._calls: list[list[KeptCall]] = []
        """Of the last turns: what a call returns is handed on over one turn at most."""

    def begin(self) -> None:
        """Put the values of the segment into the variables, and modules into their modes."""
        boxes = list(self.segment.values)
        commit(boxes, as_arrays(list(self.segment.values.values()), copied=self.tape.donates))
        apply_settings(self.segment.settings)

    def go_to(self, number: int) -> None:
        """Repeat all turns before that one."""
        while self.next < number:
            self.turn()

    def turn(self) -> dict[str, Any]:
        """Repeat the next turn; gives what was logged of it, by name."""
        turn = self.segment.turn(self.next)
        assert turn is not None
        self.next += 1
        self.tape.steer(turn.controls)
        return self.made(turn)

    def made(self, turn: Turn) -> dict[str, Any]:
        """Make a turn, whatever its number; gives what was logged of it, by name."""
        for act in turn.acts:
            if isinstance(act, KeptCall):
                self.call(act)
            elif isinstance(act, Switch):
                apply_settings(act.settings)
            elif isinstance(act, Moved):
                self.tape.steer(act.values)
            else:
                commit([act.box], as_arrays([act.value], copied=self.tape.donates))
        self._calls.append(turn.calls)
        for call in self._calls.pop(0) if len(self._calls) > 2 else ():
            self._outputs.pop(call, None)
        return {name: self._outputs[at.call][at.number] for name, at in turn.logged.items()}

    def call(self, call: KeptCall) -> Any:
        """Make one call again."""
        leaves = [self._outputs[leaf.call][leaf.number] if type(leaf) is Output else leaf for leaf in call.leaves]
        if overwrites_arguments(call.function):
            leaves = [jax.device_put(x, may_alias=False) if isinstance(x, jax.Array) else x for x in leaves]
        args, kwargs = (leaves, {}) if call.tree is None else jax.tree.unflatten(call.tree, leaves)
        outputs = call.function(*args, **kwargs)
        self._outputs[call] = leaves_of(unpacked(outputs) if type(outputs) is Packed else outputs)
        return outputs

    def mark(self) -> RepeatMark:
        """Where it is, to go back to."""
        values = [box.value for box in self.tape.boxes]
        values = as_arrays(values, copied=self.tape.donates)
        return RepeatMark(self.next, values, self.tape.settings(), dict(self._outputs), list(self._calls))

    def go_back(self, mark: RepeatMark) -> None:
        """Go back to a mark, as often as is wanted."""
        self.next, self._outputs, self._calls = mark.next, dict(mark.outputs), list(mark.calls)
        commit(self.tape.boxes, as_arrays(mark.values, copied=self.tape.donates))
        apply_settings(mark.settings)


@contextlib.contextmanager
def as_it_was(tape: Tape) -> Iterator[None]:
    """Whatever is repeated inside, variables, modes and random keys are afterwards as they were."""
    boxes: list[Variable] = list(tape.boxes)
    values, settings = [box.value for box in boxes], tape.settings()
    making = random.default._making
    made = (making.key, making.count._count)
    with deaf():
        try:
            yield
        finally:
            tape.steer(None)
            commit(boxes, values)
            tape.ask_again()
            apply_settings(settings)
            random.default._go_to(*made)


def apply_settings(settings: list[Any]) -> None:
    """Put modules into their modes, and freeze what was frozen; nothing is touched that is so already."""
    for reference, wanted in settings:
        thing = reference()
        if thing is None:
            continue
        if isinstance(thing, Variable):
            if thing._frozen != wanted:
                thing.requires_grad_(not wanted)
        elif thing.training != wanted:
            thing.train(wanted, recursive=False)


def repeated(tape: Tape, number: int) -> tuple[Repeat, Turn]:
    """A repeat that stands before a kept turn; inside of `as_it_was`, or for good."""
    found = tape.turn(number)
    assert found is not None
    repeat = Repeat(tape, found[0])
    repeat.begin()
    repeat.go_to(number)
    return repeat, found[1]
