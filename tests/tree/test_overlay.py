"""Laying Containers over each other; the door `cont_diff` is tested in test_comparing.py."""

from __future__ import annotations

from nbmodule.tree import Container
from nbmodule.tree.comparison import Overlay, equality


def test_rows_with_equal_values_are_put_together():
    comparison = Overlay("all", "diff", True, equality(True, True))
    rows = list(enumerate([1, 2, 1, 3, 2]))
    assert comparison.groups(rows) == [[(0, 1), (2, 1)], [(1, 2), (4, 2)], [(3, 3)]]
    assert comparison.of_values(rows, complete=True) == {
        "diff_0, 2": 1,
        "diff_1, 4": 2,
        "diff_3": 3,
    }


def test_a_difference_has_levels_of_its_own():
    a = Container(x={"w": 1})
    different = Container.cont_diff(a, Container(y=2))
    different.x.diff_0.w = 5
    assert a.x.w == 1
    kept = Container.cont_diff(a, Container(), detect_key_diffs=False)
    kept.x.w = 5
    assert a.x.w == 1
