"""Runs of equal neighbors, and the names they get."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.graphs.layout.neighbors import (
    LONGEST_PROGRAM,
    longest_run,
    run_name,
    stretches,
)


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
    assert longest_run("aaaa", lambda i, j: True, lambda i: True, 0) == (1, 4)


@given(st.integers(0, 100_000))
def test_stretches_hold_every_step_once(count):
    cuts = stretches(count)

    assert cuts[0][0] == 0
    assert cuts[-1][1] == count
    assert all(a[1] == b[0] for a, b in pairwise(cuts))
    assert len(cuts) <= LONGEST_PROGRAM // 2
