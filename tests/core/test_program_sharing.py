"""Programs are found by content: none serves a function that reads another value, or a model that
differs in what it shares, in its hooks, its mode or its code.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT

X = jnp.ones((4, 3))


def rate_in_a_cell(value):
    model = nb.Linear(3, 2, key=0)
    return nb.jit(lambda x: model(x) * value), lambda x: model(x) * value


def rate_in_an_array(value):
    model, rate = nb.Linear(3, 2, key=0), np.array(value, FLOAT)
    return nb.jit(lambda x: model(x) * rate), lambda x: model(x) * value


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


MAKERS = [make for name, make in list(globals().items()) if name.startswith("rate_")]


@pytest.mark.parametrize("make", MAKERS)
def test_a_value_that_differs_is_never_taken_from_another_program(make):
    for value in (0.1, 0.0, -0.0, 1, 0.1):
        step, plain = make(value)
        found, expected = step(X), plain(X)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_models_that_share_a_variable_are_not_run_by_the_program_of_models_that_do_not():
    def make(shared):
        a = nb.Linear(3, 3, key=0)
        b = nb.Linear(3, 3, key=1)
        if shared:
            b.weight = a.weight

        @nb.jit
        def grow(x):
            a.weight.value = a.weight.value + 1
            return b(x)

        return a, b, grow

    for shared in (False, True, False, True):
        _, b, grow = make(shared)
        expected = X @ (b.weight() + (1 if shared else 0)).T + b.bias()
        np.testing.assert_allclose(grow(X), expected, rtol=1e-5)
