"""Saves the training state of a run for its journal, and puts a saved state back.

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
from nbmodule.live.controls.loop import Loop
from nbmodule.live.replay.copies import OnHost, copies_of, digest_of
from nbmodule.live.reporting.journal import LastRun
from nbmodule.live.run.logged import leaves_of
from nbmodule.live.run.state import RunState

MOST_BYTES = 256 * 2**20
"""Bytes of variables above which no state is saved."""
_NOT_SAVED = frozenset({"watch"})
"""Controls that are no part of the training."""


class SavedState(NamedTuple):
    """The training state at a boundary, as copies that no step overwrites."""

    step: int
    arrays: dict[str, Any]
    """By `model/...`, `optimizer/...`, `random/...`; empty where they are too large."""
    notes: dict[str, Any]
    """What JSON can hold: controls, number of items, digest of the last item."""
    nbytes: int

    def on_host(self) -> dict[str, Any]:
        """Return the arrays, once they are computed."""
        return {n: v.on_host() if isinstance(v, OnHost) else v for n, v in self.arrays.items()}


class StateSaver:
    """Copies the training state of one run at boundaries.

    Args:
        run: The run, with model and optimizer.
        loop: Its loop, which knows the last item.
    """

    def __init__(self, run: RunState, loop: Loop) -> None:
        self._run, self._loop = run, loop
        self._roots = list(stateful_roots(run))
        self._newest: SavedState | None = None

    def offer_if(self, is_due: bool) -> None:
        """Copy the state of now, where a snapshot is due and none waits to be written."""
        if is_due and self._newest is None:
            self.offer()

    def offer(self) -> None:
        """Copy the state of now; called between two steps, in the thread of the loop."""
        variables: dict[str, Any] = {}
        for prefix, root in self._roots:
            for variable, name in names_of(root).items():
                if variable.is_pending:  # nothing is trained before it is built
                    return
                variables[f"{prefix}/{name}"] = variable.value
        if not variables:
            return
        step, nbytes = self._run.step_of(self._run.count.done), _nbytes(variables.values())
        notes = {
            "items": self._run.count.done,
            "digest": digest_of_item(self._loop.item),
            "counts_from_one": self._loop.has_begun,
            "controls": {c.name: c.value for c in self._run.controls if c.name not in _NOT_SAVED},
        }
        if nbytes > MOST_BYTES:
            self._newest = SavedState(step, {}, notes, nbytes)
            return
        variables["random/state"] = random.default.state.value
        arrays = dict(zip(variables, copies_of(list(variables.values())), strict=True))
        arrays["random/made"] = np.int64(random.default._made)
        self._newest = SavedState(step, arrays, notes, nbytes)

    def take(self) -> SavedState | None:
        """Return the newest state that was not taken yet; in any thread."""
        newest, self._newest = self._newest, None
        return newest


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

    def __init__(self, run: RunState, loop: Loop, before: Any) -> None:
        if not isinstance(before, LastRun):
            raise ArgumentTypeError(
                f"resume must be a run of nb.last_run() or nb.runs(), got {type(before).__name__}."
            )
        if before.state == "running":
            raise ArgumentError(f"cannot resume {before.name!r}: its process still runs.")
        state = before.snapshot
        if state is None or "items" not in state:
            raise ArgumentError(
                f"cannot resume {before.name!r}: its journal holds no state of model and "
                "optimizer. Give both to nb.Live(model, optimizer)."
            )
        self._run, self._loop, self._before, self._state = run, loop, before, state
        self.step: int = state["step"]
        self._items: int = state["items"]
        if self.step != self._items and state["counts_from_one"]:
            raise ArgumentError(
                f"cannot resume {before.name!r}: each turn of its loop makes several steps."
            )
        run.parent = before.run_id

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
        run.messages.add(
            self.step,
            "note",
            f"resumed from step {format_count(self.step)} of the run of {before.when}",
        )

    def unlogged(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the resumed run had not logged at the present step."""
        step, history = self._run.count.step, self._run.history
        if step > self.step:
            return dict(values)
        if step < self.step:
            return {}
        flat = {n: v for name, value in values.items() for n, v in leaves_of(name, value)}
        return {
            n: v for n, v in flat.items() if n not in history or self.step not in history[n].steps
        }

    def _go_on(self, item: Any) -> None:
        """The items of the steps that were made are left out: the next step is a new one."""
        self._put_back()
        self._put_stream_back()
        if digest_of_item(item) != self._state["digest"]:
            self._run.messages.add(
                self.step,
                "warning",
                f"step {format_count(self.step)} of the resumed run had another batch than this "
                "loop gives: seed the order of the batches to continue with the same ones",
            )

    def _put_back(self) -> None:
        state = self._state
        for prefix, root in stateful_roots(self._run):
            part, _, which = prefix.partition(":")
            values = state[part].get(which) if which else state[part]
            if not values:
                raise ArgumentError(
                    f"cannot resume {self._before.name!r}: it saved no state of {prefix!r}."
                )
            root.load_state_dict(values)
        for name, value in state["controls"].items():
            controls = self._run.controls
            if name in controls and controls[name].value != value:
                controls.set(name, value)

    def _put_stream_back(self) -> None:
        saved = self._state["random"]
        random.default.state.value = jnp.asarray(saved["state"], jnp.uint32)
        random.default._move_to(int(saved["made"]))


def stateful_roots(run: RunState) -> Iterator[tuple[str, Any]]:
    """Yield models and optimizers with their names in a snapshot: `model`, or `model:G` of several."""
    for part, given in (("model", run.model), ("optimizer", run.optimizer)):
        for name, root in _named_roots(given):
            if is_stateful(root):
                yield f"{part}:{name}" if name else part, root


def _named_roots(given: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield models or optimizers with the names under which they were given; '' for one alone."""
    if not isinstance(given, (list, tuple, dict)):
        if given is not None:
            yield prefix, given
        return
    parts = given.items() if isinstance(given, dict) else enumerate(given)
    for key, value in parts:
        yield from _named_roots(value, f"{prefix}.{key}" if prefix else str(key))


def names_of(root: Any) -> dict[Any, str]:
    """Return the variables of a model or an optimizer with their names in its `state_dict()`."""
    names_of_boxes = getattr(root, "_names_of_boxes", None)  # of an optimizer
    if names_of_boxes is not None:
        return names_of_boxes()
    return {box: place.name for box, place in plan_of(root).places.items()}


def digest_of_item(item: Any) -> int:
    """Return a digest of the arrays of a batch, the same in every process; 0 without arrays."""
    digest = 0
    for leaf in jax.tree.leaves(item):
        is_array = isinstance(leaf, jax.Array) and not leaf.is_deleted()
        if is_array or isinstance(leaf, (np.ndarray, np.generic, int, float)):
            digest = digest_of(np.asarray(leaf)) ^ (digest * 31 % 2**32)
    return digest


def _nbytes(values: Any) -> int:
    return sum(getattr(value, "nbytes", 0) for value in values)
