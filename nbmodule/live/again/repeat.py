"""Repeats what a tape holds: variables are put back, calls are made again, and at the end everything is as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from nbmodule.core.boxes.commit import commit
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.core.transforms.carried import Packed, unpacked
from nbmodule.core.transforms.listening import deaf
from nbmodule.live.again.copies import as_arrays
from nbmodule.live.again.tape import Tape, leaves_of, overwrites_arguments
from nbmodule.live.again.turns import KeptCall, Mode, Moved, Output, Segment, Setting, Switch, Turn


class RepeatMark(NamedTuple):
    """A place in a repeat: the turn that comes next, values of all variables, modes, what the last calls returned."""

    next: int
    values: dict[Variable, Any]
    settings: dict[int, Setting | Mode]
    outputs: dict[KeptCall, list[Any]]
    calls: list[list[KeptCall]]


class Repeat:
    """Steps of one segment, made again one after the other."""

    def __init__(self, tape: Tape, segment: Segment) -> None:
        self.tape, self.segment = tape, segment
        self.next = segment.first
        """The turn that comes next."""
        self._settings: dict[int, Setting | Mode] = {}
        """What is set, by the `id` of what it is set on."""
        self._outputs: dict[KeptCall, list[Any]] = {}
        self._calls: list[list[KeptCall]] = []
        """Of the last turns: what a call returns is handed on over one turn at most."""

    def begin(self) -> None:
        """Put the values of the segment into the variables, and modules into their modes."""
        self._put(self.segment.values)
        self._settings = dict(self.segment.settings)
        apply_settings(self._settings.values())

    def go_to(self, number: int) -> None:
        """Repeat all turns before that one."""
        while self.next < number:
            self.turn()

    def turn(self) -> dict[str, Any]:
        """Repeat the next turn; gives what was logged of it, by name."""
        turn = self.segment.turn(self.next)
        assert turn is not None
        self.next += 1
        self._steer(turn.controls)
        return self.made(turn)

    def _steer(self, controls: dict[str, Any]) -> None:
        """Move controls that no variable holds; what modules hold for it is as it was then."""
        self.tape.steer(controls)
        apply_settings(self._settings.values())

    def made(self, turn: Turn) -> dict[str, Any]:
        """Make a turn, whatever its number; gives what was logged of it, by name."""
        for act in turn.acts:
            if isinstance(act, KeptCall):
                self.call(act)
            elif isinstance(act, Switch):
                self._settings.update({id(setting.thing): setting for setting in act.settings})
                apply_settings(act.settings)
            elif isinstance(act, Moved):
                self._steer(act.values)
            else:
                self._put({act.box: self._found(act.value)})
        self._calls.append(turn.calls)
        gone = self._calls.pop(0) if len(self._calls) > 2 else ()
        for call in gone:
            if not any(call in calls for calls in self._calls):  # a turn may be made more than once
                self._outputs.pop(call, None)
        return {name: self._found(at) for name, at in turn.logged.items()}

    def _put(self, values: Mapping[Variable, Any]) -> None:
        commit(list(values), as_arrays(list(values.values()), copied=self.tape.donates))

    def _found(self, value: object) -> Any:
        """A kept value, or what the call has returned that it stands for."""
        return self._outputs[value.call][value.number] if type(value) is Output else value

    def call(self, call: KeptCall) -> Any:
        """Make one call again."""
        leaves = [self._found(leaf) for leaf in call.leaves]
        if overwrites_arguments(call.function):
            leaves = [jax.device_put(x, may_alias=False) if isinstance(x, jax.Array) else x for x in leaves]
        args, kwargs = (leaves, {}) if call.tree is None else jax.tree.unflatten(call.tree, leaves)
        outputs = call.function(*args, **kwargs)
        self._outputs[call] = leaves_of(unpacked(outputs) if type(outputs) is Packed else outputs)
        return outputs

    def mark(self) -> RepeatMark:
        """Where it is, to go back to."""
        boxes = list(dict.fromkeys((*self.tape.boxes, *self.segment.values)))
        values = as_arrays([box.value for box in boxes], copied=self.tape.donates)
        return RepeatMark(
            self.next, dict(zip(boxes, values)), dict(self._settings), dict(self._outputs), list(self._calls)
        )

    def go_back(self, mark: RepeatMark) -> None:
        """Go back to a mark, as often as is wanted."""
        self.next, self._outputs, self._calls = mark.next, dict(mark.outputs), list(mark.calls)
        self._settings = dict(mark.settings)
        self._put(mark.values)
        apply_settings(self._settings.values())


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
            apply_settings(settings.values())
            random.default._go_to(*made)


def apply_settings(settings: Iterable[Setting | Mode]) -> None:
    """Let modules, optimizers and frozen variables be as they were; nothing is touched that is so already."""
    for setting in settings:
        setting.put_back()


def repeated(tape: Tape, number: int) -> tuple[Repeat, Turn]:
    """A repeat that stands before a kept turn; inside of `as_it_was`, or for good."""
    found = tape.turn(number)
    assert found is not None
    repeat = Repeat(tape, found[0])
    repeat.begin()
    repeat.go_to(number)
    return repeat, found[1]
