"""Mistakes of one word that were taken in silence, and are answered now."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT


@pytest.mark.parametrize("wrong", ["false", "False", 0, None, [True]])
def test_a_mode_that_is_no_bool_is_refused_and_nothing_is_changed(wrong):
    model = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5))
    with pytest.raises(nb.ArgumentTypeError, match=r"mode of train\(\) must be True or False, found"):
        model.train(wrong)
    with pytest.raises(nb.ArgumentTypeError, match="training must be True or False"):
        model.training = wrong
    assert all(module.training for module in model.modules())
    assert model.train(np.bool_(False)).training is False


@pytest.mark.parametrize("name", ["store_vars", "with_partial_v", "compile_on_next_step", "fallback_to_non_compiled"])
def test_a_choice_of_the_constructor_that_is_no_bool_is_refused(name):
    with pytest.raises(nb.ArgumentTypeError, match=f"{name} must be True or False, found 'false'"):
        nb.Module(**{name: "false"})


def test_loading_is_strict_or_not_by_a_bool():
    model = nb.Linear(2, 2)
    with pytest.raises(nb.ArgumentTypeError, match=r"strict of load_state_dict\(\) must be True or False, found 'no'"):
        model.load_state_dict(model.state_dict(), strict="no")


def test_requires_grad_can_be_set():
    model = nb.Linear(2, 2)
    model.weight.requires_grad = False
    assert not model.weight.requires_grad and model.bias.requires_grad
    assert not nb.grad(lambda m: m(jnp.ones(2)).sum())(model).w.any()
    model.weight.requires_grad = True
    assert nb.grad(lambda m: m(jnp.ones(2)).sum())(model).w.all()


def test_requires_grad_of_a_buffer_cannot_be_set_to_true():
    layer = nb.BatchNorm1d(2)
    layer.running_mean.requires_grad = False
    with pytest.raises(
        nb.ArgumentError, match=rf"cannot take gradients for buffer {FLOAT}\[2\].*Assign an nb.Parameter"
    ):
        layer.running_mean.requires_grad = True
    with pytest.raises(nb.ArgumentTypeError, match="requires_grad must be True or False, found 'false'"):
        layer.weight.requires_grad = "false"


@pytest.mark.not_under("eager", reason="jax.jit is plain Python there")
def test_dropout_without_a_key_under_a_raw_transform_is_answered_with_what_helps():
    model, x = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5)), jnp.ones((3, 2))
    with pytest.raises(
        nb.TracerLeakError, match=r"nb\.Dropout\(0\.5, key=0\), pass the model in as an argument and return it"
    ):
        jax.jit(lambda m, x: m(x))(model, x)
    cured = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5, key=0))
    y, after = jax.jit(lambda m, x: (m(x), m))(cured, x)
    np.testing.assert_array_equal(y, nb.jit(lambda m, x: m(x))(cured, x))
    assert not np.array_equal(jax.jit(lambda m, x: m(x))(after, x), y)


def test_another_buffer_under_a_raw_transform_keeps_its_own_remedy():
    layer = nb.BatchNorm1d(2)
    with pytest.raises(nb.TracerLeakError, match="or pass the model in as an argument and return it"):
        jax.vmap(layer)(jnp.ones((2, 3, 2)))
