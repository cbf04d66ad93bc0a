"""Common mistakes of one word raise an error that names the fix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

X = jnp.array([[1.0, 2.0], [3.0, 5.0], [4.0, 9.0]])


@pytest.mark.parametrize("wrong", ["false", "False", 2, None, [True]])
def test_a_mode_that_is_no_bool_is_refused_and_nothing_is_changed(wrong):
    model = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5))
    with pytest.raises(nb.ArgumentTypeError, match=r"mode of train\(\) must be True or False, got"):
        model.train(wrong)
    with pytest.raises(nb.ArgumentTypeError, match="training must be True or False"):
        model.training = wrong
    assert all(module.training for module in model.modules())
    for flag in (np.bool_(False), 0):
        assert model.train(flag).training is False
        assert model.train(1).training is True


@pytest.mark.parametrize(
    "name", ["store_vars", "with_partial_v", "compile_on_next_step", "fallback_to_non_compiled"]
)
def test_a_choice_of_the_constructor_that_is_no_bool_is_refused(name):
    with pytest.raises(nb.ArgumentTypeError, match=f"{name} must be True or False, got 'false'"):
        nb.Module(**{name: "false"})


def test_requires_grad_can_be_set_for_parameters():
    layer = nb.BatchNorm1d(2)
    for flag in (False, True):
        layer.weight.requires_grad = flag
        assert layer.weight.requires_grad is flag and layer.bias.requires_grad
        assert nb.grad(lambda m: (m(X) ** 3).sum())(layer).w.any() == flag
    layer.running_mean.requires_grad = False
    with pytest.raises(nb.ArgumentError, match=r"for buffer .*\[2\].*Assign an nb.Parameter"):
        layer.running_mean.requires_grad = True
    with pytest.raises(nb.ArgumentTypeError, match="must be True or False, got 'false'"):
        layer.weight.requires_grad = "false"


class Noisy(nb.Module):
    def __init__(self):
        self.stream = nb.RandomStream(1)

    def forward(self, x):
        return x + jax.random.normal(self.stream(), x.shape)


@pytest.mark.not_under("eager", reason="jax.jit is plain Python there")
@pytest.mark.filterwarnings("ignore:the model Noisy is read inside a raw jax.jit")
def test_a_stream_outside_of_a_raw_transform_raises_an_error_with_the_fix():
    model, x, noisy = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5)), jnp.ones((3, 2)), Noisy()
    fix = r"nb\.jit.*nb\.Dropout\(0\.5, key=0\), pass the model in as an argument and return it"
    for run in (lambda: jax.jit(lambda m, x: m(x))(model, x), lambda: jax.jit(lambda: noisy(x))()):
        with pytest.raises(nb.TracerLeakError, match=rf"{fix}.*or pass a key.*stream\.draw\(\)"):
            run()
    cured = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5, key=0))
    y, after = jax.jit(lambda m, x: (m(x), m))(cured, x)
    np.testing.assert_array_equal(y, nb.jit(lambda m, x: m(x))(cured, x))
    assert not np.array_equal(jax.jit(lambda m, x: m(x))(after, x), y)


# -- attributes without effect --
FREEZING = ["trainable", "requires_grad", "frozen", "freeze"]


@pytest.mark.parametrize("name", FREEZING)
@pytest.mark.parametrize(
    "make", [lambda: nb.Linear(2, 2), lambda: nb.Module(layer=nb.Linear(2, 2))]
)
def test_a_flag_that_would_freeze_nothing_is_refused_with_the_fix(name, make):
    model = make()
    with pytest.raises(nb.PathError, match=r"requires_grad_\(False\)"):
        setattr(model, name, False)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_module_may_have_such_an_attribute_of_its_own():
    class Net(nb.Module):
        def __init__(self):
            self.frozen = False

        def forward(self, x):
            return x

    model = Net()
    model.frozen = True
    assert model.frozen is True


@pytest.mark.parametrize(("name", "flag"), [("freeze", "False"), ("unfreeze", "True")])
def test_freezing_by_a_method_of_another_framework_names_ours(name, flag):
    with pytest.raises(AttributeError, match=rf"requires_grad_\({flag}\)"):
        getattr(nb.Sequential(nb.Linear(2, 2))[0], name)()


def test_a_misspelled_attribute_of_a_library_layer_is_refused_with_the_closest():
    layer = nb.Dropout(0.5)
    with pytest.raises(nb.PathError, match='no attribute .* to set.*"rate"'):
        layer.rat = 0.1
    layer.rate = 0.1

    class Own(nb.Dropout):
        pass

    Own(0.5).note = "of the user"  # a class of one's own may read it


@pytest.mark.parametrize("name", ["foward", "forwrad", "froward"])
def test_a_misspelled_forward_is_named(name):
    cls = type("Net", (nb.Module,), {name: lambda self, x: x})
    with pytest.raises(NotImplementedError, match=f"rename its {name} to forward"):
        cls()(1.0)


# -- streams --
STREAM_MISUSES = {
    "an attribute": lambda stream: stream.key,
    "as a key": jax.random.normal,
    "as a key to split": jax.random.split,
}


@pytest.mark.parametrize("misuse", STREAM_MISUSES.values(), ids=STREAM_MISUSES)
def test_a_stream_used_as_a_key_names_the_methods_that_give_one(misuse):
    stream = nb.RandomStream(0)
    with pytest.raises(
        nb.NbModuleError, match=r"stream\.draw\(\) gives the next key, stream\.split"
    ):
        misuse(stream)
    assert not hasattr(stream, "dtype")
