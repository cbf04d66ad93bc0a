"""Losses of probabilities against classes: cross entropy, binary cross entropy, Kullback-Leibler,
hinge, CTC.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Integer, Real

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened, widened_array
from nbmodule.errors import ArgumentError, DtypeError, ShapeError
from nbmodule.nn.checks import (
    check_axis,
    check_broadcasts,
    check_choice,
    check_index,
    check_number,
    check_shape,
    known,
)
from nbmodule.nn.functional.activations import log_softmax, relu, softplus
from nbmodule.nn.functional.regression import equal_pair, reduce
from nbmodule.nn.kernel import ArrayLike, along, kernel, nan_where, plain, promoted, where


@kernel(static=("axis", "from_logits", "label_smoothing", "ignore_index", "reduction"))
def cross_entropy(
    prediction: Float[ArrayLike, "..."],
    target: Real[ArrayLike, "..."],
    *,
    weight: Float[ArrayLike, " classes"] | None = None,
    axis: int = -1,
    from_logits: bool = True,
    label_smoothing: float = 0.0,
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute the negative log-probability of the right class: `-sum over classes of target *
    log(softmax(prediction))`.

    Args:
        prediction: Logits, classes along `axis`.
        target: Either integer labels, of the shape of `prediction` without `axis`; a label that is
            no class gives NaN. Or probabilities of all classes, of the shape of `prediction`.
        weight: Factor of each class. The mean over labels is then divided by the sum of their
            weights.
        axis: Axis of the classes.
        from_logits: False if `prediction` holds probabilities; their logarithm is taken as -100 at
            least.
        label_smoothing: Share of the target, from 0 to 1, that is spread evenly over all classes.
        ignore_index: Label of positions that count for nothing, neither in the sum nor in the mean;
            a mean over none is zero. None if all labels count.
        reduction: `mean` over all positions, `sum`, or `none` for the loss of each.

    Raises:
        ShapeError: if the target fits neither form.
        ArgumentError: if the pair looks swapped.

    Example:
        >>> logits = jnp.array([[2.0, 0.0], [0.0, 0.0]])
        >>> cross_entropy(logits, jnp.array([0, 1]), reduction="none")
        Array([0.12692805, 0.6931472 ], dtype=float32)
        >>> cross_entropy(logits, jnp.array([[1.0, 0.0], [0.5, 0.5]]), reduction="none")
        Array([0.12692805, 0.6931472 ], dtype=float32)

    Source: Szegedy et al. (2016), arXiv:1512.00567, for label smoothing.
    """
    axis = check_axis(axis, prediction.ndim)
    check_number("label_smoothing", label_smoothing, least=0, most=1)
    classes = prediction.shape[axis]
    if weight is not None:
        check_shape("weight", weight, (classes,), "one for each class")
        weight = along(weight, axis, prediction.ndim)
        prediction, weight = promoted(prediction, weight)
    log_p = log_softmax(prediction, axis=axis) if from_logits else _log(prediction)
    weighted = log_p if weight is None else log_p * weight
    share: Array | None = None
    is_dense = target.shape == prediction.shape and target.ndim > 0
    if is_dense:
        target = lax.convert_element_type(target, log_p.dtype)
        values = -jnp.sum(_product(target, weighted), axis)
    else:
        _check_labels(prediction, target, axis)
        is_signed = target.dtype.kind == "i"
        dtype = widened(target.dtype, jnp.int32) if is_signed else jnp.int32
        target = lax.convert_element_type(target, dtype)
        numbers = lax.broadcasted_iota(dtype, log_p.shape, axis)
        is_label = numbers == lax.expand_dims(target, (axis,))
        values = -jnp.sum(where(is_label, weighted, 0), axis)
        if weight is not None:
            share = jnp.sum(where(is_label, weight, 0), axis)
    if label_smoothing:
        spread = -jnp.mean(weighted, axis)
        values = (1 - label_smoothing) * values + label_smoothing * spread
    if is_dense:
        return reduce(values, reduction)
    is_wrong = (target < 0) | (target >= classes)
    if ignore_index is not None:
        check_index("ignore_index", ignore_index, 1 << 31)
        counted = target != ignore_index
        is_wrong = is_wrong & counted
        values = where(counted, values, 0)
        share = where(counted, 1 if share is None else share, jnp.zeros((), values.dtype))
    values = nan_where(is_wrong, values)
    if share is None:
        return reduce(values, reduction)
    count = jnp.sum(widened_array(share))
    return reduce(values, reduction, count=where(count == 0, 1, count))


