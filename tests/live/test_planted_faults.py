"""Each rule of diagnosis names a fault that is planted for it, and is silent without the fault."""

from __future__ import annotations

import pytest

from benchmarks.clinic.faults import FAULTS
from benchmarks.clinic.training import run

BY_NAME = {fault.name: fault for fault in FAULTS}
PLANTED = {rule: fault for fault in FAULTS for rule in fault.rules}
PLANTED |= {
    "diverges": BY_NAME["rate too large, SGD, table"],
    "vanishing-gradient": BY_NAME["ten sigmoid layers, rings"],
}
ELSEWHERE = {"nonfinite-loss", "learns-slowly", "oscillates", "plateau"}
"""Rules that other verdicts silence in these runs, or that name no clear fault of them."""
RULES = sorted(PLANTED.keys() - ELSEWHERE)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_names_its_planted_fault(rule):
    assert rule in run(PLANTED[rule].training)[0].names


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_silent_without_its_fault(rule):
    assert rule not in run(PLANTED[rule].twin)[0].names
