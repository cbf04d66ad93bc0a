"""Rules that read what a training step receives: inputs, targets and the order of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import count_noun, format_count
from nbmodule.live.diagnosis.evidence import Evidence, Snapshot
from nbmodule.live.diagnosis.rule import (
    Fix,
    RuleVerdict,
    first_snapshot,
    histogram_of,
    rule,
    short_number,
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
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _columns(array: NDArray[Any]) -> NDArray[np.floating] | None:
    """The array as a table of rows by columns; None for images, sequences and single numbers."""
    if array.ndim != 2 or not 2 <= array.shape[1] <= MOST_TABLE_COLUMNS or len(array) < LEAST_ROWS:
        return None
    return array.astype(np.float64)


@rule("nonfinite-data", needs=("batch",), category="data")
def nonfinite_data(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The data itself holds NaN or Inf, so every number computed from it is NaN. Replace missing
    values, or leave those rows out.
    """
    for snapshot in evidence.snapshots:
        sides = (("input", snapshot.batch.inputs), ("target", snapshot.batch.targets))
        for side, arrays in sides:
            for name, array in arrays.items():
                if not _is_float(array) or np.isfinite(array.astype(np.float64)).all():
                    continue
                bad = np.argwhere(~np.isfinite(array.astype(np.float64)))
                index = ", ".join(map(str, bad[0]))
                word = "NaN" if np.isnan(float(array[tuple(bad[0])])) else "Inf"
                rows = len({int(place[0]) for place in bad}) if array.ndim else 1
                text = (
                    f"{word} in the {side}: {name}[{index}], in {rows} of "
                    f"{len(array) if array.ndim else 1} rows"
                )
                fix = Fix(f"replace it: np.nan_to_num({name})", f"{name} = np.nan_to_num({name})")
                picture = histogram_of(f"finite values of {name}", array)
                yield RuleVerdict(
                    "nonfinite-data",
                    text,
                    "wrong",
                    step=snapshot.step,
                    evidence=picture,
                    fixes=[fix],
                )
                return
    if evidence.input_fault is not None:
        step, fault = evidence.input_fault
        text = f"{fault} at step {format_count(step)}"
        yield RuleVerdict("nonfinite-data", text, "wrong", step=step)


@rule("input-scale", needs=("batch",), category="data")
def input_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Inputs are far from mean 0 and deviation 1, which initializers and learning rates assume.
    Standardize them, or divide images by 255.
    """
    snapshot = evidence.snapshots[0]
    for name, array in snapshot.batch.inputs.items():
        if not array.size or not _is_float(array):
            if array.dtype != np.uint8 or array.ndim < 3:
                continue
        values = array.astype(np.float64)
        values = values[np.isfinite(values)]
        if not values.size:
            continue
        mean, std = float(values.mean()), float(values.std())
        if max(abs(mean), std) <= LARGE_INPUT:
            continue
        is_image = values.min() >= 0 and 100 < values.max() <= 255 and array.ndim >= 2
        if is_image and np.array_equal(values, np.round(values)):
            text, fix = (
                f"{name} ranges from 0 to {short_number(float(values.max()))}, as bytes "
                "of an image do",
                f"{name} / 255",
            )
        else:
            text = (
                f"{name} has mean {short_number(mean)} and deviation {short_number(std)}; "
                "about 0 and 1 are expected"
            )
            fix = f"({name} - {name}.mean(0)) / {name}.std(0)"
        fixes = [Fix(fix, f"{name} = {fix}")]
        yield RuleVerdict("input-scale", text, evidence=histogram_of(name, values), fixes=fixes)
        return


@rule("column-scale", needs=("batch",), category="data")
def column_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """One column is a thousand times as large as the others and dominates every sum. Standardize
    each column by itself.
    """
    for name, array in evidence.snapshots[0].batch.inputs.items():
        table = _columns(array) if _is_float(array) else None
        if table is None or not np.isfinite(table).all():
            continue
        spread = table.std(axis=0) + np.abs(table.mean(axis=0))
        usual = float(np.median(spread[spread > 0])) if (spread > 0).any() else 0.0
        worst = int(np.argmax(spread))
        if usual and spread[worst] > COLUMN_RATIO * usual:
            ratio = short_number(float(spread[worst] / usual))
            text = f"column {worst} of {name} is {ratio} times as large as the others"
            code = f"({name} - {name}.mean(0)) / {name}.std(0)"
            picture = {"size of each column": [float(x) for x in spread[:100]]}
            yield RuleVerdict(
                "column-scale", text, evidence=picture, fixes=[Fix(code, f"{name} = {code}")]
            )


@rule("constant-column", needs=("batch",), category="data")
def constant_column(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A column has one value in every row, or equals another column, so it tells nothing. Columns
    of zeros are not reported: the margins of images are such.
    """
    for name, array in evidence.snapshots[0].batch.inputs.items():
        table = _columns(array)
        if table is None or not np.isfinite(table).all():
            continue
        same = (table == table[0]).all(axis=0)
        constant = np.flatnonzero(same & (table[0] != 0) & (table[0] != 1))
        if len(constant):
            at = int(constant[0])
            text = f"column {at} of {name} is {short_number(float(table[0, at]))} in every row"
            picture = {"deviation of each column": [float(x) for x in table.std(axis=0)[:100]]}
            yield RuleVerdict("constant-column", text, "note", evidence=picture)
            continue
        varying = np.flatnonzero(~same)
        if len(varying) > 200 or array.dtype.kind not in "f":
            continue
        _, first = np.unique(table[:, varying], axis=1, return_index=True)
        if len(first) < len(varying) and len(varying) < 64:
            twice = int(varying[next(k for k in range(len(varying)) if k not in set(first))])
            yield RuleVerdict(
                "constant-column", f"column {twice} of {name} repeats another column", "note"
            )


