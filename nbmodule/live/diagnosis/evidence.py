"""The evidence that rules read: curves, batches, calls and variables, as plain NumPy arrays.

A rule never touches a model or a device. `Evidence` is filled by `examine` (a training step run
beside the user's own) and by whoever holds logged curves, so the same rules judge a run while it
goes on, a finished run and a model before its first step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import group_of, is_better_when_higher
from nbmodule.base.kinds import is_real

Array = NDArray[Any]
NOTHING: Array = np.zeros(0)
"""Stands for an array that was not recorded."""

_LOSS = re.compile(r"loss|nll|elbo|energy|error|mse|mae|xent|cross_entropy", re.I)
_ADVERSARIAL = re.compile(
    r"(^|[_/. -])(d|g|disc|gen|critic|adv|discriminator|generator)([_/. -]|$)", re.I
)
NORMALIZES_BATCH = re.compile(r"BatchNorm")
DROPS = re.compile(r"Dropout")


def number_or_none(value: object) -> float | None:
    """Return a setting as a number; None if it is none."""
    return float(value) if is_real(value) else None


def cross_entropies(logits: Array, labels: Array) -> Array:
    """Return the cross entropy of each label, an index into the last axis of the logits."""
    values = logits.astype(np.float64)
    values = values - values.max(axis=-1, keepdims=True)
    logs = values - np.log(np.exp(values).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(logs, labels[..., None].astype(int), axis=-1)[..., 0]


@dataclass(frozen=True)
class LoggedCurve:
    """One logged series: `steps` and `values` of one length, in the order of logging."""

    name: str
    steps: NDArray[np.integer]
    values: NDArray[np.floating]

    @property
    def role(self) -> str:
        """`train`, `val` or `test`, read from the name."""
        return group_of(self.name)[1]

    @property
    def finite(self) -> NDArray[np.floating]:
        return self.values[np.isfinite(self.values)]

    @property
    def finite_steps(self) -> NDArray[np.integer]:
        return self.steps[np.isfinite(self.values)]


def logged_curves(history: Any) -> dict[str, LoggedCurve]:
    """Return the series of a history as curves of float64, by name."""
    return {s.name: LoggedCurve(s.name, s.steps, s.values.astype(np.float64)) for s in history}


@dataclass(frozen=True)
class Batch:
    """The input of one training step: rows of its inputs and of its targets, by argument name."""

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]


@dataclass(frozen=True)
class CallEvidence:
    """One call of a submodule that has no submodules of its own, or of the model itself.

    Attributes:
        path: Dotted name, empty for the model.
        class_name: Class of the module.
        inputs: First array argument, of a large one the first rows; empty if there is none.
        returns: First array of the return, likewise.
        gradient: Gradient of the loss by that return, likewise.
        trainable: Number of trainable elements that the module itself holds.
        training: The module's mode.
    """

    path: str
    class_name: str
    inputs: Array
    returns: Array
    gradient: Array
    trainable: int
    training: bool

    @property
    def name(self) -> str:
        return self.path or self.class_name


@dataclass(frozen=True)
class VariableEvidence:
    """A variable before and after one step; both are norms over all elements."""

    path: str
    shape: tuple[int, ...]
    trainable: bool
    norm: float
    change: float
    rows_equal: bool
    """True if the matrix has more than one row and all rows are the same."""

    @property
    def ratio(self) -> float:
        """Norm of the change over the norm of the value; NaN for a value of zero."""
        return self.change / self.norm if self.norm > 0 else math.nan


@dataclass(frozen=True)
class Snapshot:
    """One training step, observed inside.

    Attributes:
        step: Number of the step.
        loss: The first return of the step, if that is one number.
        batch: The batch that the step received.
        root: The call of the model itself, None if the step did not call it.
        calls: Calls of submodules without submodules, in the order in which they began.
        variables: All variables of the model.
        uncalled: Paths of trainable modules that did not run.
        modes: Mode of each module whose behavior depends on it, by path.
        logits: The kind of value that the loss expects, if known: True for logits, False for
            probabilities.
        mixes_rows: True if the return for one row depends on another row; None if not tried.
        sees_targets: True if, in next-token prediction, a position sees its own target.
    """

    step: int
    loss: float | None
    batch: Batch
    root: CallEvidence | None
    calls: tuple[CallEvidence, ...]
    variables: tuple[VariableEvidence, ...]
    uncalled: tuple[str, ...] = ()
    modes: Mapping[str, bool] = field(default_factory=dict)
    logits: bool | None = None
    mixes_rows: bool | None = None
    sees_targets: bool | None = None

    @property
    def returns(self) -> Array:
        """The return of the model; empty if the step did not call it."""
        return self.root.returns if self.root else NOTHING

    @property
    def matrices(self) -> list[VariableEvidence]:
        """The weights that are trained, without biases and without those that are zero."""
        return [v for v in self.variables if v.trainable and len(v.shape) > 1 and v.norm > 0]

    @property
    def update_ratio(self) -> float:
        """The median over the weights of update over weight; NaN without weights."""
        ratios = [v.ratio for v in self.matrices]
        return float(np.median(ratios)) if ratios else math.nan

    @property
    def labels(self) -> Array:
        """Class labels: whole numbers among the targets, one for each row of the return; empty if
        there are none.
        """
        rows = self.returns.shape[:-1]
        whole = (t for t in self.batch.targets.values() if t.dtype.kind in "iu")
        return next((t for t in whole if not rows or t.shape == rows), NOTHING)

    @property
    def classes(self) -> int:
        """Number of classes if the step is a classification of labels, else 0."""
        x = self.returns
        return x.shape[-1] if self.labels.size and x.ndim > 1 and x.shape[-1] > 1 else 0


@dataclass(frozen=True)
class Evidence:
    """Everything known about a run, or about a model before training.

    Attributes:
        curves: Logged series by name.
        snapshots: Steps observed inside, oldest first.
        labels: Class labels of the batches seen so far, one array for each batch.
        digests: A digest of each batch seen so far.
        items_vary: True if the loop received different items for these batches.
        input_fault: The recorded step whose inputs are not finite, and where; None if there is
            none.
        rate: The learning rate, None where it is not known or follows a schedule.
        new_shapes: Steps that were compiled again for arrays of another shape, and the change.
    """

    curves: Mapping[str, LoggedCurve] = field(default_factory=dict)
    snapshots: Sequence[Snapshot] = ()
    labels: Sequence[Array] = ()
    digests: Sequence[int] = ()
    items_vary: bool = False
    input_fault: tuple[int, str] | None = None
    rate: float | None = None
    new_shapes: Sequence[tuple[int, str]] = ()

    @property
    def batch(self) -> Batch:
        """The first batch that was observed."""
        return self.snapshots[0].batch

    @property
    def loss(self) -> LoggedCurve | None:
        """The training loss; None if two models play against each other, so that no loss has to
        fall.
        """
        is_adversarial = sum(bool(_ADVERSARIAL.search(name)) for name in self.curves) >= 2
        return None if is_adversarial else self._first_loss("train")

    @property
    def validation(self) -> LoggedCurve | None:
        """The validation loss, whatever its spelling (`val_loss`, `loss/val`, `eval_loss`, ...)."""
        return self._first_loss("val", "test")

    def _first_loss(self, *roles: str) -> LoggedCurve | None:
        losses = [c for c in self.curves.values() if c.role in roles and _LOSS.search(c.name)]
        return next((c for c in losses if not is_better_when_higher(c.name)), None)

    def scores(self, *roles: str) -> list[LoggedCurve]:
        """Series that are better when higher (accuracy, F1), of these roles."""
        return [
            c for c in self.curves.values() if is_better_when_higher(c.name) and c.role in roles
        ]

    @property
    def classes(self) -> int:
        return next((s.classes for s in self.snapshots if s.classes), 0)

    @property
    def update_ratios(self) -> list[float]:
        """The update ratio of each observed step that has weights."""
        return [s.update_ratio for s in self.snapshots if s.matrices]