def _check_labels(prediction: Array, target: Array, axis: int) -> None:
    labels_shape = prediction.shape[:axis] + prediction.shape[axis + 1 :]
    if target.shape != labels_shape:
        fix = " Drop its column: target[..., 0]." if target.shape == (*labels_shape, 1) else ""
        raise ShapeError(
            f"target must hold labels of shape {list(labels_shape)} or probabilities "
            f"of shape {list(prediction.shape)} (prediction {describe_shape(prediction)}, "
            f"classes on axis {axis}), got {describe_shape(target)}.{fix}"
        )
    if not jnp.issubdtype(target.dtype, jnp.integer):
        raise DtypeError(
            f"target of shape {list(labels_shape)} must hold integer labels, got "
            f'{describe_shape(target)}. Convert it first: target.astype("int32").'
        )


def _refusing_logits(loss: Callable[..., Any]) -> Any:
    """Look at the predictions before the kernel does, where their values are known: logits would
    give NaN in silence.
    """

    @functools.wraps(loss)
    def checked(prediction: Array, *args: object, **options: object) -> Any:
        p = None if options.get("from_logits") else known(plain(prediction))
        is_floating = isinstance(p, (jax.Array, np.ndarray)) and p.dtype.kind == "f"
        if is_floating and _is_outside(p):
            raise ArgumentError(
                "binary_cross_entropy: prediction must hold probabilities, from 0 to 1, and "
                "holds values outside. If they are logits, pass from_logits=True; if not, "
                "put a sigmoid before the loss."
            )
        return loss(prediction, *args, **options)

    return checked


@jax.jit
def _is_outside(p: Array) -> Array:
    return jnp.any((p < 0) | (p > 1))


