"""Repeat recorded iterations: variables are restored, calls are made again, and each iteration must
reproduce what was recorded. Afterwards everything is as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from nbmodule.base.curves import Curve
from nbmodule.base.format import count_noun, format_array
from nbmodule.core.compiled.call_record import RecordedMethod, recording_paused
from nbmodule.core.numbers import random
from nbmodule.core.structure.copying import ObjectState
from nbmodule.core.structure.walk import is_module
from nbmodule.core.transforms.carried import Packed, unpacked
from nbmodule.core.variables.commit import commit
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentError
from nbmodule.live.replay.iterations import (
    Iteration,
    Output,
    RecordedCall,
    Setting,
    Write,
    as_arrays,
)
from nbmodule.live.replay.tape import Tape, leaves_of, overwrites_arguments
from nbmodule.live.run_data.history import History
from nbmodule.live.run_data.state import Attempt, Branch


class NotReproducedError(Exception):
    """A repeated iteration differs from the recorded one; `cause` says why, as far as is known."""

    def __init__(self, number: int, cause: str) -> None:
        super().__init__(cause)
        self.number, self.cause = number, cause


def check_inputs(iteration: Iteration) -> None:
    """Raise if an array that an iteration was given holds something else by now."""
    array = iteration.refilled()
    if array is not None:
        text = format_array(array.shape, str(array.dtype))
        raise NotReproducedError(
            iteration.number,
            f"the array {text} that it was given was filled again since. Give each step a new "
            "array, or one of at most 64 KB",
        )


def differs(before: Iteration, after: Iteration) -> bool:
    """Return True if two recordings of one iteration returned different numbers."""
    calls, again = before.calls, after.calls
    return len(calls) != len(again) or any(
        number in b.small and not is_same(value, b.small[number])
        for a, b in zip(calls, again, strict=True)
        for number, value in a.small.items()
    )


def is_same(recorded: Any, repeated: Any) -> bool:
    """Return True if two arrays agree, on a CPU to the bit, elsewhere up to rounding; or if one is
    deleted and cannot be compared.
    """
    if not isinstance(repeated, jax.Array) or recorded.is_deleted() or repeated.is_deleted():
        return recorded.is_deleted() or isinstance(repeated, jax.Array)
    a, b = np.asarray(recorded), np.asarray(repeated)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if jax.default_backend() == "cpu":
        return a.tobytes() == b.tobytes()
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-4, equal_nan=True))


Outputs: TypeAlias = dict[RecordedCall, list[Any]]
"""The leaves that calls returned."""


class Repeat:
    """Repeats the iterations of the segment of one, one after the other.

    Use it inside `restored`, or commit to the state it leaves.
    """

    def __init__(self, tape: Tape, iteration: Iteration) -> None:
        assert iteration.segment is not None
        self.tape, self.segment = tape, iteration.segment
        self.next = self.segment.first
        """The iteration that comes next."""
        self._settings: dict[int, Setting] = dict(self.segment.settings)
        """By the `id` of the object that is set."""
        self._before: Outputs = {}
        """Outputs of the iteration before: they are handed on over one iteration at most."""
        self._outputs: Outputs = {}
        self._given: Mapping[int, Any] = {}
        """Arguments in place of recorded ones, by their `id`."""
        self._put(self.segment.values)
        self._apply_settings()

    def go_to(self, number: int) -> None:
        """Repeat all iterations before this one."""
        while self.next < number:
            self.step()

    def step(self, *, verify: bool = True) -> dict[str, Any]:
        """Repeat the next iteration; return what it logged, by name.

        Args:
            verify: If True, it must reproduce the record. A repeat under a tracker runs
                another executable, which need not.

        Raises:
            NotReproducedError: If it does not.
        """
        iteration = self.segment.iteration(self.next)
        assert iteration is not None
        self.next += 1
        if verify:
            check_inputs(iteration)
        self._apply_settings()
        return self.make(iteration, verify=verify)

    def _check(self, call: RecordedCall, number: int) -> None:
        """Compare what a call has returned and written with what was recorded."""
        outputs = dict(enumerate(self._outputs[call]))
        pairs = [(recorded, outputs.get(n)) for n, recorded in call.small.items()]
        if call.witness is not None:
            variable, recorded = call.witness
            pairs.append((recorded, variable.value))
        if not all(is_same(*pair) for pair in pairs):
            name = getattr(call.function, "__name__", "the step")
            raise NotReproducedError(
                number,
                f"{name} returned something else than then: a value, a function, a model or an "
                "optimizer that it uses is another one now, or it keeps state outside of variables",
            )

    def _apply_settings(self) -> None:
        for setting in self._settings.values():
            setting.put_back()

    def make(
        self, iteration: Iteration, tried: Mapping[int, Any] | None = None, *, verify: bool = False
    ) -> dict[str, Any]:
        """Make an iteration, whatever its number; return what it logged, by name.

        Args:
            iteration: The iteration.
            tried: After a change that is tried: the arguments to take in place of recorded ones, by
                their `id`. Writes of the loop, and settings other than modes, would undo the change
                and are left out.
            verify: If True, each call must reproduce its record.
        """
        self._before, self._outputs = self._outputs, {}
        self._given = tried or {}
        earlier = self.segment.iteration(iteration.number - 1)
        if tried is not None and earlier is not None:  # this iteration was made in its place
            pairs = zip(earlier.calls, iteration.calls, strict=False)
            before = self._before
            self._before = {call: before[again] for call, again in pairs if again in before}
        for action in iteration.actions:
            if isinstance(action, RecordedCall):
                self.call(action)
                if verify:
                    self._check(action, iteration.number)
            elif tried is not None:
                if isinstance(action, ObjectState) and is_module(action.obj):
                    action.obj.training = action.training
            elif isinstance(action, Write):
                self._put({action.variable: self._resolved(action.value)})
            else:
                self._settings[id(action.obj)] = action
                action.put_back()
        return {name: self._resolved(output) for name, output in iteration.logged.items()}

    def _put(self, values: Mapping[Variable, Any]) -> None:
        commit(list(values), as_arrays(list(values.values()), copied=self.tape.donates))

    def _resolved(self, value: object) -> Any:
        """Return a recorded value, or the output that it stands for."""
        if type(value) is not Output:
            return self._given.get(id(value), value)
        outputs = self._outputs if value.call in self._outputs else self._before
        return outputs[value.call][value.number]

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

    def mark(self) -> Callable[[], None]:
        """Return a function that goes back to this position, as often as needed."""
        variables = dict.fromkeys((*self.tape.variables, *self.segment.values))
        values = as_arrays([v.value for v in variables], copied=self.tape.donates)
        position = self.next, self._settings.copy(), self._before, self._outputs

        def go_back() -> None:
            self.next, settings, self._before, self._outputs = position
            self._settings = settings.copy()
            self._put(dict(zip(variables, values, strict=True)))
            self._apply_settings()

        return go_back


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
            commit(variables, values)
            tape.ask_again()
            for setting in settings.values():
                setting.put_back()
            random.default._go_to(*made)


_RECENT = 8
"""Iterations in which an argument must be the same to be taken for a constant."""


def run_branches(
    repeat: Repeat,
    newest: Iteration,
    coming: list[Any],
    attempts: Sequence[Attempt],
    steps: int,
    step_of: Callable[[int], int],
) -> list[Branch]:
    """Run the next steps once for each change; variables are left in any state.

    Args:
        repeat: Repeats the iterations of the segment of the newest one.
        newest: The iteration after which the branches begin.
        coming: The items that the loop would be given next.
        attempts: The changes before the first step.
        steps: Number of steps.
        step_of: Returns the step of an iteration.

    Raises:
        ArgumentError: If the loop itself does a part of each step, which the branches would lack.
    """
    tape, items = repeat.tape, jax.tree.leaves(newest.item)
    has_items = bool(coming) and _takes_items_alone(tape, newest, items)
    _check_goes_on(tape, newest, has_items=has_items)
    repeat.go_to(newest.number + 1)
    if has_items:
        leaves = [jax.tree.leaves(item) for item in coming[:steps]]
        made = [(newest, dict(zip(map(id, items), each, strict=True))) for each in leaves]
        note = ""
        if len(made) < steps:
            note = f"{count_noun(len(made), 'step')} to the end of the epoch"
    else:
        recorded = tape.segments[-1].iterations
        last = [each for each in recorded if each.calls and not each.carries][-steps:]
        made = [(iteration, {}) for iteration in last]
        note = f"with the batches of the last {count_noun(len(last), 'step')} again"
    go_back = repeat.mark()
    branches = []
    for attempt in attempts:
        go_back()
        tape.ask_again()
        try:
            attempt.make()
            logged = [repeat.make(iteration, given) for iteration, given in made]
        finally:
            attempt.undo()
        curves = _curves(logged, newest.number, step_of)
        branches.append(Branch(attempt.label, curves, note, attempt.take))
    return branches


def _check_goes_on(tape: Tape, newest: Iteration, *, has_items: bool) -> None:
    earlier = tape.iteration(newest.number - 1)
    updates = [call for call in newest.calls if type(call.function) is RecordedMethod]
    if _writes_parameters(newest) and (earlier is None or _writes_parameters(earlier)):
        cause = "after each compiled call it writes parameters, which is not recorded"
    elif any(hasattr(leaf, "dtype") for call in updates for leaf in call.leaves):
        cause = "it changes the gradients between the compiled call and `optimizer.update`"
    elif newest.carries and not has_items:
        cause = "it carries state by hand, and its arguments come from other values than the item"
    else:
        return
    raise ArgumentError(
        f"live.what_if cannot go on from here: the loop itself does a part of each step; {cause}. "
        "The run is unchanged. Do that in the step that nb.jit compiles, with the optimizer's "
        "update, or in a function given to live.repeatable."
    )


def _writes_parameters(iteration: Iteration) -> bool:
    writes = (action for action in iteration.actions if type(action) is Write)
    return any(isinstance(write.variable, Parameter) for write in writes)


def _takes_items_alone(tape: Tape, newest: Iteration, items: list[Any]) -> bool:
    """Return True if each argument is a leaf of the item, or the same at each step."""
    leaves = set(map(id, items))
    if len(leaves) < len(items):  # one array is two leaves: which of them an argument is, is open
        return False
    recent = tape.iterations_from(newest.number - _RECENT)[:-1]
    given = [{id(leaf) for call in each.calls for leaf in call.leaves} for each in recent]
    known = leaves | (set.intersection(*given) if given else set())
    arguments = [leaf for call in newest.calls for leaf in call.leaves]
    return all(id(leaf) in known for leaf in arguments if hasattr(leaf, "dtype"))


def _curves(
    logged: list[dict[str, Any]], after: int, step_of: Callable[[int], int]
) -> dict[str, Curve]:
    history = History()
    for number, values in enumerate(logged, after + 1):
        for name, value in values.items():
            new = np.atleast_1d(np.asarray(value, np.float32))
            end = step_of(number) + 1
            history.extend(name, range(end - len(new), end), new)
    return history.to_numpy()
