"""The verbs of `Live` that repeat steps: view one, go back to one, try what would follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbmodule.base.foreign import framework_of
from nbmodule.base.format import bytes_of, format_count, format_number, plain
from nbmodule.base.kinds import is_real, is_whole
from nbmodule.errors import ArgumentError
from nbmodule.live.run_data.control import RATE
from nbmodule.live.run_data.state import Attempt, Branch, reduced_curves

if TYPE_CHECKING:
    from nbmodule.live.replay.keeper import Kept, StepKeeper
    from nbmodule.live.replay.replayed_step import ReplayedStep
    from nbmodule.live.run_data.control import Control
    from nbmodule.live.run_data.series import Outliers

ROOM = 64 * 2**20
"""Bytes that a run keeps of values, and as many of batches; of a large model one set of values."""
EVERY = 50
RATES = (0.3, 1.0, 3.0)
_MOST_RATES = 5
_MOST_PALE = 10
CHANGE_IN_PLACE = {"torch": "PyTorch", "keras": "Keras", "flax_nnx": "Flax NNX"}
"""Frameworks whose steps cannot be repeated."""


class ReplayVerbs:
    """The verbs of `Live` that repeat steps."""

    _keeper: StepKeeper | None
    _kept_bytes: int
    _kept_every: int

    def _set_keeping(self: Any, keep: bool | int | str, every: int) -> None:
        """Set how much is kept, once the run has begun."""
        if not is_whole(every) or every < 1:
            raise ArgumentError(
                f"keep_every must be at least 1 (steps between two snapshots), got {every!r}."
            )
        self._kept_bytes = ROOM if keep is True else 0 if keep is False else bytes_of(keep)
        self._kept_every, self._keeper = int(every), None

    def at(self: Any, step: int) -> ReplayedStep:
        """Repeat a step exactly, with everything recorded, and open it as `nb.inspect` does: batch,
        samples, returns, gradients.

        The run stays as it is. On a CPU the repeated step gives the bits of the one that ran; the
        view and `.is_exact` say how close it came. `.changes` compares with the step before.

        Args:
            step: The step, as the curves count.

        Raises:
            ArgumentError: If the step is not kept, or called nothing that can be repeated. The
                message says which steps are kept.

        Example:
            >>> import nbmodule as nb
            >>> model, optimizer = nb.Linear(3, 1), nb.SGD(0.1)
            >>> @nb.jit
            ... def step(x):
            ...     loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
            ...     optimizer.update(model, grads)
            ...     return loss
            >>> x = np.random.default_rng(0).normal(size=(20, 4, 3)).astype("float32")
            >>> with nb.Live(model, optimizer, display=False) as live:
            ...     for batch in live.steps(x):
            ...         live.log(loss=step(batch))
            >>> replay = live.at(7)
            >>> replay.is_exact, replay.calls[""].return_shapes, sorted(replay.gradients)
            (True, 'float32[4, 1]', ['bias', 'weight'])
        """
        return self._kept_steps("live.at").at(int(step))

    def rewind(self: Any, step: int) -> None:
        """Go back to the start of a step: variables, modes, random streams, controls, and the data
        from there on.

        In a loop that runs, it takes effect at the next boundary; the same items come again, the
        curves go on from there, and the old part stays as a pale curve. After the run only
        variables, modes and streams are restored, and later steps can no longer be repeated.

        Args:
            step: The step to be made next.

        Raises:
            ArgumentError: If the step is not kept, or its repeat differs. Nothing is changed.
        """
        keeper = self._kept_steps("live.rewind")
        keeper.find(int(step))
        if self.has_ended:
            last = format_count(self.step)
            keeper.rewind(int(step))
            text = f"rewound to step {format_count(int(step))} after the run"
            text += f": steps {format_count(int(step))} to {last} can no longer be repeated"
            self._state.messages.add(int(step), "note", text)
        else:
            self._loop.commands.put({"kind": "rewind", "step": int(step)})

    def values_at(self: Any, step: int) -> dict[str, Any]:
        """Return the arguments of the first compiled call of a step, by name, as they were.

        A loop that carries its state by hand (`params, loss = step(params, x)`) cannot be rewound,
        because its names belong to the loop; these are the values to go on with.

        Args:
            step: The step, as the curves count.

        Raises:
            ArgumentError: If the step cannot be repeated exactly. Nothing is changed.
        """
        return self._kept_steps("live.values_at").values_at(int(step))

    def what_if(
        self: Any,
        steps: int = 20,
        *,
        rates: Sequence[float] | None = None,
        control: str | None = None,
        values: Sequence[Any] = (),
        changes: Mapping[str, Callable[[], Any]] | None = None,
    ) -> list[Branch]:
        """Run the next steps from here once for each of several changes, without touching the run.

        The branches are drawn pale after the curves; a click takes one, and so does
        `live.take(number)`. They use the items that come next where the arguments of a step come
        from the item alone, otherwise the last items again (`.note` says so).

        Args:
            steps: Number of steps.
            rates: Factors of the learning rate; 0.3, 1 and 3 if nothing else is given.
            control: A control, whose `values` are tried.
            values: Its values.
            changes: Functions without arguments by label; each is called before the first step of
                its branch.

        Returns:
            One branch for each change, with `.label` and `.curves`.

        Raises:
            ArgumentError: If there is nothing to change, or no step that can be repeated.
        """
        keeper = self._kept_steps("live.what_if")
        named = (changes or {}).items()  # variables are restored by whoever tries a change
        attempts = [Attempt(str(label), make, lambda: None, make) for label, make in named]
        if control is not None:
            attempts += [
                self._attempt(f"{control} {_words(value)}", {control: value}) for value in values
            ]
        if rates is not None or not attempts:
            steered = {c.name: c.value for c in self.controls if _is_rate(c)}
            if not steered:
                raise ArgumentError(
                    "live.what_if() tries other learning rates, and this run has no control of "
                    "one. Give control= with values=, or changes={'label': function}."
                )
            attempts += [
                self._attempt(f"x {_words(rate)}", {n: v * rate for n, v in steered.items()})
                for rate in (RATES if rates is None else rates)
            ]
        branches = keeper.what_if(attempts, max(int(steps), 1))
        for branch in branches:
            self._kept.branch(branch.label, branch.curves, "what if").keep()
        return branches

    def try_fix(self: Any, rule: str, steps: int = 50) -> list[Branch]:
        """Try the fix of a verdict: the next steps with it and without it, as `what_if` runs them.

        Args:
            rule: Name of a rule in `live.diagnosis`.
            steps: Number of steps.

        Raises:
            ArgumentError: If the rule has found nothing, or its fix is not another learning rate.
        """
        diagnosis = self.diagnosis
        if rule not in diagnosis.names:
            names = ", ".join(diagnosis.names) or "nothing"
            raise ArgumentError(f"rule {rule!r} has no finding; rules with findings: {names}.")
        rates = [fix.rate for fix in diagnosis[rule].fixes if fix.rate is not None]
        if not rates:
            fixes = "; ".join(fix.label for fix in diagnosis[rule].fixes) or "none is known"
            raise ArgumentError(
                f"the fix of {rule!r} is no factor of the learning rate, but: {fixes}."
            )
        return self.what_if(steps, rates=[*rates, 1.0])

    def _attempt(self: Any, label: str, values: Mapping[str, Any]) -> Attempt:
        """Return the change of one or several controls."""
        controls = [self.controls[name] for name in values]
        checked = [c.check(v) for c, v in zip(controls, values.values(), strict=True)]

        def apply(chosen: Sequence[Any]) -> None:
            for control, value in zip(controls, chosen, strict=True):
                if control.apply is not None:
                    control.apply(value)

        def keep() -> None:
            for control, value in zip(controls, checked, strict=True):
                self.controls.set(control.name, value)

        return Attempt(
            label, lambda: apply(checked), lambda: apply([c.value for c in controls]), keep
        )

    def take(self: Any, number: int) -> None:
        """Go on as one of the branches of `what_if`: its change is made at the next boundary.

        Args:
            number: Its index in the list.

        Raises:
            ArgumentError: If there is no such branch.
        """
        count = len(self._state.branches)
        if not 0 <= number < count:
            raise ArgumentError(f"there is no branch {number}: live.what_if() returned {count}.")
        self._loop.commands.put({"kind": "take", "branch": number})

    def repeatable(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make calls of a function repeatable that is no `nb.jit`: a `jax.jit`, or plain code on
        arrays.

        The function must do nothing but return values and write variables of nbmodule.

        Args:
            function: The step, or a part of it.

        Raises:
            ArgumentError: If its closure holds a model of PyTorch, Keras or Flax NNX: those change
                in place, so a repeat would train them further.

        Example:
            >>> import nbmodule as nb
            >>> with nb.Live(display=False) as live:
            ...     step = live.repeatable(jax.jit(lambda w, x: (w - 0.1 * x, (w * x).sum())))
            ...     w = jnp.ones(3)
            ...     for x in live.steps([1.0, 2.0, 3.0]):
            ...         w, loss = step(w, x)
            ...         live.log(loss=loss)
            >>> live.at(2).is_exact
            True
        """
        from nbmodule.live.replay.tape import Repeatable

        native = _native_model(function)
        if native is not None:
            raise ArgumentError(
                f"live.repeatable cannot repeat {getattr(function, '__name__', 'the function')}: "
                f"it uses {type(native).__name__} of another framework, which changes in place, so "
                "a repeat would train it further. Convert the model to nbmodule to repeat its "
                "steps."
            )
        return Repeatable(function)

    @property
    def kept(self: Any) -> Kept:
        """The steps that can be repeated, and the memory that they take."""
        return self._kept_steps("live.kept").kept

    @property
    def outliers(self: Any) -> Outliers:
        """Steps whose loss stood out or was not finite, with their batches, the worst first."""
        return self._kept_steps("live.outliers").outliers

    @property
    def branches(self: Any) -> list[Branch]:
        """The branches of the last `what_if`, until one is taken."""
        return self._state.branches

    def _kept_steps(self: Any, verb: str) -> StepKeeper:
        if self._keeper is None:
            reason = "it had no step yet, or runs on several hosts"
            reason = reason if self._kept_bytes else "keep=False was given"
            raise ArgumentError(f"{verb} needs what the run keeps of its steps: {reason}.")
        return self._keeper

    # -- called at boundaries, in the thread of the loop, with the message of a page --

    def _what_if_now(self: Any, message: dict[str, Any]) -> None:
        """Run branches with the factors of the rate in a message, otherwise the usual ones."""
        rates = message.get("rates")
        if rates is not None:
            rates = [float(rate) for rate in rates[:_MOST_RATES] if rate > 0]
        self.what_if(int(message.get("steps", 20)), rates=rates)

    def _rewind_now(self: Any, message: dict[str, Any]) -> None:
        """Rewind."""
        keeper, step = self._kept_steps("live.rewind"), int(message["step"])
        first, done = self._state.iteration_of(step), self._state.count.done
        last = self._state.step_of(done)
        self._log_queue.settle(None)
        kept = [i for i in keeper.tape.iterations_from(first) if i.number <= done]
        lost = done - first + 1 - len(kept)
        iteration = keeper.rewind(step)
        self._leave_behind(step)
        self._loop.go_back(iteration.number - 1, iteration.epoch)
        text = f"rewound from step {format_count(last)}"
        if lost:
            text += f"; {format_count(lost)} of the later batches are no longer kept, so the loop "
            text += "does not get them again"
        self._state.messages.add(step, "note", text, mark="rewound")
        self._loop.tell_pages()

    def _take_now(self: Any, message: dict[str, Any]) -> None:
        """Make the change of a branch."""
        number, branches = int(message["branch"]), self._state.branches
        if 0 <= number < len(branches):
            self._state.branches = []
            branches[number].take()
            text = f"goes on with {plain(branches[number].label)}"
            self._state.messages.add(self.step, "note", text, mark="changed")

    def _leave_behind(self: Any, step: int) -> None:
        """Move the curves from a step on to the pale ones."""
        run = self._state
        if curves := reduced_curves(run.history, step):
            pale = Branch(f"left behind at step {format_count(run.count.step)}", curves)
            run.earlier = [*run.earlier, pale][-_MOST_PALE:]

        def forget() -> None:
            for kept in (run.history, *run.watched.values()):
                kept.cut(step)

        if self._journal is None:
            self._kept.left_behind(step).keep()
            forget()
        else:  # whose file keeps the points that it cuts off
            self._journal.write()
            self._journal.cut(step, forget)
        run.alarmed.clear()


def _native_model(function: Any) -> Any:
    """Return a model of another framework that a function reaches by name and that changes in
    place; None if there is none.
    """
    function = inspect.unwrap(function)
    if not hasattr(function, "__code__"):
        return None
    names = inspect.getclosurevars(function)
    values = [*names.nonlocals.values(), *names.globals.values()]
    values += [*(function.__defaults__ or ()), getattr(function, "__self__", None)]
    return next((v for v in values if framework_of(v) in CHANGE_IN_PLACE), None)


def _is_rate(control: Control) -> bool:
    """Return True if a control holds the learning rate of an optimizer (`learning rate G`)."""
    is_of_rate = control.name == RATE or control.name.startswith(f"{RATE} ")
    return is_of_rate and is_real(control.value)


def _words(value: object) -> str:
    return format_number(value) if is_real(value) else str(value)
