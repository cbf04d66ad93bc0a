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
def test_a_pattern_may_be_written_with_names_or_with_chains(pattern, how, net, gradients, train):
    before = net.v
    train(how, nb.SGD(1.0, groups={pattern: {"lr": 0.0}}), net, [gradients(0)])
    np.testing.assert_array_equal(net.v.layers.v0.weight, before.layers.v0.weight)
    np.testing.assert_allclose(net.bias, before.bias - gradients(0).bias, rtol=1e-5)


def test_clipping_counts_what_is_frozen_in_no_group(net, gradients, agree):
    optimizer = nb.SGD(1.0, clip_norm=1.0, groups={"layers.*": {"frozen": True}})
    grads, before = gradients(0), net.v
    clipped = nb.clip_by_global_norm({"bias": grads.bias, "scale": grads.scale}, 1.0)
    optimizer.update(net, grads)
    after = {name: before[name] - grad for name, grad in clipped.items()}
    agree(net.v, {**after, "layers": before.layers.cont_to_dict()})


def test_a_pattern_that_fits_nothing_is_an_error(net, gradients):
    optimizer, before = nb.SGD(1.0, groups={"layer.*": {"lr": 0.1}}), net.v
    message = r'SGD: the pattern "layer.\*" of groups= fits no variable.*globs on names'
    with pytest.raises(nb.PathError, match=message):
        optimizer.update(net, gradients(0))
    assert net.v is before


NO_OPTION = r"has no option \"beta\"; the closest .* They are lr, frozen, beta1, beta2, epsilon"
TAKES = "groups= takes a dict from patterns to"


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ({"a": {"beta": 0.9}}, nb.ArgumentError, NO_OPTION),
        ({"a": {"beta1": 2.0}}, nb.ArgumentError, "Adam: beta1 must be 0 or more"),
        ({"a": {"lr": -1.0}}, nb.ArgumentError, "a learning rate must be finite and at least 0"),
        ({"a": {"lr": None}}, nb.ArgumentTypeError, "lr= takes a number"),
        ({"a": {"frozen": 2}}, nb.ArgumentTypeError, "frozen must be True or False, got 2"),
        ({"a": 1e-4}, nb.ArgumentTypeError, f"{TAKES} dicts of options, got 'a': 0.0001"),
        ([("a", {})], nb.ArgumentTypeError, f"{TAKES} options.*got list"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups, error, message):
    with pytest.raises(error, match=message):
        nb.Adam(groups=groups)
