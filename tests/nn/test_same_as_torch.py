"""Layers that PyTorch has too: outputs and all gradients are PyTorch's, which computes in float64.

A row is the name, sizes, shapes or arrays of inputs, and options.
"""

import re

import numpy as np
import pytest

import nbmodule as nb
from tests.nn.conftest import layers_agree

torch = pytest.importorskip("torch")
OPTIONS = {"with_bias": "bias", "dropout_rate": "dropout"}  # of ours, and their names in PyTorch


def row(name, sizes, *inputs, **options):
    return name, sizes, inputs, options


def norm(n, **options):
    return row(f"BatchNorm{n}d", (3,), (2, *(5, 4, 3)[:n], 3), **options)


def recur(name, **options):
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    is_cell, count = name.endswith("Cell"), 2 if name.startswith("LSTM") else 1
    state = [(2, 4) if is_cell else (layers, 2, 4)] * count
    return row(name, (3, 4), (2, 3) if is_cell else (2, 5, 3), *state, **options)


CASES = [
    *(row("Linear", (3, 4), (2, 5, 3), with_bias=with_bias) for with_bias in (True, False)),
    row("Bilinear", (3, 4, 2), (2, 5, 3), (2, 5, 4)),
    *(
        row("Embedding", (10, 4), np.array([[1, 2, 9], [2, 2, 0]]), padding_idx=index)
        for index in (None, 2, -1)
    ),
    *(row("Flatten", (), (2, 3, 4, 5), start_axis=a, end_axis=b) for a, b in [(1, -1), (0, -1)]),
    *(row("Flatten", (), (2, 3, 4), start_axis=a, end_axis=b) for a, b in [(0, 1), (-3, -2)]),
    *(row("PReLU", (n,), (5, 3, 4), axis=axis) for n, axis in [(1, -1), (4, -1), (3, 1)]),
    norm(1),
    norm(2, eps=1e-2),
    norm(3, momentum=0.4),
    norm(2, affine=False),
    norm(2, track_running_stats=False),
    row("BatchNorm1d", (3,), (6, 3)),
    row("BatchNorm1d", (3,), (6, 3), data_format="NCW"),
    recur("RNN"),
    recur("RNN", nonlinearity="relu"),
    recur("LSTM", num_layers=2, bidirectional=True),
    recur("LSTM", bidirectional=True, with_bias=False),
    recur("GRU", num_layers=2, bidirectional=True),
    recur("RNNCell", nonlinearity="relu"),
    *(
        recur(f"{kind}Cell", with_bias=with_bias)
        for kind in ("RNN", "LSTM", "GRU")
        for with_bias in (True, False)
    ),
]


def theirs(name, sizes, options):
    options = {OPTIONS.get(option, option): value for option, value in options.items()}
    for option in ("data_format", *(["axis"] if name == "PReLU" else [])):
        options.pop(option, None)
    if name == "Flatten":
        return torch.nn.Flatten(options["start_axis"], options["end_axis"])
    if name in ("RNN", "LSTM", "GRU"):
        options["batch_first"] = True
    return getattr(torch.nn, name)(*sizes, **options)


RECURRENT = re.compile("RNN|LSTM|GRU")


def with_state(layer, x, *state):
    return layer(x, state if len(state) > 1 else state[0])


def channels_last(module, x):
    return module(x.movedim(-1, 1)).movedim(1, -1)


@pytest.mark.filterwarnings("ignore:BatchNorm2d has no trainable parameter")  # `affine=False`
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("name", "sizes", "inputs", "options"), CASES)
def test_outputs_and_gradients_are_those_of_torch(name, sizes, inputs, options, mode, draws):
    inputs = [draws.normal(1, 1, x).astype("f") if isinstance(x, tuple) else x for x in inputs]
    calls = {}
    if RECURRENT.match(name):
        calls = {"ours": with_state, "call": with_state}
    elif "Norm" in name or options.get("axis") == -1:
        calls = {"call": channels_last}
    layer = getattr(nb, name)(*sizes, **options)
    if hasattr(layer, "running_mean") and layer.running_mean is not None:
        layer(inputs[0])  # statistics of its own
    other = theirs(name, sizes, options)
    assert {*layer.state_dict(), "num_batches_tracked"} >= set(other.state_dict())
    layers_agree(layer.train(mode), other.train(mode), *inputs, **calls)
