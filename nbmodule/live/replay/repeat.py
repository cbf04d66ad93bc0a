"""Repeat recorded iterations: variables are restored, calls are made again, and each iteration must
reproduce what was recorded. Afterwards everything is as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
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
from nbmodule.live.replay.iterations import (
    Iteration,
    Mode,
    Output,
    RecordedCall,
    Segment,
    Setting,
    Switch,
)
from nbmodule.live.replay.tape import Tape, leaves_of, overwrites_arguments


class NotReproducedError(Exception):
    """A repeated iteration differs from the recorded one; `cause` says why, as far as is known."""

    def __init__(self, number: int, cause: str) -> None:
        super().__init__(cause)
        self.number, self.cause = number, cause


def check_inputs(iteration: Iteration) -> None:
    """Raise if an array that an iteration was given holds something else by now."""
    for array, digest in iteration.digests.values():
        if digest_of(array) != digest:
            text = format_array(array.shape, str(array.dtype))
            raise NotReproducedError(
                iteration.number, f"the array {text} that it was given was filled again since"
            )


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


def differs(before: Iteration, after: Iteration) -> bool:
    """Return True if two recordings of one iteration returned different numbers."""
    calls, again = before.calls, after.calls
    if len(calls) != len(again):
        return True
    pairs = [
        (value, b.small.get(number))
        for a, b in zip(calls, again, strict=True)
        for number, value in a.small.items()
    ]
    return any(
        not is_same(value, other)
        for value, other in pairs
        if other is not None and not value.is_deleted() and not other.is_deleted()
    )


def _cause_of(call: RecordedCall) -> str:
    """Return what may have changed since a call was recorded."""
    function = call.function
    name = getattr(function, "__name__", "the step")
    for class_name, reference in call.captured:
        if reference() is None:
            return f"{name} used another {class_name} then, which is gone"
    if call.tree is None and hasattr(function, "fn"):
        with contextlib.suppress(Exception):
            captured = record_call(function, tuple(call.leaves), {}).captured
            before = {id(reference()) for _, reference in call.captured}
            other = [obj for obj in captured if id(obj) not in before]
            if other:
                return f"{name} uses another {type(other[0]).__name__} now than it did then"
    return (
        f"{name} returned something else than then: a value or a function that it uses was "
        "changed, or it keeps state outside of variables"
    )


class RepeatMark(NamedTuple):
    """A position in a repeat, to return to."""

    next: int
    values: dict[Variable, Any]
    settings: dict[int, Setting | Mode]
    outputs: dict[RecordedCall, list[Any]]
    calls: list[list[RecordedCall]]


class Repeat:
    """Repeats iterations of one segment, one after the other, up to a number.

    Use it inside `restored`, or commit to the state it leaves.
    """

    def __init__(self, tape: Tape, segment: Segment, number: int) -> None:
        self.tape, self.segment = tape, segment
        self.next = segment.first
        """The iteration that comes next."""
        self._settings: dict[int, Setting | Mode] = dict(segment.settings)
        """By the `id` of the object that is set."""
        self._outputs: dict[RecordedCall, list[Any]] = {}
        self._calls: list[list[RecordedCall]] = []
        """Of the last iterations: an output is handed on over one iteration at most."""
        self._put(segment.values)
        self._apply_settings()
        while self.next < number:
            self.step()

    def step(self, *, verify: bool = True) -> dict[str, Any]:
        """Repeat the next iteration; return what it logged, by name.

        Args:
            verify: Whether it must reproduce what was recorded. A repeat under a tracker runs
                another executable, which need not.

        Raises:
            NotReproducedError: If it does not.
        """
        iteration = self.segment.iteration(self.next)
        assert iteration is not None
        self.next += 1
        if verify:
            check_inputs(iteration)
        self.tape.steer(iteration.controls)
        self._apply_settings()
        logged = self.make(iteration)
        if verify:
            self._check_outputs(iteration)
        return logged

    def _check_outputs(self, iteration: Iteration) -> None:
        """Compare what an iteration returned and wrote with what was recorded."""
        for call in iteration.calls:
            outputs = self._outputs[call]
            for number, before in call.small.items():
                after = outputs[number] if number < len(outputs) else None
                is_array = isinstance(after, jax.Array)
                if not before.is_deleted() and not (is_array and is_same(before, after)):
                    raise NotReproducedError(iteration.number, _cause_of(call))
        last = iteration.actions[-1] if iteration.actions else None
        if isinstance(last, RecordedCall) and last.witness is not None:
            variable, before = last.witness
            if not before.is_deleted() and not is_same(before, variable.value):
                raise NotReproducedError(iteration.number, _cause_of(last))

    def _apply_settings(self) -> None:
        for setting in self._settings.values():
            setting.put_back()

    def make(self, iteration: Iteration) -> dict[str, Any]:
        """Make an iteration, whatever its number; return what it logged, by name."""
        for action in iteration.actions:
            if isinstance(action, RecordedCall):
                self.call(action)
            elif isinstance(action, Switch):
                for setting in action.settings:
                    self._settings[id(setting.obj)] = setting
                    setting.put_back()
            else:
                self._put({action.variable: self._resolved(action.value)})
        self._calls.append(iteration.calls)
        gone = self._calls.pop(0) if len(self._calls) > 2 else ()
        for call in gone:
            if not any(call in calls for calls in self._calls):  # one may be made more than once
                self._outputs.pop(call, None)
        return {name: self._resolved(output) for name, output in iteration.logged.items()}

    def _put(self, values: Mapping[Variable, Any]) -> None:
        commit(list(values), as_arrays(list(values.values()), copied=self.tape.donates))

    def _resolved(self, value: object) -> Any:
        """Return a recorded value, or the output that it stands for."""
        return self._outputs[value.call][value.number] if type(value) is Output else value

    def arguments(self, call: RecordedCall) -> dict[str, Any]:
        """Return the arguments of a call that comes next, by the names of its parameters."""
        return call.named_arguments([self._resolved(leaf) for leaf in call.leaves])

    def call(self, call: RecordedCall) -> None:
        """Make one call again."""
        leaves = [self._resolved(leaf) for leaf in call.leaves]
        if overwrites_arguments(call.function):
            leaves = [
                jax.device_put(x, may_alias=False) if isinstance(x, jax.Array) else x
                for x in leaves
            ]
        args, kwargs = call.arguments(leaves)
        outputs = call.function(*args, **kwargs)
        self._outputs[call] = leaves_of(unpacked(outputs) if type(outputs) is Packed else outputs)

    def mark(self) -> RepeatMark:
        """Return the position, to go back to."""
        variables = list(dict.fromkeys((*self.tape.variables, *self.segment.values)))
        values = as_arrays([v.value for v in variables], copied=self.tape.donates)
        by_variable = dict(zip(variables, values, strict=True))
        return RepeatMark(
            self.next, by_variable, dict(self._settings), dict(self._outputs), list(self._calls)
        )

    def go_back(self, mark: RepeatMark) -> None:
        """Go back to a mark, as often as needed."""
        self.next, self._outputs, self._calls = mark.next, dict(mark.outputs), list(mark.calls)
        self._settings = dict(mark.settings)
        self._put(mark.values)
        self._apply_settings()


@contextlib.contextmanager
def restored(tape: Tape) -> Iterator[None]:
    """Restore variables, settings and random keys after whatever is repeated inside."""
    variables = list(tape.variables)
    values, settings = [v.value for v in variables], tape.settings()
    making = random.default._making
    made = (making.key, making.count._count)
    with recording_paused():
        try:
            yield
        finally:
            tape.steer(None)
            commit(variables, values)
            tape.ask_again()
            for setting in settings.values():
                setting.put_back()
            random.default._go_to(*made)
