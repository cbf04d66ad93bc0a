"""Keeps the steps of one run, and makes any of them again on demand: `live.at`, `live.rewind`,
`live.what_if`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import framework_of
from nbmodule.base.format import count_noun, format_bytes, format_count
from nbmodule.base.kinds import Shaped
from nbmodule.base.signals import is_of_signal
from nbmodule.calls.calls import Calls
from nbmodule.calls.track import track
from nbmodule.core.compiled.call_record import recording, recording_paused, set_listener
from nbmodule.core.compiled.capture import reachable
from nbmodule.core.numbers import random
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.errors import ArgumentError
from nbmodule.live.replay.copies import is_refillable
from nbmodule.live.replay.futures import run_futures
from nbmodule.live.replay.moment import Moment, Repeated
from nbmodule.live.replay.repeat import (
    NotReproducedError,
    Repeat,
    as_it_was,
    check_inputs,
    differs,
    repeated,
)
from nbmodule.live.replay.saved_state import names_of, stateful_roots
from nbmodule.live.replay.tape import Tape
from nbmodule.live.replay.turns import Segment, Turn
from nbmodule.live.run.future import Attempt, Future
from nbmodule.live.run.outliers import Outliers
from nbmodule.live.run.state import RunState
from nbmodule.views.panels.inspected_run import ran_of

_NO_CONTROLS = frozenset({"watch"})
"""Controls that are no part of the training."""


class Kept(NamedTuple):
    """What of a run can be repeated."""

    spans: list[tuple[int, int]]
    """First and last step of what is kept."""
    snapshots: int
    nbytes: int

    def __str__(self) -> str:
        if not self.spans:
            return "no step is kept"
        steps = ", ".join(
            f"{format_count(a)} to {format_count(b)}" if a != b else format_count(a)
            for a, b in self.spans
        )
        return f"steps {steps} are kept ({count_noun(self.snapshots, 'snapshot')}, {format_bytes(self.nbytes)} in all)"


class StepKeeper:
    """What a run keeps of its steps.

    Args:
        run: The run.
        model: The module whose calls are shown of a repeated step; None if there is none.
        room: Bytes for values of variables, and as many for batches; one set of values is kept
            always.
        every: Steps from one set of values to the next.
        settle: Waits until what was logged has been read into the history.
    """

    def __init__(
        self,
        run: RunState,
        *,
        model: Any,
        room: int,
        every: int,
        settle: Callable[[], object],
    ) -> None:
        self._run, self._settle = run, settle
        # no others: what is not repeated may be freed after the run
        self._named_roots = list(stateful_roots(run))
        roots = [root for _, root in self._named_roots]
        self.tape = Tape(roots, room=room, batches=room, every=every, cost=run.each_step)
        self.outliers = Outliers(room)
        run.tape, run.outliers = self.tape, self.outliers
        self._model = model
        self._again: deque[Turn] = deque()
        self._expected: dict[int, Turn] = {}
        """After a rewind: turns as they were the first time, by number."""
        self._iterator: Iterator[Any] | None = None
        self._taken: Turn | None = None
        self._controls: dict[str, Any] = {}
        self._steered: dict[str, Any] = {}
        """While steps are repeated, controls as they are set for it."""
        self.tape.controls, self.tape.steer = run.controls, self._steer
        self._controls_of = -1
        self._without_calls = _why_no_calls(run.model)
        self._lock = threading.RLock()

    # What the loop calls.

    def end(self) -> None:
        """What is called from now on belongs to no turn; another run may listen."""
        self.tape.end_turn()
        self.close()

    def close(self) -> None:
        """Listen no longer; what is kept stays."""
        if recording.listener is self.tape:
            set_listener(None)

    def take(self, iterator: Iterator[Any]) -> Any:
        """Give the next item: one that is to be made again after a rewind, else the next of the
        iterator.
        """
        self._iterator = iterator
        if recording.listener is None:  # no run around this one listens to the calls of this thread
            self.tape.thread = threading.get_ident()
            set_listener(self.tape)
        is_within = recording.listener is not self.tape
        self._run.no_calls = _WITHIN if is_within else self._without_calls
        self.tape.end_turn()
        if self._again:
            turn = self._again.popleft()
            making = random.default._making.count
            if (
                turn.drawn and type(making._count) is int
            ):  # the loader drew keys for this item, as it had done then
                making._count += turn.drawn
            self._run.count.epoch = turn.epoch or self._run.count.epoch
        else:
            turn = _pulled(iterator)
        self._taken = turn
        return turn.item

    def begin(self, number: int, epoch: int) -> None:
        """Note that a turn begins."""
        cost = self._run.each_step
        if not cost.is_on:
            self._begin_turn(number, epoch)
            return
        begun = time.thread_time()
        self._begin_turn(number, epoch)
        cost.add(time.thread_time() - begun)

    def _begin_turn(self, number: int, epoch: int) -> None:
        taken = self._taken
        if taken is None:
            return
        self._taken = None
        if taken.acts:  # it was made before: it is noted anew
            taken = _fresh(taken)
        if self._run.controls.version != self._controls_of:
            self._learn_controls()
        taken.number, taken.epoch, taken.controls = number, epoch, self._controls
        self.tape.begin(taken)

    def _learn_controls(self) -> None:
        controls = self._run.controls
        self._controls_of = controls.version
        self._controls = {c.name: c.value for c in controls if c.name not in _NO_CONTROLS}

    def notice(self) -> None:
        """Look at the losses that have come; called at boundaries."""
        if self._expected:
            self._compare_again()
        for step in self.outliers.look(self._run.history):
            found = self.tape.turn(self._run.turn_of(step))
            if found is not None:
                self.outliers.keep(step, found[1].item)
                self._pin(found[0])

    def new_shapes(self, turn: int) -> str:
        """What of a turn's item is of another shape than in the turn before: what a compiled step
        is compiled anew for.
        """
        now, before = self.tape.turn(turn), self.tape.turn(turn - 1)
        if now is None or before is None:
            return ""
        pairs = list(
            zip(jax.tree.leaves(before[1].item), jax.tree.leaves(now[1].item), strict=False)
        )
        other = [(a, b) for a, b in pairs if np.shape(a) != np.shape(b)]
        if not other:
            return ""
        said = ", ".join(f"{_kind(a)} → {list(np.shape(b))}" for a, b in other[:3])
        fewer = all(np.shape(b)[:1] < np.shape(a)[:1] for a, b in other)
        return f"new shapes, {said}" + ("; drop_last=True avoids it" if fewer else "")

    def _pin(self, segment: Segment) -> None:
        """Keep this segment before others, while half of the room stays for new ones."""
        pinned = sum(
            s.nbytes + s.batches for s in self.tape.segments if s.first in self.tape.pinned
        )
        if pinned + segment.nbytes + segment.batches <= self.tape.room // 2:
            self.tape.pinned.add(segment.first)

    # What a reader asks for.

    @property
    def nbytes(self) -> int:
        """Bytes that are kept: values of variables, batches, and those of the steps that stand out."""
        return self._run.kept_bytes

    @property
    def kept(self) -> Kept:
        """What can be repeated."""
        if self._run.why_not_repeatable:
            return Kept([], 0, self.nbytes)
        step_of = self._run.step_of
        spans = [(step_of(a - 1) + 1, step_of(b)) for a, b in self.tape.spans()]
        return Kept(spans, len(self.tape.segments), self.nbytes)

    def find(self, step: int) -> tuple[Segment, Turn]:
        """The kept turn that made a step.

        Raises:
            ArgumentError: if it is not kept, or cannot be repeated.
        """
        found = self.tape.turn(self._run.turn_of(step))
        if found is None:
            raise ArgumentError(
                f"step {format_count(step)} cannot be repeated: {self.kept}. Nothing was changed. "
                "nb.Live(..., keep='1GB') keeps more of them."
            )
        if self.tape.why:
            raise ArgumentError(_refusal(step, self.tape.why))
        if not found[1].calls and step == self._run.step and self.tape.functions:
            raise ArgumentError(
                _refusal(step, "it has called nothing yet", fix="Call this after the step. ")
            )
        if not found[1].calls:
            raise ArgumentError(_refusal(step, self._run.no_calls))
        return found

    def _names(self) -> dict[Any, str]:
        """Return the names of variables of model and optimizer in their `state_dict()`, below the
        names that the user gave to several of them.
        """
        found: dict[Any, str] = {}
        for prefix, root in self._named_roots:
            for box, own in names_of(root).items():
                found.setdefault(box, f"{prefix}/{own}")
        return found

    def at(self, step: int) -> Moment:
        """Repeat a step with everything recorded."""
        self._check_place("look at a step")
        _, turn = self.find(step)
        with self._repeating(step):
            return Moment(self._repeat_recorded(step, turn))

    @contextlib.contextmanager
    def _repeating(self, step: int) -> Iterator[None]:
        """Repeat steps inside; everything is then as before, and a repeat that fails is refused.

        Raises:
            ArgumentError: If the repeat raises, or differs from what was recorded.
        """
        self.tape.catch_up()
        try:
            with self._lock, untracked(), as_it_was(self.tape):
                yield
        except NotReproducedError as fault:
            at = self._run.step_of(fault.turn)
            where = "" if at == step else f"at step {format_count(at)} "
            raise ArgumentError(_refusal(step, f"{where}{fault.cause}")) from None
        except ArgumentError:
            raise
        except Exception as error:
            if is_of_signal(error):
                raise
            line = (str(error).splitlines() or [""])[0]
            cause = f"repeating it raised {type(error).__name__}: {line}"
            raise ArgumentError(_refusal(step, cause)) from error

    def _repeat_recorded(self, step: int, turn: Turn) -> Repeated:
        model, number = self._model or self._model_of(turn), turn.number
        segment = self.tape.turn(number)
        assert segment is not None
        has_before = (
            model is not None
            and self.tape.turn(number - 1) is not None
            and segment[0].turn(number - 1) is not None
        )
        repeat, _ = repeated(self.tape, number - 1 if has_before else number)
        before, gradients_before = Calls(), {}
        if has_before:
            mark = repeat.mark()
            before, gradients_before, _ = self._recorded(repeat, model)
            repeat.go_back(mark)
            repeat.turn()
        mark = repeat.mark()
        poisoned = self._first_nonfinite_variable()
        plain = _numbers(repeat.turn())
        seen, calls, gradients, ran, why = (
            plain,
            None,
            {},
            None,
            "no nb.Module is known to this run: what the step called is not known",
        )
        if model is not None:
            repeat.go_back(mark)
            calls, gradients, seen = self._recorded(repeat, model)
            seen, ran = _numbers(seen), ran_of(model, calls)
        run = {name: self._logged_at(name, step) for name in plain}
        logged = {n: (v, plain[n], seen.get(n, v)) for n, v in run.items() if v is not None}
        about = f"{count_noun(number - segment[0].first, 'step')} repeated from step {format_count(segment[0].first)}"
        return Repeated(
            step,
            turn.item,
            calls,
            gradients,
            before if has_before else None,
            gradients_before,
            ran,
            logged,
            about,
            why,
            self._run.nonfinite_input(step),
            poisoned,
        )

    def _first_nonfinite_variable(self) -> str:
        """Return the name of the first variable that is not finite now; '' if all are finite."""
        for variable, name in self._names().items():
            value = variable.value
            if jnp.issubdtype(value.dtype, jnp.inexact) and not bool(jnp.isfinite(value).all()):
                return name.partition("/")[2]
        return ""

    def _recorded(self, repeat: Repeat, model: Any) -> tuple[Calls, dict[str, Any], dict[str, Any]]:
        with track(model, gradients=True, last=1000) as calls:
            logged = repeat.turn(verify=False)
        gradients = (
            dict(calls.gradients) if len(calls) else {}
        )  # the model of the run may be none that the step calls
        return (
            Calls(list(calls), name=calls.name, known=calls.known, notes=calls.notes),
            gradients,
            logged,
        )

    def _model_of(self, turn: Turn) -> Any:
        """The largest module that the calls of a turn can reach."""
        found = [
            thing
            for call in turn.calls
            for thing in reachable(getattr(call.function, "__wrapped__", call.function))
        ]
        modules = [thing for thing in found if is_module(thing)]
        return max(modules, key=lambda m: len(plan_of(m).boxes), default=None)

    def _logged_at(self, name: str, step: int) -> float | None:
        self._settle()
        history = self._run.history
        if name not in history:
            return None
        steps, values = history[name].since(0)
        where = np.flatnonzero(steps == step)
        return float(values[where[-1]]) if len(where) else None

    def items_lost(self, step: int) -> str:
        """Which of the items from a step to now are not kept, and so do not come again after a
        rewind; '' if all do.
        """
        step_of = self._run.step_of
        gaps = self.tape.missing(self._run.turn_of(step), self._run.count.done)
        return ", ".join(
            f"{format_count(step_of(a - 1) + 1)} to {format_count(step_of(b))}" for a, b in gaps
        )

    def rewind(self, step: int) -> int:
        """Put everything back to where it was before a step, and let the loop make it and all later
        ones again; gives its turn.
        """
        _, turn = self.find(step)
        number = turn.number
        carried = next((t for t in self.tape.turns_from(number) if t.carries_by_hand), None)
        if carried is not None:
            raise ArgumentError(
                _refusal(
                    step,
                    "the loop carries state by hand from step to step (it is given what an earlier "
                    "step returned), and names of the loop cannot be put back",
                    verb="rewound to",
                    fix=f"live.values_at({step}) gives the arguments of that step. ",
                )
            )
        with self._repeating(step):
            for later in self.tape.turns_from(number):
                check_inputs(later)
            repeat, _ = repeated(self.tape, number)
            mark = repeat.mark()
            repeat.turn()
        with self._lock, recording_paused():
            repeat.go_back(mark)
            random.default._go_to(random.default._making.key, turn.made)
        self._set_controls(turn.controls)
        self.tape.steer(None)
        cut = self.tape.cut(number)
        self.tape.ask_again()
        self._again = deque([*cut, *self._again])
        self._expected = {turn.number: turn for turn in cut if turn.calls}
        self.outliers.cut(step)
        self.forget_futures()
        return number

    def values_at(self, step: int) -> dict[str, Any]:
        """Repeat up to a step; return the arguments of its first call by name."""
        self._check_place("look at a step")
        _, turn = self.find(step)
        with self._repeating(step):
            repeat, _ = repeated(self.tape, turn.number)
            values = repeat.arguments(turn.calls[0])
            values = {
                name: jax.tree.map(_apart, value, is_leaf=is_stateful)
                for name, value in values.items()
            }
            repeat.turn()
        return values

    def _compare_again(self) -> None:
        """After a rewind: say which step came out otherwise than the first time."""
        done = self._run.count.done
        for number in sorted(n for n in self._expected if n <= done):
            before, found = self._expected.pop(number), self.tape.turn(number)
            if found is None or found[1].controls != before.controls:
                self._expected = {}  # it was steered elsewhere on purpose
                return
            if differs(before, found[1]):
                self._expected = {}
                step = self._run.step_of(number)
                self._run.messages.add(
                    step,
                    "warning",
                    f"step {format_count(step)} came out otherwise than before the rewind: something "
                    "that the loop itself holds did not go back",
                )
                return

    def _steer(self, values: Mapping[str, Any] | None) -> None:
        is_over = self._run.has_ended
        for control in self._run.controls:
            if control.again is None:
                continue
            set_now = self._steered.get(control.name, None if is_over else control.value)
            wanted = control.value if values is None else values.get(control.name, control.value)
            if set_now != wanted:
                control.again.set(wanted)
            self._steered[control.name] = wanted
            if values is None and is_over:
                control.again.settle()
        if values is None:
            self._steered.clear()

    def _set_controls(self, values: dict[str, Any]) -> None:
        controls = self._run.controls
        for name, value in values.items():
            if name in controls and controls[name].value != value:
                controls.set(name, value)

    def what_if(self, trials: Sequence[Attempt], steps: int) -> list[Future]:
        """Run the next steps from here once for each change, and leave the run as it is."""
        self._check_place("look ahead")
        newest = (
            self.tape.segments[-1].turns[-1]
            if self.tape.segments and self.tape.segments[-1].turns
            else None
        )
        if newest is None:
            raise ArgumentError(
                "live.what_if goes on from a step of the run, and none was made yet. Nothing was changed."
            )
        if newest.number < self._run.count.done:
            raise ArgumentError(
                "live.what_if goes on from the newest step, and its batch was too large to be kept. Nothing was changed. "
                "nb.Live(..., keep='1GB') keeps more of them."
            )
        self.find(self._run.step_of(newest.number))
        self.tape.catch_up()
        coming = self._peek(steps)
        with self._repeating(self._run.step_of(newest.number)):
            futures = run_futures(self.tape, newest, coming, trials, steps, self._run.step_of)
        self._run.futures = futures
        return futures

    def _peek(self, count: int) -> list[Any]:
        """The next items; the loop is given them later as if nothing had looked."""
        while len(self._again) < count and self._iterator is not None:
            with contextlib.suppress(StopIteration):
                turn = _pulled(self._iterator, self._run.count.epoch)
                turn.item = jax.tree.map(  # the next item may be put into the same memory
                    lambda leaf: leaf.copy() if is_refillable(leaf) else leaf,
                    turn.item,
                    is_leaf=is_stateful,
                )
                self._again.append(turn)
                making = random.default._making.count
                if type(making._count) is int:
                    making._count -= self._again[-1].drawn
                continue
            break
        return [turn.item for turn in list(self._again)[:count]]

    def forget_futures(self) -> None:
        """Let go of what was looked at ahead."""
        self._run.futures = []

    def _check_place(self, what: str) -> None:
        """A step that is running in another thread must not find its variables changed."""
        if self._run.count.state == "running" and threading.get_ident() != self.tape.thread:
            raise ArgumentError(
                f"cannot {what} while the loop runs in another thread: live.pause() first. Nothing was changed."
            )


_WITHIN = (
    "it was made inside a run that keeps its own steps, of which this one is a part. Repeat the step "
    "of that run, or give it keep=False: nb.Live(..., keep=False)"
)


def _why_no_calls(model: Any) -> str:
    """Say why no call of a step is seen, and what to do, by the framework of the model."""
    framework = framework_of(model)
    if framework in ("torch", "keras", "flax_nnx"):
        name = {"torch": "PyTorch", "keras": "Keras", "flax_nnx": "Flax NNX"}[framework]
        return f"it called no compiled function that was seen, and steps of {name} change in place"
    return (
        "it called no compiled function that was seen. Compile the step with nb.jit, or hand it "
        "over: step = live.repeatable(step)"
    )


def _apart(leaf: Any) -> Any:
    """Copy an array that a later call may overwrite."""
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf


def _refusal(step: int, cause: str, *, verb: str = "repeated", fix: str = "") -> str:
    cause = cause.rstrip(".")
    return f"step {format_count(step)} cannot be {verb}: {cause}. {fix}Nothing was changed."


def _pulled(iterator: Iterator[Any], epoch: int = 0) -> Turn:
    """The next item of an iterator, and how many keys it drew for it."""
    making = random.default._making.count
    before = making._count
    turn = Turn(next(iterator), before, 0)
    if making._count is not before and type(before) is int and type(making._count) is int:
        turn.drawn = making._count - before
    turn.epoch = epoch
    return turn


def _fresh(turn: Turn) -> Turn:
    return Turn(turn.item, turn.made, turn.drawn)


def _kind(x: Shaped) -> str:
    return f"{getattr(x, 'dtype', type(x).__name__)}{list(np.shape(x))}"


def _numbers(logged: dict[str, Any]) -> dict[str, float]:
    return {name: float(np.asarray(value)) for name, value in logged.items() if np.size(value) == 1}
