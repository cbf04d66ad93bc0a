"""Runs of equal neighbors, and the names they get."""

from __future__ import annotations

import pytest

from nbmodule.graphs.layout.forms import Child, Form, Record
from nbmodule.graphs.layout.neighbors import longest_run, run_name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["layers.0", "layers.1", "layers.2"], "layers 0…2"),
        (["layers.9", "layers.10", "layers.11"], "layers 9…11"),
        (["layers.2", "layers.1", "layers.0"], "layers 2…0"),
        (["norm", "norm", "norm"], "norm"),
        (["v0_w", "v1_w", "v2_w"], "v 0…2_w"),
    ],
)
def test_a_run_is_named_by_its_ends(names, expected):
    assert run_name(names) == expected


def test_a_single_item_repeated_is_preferred_to_a_pair():
    sin = Child(Record("sin", "operation", "", (), None, 3, 0, False), "sin")
    form = Form(0, (sin, sin), "scope", None, "", (), (), ())

    assert longest_run([Child(form, "a")] * 4, 0) == (1, 4)
