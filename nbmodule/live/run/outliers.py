"""Steps whose loss stands out, kept with their batch, the worst first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.format import count_noun, format_count, format_number, group_of, printable_repr
from nbmodule.live.run.history import History

MOST = 8
WINDOW = 64
"""Losses before a step that its loss is compared with."""
PART = 16
"""Losses that are compared with the same earlier ones."""
_LEAST = 8
_FAR = 8.0
"""Deviations (of the median, scaled as a standard deviation) from which a loss is an outlier."""
_LARGER = 1.25
"""How many times the median an outlier is at least."""


def _usual(before: Any) -> tuple[float, float]:
    """Return the median of losses, and the largest value that does not stand out."""
    before = before[np.isfinite(before)]
    if not len(before):
        return math.nan, math.inf
    middle = _median(before)
    if len(before) < _LEAST:
        return middle, math.inf
    spread = 1.4826 * _median(np.abs(before - middle))
    return middle, max(middle + _FAR * spread, middle + (_LARGER - 1) * abs(middle))


def _median(values: Any) -> float:
    """Return the median of a few numbers; `np.median` takes ten times as long to start."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    return (
        float(ordered[half])
        if len(ordered) % 2
        else (float(ordered[half - 1]) + float(ordered[half])) / 2
    )


class Outlier(NamedTuple):
    """A step whose loss stands out, and its batch."""

    step: int
    loss: float
    usual: float
    """The median of the losses before it."""
    batch: Any

    @printable_repr
    def __repr__(self) -> str:
        loss, usual = format_number(self.loss), format_number(self.usual)
        return f"Outlier(step {format_count(self.step)}, loss {loss}, usual {usual})"


class Outliers:
    """The worst steps of a run.

    Args:
        room: Bytes that their batches may take; that of the worst step is always kept.

    Example:
        >>> history = History()
        >>> for step in range(1, 40):
        ...     history.add(step, {"loss": 50.0 if step == 30 else 1.0 + step % 3 / 10})
        >>> outliers = Outliers()
        >>> for step in outliers.look(history):
        ...     outliers.keep(step, "its batch")
        >>> outliers
        1 step stands out: Outlier(step 30, loss 50, usual 1.1)
    """

    def __init__(self, room: int = 2**62) -> None:
        self._room = room
        self._position = 0
        self._unkept: dict[int, tuple[float, float]] = {}
        self._outliers: list[Outlier] = []

    def look(self, history: History) -> list[int]:
        """Return the steps that stand out among those since the last call."""
        name = next((s.name for s in history if is_training_loss(s.name)), None)
        if name is None:
            return []
        steps, values = history[name].since(0)
        begin, self._position = min(self._position, len(values)), len(values)
        new: dict[int, float] = {}
        for start in range(begin, len(values), PART):
            part = values[start : min(start + PART, len(values))]
            # the first ones have few before them: they are compared with each other
            end = start if start >= _LEAST else start + PART
            usual, limit = _usual(values[max(start - WINDOW, 0) : end])
            bad = ~np.isfinite(part)
            bad[1:] &= ~bad[:-1]  # only the first: later ones were made from it
            if start and not math.isfinite(values[start - 1]):
                bad[0] = False
            for i in np.flatnonzero(bad | (part > limit)).tolist():
                step, value = int(steps[start + i]), float(part[i])
                self._unkept[step] = (value, usual)
                new[step] = value - usual if math.isfinite(value) else math.inf
        return sorted(sorted(new, key=lambda step: -new[step])[:MOST])

    def keep(self, step: int, batch: object) -> None:
        """Keep the batch of a step that stands out, if it is one of the worst."""
        loss, usual = self._unkept.pop(step)
        self._outliers = sorted([*self._outliers, Outlier(step, loss, usual, batch)], key=_badness)[
            :MOST
        ]
        while len(self._outliers) > 1 and self.nbytes > self._room:
            self._outliers.pop()

    @property
    def nbytes(self) -> int:
        """Bytes of their batches."""
        leaves: list[Any] = [
            leaf for each in self._outliers for leaf in jax.tree.leaves(each.batch)
        ]
        return sum({id(leaf): getattr(leaf, "nbytes", 0) for leaf in leaves}.values())

    def cut(self, step: int) -> None:
        """Forget this step and later ones."""
        self._outliers = [each for each in self._outliers if each.step < step]
        self._unkept, self._position = {}, 0 if step <= 1 else self._position

    def __iter__(self) -> Iterator[Outlier]:
        return iter(list(self._outliers))

    def __len__(self) -> int:
        return len(self._outliers)

    def __getitem__(self, index: int) -> Outlier:
        return self._outliers[index]

    @printable_repr
    def __repr__(self) -> str:
        if not self._outliers:
            return "no step stands out"
        verb = "stands" if len(self._outliers) == 1 else "stand"
        return f"{count_noun(len(self._outliers), 'step')} {verb} out: " + ", ".join(
            map(repr, self._outliers)
        )


def _badness(outlier: Outlier) -> tuple[bool, float]:
    """Sort key: not finite first, then furthest from the usual."""
    finite = math.isfinite(outlier.loss)
    return finite, -(outlier.loss - outlier.usual) if finite else 0.0


def is_training_loss(name: str) -> bool:
    """Return True for the name of a loss of the training."""
    group, role = group_of(name)
    return role == "train" and group.lower().endswith("loss")