@_refusing_logits
@kernel(static=("from_logits", "label_smoothing", "reduction"))
def binary_cross_entropy(
    prediction: Float[ArrayLike, "*shape"],
    target: Real[ArrayLike, "*shape"] | Bool[ArrayLike, "*shape"],
    *,
    pos_weight: Float[ArrayLike, "..."] | None = None,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute the negative log-probability of yes or no: `-(target * log(p) + (1 - target) * log(1
    - p))`.

    Args:
        prediction: Probabilities of yes, 0 ... 1, of any shape; logits are out of this range:
            refused where values are known, NaN inside a compiled function.
        target: 1 for yes, 0 for no, or what is between, of the same shape.
        pos_weight: Factor of the yes part, one number or what broadcasts to `prediction`.
        from_logits: True if `prediction` holds logits, so that `p = sigmoid(prediction)`; exact
            also where this underflows.
        label_smoothing: Share of the target, from 0 to 1, that is replaced by one half.
        reduction: `mean`, `sum`, or `none` for the loss of each value.

    Raises:
        ShapeError: if the shapes differ; they are not broadcast.
        ArgumentError: if the pair looks swapped, or the predictions are no probabilities.

    Example:
        >>> binary_cross_entropy(jnp.array([0.5, 0.25]), jnp.array([1, 0]), reduction="none")
        Array([0.6931472, 0.2876821], dtype=float32)
        >>> binary_cross_entropy(jnp.array([1000.0]), jnp.array([0]), from_logits=True)
        Array(1000., dtype=float32)
    """
    prediction, target = equal_pair(prediction, target)
    check_number("label_smoothing", label_smoothing, least=0, most=1)
    if pos_weight is not None:
        check_broadcasts("pos_weight", pos_weight, prediction.shape)
    if label_smoothing:
        target = target * (1 - label_smoothing) + 0.5 * label_smoothing
    yes, no = target, 1 - target
    if pos_weight is not None:
        yes = target * lax.convert_element_type(pos_weight, prediction.dtype)
    if from_logits:
        values = no * prediction + (yes + no) * softplus(-prediction)
    else:
        values = -(yes * _log(prediction) + no * _log(1 - prediction))
    return reduce(values, reduction)


@kernel(static=("axis", "from_logits", "log_target", "reduction"))
def kl_div(
    prediction: Float[ArrayLike, "*shape"],
    target: Float[ArrayLike, "*shape"],
    *,
    axis: int = -1,
    from_logits: bool = False,
    log_target: bool = False,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute the Kullback-Leibler divergence of the target from the prediction: `target *
    (log(target) - prediction)`.

    Args:
        prediction: Logarithms of probabilities.
        target: Probabilities, of the same shape; a zero adds nothing, nor does its logarithm.
        axis: Axis of the classes, for `from_logits`.
        from_logits: True if `prediction` holds logits, whose log-softmax is taken.
        log_target: True if the target holds logarithms as well.
        reduction: `mean` over all values, `batchmean` over the first axis, which is the divergence
            proper, `sum`, or `none`.

    Example:
        >>> p = jnp.array([[0.5, 0.5]])
        >>> kl_div(jnp.log(p), jnp.array([[1.0, 0.0]]), reduction="batchmean")
        Array(0.6931472, dtype=float32)

    Source: Kullback and Leibler (1951), On information and sufficiency.
    """
    prediction, target = equal_pair(prediction, target)
    check_choice("reduction", reduction, ("mean", "batchmean", "sum", "none"))
    if from_logits:
        prediction = log_softmax(prediction, axis=axis)
    if log_target:
        some = target > -jnp.inf
        values = lax.exp(target) * (where(some, target, 0) - where(some, prediction, 0))
    else:
        some = target > 0
        log_target_ = lax.log(where(some, target, 1))
        values = where(some, target * (log_target_ - where(some, prediction, 0)), 0)
    if reduction == "batchmean":
        if not values.ndim:
            raise ShapeError(
                "prediction must have a batch axis for 'batchmean', got "
                f"{describe_shape(prediction)}."
            )
        return reduce(values, "mean", count=values.shape[0])
    return reduce(values, reduction)


@kernel(static=("margin", "reduction"))
def hinge_loss(
    prediction: Float[ArrayLike, "*shape"],
    target: Real[ArrayLike, "*shape"],
    *,
    margin: float = 1.0,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute how far scores fall short of a margin on the right side of zero: `max(0, margin -
    target * prediction)`.

    Args:
        prediction: Scores of any shape.
        target: 1 for yes, -1 for no, of the same shape.
        margin: Wanted distance from zero.
        reduction: `mean`, `sum`, or `none` for the loss of each value.

    Example:
        >>> hinge_loss(jnp.array([0.5, 2.0, 0.5]), jnp.array([1, 1, -1]), reduction="none")
        Array([0.5, 0. , 1.5], dtype=float32)

    Source: Cortes and Vapnik (1995), Support-vector networks.
    """
    prediction, target = equal_pair(prediction, target)
    return reduce(relu(margin - target * prediction), reduction)


@kernel(static=("axis",))
def accuracy(
    prediction: Real[ArrayLike, "..."], target: Integer[ArrayLike, "..."], *, axis: int = -1
) -> Float[Array, ""]:
    """Compute the share of positions whose largest score is that of the right class.

    A metric, not a loss: its gradient is zero. For one score a position, compare it with a
    threshold and average: `((scores > 0) == target).mean()`.

    Args:
        prediction: Scores, logits or probabilities, classes along `axis`; or predicted labels.
        target: Integer labels, of the shape of `prediction` without `axis`, or that of labels.
        axis: Axis of the classes.

    Raises:
        ShapeError: if the shapes do not fit.

    Example:
        >>> accuracy(jnp.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]]), jnp.array([0, 1, 1])).round(2)
        Array(0.67, dtype=float32)
    """
    if prediction.shape != target.shape or jnp.issubdtype(prediction.dtype, jnp.floating):
        axis = check_axis(axis, prediction.ndim)
        labels_shape = prediction.shape[:axis] + prediction.shape[axis + 1 :]
        if target.shape != labels_shape:
            raise ShapeError(
                f"target must hold labels of shape {list(labels_shape)} (prediction "
                f"{describe_shape(prediction)}, classes on axis {axis}), got "
                f"{describe_shape(target)}. For one score a position: "
                "((scores > 0) == target).mean()."
            )
        prediction = jnp.argmax(prediction, axis)
    return jnp.mean((prediction == target).astype(jnp.float32))


@kernel(static=("blank", "reduction"))
def ctc_loss(
    prediction: Float[ArrayLike, "*batch time classes"],
    target: Integer[ArrayLike, "*batch labels"],
    prediction_lengths: Integer[ArrayLike, "*batch"] | None = None,
    target_lengths: Integer[ArrayLike, "*batch"] | None = None,
    *,
    blank: int = 0,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute the negative log-probability of a sequence of labels, summed over all ways to lay it
    along time.

    Labels that cannot be laid along so few times have probability zero: their loss is infinite, and
    adds no gradient.

    Args:
        prediction: Logits (or log-probabilities) of the classes at each time.
        target: Labels without blanks, padded at the end.
        prediction_lengths: Number of times that count; all by default.
        target_lengths: Number of labels that count; all by default.
        blank: Class that stands for no label.
        reduction: `mean` divides each loss by the number of its labels first, as PyTorch does;
            `sum`; or `none` for each sequence.

    Raises:
        ShapeError: if the leading axes differ.

    Example:
        >>> prediction = jnp.log(jnp.array([[0.5, 0.5], [0.5, 0.5]]))
        >>> ctc_loss(prediction, jnp.array([1])).round(5)
        Array(0.28768, dtype=float32)

    Source: Graves, Fernandez, Gomez and Schmidhuber (2006), Connectionist temporal classification.
    """
    import optax

    if prediction.ndim < 2 or target.ndim < 1 or target.shape[:-1] != prediction.shape[:-2]:
        raise ShapeError(
            f"prediction (*batch, time, classes) and target (*batch, labels) must share "
            f"their leading axes, got {describe_shape(prediction)} and {describe_shape(target)}."
        )
    batch, (time, classes), labels = prediction.shape[:-2], prediction.shape[-2:], target.shape[-1]
    check_index("blank", blank, classes)
    rows = math.prod(batch)

    def absent(which: str, lengths: Array | None, count: int) -> Array:
        if lengths is None:
            return jnp.zeros((rows, count), widened(prediction.dtype))
        check_shape(f"{which}_lengths", lengths, batch, "one for each sequence")
        places = lax.broadcasted_iota(lengths.dtype, (rows, count), 1)
        return (places >= lax.reshape(lengths, (rows, 1))).astype(widened(prediction.dtype))

    no_time = absent("prediction", prediction_lengths, time)
    no_label = absent("target", target_lengths, labels)
    # Zeros are multiplied with log-probabilities: a class that cannot be has a large number there,
    # and far from overflow.
    wide = widened_array(prediction)
    never = float(jnp.finfo(wide.dtype).min) / (4 * (time + 1))
    wide = lax.reshape(where(wide == -jnp.inf, never, wide), (rows, time, classes))
    flat = lax.reshape(target, (rows, labels))
    values = optax.ctc_loss(
        wide, no_time, flat, no_label, blank_id=blank % classes, log_epsilon=never
    )
    values = where(_fits(flat, no_time, no_label) & ~(values > -never / 2), values, jnp.inf)
    if reduction == "mean":
        present = jnp.sum(1 - no_label, -1)
        values = values / where(present < 1, 1, present)
    values = lax.convert_element_type(lax.reshape(values, batch), prediction.dtype)
    return reduce(values, reduction)


def _fits(target: Array, no_time: Array, no_label: Array) -> Array:
    """Return True if the labels of each sequence fit into its times; equal neighbors need a blank
    between them.
    """
    repeats = jnp.sum(where(target[:, 1:] == target[:, :-1], 1 - no_label[:, 1:], 0), -1)
    return jnp.sum(1 - no_label, -1) + repeats <= jnp.sum(1 - no_time, -1)


@jax.custom_jvp
def _log(p: Array) -> Array:
    """The logarithm of a probability, -100 at least, as PyTorch has it; NaN of what is negative."""
    return where(p == 0, -100, lax.log(p))


@_log.defjvp
def _log_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (p,), (dp,) = primals, tangents
    least = max(1e-12, float(jnp.finfo(p.dtype).tiny))  # 1e-12 is zero in float16
    return _log(p), dp / where(p < least, least, p)


def _product(target: Array, log_p: Array) -> Array:
    """`target * log_p`, zero where the target is, also for a probability of zero."""
    return where(target == 0, 0, target * where(target == 0, 0, log_p))
