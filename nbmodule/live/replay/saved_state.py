"""Copies the training state of a run for its journal.

The state is that of a boundary between two steps: variables of model and optimizer under the names
of their `state_dict()`, the default random stream, the controls, and how many items the loop took.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nbmodule.core.numbers import random
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.live.diagnosis.examine import digest_of_item
from nbmodule.live.replay.iterations import copies_of
from nbmodule.live.run_data.sources import named_objects
from nbmodule.live.run_data.state import RunState

MOST_BYTES = 256 * 2**20
"""Bytes of variables above which no state is saved."""


class SavedState(NamedTuple):
    """The training state at a boundary, as copies that no step overwrites."""

    step: int
    arrays: dict[tuple[str, ...], Any]
    """By `(model, name)`, `(model, G, name)` of several models, likewise of optimizers, and
    `(random, ...)`; empty where they are too large."""
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
        variables: dict[tuple[str, ...], Any] = {}
        for prefix, root in self._roots:
            for variable, name in names_of(root).items():
                if variable.is_pending:  # nothing is trained before it is built
                    return
                variables[*prefix.split(":", 1), name] = variable.value
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
        variables["random", "state"] = random.default.state.value
        arrays = dict(zip(variables, copies_of(list(variables.values())), strict=True))
        arrays["random", "made"] = np.int64(random.default._made)
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
