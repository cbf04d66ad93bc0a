"""Rules that read what a training step receives: inputs, targets and the order of batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import count_noun, format_count
from nbmodule.live.diagnosis.evidence import NOTHING, Evidence, Snapshot
from nbmodule.live.diagnosis.rule import (
    Fix,
    RuleVerdict,
    found,
    histogram_of,
    of_snapshot,
    rule,
    short,
)

LARGE_INPUT = 50.0
"""Mean or deviation from which inputs count as unscaled; initializers assume about 1."""
LARGE_TARGET = 1e3
COLUMN_RATIO = 1e3
MOST_TABLE_COLUMNS = 1000
MOST_PAIRED = 30
"""Columns of which pairs are tried."""
LEAST_ROWS = 32
DOMINANT = 0.9
REPEATED = 0.25
"""Share of rows that repeat another one; fewer may be oversampled on purpose."""


def _is_float(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f"


def _table(array: NDArray[Any]) -> NDArray[np.floating] | None:
    """The array as a table of rows by columns; None for images, sequences, single numbers, and a
    table that is not finite.
    """
    if array.ndim != 2 or not 2 <= array.shape[1] <= MOST_TABLE_COLUMNS or len(array) < LEAST_ROWS:
        return None
    table = array.astype(np.float64)
    return table if np.isfinite(table).all() else None


def _tables(evidence: Evidence) -> dict[str, NDArray[np.floating]]:
    """The inputs of the first batch that are tables."""
    tables = {name: _table(array) for name, array in evidence.batch.inputs.items()}
    return {name: table for name, table in tables.items() if table is not None}


def _far_from_one(
    arrays: Mapping[str, NDArray[Any]], limit: float
) -> tuple[str, NDArray[np.floating], str] | None:
    """The first array whose mean or deviation is beyond a limit: name, finite values, and both as
    text. Whole numbers count only where they are pixels.
    """
    for name, array in arrays.items():
        if not _is_float(array) and (array.dtype != np.uint8 or array.ndim < 3):
            continue
        values = array.astype(np.float64)
        values = values[np.isfinite(values)]
        if values.size and max(abs(values.mean()), values.std()) > limit:
            mean, deviation = short(values.mean()), short(values.std())
            return name, values, f"{name} has mean {mean} and deviation {deviation}"
    return None


def _standardize(name: str, axis: str = "") -> Fix:
    code = f"({name} - {name}.mean({axis})) / {name}.std({axis})"
    return Fix(code if axis else f"standardize {name}", f"{name} = {code}")


def _labels(evidence: Evidence) -> NDArray[Any]:
    """All class labels seen so far; none in a task that is no classification."""
    if not evidence.classes or not evidence.labels:
        return np.zeros(0, int)
    return np.concatenate([np.ravel(part) for part in evidence.labels])


def _counts_of(labels: NDArray[Any], classes: int) -> dict[str, list[float]]:
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    return {"labels of each class": counts[:100].astype(float).tolist()}


@rule("nonfinite-data", needs=("batch",), category="data")
def nonfinite_data(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The data itself holds NaN or Inf, so every number computed from it is NaN. Replace missing
    values, or leave those rows out.
    """
    received = [
        (snapshot.step, side, name, np.atleast_1d(array))
        for snapshot in evidence.snapshots
        for side, part in (("input", snapshot.batch.inputs), ("target", snapshot.batch.targets))
        for name, array in part.items()
        if _is_float(array) and not np.isfinite(array).all()
    ]
    for step, side, name, values in received[:1]:
        bad = np.argwhere(~np.isfinite(values))
        word = "NaN" if np.isnan(values[tuple(bad[0])]) else "Inf"
        at, rows = ", ".join(map(str, bad[0])), len(np.unique(bad[:, :1]))
        text = f"{word} in the {side}: {name}[{at}], in {rows} of {len(values)} rows"
        code = f"np.nan_to_num({name})"
        picture = histogram_of(f"finite values of {name}", values)
        fixes = [Fix(f"replace it: {code}", f"{name} = {code}")]
        yield found(text, "wrong", step=step, evidence=picture, fixes=fixes)
    if evidence.input_fault is not None and not received:
        step, fault = evidence.input_fault
        yield found(f"{fault} at step {format_count(step)}", "wrong", step=step)


