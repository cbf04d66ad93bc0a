"""`nb.track`: record the calls of a model while any code runs, compiled or not; `nb.tap`: name a
value inside a forward.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import Tracer

from nbmodule.base.foreign import ForeignArray
from nbmodule.base.format import bytes_of, count_noun, format_bytes
from nbmodule.base.kinds import Shaped, as_flag, is_whole
from nbmodule.base.sockets import socket
from nbmodule.calls.call import Call, arrays_of
from nbmodule.calls.calls import Calls, kept_step
from nbmodule.calls.reduction import read_statistics, reduce_tree
from nbmodule.calls.rows import hold, holders
from nbmodule.calls.steps import Choice, Steps
from nbmodule.core.recording.parcel import StaticLeaf, as_values
from nbmodule.core.recording.tracker import TrackedBlock, Tracker, end
from nbmodule.core.structure.naming import other_names
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.frame import EAGER, current_log, here, let_go, now, slot_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, TraceError

STATS = "stats"


def track(
    model: Any,
    returns: bool | str = True,
    order: bool = True,
    gradients: bool = False,
    depth: int | None = None,
    only: Any = None,
    *,
    inputs: bool | None = None,
    operations: str | Sequence[str] = (),
    profile: bool = False,
    last: int = 100,
    budget: str | int = "1GB",
) -> Tracking:
    """Record the calls of `model` and its submodules while the code in a `with` block runs.

    The code may be one call or many steps, eager or with `nb.jit`, `nb.grad`, `nb.vmap`, `nb.scan`,
    `nb.cond` and `nb.checkpoint`, nested in any way. A tracked compiled function runs another
    executable with additional outputs; untracked calls are not affected. Calls under a raw JAX
    transform are listed without values.

    Each outermost call is a *step*. The last steps are kept within `last` and `budget`, at least
    the newest one.

    Args:
        model: The module to track; it is the root of the paths, also if it is itself a submodule.
            Or an unconverted model of Flax, Equinox, Haiku, Keras or PyTorch. Compiled functions of
            the JAX frameworks run as another program meanwhile, which returns the recorded values
            too; if that is not possible, they run without `jax.jit`, and `calls.notes` says why.
        returns: True keeps returns, `'stats'` only their statistics (reduced inside compiled code),
            False neither. In compiled code, `'stats'` counts NaN and infinities and computes the
            mean square of all elements; other figures are of a sample of 512 elements.
        order: Whether calls are listed in the order in which they began, with their parents. False
            lists them flat, in the order in which they returned.
        gradients: Whether to record the gradient of the loss by each return and by each parameter,
            where the code runs `nb.grad`; its statistics with `returns='stats'`. This traces the
            function once more.
        depth: Levels below the model; None for all, 0 for the model alone.
        only: Modules, paths, or globs such as `blocks.*`; None for all.
        inputs: Whether to keep arguments too. None keeps them in eager code (without a copy) if
            returns are kept.
        operations: Path or globs of submodules whose operations are recorded; see
            `Calls.operations`.
        profile: Whether to measure each submodule by itself, compiled, when the block ends.
        last: Number of steps to keep.
        budget: Memory for their values.

    Raises:
        PathError: `only` or `operations` names no submodule.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> step = nb.jit(lambda x: model(x).sum())
        >>> with nb.track(model, returns="stats") as calls:
        ...     _ = step(jnp.ones((2, 3)))
        >>> calls["1"].statistics.min >= 0, calls["0"].return_shapes
        (True, 'float32[2, 4]')
    """
    if not isinstance(returns, bool) and returns != STATS:
        raise ArgumentError(f"returns must be True, False or 'stats', got {returns!r}.")
    order, gradients = as_flag("order", order), as_flag("gradients", gradients)
    if not (returns or order or gradients):
        raise ArgumentError(
            "nb.track with returns=False, order=False and gradients=False records nothing."
        )
    if not is_whole(last) or last < 1:
        raise ArgumentError(f"last must be at least 1 (steps to keep), got {last!r}.")
    foreign = None if is_module(model) else socket("watched")(model)
    if foreign is not None:
        model = foreign.module
        if operations:
            raise ArgumentError(
                "operations= needs a module: convert the model first (nb.from_flax, "
                "from_equinox, from_haiku, from_keras, from_torch)."
            )
    return Tracking(
        Choice(model, depth, only),
        returns,
        None if inputs is None else as_flag("inputs", inputs),
        gradients,
        None if operations in ((), None) else Choice(model, None, operations, "operations"),
        order,
        as_flag("profile", profile),
        int(last),
        bytes_of(budget),
        foreign,
    )


@dataclass(eq=False, repr=False)
class Tracking(TrackedBlock):
    """The context manager that `nb.track` gives; see there."""

    watch: Choice
    returns: Any
    inputs: bool | None
    gradients: bool
    operations: Choice | None
    order: bool
    profile: bool
    last: int
    budget: int
    foreign: Any
    _span: Any = field(default_factory=threading.Lock)  # held while the block runs
    _steps: Any = None  # of the block that runs, where they are measured at its end

    def __enter__(self) -> TrackedCalls:
        steps = Steps(self.watch, self.last, self.budget, self.order)
        operations = self.operations and self.operations.key
        chosen = (self.returns, self.inputs, self.gradients, operations)
        tracker = Tracker(
            self.watch.wants,
            self._keep_call,
            ("track", self.watch.key, *chosen),
            keep_gradient=self._keep_gradient if self.gradients else None,
            keep_before=self._keep_variables if self.operations else None,
            timed=True,
            log=steps,
            span=self._span,
        )
        if now.frame is not None or here() != EAGER:
            raise TraceError(
                "nb.track was entered inside a traced function or under v=, where it cannot return "
                "values. Put the `with` around the call of the compiled function."
            )
        if self._span.locked():
            raise TraceError("this tracker is already open: make another one with nb.track.")
        recorded = TrackedCalls(self.watch, steps, self.foreign)
        hold(recorded, "calls", lambda x: f"{x.name}, {count_noun(len(x._steps.kept), 'step')}")
        try:
            tracker.__enter__()
            steps.outer = tracker.outer.log if tracker.outer is not None else None
            self._watch()
            if self.profile:
                self._steps = steps
            # else the context would keep the tracker and its calls until it is used again
            weakref.finalize(recorded, let_go).atexit = False
            return recorded
        except BaseException:
            self._close()
            raise

    def ending(self) -> Any:
        """Return the function that ends the block: the release of its lock, where there is no more
        to do.
        """
        if self.foreign is None and not self.profile:
            return self._span.__exit__
        return super().ending()

    def _leave(self, category: object, error: BaseException | None, trace: object) -> None:
        self._close()
        if self.profile and error is None:
            from nbmodule.calls.isolated import measure

            steps, self._steps = self._steps, None
            measure([call for step in list(steps.kept)[-1:] for call in step.calls])

    # -- records of calls --
    def _keep_call(self, module: object, given: object, outputs: object) -> dict[str, Any]:
        """Return the content of the record of one call."""
        values: dict[str, Any] = {}
        if self.returns is True:
            values["output"] = as_values(outputs)
        elif self.returns:
            values["statistics"] = reduce_tree(outputs)
        if given is None:  # a value named by `nb.tap`
            return values
        at_hand = self.inputs is None and self.returns is True and _is_at_hand(given)
        if self.inputs or at_hand or self._lists(module):
            values["input"] = as_values(given)
        leaves, tree = jax.tree.flatten(given)
        values["given"] = StaticLeaf((tuple(map(_shape, leaves)), tree))
        return values

    def _keep_variables(self, module: object) -> dict[str, Any]:
        """Return the variables of a submodule whose operations are recorded, before its call."""
        if not self._lists(module):
            return {}
        places = plan_of(module).places.items()
        return {"variables": {at.name: variable.value for variable, at in places}}

    def _keep_gradient(self, gradient: Any, of: str) -> dict[str, Any]:
        """Return the record of a gradient: by a return, or by variables under their names."""
        if self.returns != STATS:
            return {"parameters" if of == "variables" else "gradient": as_values(gradient)}
        if of == "variables":
            return {"parameters": {name: reduce_tree([x])[0] for name, x in gradient.items()}}
        return {"gradient_statistics": reduce_tree(gradient)}

    def _lists(self, module: object) -> bool:
        """Return True if the operations of a module are recorded."""
        return self.operations is not None and slot_of(module) in self.operations.wanted()


def tap(x: object, name: str) -> Any:
    """Return `x`; while the model is tracked, also record it as `name` below the calling module.

    Without a tracker it does nothing. `nb.patch` can change it by that name.

    Args:
        x: Any value.
        name: Its name: in `blocks.5.attention` the tap `scores` is
            `calls['blocks.5.attention.scores']`.

    Example:
        >>> class Square(nb.Module):
        ...     def forward(self, x):
        ...         return nb.tap(x * x, "square") + 1
        >>> model = Square()
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.float32(3))
        >>> calls["square"].returns
        Array(9., dtype=float32)
    """
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError(f"nb.tap(x, name): name must be a str, got {type(name).__name__}.")
    tracker, log = now.tracker, current_log()
    if tracker is None or log is None or not now.stack:
        return x
    module = now.stack[-1]
    for change in tracker.changes_of((module, name)):
        x = change.after((), x)
    is_kept = bool(tracker.kept_by_any(module))
    index = log.begin(slot_of(module), "", name=name, kept=is_kept, kind="tap")
    x = tracker.tapped(module, x)
    end(index, module, None, x)
    return x


def _is_at_hand(supplied: object) -> bool:
    """Return True if the arguments of a call are concrete arrays."""
    return here() == EAGER or not (
        now.frame or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(supplied))
    )


def _shape(leaf: Shaped) -> Any:
    if isinstance(leaf, ForeignArray):
        return None
    is_array = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_array else leaf


def last_tracked(model: object) -> TrackedCalls | None:
    """Return the newest tracked calls of a model that are still referenced, if any."""
    tracked = (calls for calls in reversed(holders("calls")) if calls._watch.model is model)
    return next((calls for calls in tracked if len(calls)), None)


class TrackedCalls(Calls):
    """The calls that `nb.track` records; the list grows while its block runs."""

    def __init__(self, watch: Choice, steps: Steps, foreign: Any = None) -> None:
        self._watch, self._steps, self._foreign = watch, steps, foreign

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the calls recorded so far."""
        return Calls, (list(self), self.name, self.known, self.notes, self.others)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        model = self._watch.model
        return type(model).__name__ if model is not None else "a model that no longer exists"

    @property
    def known(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Paths of all submodules that are tracked, called or not."""
        model, expected, copied = self._watch.model, self._watch.wanted(), self._copied()
        if model is None:
            return ()
        places = plan_of(model).modules.items()
        paths = [location.name for m, location in places if slot_of(m) in expected]
        return tuple(path for path in paths if path not in copied)

    @property
    def others(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Other names of shared submodules, with their paths."""
        model = self._watch.model
        return dict(other_names(model)) if model is not None else {}

    @property
    def notes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Notes for a reader: values that were dropped or could not be recorded."""
        return tuple(self._said())

    def _copied(self) -> set[str]:
        """Return the parts of a foreign model that were called as copies only."""
        copied: set[str] = set(getattr(self._foreign, "copied", ()))
        return copied - {call.path for call in self}

    def _said(self) -> Iterator[str]:
        steps = self._steps
        if steps.count > len(steps.kept) > 0:
            yield (
                f"the last {len(steps.kept)} of {steps.count} steps are kept "
                f"(last={steps.last}, budget={format_bytes(steps.budget)})"
            )
        yield from self._foreign.notes if self._foreign else ()
        copied = self._copied()
        if copied:
            yield (
                f"{', '.join(sorted(copied))} ran as a copy, as layers in a loop do; calls of a "
                "copy are not recorded"
            )
        if any(not call.captured for call in self):
            yield (
                "calls marked 'not captured' ran under a raw JAX transform: use the transform "
                "of the same name from nbmodule"
            )
            if any("while_loop" in call.lifted for call in self):
                yield (
                    "those in nb.while_loop ran an unknown number of times: nb.scan records each "
                    "iteration"
                )
        if not steps.count:
            yield (
                "nothing was recorded: the model was not called, or only inside a function "
                "that jax.jit had compiled before (use nb.jit)"
            )

    @property
    def gradients(self) -> dict[str, Any]:
        """Gradients of the last step by the parameters, by path; with `returns='stats'`, their
        statistics.
        """
        return self.gradients_at(-1)

    def gradients_at(self, step: int) -> dict[str, Any]:
        """Return the gradients of a kept step by the parameters; negative numbers count from the
        last.
        """
        retained = {item.number: item for item in list(self._steps.kept)}
        kept = retained[kept_step(list(retained), step)]
        return {
            path: arrays_of(x) if hasattr(x, "dtype") else read_statistics(x)
            for path, x in kept.gradients().items()
        }

    @property
    def operations(self) -> Calls:
        """Operations of the submodules in `operations=`, in their calls of the last step, with
        values and lines of code.

        They are run one by one on first access, on the recorded inputs and variables.

        Example:
            >>> model = nb.Sequential(nb.Linear(3, 4), nb.Lambda(lambda x: jnp.exp(x) + 1))
            >>> with nb.track(model, operations="1") as calls:
            ...     _ = nb.jit(lambda x: model(x))(jnp.ones((2, 3)))
            >>> [call.class_name for call in calls.operations]
            ['exp', 'add']
        """
        from nbmodule.calls.evaluate import operations_of

        steps = list(self._steps.kept)
        chosen = [call for call in steps[-1].calls if "variables" in call.values] if steps else []
        operations = [operation for call in chosen for operation in operations_of(call)]
        return Calls(operations, name=f"operations of {self.name}")

    @property
    def nbytes(self) -> int:
        """Bytes of the values that are kept."""
        return self._steps.nbytes

    def clear(self) -> None:
        """Forget what was recorded."""
        self._steps.clear()

    @property
    def _list(self) -> list[Call]:  # pyright: ignore[reportIncompatibleVariableOverride]
        with self._steps.lock:
            retained = list(self._steps.kept)
        return [call for step in retained for call in step.calls]
