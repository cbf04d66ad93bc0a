"""Repeat what a tape holds: variables are put back, calls are made again, and each turn must
reproduce what was recorded. At the end everything is as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.format import format_array
from nbmodule.core.compiled.call_record import record_call, recording_paused
from nbmodule.core.numbers import random
from nbmodule.core.transforms.carried import Packed, unpacked
from nbmodule.core.variables.commit import commit
from nbmodule.core.variables.variable import Variable
from nbmodule.live.replay.copies import as_arrays, digest_of
from nbmodule.live.replay.inputs import parameter_names
from nbmodule.live.replay.tape import Tape, leaves_of, overwrites_arguments
from nbmodule.live.replay.turns import KeptCall, Mode, Moved, Output, Segment, Setting, Switch, Turn


class NotReproducedError(Exception):
    """A repeated turn differs from what was recorded; `cause` says why, as far as is known."""

    def __init__(self, turn: int, cause: str) -> None:
        super().__init__(cause)
        self.turn, self.cause = turn, cause


def check_inputs(turn: Turn) -> None:
    """Raise if an array that a turn was given holds something else by now."""
    for array, digest in turn.digests.values():
        if digest_of(array) != digest:
            kind = format_array(array.shape, str(array.dtype))
            cause = f"the array {kind} that it was given was filled anew since"
            raise NotReproducedError(turn.number, cause)


def is_same(recorded: Any, repeated: Any) -> bool:
    """Return True if two arrays agree: on a CPU to the bit, elsewhere up to rounding."""
    a, b = np.asarray(recorded), np.asarray(repeated)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if jax.default_backend() == "cpu":
        return a.tobytes() == b.tobytes() or bool(
            np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        )
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-4, equal_nan=True))


def differs(before: Turn, after: Turn) -> bool:
    """Return True if two recordings of one turn returned different numbers."""
    calls, again = before.calls, after.calls
    if len(calls) != len(again):
        return True
    for a, b in zip(calls, again, strict=True):
        for number, value in a.small.items():
            other = b.small.get(number)
            if other is None or value.is_deleted() or other.is_deleted():
                continue
            if not is_same(value, other):
                return True
    return False


def _cause_of(call: KeptCall) -> str:
    """Say what may have changed since a call was recorded."""
    name = getattr(call.function, "__name__", "the step")
    for kind, reference in call.captured:
        if reference() is None:
            return f"{name} used another {kind} then, which is gone"
    function = call.function
    if call.tree is None and hasattr(function, "fn"):
        with contextlib.suppress(Exception):
            used = record_call(function, tuple(call.leaves), {}).captured
            then = [reference() for _, reference in call.captured]
            other = [each for each in used if not any(each is before for before in then)]
            if other:
                return f"{name} uses another {type(other[0]).__name__} now than it did then"
    return (
        f"{name} returned something else than then: a value or a function that it uses was changed, "
        "or it keeps state outside of variables"
    )


class RepeatMark(NamedTuple):
    """A place in a repeat: the turn that comes next, values of all variables, modes, what the last
    calls returned.
    """

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

    def turn(self, *, verify: bool = True) -> dict[str, Any]:
        """Repeat the next turn; return what was logged of it, by name.

        Args:
            verify: Whether it must reproduce what was recorded. A repeat under a tracker runs
                another executable, which need not.

        Raises:
            NotReproducedError: If it does not.
        """
        turn = self.segment.turn(self.next)
        assert turn is not None
        self.next += 1
        if verify:
            check_inputs(turn)
        self._steer(turn.controls)
        logged = self.made(turn)
        if verify:
            self._check_outputs(turn)
        return logged

    def _check_outputs(self, turn: Turn) -> None:
        """Compare what a turn has returned and written with what was recorded."""
        for call in turn.calls:
            outputs = self._outputs[call]
            for number, before in call.small.items():
                is_there = number < len(outputs) and isinstance(outputs[number], jax.Array)
                if not before.is_deleted() and not (is_there and is_same(before, outputs[number])):
                    raise NotReproducedError(turn.number, _cause_of(call))
        witnesses = {call.witness[0]: call for call in turn.calls if call.witness is not None}
        last = turn.acts[-1] if turn.acts else None
        for variable, call in witnesses.items():
            assert call.witness is not None
            before = call.witness[1]
            if call is last and not before.is_deleted() and not is_same(before, variable.value):
                raise NotReproducedError(turn.number, _cause_of(call))

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
                self._settings.update({id(setting.obj): setting for setting in act.settings})
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

    def arguments(self, call: KeptCall) -> dict[str, Any]:
        """Return the arguments of a call that comes next, by the names of its parameters."""
        leaves = [self._found(leaf) for leaf in call.leaves]
        args, kwargs = (leaves, {}) if call.tree is None else jax.tree.unflatten(call.tree, leaves)
        names = parameter_names(call.function)
        named = {
            names[i] if i < len(names) else f"argument {i}": value for i, value in enumerate(args)
        }
        return named | kwargs

    def call(self, call: KeptCall) -> Any:
        """Make one call again."""
        leaves = [self._found(leaf) for leaf in call.leaves]
        if overwrites_arguments(call.function):
            leaves = [
                jax.device_put(x, may_alias=False) if isinstance(x, jax.Array) else x
                for x in leaves
            ]
        args, kwargs = (leaves, {}) if call.tree is None else jax.tree.unflatten(call.tree, leaves)
        outputs = call.function(*args, **kwargs)
        self._outputs[call] = leaves_of(unpacked(outputs) if type(outputs) is Packed else outputs)
        return outputs

    def mark(self) -> RepeatMark:
        """Where it is, to go back to."""
        boxes = list(dict.fromkeys((*self.tape.boxes, *self.segment.values)))
        values = as_arrays([box.value for box in boxes], copied=self.tape.donates)
        return RepeatMark(
            self.next,
            dict(zip(boxes, values)),
            dict(self._settings),
            dict(self._outputs),
            list(self._calls),
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
    with recording_paused():
        try:
            yield
        finally:
            tape.steer(None)
            commit(boxes, values)
            tape.ask_again()
            apply_settings(settings.values())
            random.default._go_to(*made)


def apply_settings(settings: Iterable[Setting | Mode]) -> None:
    """Let modules, optimizers and frozen variables be as they were; nothing is touched that is so
    already.
    """
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
