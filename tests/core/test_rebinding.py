"""A compiled function follows its names: what a cell, global, attribute, list or dict holds now is what it uses."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


def held_in_a_cell(a, b, use):
    model = a
    step = nb.jit(lambda x: model(x))
    yield step
    model = b
    yield step
    model = a
    yield step


def held_by_a_method(a, b, use):
    class Trainer:
        def __init__(self):
            self.model = a
            self.step = nb.jit(self.run)

        def run(self, x):
            return self.model(x)

    trainer = Trainer()
    for trainer.model in (a, b, a):
        yield trainer.step


def held_by_a_plain_object(a, b, use):
    class Holder: ...

    holder = Holder()
    step = nb.jit(lambda x: holder.inner.model(x))
    holder.inner = Holder()
    for holder.inner.model in (a, b, a):
        yield step


def held_in_a_list(a, b, use):
    models = [a]
    step = nb.jit(lambda x: models[0](x))
    for models[0] in (a, b, a):
        yield step


def held_in_a_dict(a, b, use):
    models = {"one": a}
    step = nb.jit(lambda x: models["one"](x))
    for models["one"] in (a, b, a):
        yield step


def held_by_a_global(a, b, use):
    step = nb.jit(use["step"])
    for use["model"] in (a, b, a):
        yield step


@pytest.mark.parametrize(
    "held",
    [held_in_a_cell, held_by_a_method, held_by_a_plain_object, held_in_a_list, held_in_a_dict, held_by_a_global],
)
def test_a_name_that_stands_for_another_model_is_noticed_while_the_old_one_lives(held):
    a, b, x = nb.Linear(2, 1), nb.Linear(2, 1), jnp.ones((1, 2))
    names = {}
    exec("def step(x):\n    return model(x)", names)
    steps = held(a, b, names)
    for model in (a, b, a):
        step = next(steps)
        for _ in range(3):
            np.testing.assert_array_equal(step(x), model(x))


def test_going_back_to_an_earlier_model_does_not_trace_again():
    traced = []
    models = [nb.Linear(2, 1), nb.Linear(2, 1)]

    @nb.jit
    def step(x):
        traced.append(1)
        return model(x)

    for model in models * 3:
        np.testing.assert_array_equal(step(jnp.ones((1, 2))), model(jnp.ones((1, 2))))
    assert len(traced) == 2