@rule("input-scale", needs=("batch",), category="data")
def input_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Inputs are far from mean 0 and deviation 1, which initializers and learning rates assume.
    Standardize them, or divide images by 255.
    """
    far = _far_from_one(evidence.batch.inputs, LARGE_INPUT)
    if far is None:
        return
    name, values, text = far
    fix, text = _standardize(name, "0"), f"{text}; about 0 and 1 are expected"
    is_byte = values.min() >= 0 and 100 < values.max() <= 255
    if is_byte and np.array_equal(values, np.round(values)):
        text = f"{name} ranges from 0 to {short(values.max())}, as bytes of an image do"
        fix = Fix(f"{name} / 255", f"{name} = {name} / 255")
    yield found(text, evidence=histogram_of(name, values), fixes=[fix])


@rule("column-scale", needs=("batch",), category="data")
def column_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """One column is a thousand times as large as the others and dominates every sum. Standardize
    each column by itself.
    """
    for name, table in _tables(evidence).items():
        if not _is_float(evidence.batch.inputs[name]) or not table.any():
            continue
        spread = table.std(axis=0) + np.abs(table.mean(axis=0))
        worst, usual = int(np.argmax(spread)), np.median(spread[spread > 0])
        if spread[worst] > COLUMN_RATIO * usual:
            ratio = short(spread[worst] / usual)
            text = f"column {worst} of {name} is {ratio} times as large as the others"
            picture = {"size of each column": spread[:100].tolist()}
            yield found(text, evidence=picture, fixes=[_standardize(name, "0")])


@rule("constant-column", needs=("batch",), category="data")
def constant_column(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A column has one value in every row, or equals another column, so it tells nothing. Columns
    of zeros are not reported: the margins of images are such.
    """
    for name, table in _tables(evidence).items():
        same = (table == table[0]).all(axis=0)
        constant = np.flatnonzero(same & (table[0] != 0) & (table[0] != 1))
        varying = np.flatnonzero(~same)
        if len(constant):
            at = int(constant[0])
            text = f"column {at} of {name} is {short(table[0, at])} in every row"
            picture = {"deviation of each column": table.std(axis=0)[:100].tolist()}
            yield found(text, "note", evidence=picture)
        elif len(varying) < 64 and _is_float(evidence.batch.inputs[name]):
            first = np.unique(table[:, varying], axis=1, return_index=True)[1]
            for repeated in np.delete(varying, first)[:1]:
                yield found(f"column {repeated} of {name} repeats another column", "note")


