"""Keeps the steps of one run, and repeats any of them: `live.at`, `live.rewind`, `live.what_if`."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import framework_of
from nbmodule.base.format import count_noun, format_bytes, format_count
from nbmodule.base.interpreter import is_of_signal
from nbmodule.calls.track import track
from nbmodule.core.compiled.call_record import recording, recording_paused, set_listener
from nbmodule.core.compiled.capture import reachable
from nbmodule.core.numbers import random
from nbmodule.core.recording.tracker import describe, untracked
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.errors import ArgumentError
from nbmodule.live.replay.iterations import Iteration, Segment, copy_input
from nbmodule.live.replay.repeat import (
    NotReproducedError,
    Repeat,
    check_inputs,
    differs,
    restored,
    run_branches,
)
from nbmodule.live.replay.replayed_step import ReplayedStep, TrackedStep
from nbmodule.live.replay.saved_state import controls_of, names_of, restore_controls, stateful_roots
from nbmodule.live.replay.tape import Tape
from nbmodule.live.replay.verbs import CHANGE_IN_PLACE
from nbmodule.live.run_data.series import Outliers
from nbmodule.live.run_data.state import Attempt, Branch, RunState

_MORE_ROOM = "nb.Live(..., keep='1GB') keeps more of them."
_INSIDE = (
    "it was made inside a run that keeps its own steps, of which this one is a part. Repeat the "
    "step of that run, or give it keep=False: nb.Live(..., keep=False)"
)
_BY_HAND = (
    "the loop carries state by hand from step to step (it is given what an earlier step returned), "
    "and names of the loop cannot be put back"
)


class Kept(NamedTuple):
    """The steps of a run that can be repeated."""

    spans: list[tuple[int, int]]
    """First and last step of each contiguous part."""
    snapshots: int
    nbytes: int

    def __str__(self) -> str:
        if not self.spans:
            return "no step is kept"
        steps = ", ".join(
            f"{format_count(a)} to {format_count(b)}" if a != b else format_count(a)
            for a, b in self.spans
        )
        snapshots = count_noun(self.snapshots, "snapshot")
        return f"steps {steps} are kept ({snapshots}, {format_bytes(self.nbytes)} in all)"


class StepKeeper:
    """Records the steps of a run and repeats them.

    Args:
        run: The run.
        model: The module whose calls a repeated step shows; None if there is none.
        room: Bytes for values of variables, and as many for batches; one set of values is always
            kept.
        every: Steps from one set of values to the next.
        settle: Waits until what was logged has been read into the history.
    """

    def __init__(
        self, run: RunState, *, model: Any, room: int, every: int, settle: Callable[[], object]
    ) -> None:
        self._run, self._settle, self._model = run, settle, model
        self._roots = [root for _, root in stateful_roots(run)]
        self.tape = Tape(self._roots, room=room, every=every, cost=run.cost)
        self.outliers = Outliers(room)
        run.tape, run.outliers = self.tape, self.outliers
        self._coming: deque[Iteration] = deque()
        """Iterations that the loop gets before its iterator goes on."""
        self._expected: dict[int, Iteration] = {}
        """After a rewind: iterations as they were the first time, by number."""
        self._iterator: Iterator[Any] | None = None
        self._controls: dict[str, Any] = {}
        self._controls_version = -1
        self._no_calls = _why_no_calls(run.model)
        self._lock = threading.RLock()

    # -- called by the loop --

    def end(self) -> None:
        """Note that the loop is over, so that another run may listen; recorded steps stay."""
        self.tape.end_iteration()
        if recording.listener is self.tape:
            set_listener(None)

    def take(self, iterator: Iterator[Any]) -> Any:
        """Begin an iteration; return its item: one to be made again after a rewind, or the next one
        of the iterator.
        """
        run, cost = self._run, self._run.cost
        self._iterator = iterator
        if recording.listener is None:  # no run around this one listens to calls of this thread
            self.tape.thread = threading.get_ident()
            set_listener(self.tape)
        is_inside = recording.listener is not self.tape
        run.no_calls = _INSIDE if is_inside else self._no_calls
        self.tape.end_iteration()
        if self._coming:
            iteration = self._coming.popleft()
            _move_stream(iteration.drawn)  # the loader drew keys for the item
            run.count.epoch = iteration.epoch or run.count.epoch
        else:
            iteration = _pulled(iterator)
        begun = cost.begin()
        item = iteration.item
        if iteration.actions:  # made before: record it anew
            iteration = Iteration(item, iteration.made, iteration.drawn)
        if run.controls.version != self._controls_version:
            self._controls_version = run.controls.version
            self._controls = controls_of(run)
        iteration.number, iteration.epoch = run.count.done + 1, run.count.epoch
        iteration.controls = self._controls
        self.tape.begin(iteration)
        cost.end(begun)
        return item

    def notice(self) -> None:
        """Compare with what was expected, and keep steps whose loss stands out; at boundaries."""
        if self._expected:
            self._compare_with_first_time()
        for outlier in self.outliers.look(self._run.history):
            recorded = self.tape.iteration(self._run.iteration_of(outlier.step))
            if recorded is not None and recorded.segment is not None:
                self.outliers.keep(outlier, recorded.item if recorded.refilled() is None else None)
                self._pin(recorded.segment)

    def _compare_with_first_time(self) -> None:
        """After a rewind: report the first step that came out otherwise than the first time."""
        for number in [n for n in self._expected if n <= self._run.count.done]:
            before, after = self._expected.pop(number), self.tape.iteration(number)
            if after is None or after.controls != before.controls:
                self._expected = {}  # steered elsewhere on purpose
                return
            if differs(before, after):
                self._expected, step = {}, self._run.step_of(number)
                text = (
                    f"step {format_count(step)} came out otherwise than before the rewind: "
                    "something that the loop itself holds did not go back"
                )
                self._run.messages.add(step, "warning", text)
                return

    def new_shapes(self, number: int) -> str:
        """Return how the shapes of an item differ from those before, which makes a step compile."""
        after, before = self.tape.iteration(number), self.tape.iteration(number - 1)
        if after is None or before is None:
            return ""
        leaves, previous = jax.tree.leaves(after.item), jax.tree.leaves(before.item)
        pairs = zip(previous, leaves, strict=False)
        changed = [(a, b) for a, b in pairs if np.shape(a) != np.shape(b)]
        if not changed:
            return ""
        shapes = ", ".join(f"{describe(a)} → {list(np.shape(b))}" for a, b in changed[:3])
        is_shorter = all(np.shape(b)[:1] < np.shape(a)[:1] for a, b in changed)
        return f"new shapes, {shapes}" + ("; drop_last=True avoids it" if is_shorter else "")

    def _pin(self, segment: Segment) -> None:
        """Keep this segment before others, while half of the room stays for new ones."""
        pinned = [s for s in self.tape.segments if s.is_pinned]
        size = sum(s.nbytes + s.batches for s in (*pinned, segment))
        segment.is_pinned = segment.is_pinned or size <= self.tape.room // 2

    # -- called for a reader --

    @property
    def kept(self) -> Kept:
        """The steps that can be repeated."""
        if self._run.why_not_repeatable:
            return Kept([], 0, self._run.kept_bytes)
        step_of = self._run.step_of
        spans = [(step_of(a - 1) + 1, step_of(b)) for a, b in self.tape.spans()]
        return Kept(spans, len(self.tape.segments), self._run.kept_bytes)

    def find(self, step: int) -> Iteration:
        """Return the recorded iteration that made a step.

        Raises:
            ArgumentError: If it is not kept, or cannot be repeated.
        """
        recorded = self.tape.iteration(self._run.iteration_of(step))
        if recorded is None:
            raise _refusal(step, str(self.kept), hint=_MORE_ROOM)
        if self.tape.refusal:
            raise _refusal(step, self.tape.refusal)
        if not recorded.calls:
            is_early = step == self._run.count.step and self.tape.functions
            early = "it has called nothing yet. Call this after the step"
            raise _refusal(step, early if is_early else self._run.no_calls)
        return recorded

    @contextlib.contextmanager
    def _repeating(self, step: int, iteration: Iteration) -> Iterator[Repeat]:
        """Repeat steps inside; then all is as before, and a repeat that fails is refused.

        Raises:
            ArgumentError: If the repeat raises, or differs from what was recorded.
        """
        self.tape.catch_up()
        try:
            with self._lock, untracked(), restored(self.tape):
                yield Repeat(self.tape, iteration)
        except NotReproducedError as error:
            failed = self._run.step_of(error.number)
            where = "" if failed == step else f"at step {format_count(failed)} "
            raise _refusal(step, f"{where}{error.cause}") from None
        except Exception as error:
            if isinstance(error, ArgumentError) or is_of_signal(error):
                raise
            line = (str(error).splitlines() or [""])[0]
            raise _refusal(step, f"repeating it raised {type(error).__name__}: {line}") from error

    def at(self, step: int) -> ReplayedStep:
        """Repeat a step with everything recorded."""
        self._check_thread("look at a step")
        iteration = self.find(step)
        model, number = self._model or self._model_of(iteration), iteration.number
        run, previous, traced = None, None, {}
        with self._repeating(step, iteration) as repeat:
            first = repeat.segment.first
            if model is not None and first < number:
                repeat.go_to(number - 1)
                previous, _ = self._recorded(repeat, model)
            repeat.go_to(number)
            fault = self._run.nonfinite_input(step) or self._nonfinite_variable(step)
            if model is not None:
                run, traced = self._recorded(repeat, model)
            plain = _numbers(repeat.step())
        logged = {name: self._logged_at(name, step) for name in plain}
        steps = count_noun(number - first, "step")
        return ReplayedStep(
            step,
            iteration,
            model=model,
            run=run,
            previous=previous,
            values={
                name: (value, plain[name], (traced or plain).get(name, value))
                for name, value in logged.items()
                if value is not None
            },
            distance=f"{steps} repeated from step {format_count(first)}",
            fault=fault,
        )

    def _recorded(self, repeat: Repeat, model: Any) -> tuple[TrackedStep, dict[str, float]]:
        """Repeat the next iteration under a tracker, and go back."""
        go_back = repeat.mark()
        with track(model, gradients=True, last=1000) as calls:
            logged = _numbers(repeat.step(verify=False))
        go_back()
        gradients: dict[str, Any] = {}
        for number in sorted({call.step for call in calls}):  # one for each compiled call
            gradients |= calls.gradients_at(number)
        return TrackedStep(copy.copy(calls), gradients), logged

    def _nonfinite_variable(self, step: int) -> str:
        """Return a sentence on the first variable that is not finite now; '' if all are."""
        for variable, name in (pair for root in self._roots for pair in names_of(root).items()):
            value = variable.value
            if jnp.issubdtype(value.dtype, jnp.inexact) and not bool(jnp.isfinite(value).all()):
                return f"{name} before this step: see live.at({step - 1})"
        return ""

    def _model_of(self, iteration: Iteration) -> Any:
        """Return the largest module that the calls of an iteration can reach."""
        functions = [getattr(c.function, "__wrapped__", c.function) for c in iteration.calls]
        modules = [obj for function in functions for obj in reachable(function) if is_module(obj)]
        return max(modules, key=lambda m: len(plan_of(m).variables), default=None)

    def _logged_at(self, name: str, step: int) -> float | None:
        self._settle()
        history = self._run.history
        if name not in history:
            return None
        steps, values = history[name].since(0)
        logged = values[steps == step]
        return float(logged[-1]) if len(logged) else None

    def rewind(self, step: int) -> Iteration:
        """Restore all as it was before a step, so that the loop makes it and later ones again;
        return its iteration.
        """
        iteration = self.find(step)
        number = iteration.number
        again = self.tape.iterations_from(number)
        if any(later.carries_by_hand for later in again):
            hint = f"live.values_at({step}) gives the arguments of that step."
            raise _refusal(step, _BY_HAND, verb="rewound to", hint=hint)
        with self._repeating(step, iteration) as repeat:
            for later in again:
                check_inputs(later)
            repeat.go_to(number)
            go_back = repeat.mark()
            repeat.step()
        with self._lock, recording_paused():
            go_back()
            random.default._go_to(random.default._making.key, iteration.made)
        restore_controls(self._run, iteration.controls)
        cut = self.tape.cut(number)
        self.tape.ask_again()
        self._coming = deque([*cut, *self._coming])
        self._expected = {later.number: later for later in cut if later.calls}
        self.outliers.cut(step)
        self._run.branches = []
        return iteration

    def values_at(self, step: int) -> dict[str, Any]:
        """Repeat up to a step; return the arguments of its first call by name."""
        self._check_thread("look at a step")
        iteration = self.find(step)
        with self._repeating(step, iteration) as repeat:
            repeat.go_to(iteration.number)
            values = {
                name: jax.tree.map(_copied, value, is_leaf=is_stateful)
                for name, value in repeat.arguments(iteration.calls[0]).items()
            }
            repeat.step()
        return values

    def what_if(self, attempts: Sequence[Attempt], steps: int) -> list[Branch]:
        """Run the next steps once for each change, and leave the run as it is."""
        self._check_thread("look ahead")
        made = self.tape.iterations_from(0)
        if not made:
            raise ArgumentError(
                "live.what_if goes on from a step of the run, and none was made yet."
            )
        newest = made[-1]
        if newest.number < self._run.count.done:
            raise ArgumentError(
                "live.what_if goes on from the newest step, and its batch was too large to be "
                f"kept. {_MORE_ROOM}"
            )
        step = self._run.step_of(newest.number)
        self.find(step)
        self.tape.catch_up()
        coming = self._peek(steps)
        with self._repeating(step, newest) as repeat:
            self._run.branches = run_branches(
                repeat, newest, coming, attempts, steps, self._run.step_of
            )
        return self._run.branches

    def _peek(self, count: int) -> list[Any]:
        """Return the next items; the loop gets them later as if nothing had been taken."""
        while len(self._coming) < count and self._iterator is not None:
            try:
                iteration = _pulled(self._iterator, self._run.count.epoch)
            except StopIteration:
                break
            # the next item may be put into the same memory
            iteration.item = jax.tree.map(copy_input, iteration.item, is_leaf=is_stateful)
            self._coming.append(iteration)
            _move_stream(-iteration.drawn)
        return [iteration.item for iteration in list(self._coming)[:count]]

    def _check_thread(self, action: str) -> None:
        """Refuse while a step runs in another thread, which would find its variables changed."""
        if self._run.count.state == "running" and threading.get_ident() != self.tape.thread:
            raise ArgumentError(
                f"cannot {action} while the loop runs in another thread: live.pause() first."
            )


def _why_no_calls(model: Any) -> str:
    """Return why no call of a step is seen, and what to do, by the framework of the model."""
    framework = CHANGE_IN_PLACE.get(framework_of(model) or "")
    fix = ". Compile the step with nb.jit, or hand it over: step = live.repeatable(step)"
    reason = f", and steps of {framework} change in place" if framework else fix
    return f"it called no compiled function that was seen{reason}"


def _copied(leaf: Any) -> Any:
    """Copy an array that a later call may overwrite."""
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf


def _refusal(step: int, cause: str, *, verb: str = "repeated", hint: str = "") -> ArgumentError:
    text = f"step {format_count(step)} cannot be {verb}: {cause.rstrip('.')}. The run is unchanged."
    return ArgumentError(f"{text} {hint}".rstrip())


def _pulled(iterator: Iterator[Any], epoch: int = 0) -> Iteration:
    """Return the next item of an iterator, with how many keys it drew for it."""
    making = random.default._making.count
    before = making._count
    iteration = Iteration(next(iterator), before, 0)
    if making._count is not before and type(before) is int and type(making._count) is int:
        iteration.drawn = making._count - before
    iteration.epoch = epoch
    return iteration


def _move_stream(by: int) -> None:
    """Count more or fewer keys of the default stream as drawn."""
    making = random.default._making.count
    if type(making._count) is int:
        making._count += by


def _numbers(logged: dict[str, Any]) -> dict[str, float]:
    return {name: float(np.asarray(value)) for name, value in logged.items() if np.size(value) == 1}
