import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentError
from nbmodule.views.builders.pytrees import record_for, with_colors, with_labels
from nbmodule.views.renderers.payload import payload_of

CLASSES = ["cat", "dog", "<b>"]


def test_pictures_with_as_many_bars_rows_or_columns_get_the_labels():
    assert with_labels(record_for(np.ones(3)), CLASSES).picture.labels == tuple(CLASSES)
    model = nb.Sequential(nb.Linear(4, 3), nb.ReLU())
    with nb.track(model) as calls:
        model(np.ones((2, 4), "float32"))
    rows = with_labels(record_for(calls), CLASSES).rows
    assert [row.pictures[0].labels for row in rows] == [tuple(CLASSES)] * 3
    record = with_labels(record_for({"w": np.ones((4, 5))}), CLASSES)
    assert "3 labels given, but no picture has as many bars, rows or columns" in record.notes


def test_a_number_for_each_path_tints_rows_of_both_trees():
    model = nb.Sequential(nb.Linear(4, 3), nb.ReLU())
    assert payload_of(with_colors(record_for(model), {"0": 2.5}))["color"] == {0: 2.5}
    data = payload_of(
        with_colors(record_for(model.v), {"0.weight": -1.0, "submodules/v0/b": float("nan")})
    )
    assert data["color"] == {data["step"].index("w"): -1, data["step"].index("b"): "NaN"}


def test_an_unknown_path_and_a_value_without_rows_are_refused():
    with pytest.raises(
        ArgumentError, match="color= names 'head', which is not in the tree; the tree has w"
    ):
        with_colors(record_for({"w": np.ones(2)}), {"head": 1.0})
    with pytest.raises(ArgumentError, match="color= applies to the rows of a tree, got ArrayCard"):
        nb.show(np.ones(2), color={"a": 1.0})
