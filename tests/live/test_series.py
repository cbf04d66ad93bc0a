"""One number over the steps: growth, dtypes, reduction for drawing, names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import group_of
from nbmodule.live.run_data.series import Series

VALUES = st.floats(allow_nan=True, allow_infinity=True, width=32)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(VALUES, min_size=1, max_size=99)), max_size=12))
def test_points_added_in_parts_come_back_in_order_and_are_as_narrow_as_all_of_them(parts):
    series, step, steps, values = Series("a"), 2**40, [], []
    for is_wide, part in parts:
        at = list(range(step, step + len(part)))
        series.extend(at, part if is_wide else np.array(part, np.float32))
        step, steps, values = step + len(part), steps + at, values + part
    assert series.steps.tolist() == steps
    np.testing.assert_array_equal(series.values, np.array(values))
    is_wide = any(is_wide for is_wide, _ in parts)
    assert series.values.dtype == (np.float64 if is_wide else np.float32)
    assert series.nbytes <= max(64, 1.6 * len(steps)) * (16 if is_wide else 12)


@pytest.mark.parametrize(
    ("name", "best"),
    [("loss", (2, 1.0)), ("account_error", (2, 1.0)), ("val_accuracy", (3, 9.0)), ("f1", (3, 9.0))],
)
def test_the_best_is_the_lowest_loss_and_the_highest_score(name, best):
    series = Series(name)
    series.extend([1, 2], [5.0, 1.0])
    series.extend([3, 4], [9.0, float("nan")])
    assert series.best == best


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=400), st.integers(1, 40))
def test_a_reduced_curve_keeps_the_extremes_of_each_column_and_both_ends(values, columns):
    steps, values = np.arange(len(values)), np.array(values, np.float32)
    reduced = reduce_curve(Curve(steps, values), columns)
    assert len(reduced.steps) <= max(2 * columns, 3 * columns + 2)
    assert (reduced.steps[0], reduced.steps[-1]) == (0, len(values) - 1)
    assert (np.diff(reduced.steps) > 0).all()
    column = np.minimum(steps * columns // max(len(values) - 1, 1), columns - 1)
    for c in np.unique(column):
        full = values[column == c]
        kept = reduced.values[np.isin(reduced.steps, steps[column == c])]
        if np.isfinite(full).any():
            assert np.nanmin(kept[np.isfinite(kept)]) == full[np.isfinite(full)].min()
            assert np.nanmax(kept[np.isfinite(kept)]) == full[np.isfinite(full)].max()
        assert np.isfinite(kept).all() == np.isfinite(full).all()


def test_steps_that_were_logged_out_of_order_are_sorted_before_they_are_reduced():
    steps = np.r_[np.arange(500, 1000), np.arange(500)]
    reduced = reduce_curve(Curve(steps, steps.astype(float)), 10)
    assert (np.diff(reduced.steps) > 0).all()
    assert (reduced.values == reduced.steps).all()


def test_a_name_holds_the_measure_and_the_data_it_was_taken_on():
    losses = {"train": "loss train_loss", "val": "val_loss validation/loss", "test": "loss/test"}
    for role, names in losses.items():
        assert [group_of(name) for name in names.split()] == [("loss", role)] * len(names.split())
    assert group_of("eval accuracy") == ("accuracy", "val")
    for name in ("train", "value", "loss.aux"):
        assert group_of(name) == (name, "train")
