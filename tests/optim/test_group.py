"""Groups of variables with options of their own."""

from __future__ import annotations

import numpy as np
import pytest

import nbmodule as nb

CHAINS = ["layers.*", "layers/*", "layers/v0/weight", "layers.v?.weight", "*weight"]


@pytest.mark.parametrize(
    ("how", "pattern"),
    [
        ("update", "layers.0.weight"),
        *(("update", each) for each in CHAINS),
        *(("step", each) for each in CHAINS),
    ],
)
def test_a_pattern_may_be_written_with_names_or_with_chains(pattern, how, net, gradients):
    optimizer = nb.SGD(1.0, groups={pattern: {"lr": 0.0}})
    before = net.v
    if how == "update":
        optimizer.update(net, gradients(0))
        after = net.v
    else:
        after = optimizer.step(net.v, gradients(0))
    np.testing.assert_array_equal(after.layers.v0.weight, before.layers.v0.weight)
    np.testing.assert_allclose(after.bias, before.bias - gradients(0).bias, rtol=1e-5)


def test_clipping_counts_what_is_frozen_in_no_group(net, gradients, agree):
    optimizer = nb.SGD(1.0, clip_norm=1.0, groups={"layers.*": {"frozen": True}})
    expected = nb.clip_by_global_norm({"bias": gradients(0).bias, "scale": gradients(0).scale}, 1.0)
    before = net.v
    optimizer.update(net, gradients(0))
    agree(
        {"bias": net.v.bias, "scale": net.v.scale},
        {"bias": before.bias - expected["bias"], "scale": before.scale - expected["scale"]},
    )


def test_a_pattern_that_fits_nothing_is_an_error(net, gradients):
    optimizer, before = nb.SGD(1.0, groups={"layer.*": {"lr": 0.1}}), net.v
    with pytest.raises(
        nb.PathError,
        match=r'SGD: the pattern "layer.\*" of groups= fits no variable.*globs on names',
    ):
        optimizer.update(net, gradients(0))
    assert net.v is before


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (
            {"a": {"beta": 0.9}},
            nb.ArgumentError,
            r"groups\['a'\] has no option \"beta\"; the closest name is .* They are lr, frozen, beta1, beta2, epsilon",
        ),
        ({"a": {"beta1": 2.0}}, nb.ArgumentError, "Adam: beta1 must be 0 or more"),
        ({"a": {"lr": -1.0}}, nb.ArgumentError, "a learning rate must be finite and at least 0"),
        ({"a": {"lr": None}}, nb.ArgumentTypeError, "lr= takes a number"),
        ({"a": {"frozen": 2}}, nb.ArgumentTypeError, "frozen must be True or False, got 2"),
        (
            {"a": 1e-4},
            nb.ArgumentTypeError,
            "groups= takes a dict from patterns to dicts of options, got 'a': 0.0001",
        ),
        (
            [("a", {})],
            nb.ArgumentTypeError,
            "groups= takes a dict from patterns to options.*got list",
        ),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups, error, message):
    with pytest.raises(error, match=message):
        nb.Adam(groups=groups)


def test_a_group_without_a_learning_rate_has_none_to_change():
    with pytest.raises(
        nb.ArgumentError,
        match=r"no group 'bias' with a learning rate of its own; there are \['scale'\]",
    ):
        nb.SGD(1.0, groups={"bias": {"frozen": True}, "scale": {"lr": 0.1}}).set_group_lr(
            "bias", 0.1
        )
