"""The part of `Live` that goes back: any step again, from any step on again, and what would follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbmodule.base.foreign import framework_of
from nbmodule.base.format import bytes_of, format_count, format_number, plain
from nbmodule.base.whole_numbers import is_whole
from nbmodule.errors import ArgumentError
from nbmodule.live.run.control import RATE
from nbmodule.live.run.future import Attempt, Future

if TYPE_CHECKING:
    from nbmodule.live.replay.keeper import Kept, StepKeeper
    from nbmodule.live.replay.moment import Moment
    from nbmodule.live.run.control import Control
    from nbmodule.live.run.outliers import Outliers

ROOM = 64 * 2**20
"""Bytes that a run keeps of the values of its variables, and as many of its batches; of large models one set of values."""
EVERY = 50
RATES = (0.3, 1.0, 3.0)
_IN_PLACE = ("torch", "keras", "nnx", "flax_nnx")


class Revisited:
    """The part of `Live` that goes back."""

    _keeper: StepKeeper | None
    _kept_bytes: int
    _kept_every: int

    def _keep(self: Any, keep: bool | int | str, every: int) -> None:
        """Take the settings; nothing is kept before the first step."""
        if not is_whole(every) or every < 1:
            raise ArgumentError(
                f"keep_every counts the steps between two snapshots, from 1; found {every!r}"
            )
        self._kept_bytes = ROOM if keep is True else 0 if keep is False else bytes_of(keep)
        self._kept_every, self._keeper = int(every), None

    def at(self: Any, step: int) -> Moment:
        """Repeat a step exactly, with everything recorded, and open it as `nb.inspect` does: batch,
        returns, gradients.

        The run is left as it is. On a CPU the repeated step gives the very bits of the one that
        ran; how close it came is said in the view and in `.is_exact`. The step before stands beside
        it: `.changes` tells what grew.

        Args:
            step: The step, as the curves count.

        Raises:
            ArgumentError: if the step is not kept, or called nothing that can be repeated; which
                steps are kept is said.

        Example:
            >>> import nbmodule as nb
            >>> model, optimizer = nb.Linear(3, 1), nb.SGD(0.1)
            >>> @nb.jit
            ... def step(x):
            ...     loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
            ...     optimizer.update(model, grads)
            ...     return loss
            >>> with nb.Live(model, optimizer, display=False) as live:
            ...     for x in live.steps(np.random.default_rng(0).normal(size=(20, 4, 3)).astype("float32")):
            ...         live.log(loss=step(x))
            >>> moment = live.at(7)
            >>> moment.is_exact, moment.calls[''].return_shapes, sorted(moment.gradients)
            (True, 'float32[4, 1]', ['bias', 'weight'])
        """
        return self._kept_steps("live.at").at(int(step))

    def rewind(self: Any, step: int) -> None:
        """Go back to the beginning of a step: variables, modes, random streams, controls, and the
        data from there on.

        In a loop that runs it takes effect at the next boundary; the same items come again, the
        curves go on from there, and what is left behind stays as a pale curve. After the run only
        variables, modes and streams are put back.

        Args:
            step: The step that is to be made next.

        Raises:
            ArgumentError: if the step is not kept; which steps are is said. Nothing is changed
                then.
        """
        keeper = self._kept_steps("live.rewind")
        keeper.find(int(step))
        if self.has_ended:
            keeper.rewind(int(step))
        else:
            self._loop.commands.put("page", message={"kind": "rewind", "step": int(step)})

    def values_at(self: Any, step: int) -> dict[str, Any]:
        """Return the arguments of the first compiled call of a step, by name, as they were then.

        A loop that carries its state by hand (`params, loss = step(params, x)`) cannot be rewound,
        because its names belong to the loop; these are the values to go on with.

        Args:
            step: The step, as the curves count.

        Raises:
            ArgumentError: If the step cannot be repeated exactly. Nothing is changed then.
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
    ) -> list[Future]:
        """Run the next steps from here once for each of several changes, without touching the run.

        The futures are drawn pale ahead of the curves; a click takes one, and so does
        `live.take(number)`. They are made of the items that come next where the calls of a step are
        made of the item alone, else of the last ones again (`.note` says so).

        Args:
            steps: How many steps.
            rates: Factors of the learning rate; 0.3, 1 and 3 where nothing else is asked for.
            control: A control, whose `values` are tried.
            values: Its values.
            changes: Functions of nothing by label; each is called before the first step of its
                future.

        Returns:
            One future for each, with `.label` and `.curves`.

        Raises:
            ArgumentError: if there is nothing to change, or no step that can be repeated.
        """
        keeper = self._kept_steps("live.what_if")
        wanted = self._trials(rates, control, values, changes or {})
        return keeper.what_if(wanted, max(int(steps), 1))

    def try_fix(self: Any, rule: str, steps: int = 50) -> list[Future]:
        """Try the fix of a verdict: the next steps with it and without it, as `what_if` runs them.

        Args:
            rule: Name of a rule in `live.diagnosis`.
            steps: How many steps.

        Raises:
            ArgumentError: If the rule has found nothing, or its fix is not another learning rate.
        """
        diagnosis = self.diagnosis
        if rule not in diagnosis.names:
            named = ", ".join(diagnosis.names) or "nothing"
            raise ArgumentError(f"rule {rule!r} has found nothing; found: {named}.")
        rates = [fix.rate for fix in diagnosis[rule].fixes if fix.rate is not None]
        if not rates:
            fixes = "; ".join(fix.label for fix in diagnosis[rule].fixes) or "none is known"
            raise ArgumentError(f"the fix of {rule!r} is no learning rate, but: {fixes}.")
        return self.what_if(steps, rates=[*rates, 1.0])

    def take(self: Any, number: int) -> None:
        """Go on as one of the futures of `what_if` does: its change is made at the next boundary.

        Args:
            number: Its place in the list.

        Raises:
            ArgumentError: if there is no such future.
        """
        futures = self.state.futures
        if not 0 <= number < len(futures):
            raise ArgumentError(
                f"there is no future {number}: live.what_if() has given {len(futures)}. Nothing was changed."
            )
        self._loop.commands.put("page", message={"kind": "take", "future": number})

    def repeatable(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function whose calls this run can repeat, of one that is no `nb.jit`: a `jax.jit`,
        or plain code on arrays.

        It must do nothing beside what it returns and what it writes into variables of nbmodule.

        Args:
            function: The step, or a part of it.

        Raises:
            ArgumentError: If its closure holds a model or optimizer of PyTorch, Keras or Flax NNX:
                those change in place, so a repeat would train them further.

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

        held = _native_object(function)
        if held is not None:
            raise ArgumentError(
                f"live.repeatable cannot repeat {getattr(function, '__name__', 'the function')}: it "
                f"uses {type(held).__name__} of another framework, which changes in place, so a "
                "repeat would train it further. Convert the model to nbmodule to repeat its steps."
            )
        return Repeatable(function)

    @property
    def kept(self: Any) -> Kept:
        """Which steps can be repeated, and what keeping them takes."""
        return self._kept_steps("live.kept").kept

    @property
    def outliers(self: Any) -> Outliers:
        """Steps whose loss stood out or was not finite, with their batches, the worst first."""
        return self._kept_steps("live.outliers").outliers

    @property
    def futures(self: Any) -> list[Future]:
        """What `what_if` has given last, until one is taken."""
        return self.state.futures

    def _kept_steps(self: Any, what: str) -> StepKeeper:
        if self._keeper is None:
            why = (
                "keep=False was given"
                if not self._kept_bytes
                else "it had no step yet, or runs on several hosts"
            )
            raise ArgumentError(
                f"{what} needs what the run keeps of its steps: {why}. Nothing was changed."
            )
        return self._keeper

    def _trials(
        self: Any,
        rates: Any,
        control: str | None,
        values: Sequence[Any],
        changes: Mapping[str, Callable[[], Any]],
    ) -> list[Attempt]:
        wanted = [
            Attempt(str(label), change, _nothing, change) for label, change in changes.items()
        ]
        if control is not None:
            wanted += [self._setting(control, v, f"{control} {_spelled(v)}") for v in values]
        if rates is not None or not wanted:
            steered = [each.name for each in self.controls if _is_rate(each)]
            if not steered:
                raise ArgumentError(
                    "live.what_if() tries other learning rates, and this run has no control of one. Nothing was changed. "
                    "Give control= with values=, or changes={'label': function}."
                )
            for rate in RATES if rates is None else rates:
                label = f"x {_spelled(rate)}"
                wanted.append(
                    _together(
                        label,
                        [self._setting(n, self.controls[n].value * rate, label) for n in steered],
                    )
                )
        return wanted

    def _setting(self: Any, name: str, value: object, label: str) -> Attempt:
        control = self.controls[name]
        value = control.check(value)

        def apply(chosen: object) -> None:
            if control.apply is not None:
                control.apply(chosen)

        return Attempt(
            label,
            lambda: apply(value),
            lambda: apply(control.value),
            lambda: self.controls.set(name, value),
        )

    # What the boundary asks for.

    def rewind_now(self: Any, step: int) -> None:
        """Rewind at a boundary, in the thread of the loop."""
        keeper = self._kept_steps("live.rewind")
        left = self.step_of(self.state.count.done)
        self._intake.settle(None)
        lost = keeper.items_lost(step)
        turn = keeper.rewind(step)
        self._leave_behind(step)
        self._loop.go_back(turn - 1)
        more = (
            f"; the data of steps {lost} is no longer kept and does not come again" if lost else ""
        )
        self.messages.add(
            step, "note", f"rewound from step {format_count(left)}{more}", mark="rewound"
        )

    def take_now(self: Any, number: int) -> None:
        """Make the change of a future, at a boundary."""
        keeper = self._kept_steps("live.take")
        futures = self.state.futures
        if not 0 <= number < len(futures):
            return
        future = futures[number]
        keeper.forget_futures()
        future.take()
        self.messages.add(self.step, "note", f"goes on with {plain(future.label)}", mark="changed")

    def _leave_behind(self: Any, step: int) -> None:
        from nbmodule.live.run.earlier import left_behind

        run = self.state
        behind = left_behind(run.history, step, f"left behind at step {format_count(run.step)}")
        if behind is not None:
            run.left_behind = [*run.left_behind, behind][-5:]

        def forget() -> None:
            run.history.cut(step)
            for strips in run.watched.values():
                strips.cut(step)

        if self._journal is None:
            forget()
        else:
            self._journal.cut(step, forget)
        self._alarms.forget()
        self._intake.newest.clear()


def _native_object(function: Any) -> Any:
    """Return an object of another framework that a function reaches by name and that changes in
    place; None if there is none.
    """
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    values = list(inspect.getclosurevars(function).nonlocals.values())
    values += [function.__globals__.get(name) for name in code.co_names]
    values += [*(function.__defaults__ or ()), getattr(function, "__self__", None)]
    return next((v for v in values if _changes_in_place(v)), None)


def _changes_in_place(value: object) -> bool:
    root = type(value).__module__.partition(".")[0]
    if root in ("torch", "keras"):
        return hasattr(value, "parameters") or hasattr(value, "param_groups") or root == "keras"
    return type(value).__module__.startswith("flax.nnx") or framework_of(value) in _IN_PLACE


def _is_rate(control: Control) -> bool:
    """Whether a control holds a learning rate: of the optimizer, or of one of several, as `learning
    rate g`.
    """
    is_number = isinstance(control.value, (int, float)) and not isinstance(control.value, bool)
    return is_number and (control.name == RATE or control.name.startswith(f"{RATE} "))


def _together(label: str, attempts: list[Attempt]) -> Attempt:
    """Several changes as one."""

    def make() -> None:
        for attempt in attempts:
            attempt.make()

    def undo() -> None:
        for attempt in attempts:
            attempt.undo()

    def take() -> None:
        for attempt in attempts:
            attempt.take()

    return Attempt(label, make, undo, take)


def _nothing() -> None:
    """Variables are put back by whoever tries a change."""


def _spelled(value: object) -> str:
    return (
        format_number(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else str(value)
    )
