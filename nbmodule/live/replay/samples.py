"""The samples of a repeated step: inputs, labels, predictions and losses, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.format import format_number
from nbmodule.live.run_data.media import Media, samples

_EXTREME = 10.0
"""Ratio of the largest number of an extreme sample to that of all others, at least."""
_MOST_SHOWN = 12


class StepSamples(NamedTuple):
    """The samples of a batch.

    Attributes:
        media: The worst samples to view; None where the batch is not known or cannot be drawn.
        extreme: A sentence on a sample whose numbers are far from those of all others; '' if none.
        first: The number of the sample to look at first.
    """

    media: Media | None
    extreme: str
    first: int = 0


def samples_of(inputs: Iterable[tuple[str, Any]], returned: object) -> StepSamples:
    """Return the samples of a batch: an extreme one first, then by their loss.

    Args:
        inputs: The arrays that the step was given, by name; the first axis of a batch counts
            samples.
        returned: What the model returned for the batch; None where it is not known.
    """
    arrays = {name: np.asarray(x) for name, x in inputs if _is_batch(x)}
    size = next((len(x) for x in arrays.values() if x.ndim > 1), 0)
    arrays = {name: x for name, x in arrays.items() if len(x) == size}
    if size < 2:
        return StepSamples(None, "")
    outputs = [np.asarray(x) for x in jax.tree.leaves(returned) if _is_batch(x)]
    predictions = outputs[0] if outputs and len(outputs[0]) == size else None
    target = arrays.pop(_target_among(arrays, predictions), None)
    losses = _losses(target, predictions)
    row, extreme = _extreme(arrays)
    order = np.arange(size) if losses is None else np.argsort(-np.nan_to_num(losses, nan=np.inf))
    if row is not None:
        order = np.array([row, *(i for i in order if i != row)])
    try:
        media = _drawn(next(iter(arrays.values())), target, predictions, losses, order)
    except (ValueError, TypeError, StopIteration):
        media = None
    return StepSamples(media, extreme, int(order[0]))


def _drawn(x: Any, target: Any, predictions: Any, losses: Any, order: Any) -> Media:
    """Draw the first samples in this order; `samples` sorts by the ranks."""
    order = order[:_MOST_SHOWN]
    columns: dict[str, Any] = {"sample": [str(int(i)) for i in order]}
    x = x.astype(np.float32) if x.dtype.kind == "f" else x
    media = samples(
        x[order],
        _class_of(target, order),
        _class_of(predictions, order),
        np.arange(len(order), 0, -1.0),
    )
    if losses is not None:
        columns["loss"] = [format_number(float(losses[i]), 3) for i in order]
    facts = {name: column for name, column in media.columns.items() if name != "loss"}
    return Media("samples", media.arrays, facts | columns)


def _class_of(values: Any, order: Any) -> Any:
    """Return labels or scores by class; None for targets of several numbers."""
    if values is None or values.ndim > 2:
        return None
    return values[order] if values.ndim == 1 or values.dtype.kind == "f" else None


def _is_batch(x: Any) -> bool:
    is_array = getattr(x, "ndim", 0) > 0 and x.size > 0
    return is_array and np.asarray(x).dtype.kind in "fiub"


def _target_among(arrays: dict[str, np.ndarray], predictions: Any) -> str:
    """Return the name of the last input that can be the target of the predictions; '' if none."""
    for name, x in reversed(arrays.items()) if len(arrays) > 1 else ():
        is_label = x.ndim == 1 and x.dtype.kind in "iu"
        if is_label or (predictions is not None and x.shape == predictions.shape):
            return name
    return ""


def _losses(target: Any, predictions: Any) -> np.ndarray | None:
    """Return cross-entropy of class labels, or the mean squared error of targets."""
    if target is None or predictions is None:
        return None
    predictions = predictions.astype(np.float64)
    with np.errstate(all="ignore"):
        if target.shape == predictions.shape:
            return ((predictions - target) ** 2).reshape(len(target), -1).mean(1)
        if predictions.ndim != 2 or target.ndim != 1:
            return None
        if target.min() < 0 or target.max() >= predictions.shape[1]:
            return None
        largest = predictions.max(1)
        total = np.log(np.exp(predictions - largest[:, None]).sum(1)) + largest
        return total - predictions[np.arange(len(target)), target]


def _extreme(arrays: dict[str, np.ndarray]) -> tuple[int | None, str]:
    """Return the sample that holds a number far from those of all others, and a sentence."""
    for name, x in arrays.items():
        if x.dtype.kind != "f":
            continue
        largest = np.abs(x.reshape(len(x), -1).astype(np.float64)).max(1)
        row = int(largest.argmax())
        others = float(np.delete(largest, row).max())
        if np.isfinite(largest).all() and largest[row] > _EXTREME * others > 0:
            word = "pixel" if x.ndim > 2 else "number"
            value, limit = format_number(float(largest[row])), format_number(others, 2)
            return row, f"sample {row}: highest {word} of {name} {value}, others at most {limit}"
    return None, ""