@rule("duplicate-rows", needs=("batch",), category="data")
def duplicate_rows(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Many rows of a batch are the same, so the batch is smaller than it looks. Usual causes: a
    data set joined to itself, sampling with replacement from few rows, oversampling.
    """
    for name, array in evidence.batch.inputs.items():
        if array.ndim < 2 or len(array) < LEAST_ROWS or not _is_float(array):
            continue  # rows of whole numbers, such as categories, repeat by chance
        rows = array.reshape(len(array), -1)
        distinct = len(np.unique(rows, axis=0))
        # rows may be alike by chance: few columns that take few values each
        choices = np.prod([float(len(np.unique(column))) for column in rows.T[:64]])
        if 2 <= distinct <= (1 - REPEATED) * len(rows) and choices >= 10 * len(rows):
            text = f"{len(rows) - distinct} of {len(rows)} rows of {name} repeat another row"
            fix = Fix("drop repeated rows", f"np.unique({name}, axis=0)")
            yield found(text, step=evidence.snapshots[0].step, fixes=[fix])


@rule("class-imbalance", needs=("batch",), category="data")
def class_imbalance(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Almost all labels are of one class, so a constant answer has a low loss. Weight the classes,
    resample, or report a score that counts each class equally.
    """
    labels = _labels(evidence)
    labels = labels[labels >= 0]
    if len(labels) < 200 or evidence.classes > 1000:
        return
    counts = np.bincount(labels)
    share = counts.max() / counts.sum()
    if DOMINANT <= share < 1:
        text = f"{share:.0%} of the labels are class {counts.argmax()}"
        yield found(text, evidence=_counts_of(labels, evidence.classes))


@rule("missing-class", needs=("batch",), category="data")
def missing_class(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The model has an output for a class that no label names. Check the split, the encoding of the
    labels, or the size of the last layer.
    """
    classes, labels = evidence.classes, _labels(evidence)
    if not 2 <= classes <= 100 or len(labels) < 30 * classes:
        return
    missing = np.setdiff1d(np.arange(classes), labels)
    if len(missing):
        named = ", ".join(map(str, missing[:5]))
        count = format_count(len(labels))
        text = f"no label is class {named}, of {classes} outputs, in {count} samples"
        yield found(text, evidence=_counts_of(labels, classes))


@of_snapshot("labels-out-of-range", needs=("batch",), category="data")
def labels_out_of_range(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """A label names no output of the model; JAX does not raise there, and the loss becomes NaN or
    wrong. Labels run from 0 to classes - 1.
    """
    labels, classes = snapshot.labels, snapshot.classes
    if not classes or (labels.min() >= 0 and labels.max() < classes):
        return
    allowed = f"the model has {classes} outputs: 0 to {classes - 1} are allowed"
    text = f"labels run from {labels.min()} to {labels.max()}, and {allowed}"
    is_from_one = labels.min() == 1 and labels.max() == classes
    fixes = [Fix("labels - 1", "labels = labels - 1")] if is_from_one else []
    yield found(text, "wrong", evidence=histogram_of("labels", labels), fixes=fixes)


@rule("sorted-batches", needs=("batch",), category="data")
def sorted_batches(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Each batch holds one class or two, though the data has more: the data is sorted and not
    shuffled. Shuffle it, as `nb.batches(..., shuffle=True)` does.
    """
    batches = [np.unique(part) for part in evidence.labels if np.size(part) >= 8]
    if len(batches) < 6 or not evidence.classes:
        return
    together = len(np.unique(np.concatenate(batches)))
    few = float(np.median([len(part) for part in batches]))
    if together >= 2 and few <= max(1, together // 4):
        text = f"a batch holds {int(few)} of {together} classes: the data is sorted by class"
        picture = {"first class of each batch": [float(part[0]) for part in batches[:100]]}
        fix = Fix("shuffle the data", "nb.batches(data, size, shuffle=True)")
        yield found(text, evidence=picture, fixes=[fix])


@rule("same-batch", needs=("batch",), category="data")
def same_batch(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The step receives the same batch each time although the loop's items differ. Usually the loop
    variable is not the one that is passed to the step.
    """
    count = len(evidence.digests)
    if evidence.items_vary and count >= 10 and len(set(evidence.digests)) == 1:
        times = f"{format_count(count)} times"
        yield found(f"the step received the same batch {times}, though the loop's items differ")


@rule("compiled-again", needs=("compiles",), category="data")
def compiled_again(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The step is compiled again for each new shape of its arrays, which takes far longer than to
    run it. Drop the last incomplete batch, or pad batches and sequences to a few sizes.
    """
    times, (step, change) = len(evidence.new_shapes), evidence.new_shapes[-1]
    text = f"compiled anew {count_noun(times, 'time')}: new shapes, {change}"
    yield found(text, "note", step=step)


@rule("target-scale", needs=("batch",), category="data")
def target_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Targets are thousands of times larger than what a new model returns, so gradients are as
    large. Standardize the targets and scale predictions back.
    """
    far = _far_from_one(evidence.batch.targets, LARGE_TARGET)
    if far is not None:
        name, values, text = far
        picture = histogram_of(name, values)
        yield found(f"the target {text}", evidence=picture, fixes=[_standardize(name)])


@rule("target-among-inputs", needs=("batch",), category="data")
def target_among_inputs(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A column of the inputs is the target itself, or the target is a sum of columns without any
    noise, so the model only has to copy it. Drop those columns, if the target is not known when
    the model is used.
    """
    targets = {name: _single_column(array) for name, array in evidence.batch.targets.items()}
    pairs = itertools.product(targets.items(), _tables(evidence).items())
    for (target, flat), (name, table) in pairs:
        columns = _columns_that_make(table, flat) if len(table) == len(flat) else []
        listed = " and ".join(map(str, columns))
        if len(columns) == 1:
            fix = Fix(f"drop column {listed}", f"{name} = np.delete({name}, {listed}, axis=1)")
            yield found(f"column {listed} of {name} is the target {target}", "wrong", fixes=[fix])
        elif columns:
            yield found(f"the target {target} is a sum of columns {listed} of {name}", "note")


def _single_column(target: NDArray[Any]) -> NDArray[np.floating]:
    """The target as numbers of mean 0 and deviation 1; empty for another kind of target."""
    flat = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
    if flat.ndim != 1 or len(flat) < LEAST_ROWS or flat.dtype.kind not in "fiub":
        return NOTHING
    wide = flat.astype(np.float64)
    is_usable = np.isfinite(wide).all() and wide.std() > 0
    return (wide - wide.mean()) / wide.std() if is_usable else NOTHING


def _columns_that_make(table: NDArray[np.floating], target: NDArray[np.floating]) -> list[int]:
    """The one or two columns of which the target is a linear function without noise."""
    usable = np.flatnonzero(table.std(axis=0) > 0)
    scaled = (table[:, usable] - table[:, usable].mean(axis=0)) / table[:, usable].std(axis=0)
    equal = np.flatnonzero(np.abs(scaled.T @ target) / len(target) > 1 - 1e-6)
    if len(equal):
        return [int(usable[equal[0]])]
    if len(np.unique(target)) < LEAST_ROWS // 2 or len(usable) < 3:
        return []  # a few classes are linear in two columns too easily
    for pair in itertools.combinations(range(min(len(usable), MOST_PAIRED)), 2):
        both = scaled[:, pair]
        fit = both @ np.linalg.lstsq(both, target, rcond=None)[0]
        if np.mean((target - fit) ** 2) < 1e-9:
            return usable[list(pair)].tolist()
    return []