@rule("duplicate-rows", needs=("batch",), category="data")
def duplicate_rows(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Many rows of a batch are the same, so the batch is smaller than it looks. Usual causes: a
    data set joined to itself, sampling with replacement from few rows, oversampling.
    """
    for name, array in evidence.snapshots[0].batch.inputs.items():
        if array.ndim < 2 or len(array) < LEAST_ROWS or not _is_float(array):
            continue  # rows of whole numbers, such as categories, repeat by chance
        rows = np.ascontiguousarray(array).reshape(len(array), -1)
        distinct = len({row.tobytes() for row in rows})
        if distinct > (1 - REPEATED) * len(rows) or distinct < 2 or _has_few_values(rows):
            continue
        text = f"{len(rows) - distinct} of {len(rows)} rows of {name} repeat another row"
        fix = Fix("drop repeated rows", f"np.unique({name}, axis=0)")
        yield RuleVerdict("duplicate-rows", text, step=evidence.snapshots[0].step, fixes=[fix])
        return


def _has_few_values(rows: NDArray[Any]) -> bool:
    """Return True if rows may be alike by chance: few columns that take few values each."""
    choices = np.prod([float(len(np.unique(column))) for column in rows.T[:64]])
    return bool(choices < 10 * len(rows))


@rule("class-imbalance", needs=("batch",), category="data")
def class_imbalance(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Almost all labels are of one class, so a constant answer has a low loss. Weight the classes,
    resample, or report a score that counts each class equally.
    """
    if not evidence.classes or not evidence.labels:
        return
    labels = np.concatenate([np.ravel(part) for part in evidence.labels])
    labels = labels[labels >= 0]
    if len(labels) < 200 or evidence.classes > 1000:
        return
    counts = np.bincount(labels, minlength=evidence.classes)
    share = float(counts.max() / counts.sum())
    if share >= DOMINANT and (counts > 0).sum() > 1:
        text = f"{share:.0%} of the labels are class {int(counts.argmax())}"
        yield RuleVerdict("class-imbalance", text, evidence=_counts_of(labels, evidence.classes))


def _counts_of(labels: NDArray[Any], classes: int) -> dict[str, list[float]]:
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    return {"labels of each class": [float(count) for count in counts[:100]]}


@rule("missing-class", needs=("batch",), category="data")
def missing_class(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The model has an output for a class that no label names. Check the split, the encoding of the
    labels, or the size of the last layer.
    """
    classes = evidence.classes
    if not 2 <= classes <= 100 or not evidence.labels:
        return
    labels = np.concatenate([np.ravel(part) for part in evidence.labels])
    if len(labels) < 30 * classes:
        return
    missing = sorted(set(range(classes)) - set(np.unique(labels).tolist()))
    if missing:
        named = ", ".join(map(str, missing[:5]))
        text = (
            f"no label is class {named}, of {classes} outputs, in "
            f"{format_count(len(labels))} samples"
        )
        yield RuleVerdict("missing-class", text, evidence=_counts_of(labels, classes))


@rule("labels-out-of-range", needs=("batch",), category="data")
@first_snapshot
def labels_out_of_range(snapshot: Snapshot) -> RuleVerdict | None:
    """A label names no output of the model; JAX does not raise there, and the loss becomes NaN or
    wrong. Labels run from 0 to classes - 1.
    """
    labels, classes = snapshot.labels, snapshot.classes
    if labels is None or not classes or not labels.size:
        return None
    low, high = int(labels.min()), int(labels.max())
    if low >= 0 and high < classes:
        return None
    is_from_one = low == 1 and high == classes
    text = (
        f"labels run from {low} to {high}, and the model has {classes} outputs: 0 to "
        f"{classes - 1} are allowed"
    )
    return RuleVerdict(
        "labels-out-of-range",
        text,
        "wrong",
        step=snapshot.step,
        evidence=histogram_of("labels", labels),
        fixes=[Fix("labels - 1", "labels = labels - 1")] if is_from_one else [],
    )


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
        yield RuleVerdict(
            "sorted-batches",
            text,
            evidence=picture,
            fixes=[Fix("shuffle the data", "nb.batches(data, size, shuffle=True)")],
        )


@rule("same-batch", needs=("batch",), category="data")
def same_batch(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The step receives the same batch each time although the loop's items differ. Usually the loop
    variable is not the one that is passed to the step.
    """
    count = len(evidence.digests)
    if evidence.items_vary and count >= 10 and len(set(evidence.digests)) == 1:
        text = (
            f"the step received the same batch {format_count(count)} times, though "
            "the loop's items differ"
        )
        yield RuleVerdict("same-batch", text)


@rule("compiled-again", needs=("compiles",), category="data")
def compiled_again(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The step is compiled again for each new shape of its arrays, which takes far longer than to
    run it. Drop the last incomplete batch, or pad batches and sequences to a few sizes.
    """
    times, (step, change) = len(evidence.new_shapes), evidence.new_shapes[-1]
    text = f"compiled anew {count_noun(times, 'time')}: new shapes, {change}"
    yield RuleVerdict("compiled-again", text, "note", step=step)


@rule("target-scale", needs=("batch",), category="data")
def target_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Targets are thousands of times larger than what a new model returns, so gradients are as
    large. Standardize the targets and scale predictions back.
    """
    for name, array in evidence.snapshots[0].batch.targets.items():
        if not _is_float(array) or not array.size:
            continue
        values = array.astype(np.float64)
        values = values[np.isfinite(values)]
        if not values.size:
            continue
        mean, std = float(values.mean()), float(values.std())
        if max(abs(mean), std) > LARGE_TARGET:
            code = f"({name} - {name}.mean()) / {name}.std()"
            text = (
                f"the target {name} has mean {short_number(mean)} and deviation {short_number(std)}"
            )
            picture = histogram_of(name, values)
            yield RuleVerdict(
                "target-scale",
                text,
                evidence=picture,
                fixes=[Fix(f"standardize {name}", f"{name} = {code}")],
            )
            return


@rule("target-among-inputs", needs=("batch",), category="data")
def target_among_inputs(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A column of the inputs is the target itself, or the target is a sum of columns without any
    noise, so the model only has to copy it. Drop those columns, if the target is not known when
    the model is used.
    """
    snapshot = evidence.snapshots[0]
    for target_name, target in snapshot.batch.targets.items():
        flat = _single_column(target)
        if flat is None:
            continue
        for name, array in snapshot.batch.inputs.items():
            table = _columns(array)
            if table is None or len(table) != len(flat):
                continue
            at = _equal_column(table, flat)
            if at is not None:
                text = f"column {at} of {name} is the target {target_name}"
                fix = Fix(f"drop column {at}", f"{name} = np.delete({name}, {at}, axis=1)")
                yield RuleVerdict("target-among-inputs", text, "wrong", fixes=[fix])
                return
            columns = _columns_that_add_up(table, flat)
            if columns:
                listed = " and ".join(map(str, columns))
                text = f"the target {target_name} is a sum of columns {listed} of {name}"
                yield RuleVerdict("target-among-inputs", text, "note")
                return


def _single_column(target: NDArray[Any]) -> NDArray[np.floating] | None:
    flat = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
    if flat.ndim != 1 or len(flat) < LEAST_ROWS or flat.dtype.kind not in "fiub":
        return None
    wide = flat.astype(np.float64)
    return wide if np.isfinite(wide).all() and wide.std() > 0 else None


def _columns_that_add_up(table: NDArray[np.floating], flat: NDArray[np.floating]) -> list[int]:
    """Two columns of which the target is a linear function without noise, if there are such."""
    deviations = table.std(axis=0)
    usable = np.flatnonzero((deviations > 0) & np.isfinite(deviations))[:MOST_PAIRED]
    normal = (flat - flat.mean()) / flat.std()
    if len(np.unique(flat)) < LEAST_ROWS // 2 or len(usable) < 3:
        return []  # a few classes are linear in two columns too easily
    scaled = (table[:, usable] - table[:, usable].mean(axis=0)) / deviations[usable]
    for k, first in enumerate(scaled.T):
        for j in range(k):
            pair = np.stack([scaled[:, j], first], axis=1)
            fit = pair @ np.linalg.lstsq(pair, normal, rcond=None)[0]
            if float(np.mean((normal - fit) ** 2)) < 1e-9:
                return [int(usable[j]), int(usable[k])]
    return []


def _equal_column(table: NDArray[np.floating], flat: NDArray[np.floating]) -> int | None:
    """The column that is a linear function of the target, without any noise."""
    deviations = table.std(axis=0)
    normal = (flat - flat.mean()) / flat.std()
    for at in np.flatnonzero((deviations > 0) & np.isfinite(deviations)):
        column = (table[:, at] - table[:, at].mean()) / deviations[at]
        if abs(float(np.mean(column * normal))) > 1 - 1e-6:
            return int(at)
    return None
