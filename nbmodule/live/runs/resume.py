"""Continues a recorded run: curves, training state and step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from nbmodule.base.format import format_count
from nbmodule.core.numbers import random
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.controls.log_queue import logged_values
from nbmodule.live.controls.loop import Loop
from nbmodule.live.diagnosis.examine import digest_of_item
from nbmodule.live.replay.saved_state import restore_controls, stateful_roots
from nbmodule.live.run_data.epochs import when
from nbmodule.live.run_data.state import RunState
from nbmodule.live.runs.record import RunRecord


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
        text = f"resumed from step {format_count(self.step)} of the run of {when(before.seen)}"
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
