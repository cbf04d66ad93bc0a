"""Copy the training state of a run for its journal, and continue a run from such a state.

The state is that of a boundary between two steps: variables of model and optimizer under the names
of their `state_dict()`, the default random stream, the controls, and how many items the loop took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import format_count
from nbmodule.core.numbers import random
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.controls.log_queue import logged_values
from nbmodule.live.controls.loop import Loop
from nbmodule.live.replay.iterations import copies_of, digest_of
from nbmodule.live.run_data.sources import named_objects
from nbmodule.live.run_data.state import RunState
from nbmodule.live.runs.record import RunRecord

MOST_BYTES = 256 * 2**20
"""Bytes of variables above which no state is saved."""


class SavedState(NamedTuple):
    """The training state at a boundary, as copies that no step overwrites."""

    step: int
    arrays: dict[str, Any]
    """By `model/...`, `optimizer/...`, `random/...`; empty where they are too large."""
    notes: dict[str, Any]
    """JSON values: controls, number of items, digest of the last item."""
    nbytes: int


class StateSaver:
    """Copies the training state of one run at boundaries.

    Args:
        run: The run, with model and optimizer.
    """

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._roots = list(stateful_roots(run))
        self.newest: SavedState | None = None
        """The newest state, until it is taken."""

    def offer(self) -> None:
        """Copy the state; called between two steps, in the thread of the loop."""
        variables: dict[str, Any] = {}
        for prefix, root in self._roots:
            for variable, name in names_of(root).items():
                if variable.is_pending:  # nothing is trained before it is built
                    return
                variables[f"{prefix}/{name}"] = variable.value
        if not variables:
            return
        step = self._run.step_of(self._run.count.done)
        nbytes = sum(value.nbytes for value in variables.values())
        notes = {
            "items": self._run.count.done,
            "digest": digest_of_item(self._run.count.item),
            "counts_from_one": self._run.count.has_begun,
            "controls": controls_of(self._run),
        }
        if nbytes > MOST_BYTES:
            self.newest = SavedState(step, {}, notes, nbytes)
            return
        variables["random/state"] = random.default.state.value
        arrays = dict(zip(variables, copies_of(list(variables.values())), strict=True))
        arrays["random/made"] = np.int64(random.default._made)
        self.newest = SavedState(step, arrays, notes, nbytes)

    def take(self) -> SavedState | None:
        """Return the newest state that was not taken yet; in any thread."""
        newest, self.newest = self.newest, None
        return newest


def controls_of(run: RunState) -> dict[str, Any]:
    """Return the values of the controls that are a part of the training, by name."""
    return {control.name: control.value for control in run.controls if control.name != "watch"}


def restore_controls(run: RunState, values: dict[str, Any]) -> None:
    """Set the controls that have other values now."""
    for name, value in values.items():
        if name in run.controls and run.controls[name].value != value:
            run.controls.set(name, value)


def stateful_roots(run: RunState) -> Iterator[tuple[str, Any]]:
    """Yield models and optimizers by their names in a snapshot: `model`, or `model:G`."""
    for part, objects in (("model", run.model), ("optimizer", run.optimizer)):
        for name, root in named_objects(objects):
            if is_stateful(root):
                yield f"{part}:{name}" if name else part, root


def names_of(root: object) -> dict[Any, str]:
    """Return the variables of a model or an optimizer with their names in its `state_dict()`."""
    names_of_variables = getattr(root, "_names_of_variables", None)  # of an optimizer
    if names_of_variables is not None:
        return names_of_variables()
    return {variable: place.name for variable, place in plan_of(root).places.items()}


def digest_of_item(item: object) -> int:
    """Return a digest of the arrays of a batch, the same in every process; 0 without arrays."""
    digest = 0
    for leaf in jax.tree.leaves(item):
        is_array = isinstance(leaf, jax.Array) and not leaf.is_deleted()
        if is_array or isinstance(leaf, (np.ndarray, np.generic, int, float)):
            digest = digest_of(np.asarray(leaf)) ^ (digest * 31 % 2**32)
    return digest


class Resumed:
    """A run that goes on from the saved state of another.

    Args:
        run: The new run.
        loop: Its loop: it leaves out the items of the steps that were made.
        before: The run to continue, as `nb.last_run()` or `nb.runs()` gives it.

    Raises:
        ArgumentTypeError: If `before` is no recorded run.
        ArgumentError: If it goes on, or holds no state.
    """

    def __init__(self, run: RunState, loop: Loop, before: object) -> None:
        if not isinstance(before, RunRecord):
            raise ArgumentTypeError(
                f"resume must be a run of nb.last_run() or nb.runs(), got {type(before).__name__}."
            )
        self._run, self._loop, self._before = run, loop, before
        if before.state == "running":
            raise self._refusal("its process still runs")
        state = before.snapshot
        if state is None or "items" not in state:
            raise self._refusal(
                "its journal holds no state of model and optimizer. Give both to "
                "nb.Live(model, optimizer)"
            )
        self._state = state
        self.step: int = state["step"]
        self._items: int = state["items"]
        if self.step != self._items and state["counts_from_one"]:
            raise self._refusal("each turn of its loop makes several steps")
        run.parent = before.run_id

    def _refusal(self, why: str) -> ArgumentError:
        return ArgumentError(f"cannot resume {self._before.name!r}: {why}.")

    def begin(self) -> None:
        """Continue curves, state and step."""
        run, before = self._run, self._before
        self._put_back()
        for series in before.history:
            steps, values = series.since(0)
            run.history.extend(series.name, steps[steps <= self.step], values[steps <= self.step])
        for strips in before.watched.values():
            strips.cut(self.step + 1)
            if len(strips):
                run.watched[strips.quantity] = strips
        if self._state["counts_from_one"]:  # the items left out draw from the stream as they did
            self._loop.leave_out(self._items, then=self._go_on)
        else:  # a loop without live.steps begins its items itself
            self._put_stream_back()
            run.count.done = self._items + 1
        text = f"resumed from step {format_count(self.step)} of the run of {before.when}"
        run.messages.add(self.step, "note", text)

    def unlogged(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the resumed run had not logged at the present step."""
        step, history = self._run.count.step, self._run.history
        if step > self.step:
            return dict(values)
        if step < self.step:
            return {}
        flat = {n: v for name, value in values.items() for n, v in logged_values(name, value)}
        return {
            n: v for n, v in flat.items() if n not in history or self.step not in history[n].steps
        }

    def _go_on(self, item: object) -> None:
        """The items of the steps that were made are left out: the next step is a new one."""
        self._put_back()
        self._put_stream_back()
        if digest_of_item(item) != self._state["digest"]:
            text = (
                f"step {format_count(self.step)} of the resumed run had another batch than this "
                "loop gives: seed the order of the batches to continue with the same ones"
            )
            self._run.messages.add(self.step, "warning", text)

    def _put_back(self) -> None:
        state, loaded = self._state, []
        try:
            for prefix, root in stateful_roots(self._run):
                part, _, which = prefix.partition(":")
                values = state[part].get(which) if which else state[part]
                if not values:
                    raise self._refusal(f"it saved no state of {prefix!r}")
                loaded.append((root, root.state_dict()))
                root.load_state_dict(values)
        except Exception:  # all of them or none
            for root, before in reversed(loaded):
                root.load_state_dict(before)
            raise
        restore_controls(self._run, state["controls"])

    def _put_stream_back(self) -> None:
        saved = self._state["random"]
        random.default.state.value = jnp.asarray(saved["state"], jnp.uint32)
        random.default._move_to(int(saved["made"]))
