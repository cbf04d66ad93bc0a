"""No program serves a function that reads another value: a rate in a cell, a default, a list,
behind a property, in an array ...
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.core.rerunning import X

from jax_settings import FLOAT


def rate_in_a_cell(value):
    model = nb.Linear(3, 2, key=0)
    return nb.jit(lambda x: model(x) * value), lambda x: model(x) * value


def rate_as_a_default(value):
    model = nb.Linear(3, 2, key=0)
    return nb.jit(lambda x, rate=value: model(x) * rate), lambda x: model(x) * value


def rate_as_a_global(value):
    names = {"model": nb.Linear(3, 2, key=0), "rate": value}
    exec("def step(x):\n    return model(x) * rate", names)
    return nb.jit(names["step"]), lambda x: names["model"](x) * value


class Settings:
    def __init__(self, rate):
        self._rate = rate

    @property
    def rate(self):
        return self._rate

    def scaled(self, y):
        return y * self._rate


def rate_behind_a_property(value):
    model, settings = nb.Linear(3, 2, key=0), Settings(value)
    return nb.jit(lambda x: model(x) * settings.rate), lambda x: model(x) * value


def rate_in_an_array(value):
    model, rate = nb.Linear(3, 2, key=0), np.array(value, FLOAT)
    return nb.jit(lambda x: model(x) * rate), lambda x: model(x) * value


class Shared(nb.Module):
    def __init__(self, fn):
        self.inner, self.fn = nb.Linear(3, 2, key=0), fn

    def forward(self, x):
        return self.fn(self.inner(x))


def rate_in_a_function_of_the_model(value):
    model = Shared(lambda y: y * value)
    return nb.jit(lambda x: model(x)), lambda x: model.inner(x) * value


def rate_in_the_rule_of_a_derivative(value):
    model, names = nb.Linear(3, 2, key=0), {"jax": jax, "rate": value}
    exec(
        "same = jax.custom_jvp(lambda y: y)\n@same.defjvp\ndef rule(y, t):\n    return y[0], t[0] * rate",
        names,
    )
    same = names["same"]
    return (
        nb.jit(lambda x: jax.jvp(lambda y: same(model(y)), (x,), (x,))[1]),
        lambda x: (model(x) - model.bias()) * value,
    )


class Doubles:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, y):
        return y * 2


class Triples(Doubles):
    def apply(self, y):
        return y * 3


def test_things_of_a_compiled_module_are_not_taken_for_those_of_another():
    class Scaled(nb.Module):
        def __init__(self):
            self.inner = nb.Linear(3, 2, key=0)

        def forward(self, x, thing):
            return thing.apply(self.inner(x))

    for kind, factor in ((Doubles, 2), (Triples, 3), (Doubles, 2)):
        model = Scaled()
        plain = model.inner(X) * factor
        model.compile()
        found = model(X, kind(1.0), arg_stateful_idxs=[[1]])
        np.testing.assert_allclose(found, plain, rtol=1e-6)


MAKERS = [make for name, make in list(globals().items()) if name.startswith("rate_")]


@pytest.mark.parametrize("make", MAKERS)
def test_a_value_that_differs_is_never_taken_from_another_program(make):
    for value in (0.1, 0.0, -0.0, 1, 0.1):
        step, plain = make(value)
        found, expected = step(X), plain(X)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "b"), [(jax.nn.relu, jnp.tanh), (lambda y: y + 1, lambda y: y + 2), (jnp.sin, jnp.cos)]
)
def test_another_activation_function_traces_again(a, b):
    for act in (a, b, a):
        model = nb.Linear(3, 2)
        step = nb.jit(lambda x, act=act, model=model: act(model(x)))
        np.testing.assert_allclose(step(X), act(model(X)), rtol=1e-5, atol=1e-6)
