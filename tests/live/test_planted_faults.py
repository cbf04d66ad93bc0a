"""Each rule of diagnosis names a fault that is planted for it, and is silent without the fault."""

from __future__ import annotations

import pytest

from benchmarks.clinic.faults import FAULTS
from benchmarks.clinic.training import run
from nbmodule.live.diagnosis.judge import rules

FAULT = {
    "chance-accuracy": "labels shuffled, rings",
    "diverges": "rate too large, SGD, table",
    "spikes": "one broken target, table",
    "overfits": "overfits, table, eval_loss",
    "nonfinite-data": "Inf in targets, table",
    "input-scale": "inputs times 1000, table",
    "column-scale": "one column times 1e5, table",
    "constant-column": "a column twice, table",
    "duplicate-rows": "each row sixteen times, table",
    "class-imbalance": "imbalance, rings",
    "missing-class": "a class too many in the head, rings",
    "labels-out-of-range": "labels from 1, rings",
    "sorted-batches": "sorted by class, rings",
    "same-batch": "the same batch each time, table",
    "target-scale": "targets plus 1e5, table",
    "target-among-inputs": "the target as a difference of two columns, table",
    "vanishing-gradient": "ten sigmoid layers, rings",
    "exploding-gradient": "large initial weights, rings",
    "return-scale": "large initial weights, rings",
    "dead-units": "dead units, rings",
    "saturated": "saturated sigmoid, table",
    "symmetric-units": "all weights zero, rings",
    "collapse": "same answer for all, images",
    "no-update": "optimizer on a copy, rings",
    "small-update": "clipped to nothing, table",
    "large-update": "momentum 0.99 and a large rate, rings",
    "weights-shrink": "weight decay far too strong, rings",
    "same-dropout-mask": "one dropout mask for ever, rings",
    "double-softmax": "softmax before cross-entropy, perceptron",
    "softmax-axis": "softmax over the batch, rings",
    "no-activation": "no activation, table",
    "loss-broadcasts": "[n, 1] against [n], table",
    "mode": "trained in eval mode, rings",
    "small-batch-norm": "batch norm of two rows, rings",
    "unused-layer": "a forgotten layer, rings",
    "frozen-in-part": "a stopped gradient, rings",
    "row-leak": "reshape mixes the batch, table",
    "causal-mask": "inverted causal mask, text",
}


@pytest.mark.parametrize("rule", FAULT)
def test_a_rule_names_its_planted_fault(rule):
    (fault,) = [fault for fault in FAULTS if fault.name == FAULT[rule]]
    assert rule in run(fault.training)[0].names


@pytest.mark.slow
@pytest.mark.parametrize("rule", FAULT)
def test_a_rule_is_silent_without_its_fault(rule):
    (fault,) = [fault for fault in FAULTS if fault.name == FAULT[rule]]
    assert rule not in run(fault.twin)[0].names


def test_rules_of_the_table_exist():
    assert FAULT.keys() <= {rule.name for rule in rules()}
