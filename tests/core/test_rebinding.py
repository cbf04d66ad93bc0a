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
    assert len(traced) == 1  # both are of one structure


# -- a name that stood for no model ------------------------------------------------------------------
def use(thing, x):
    """What a step does with what it finds: a model is called, anything else leaves `x` as it is."""
    while isinstance(thing, (list, tuple)) and thing:
        thing = thing[0]
    return thing(x) if isinstance(thing, nb.Module) else x


def in_a_cell(things):
    held = things[0]
    step = nb.jit(lambda x: use(held, x))
    for held in things:  # noqa: B007 - the lambda reads it
        yield step


def in_a_cell_of_a_helper(things):
    held = things[0]
    helper = lambda x: use(held, x)
    step = nb.jit(lambda x: helper(x))
    for held in things:  # noqa: B007 - the lambda reads it
        yield step


def in_a_global(things):
    names = {"use": use, "held": things[0]}
    exec("def step(x):\n    return use(held, x)", names)
    step = nb.jit(names["step"])
    for names["held"] in things:
        yield step


def in_a_global_that_was_missing(things):
    names = {"use": use}
    exec("def step(x):\n    try:\n        return use(held, x)\n    except NameError:\n        return x", names)
    step = nb.jit(names["step"])
    yield step
    for names["held"] in things[1:]:
        yield step


def in_a_list(things):
    held = [things[0]]
    step = nb.jit(lambda x: use(held[0], x))
    for held[0] in things:
        yield step


def in_a_list_that_was_empty(things):
    held = []
    step = nb.jit(lambda x: use(held, x) if held else x)
    yield step
    for thing in things[1:]:
        held[:] = [thing]
        yield step


def in_a_dict(things):
    held = {}
    step = nb.jit(lambda x: use(held.get("model"), x))
    for held["model"] in things:
        yield step


def in_an_attribute(things):
    class Holder: ...

    holder = Holder()
    step = nb.jit(lambda x: use(getattr(holder, "model", None), x))
    yield step
    for holder.model in things[1:]:
        yield step


def in_an_attribute_of_self(things):
    class Trainer:
        model = None

        def run(self, x):
            return use(self.model, x)

    trainer = Trainer()
    step = nb.jit(trainer.run)
    yield step
    for trainer.model in things[1:]:
        yield step


def in_an_attribute_of_a_model(things):
    class Net(nb.Module):
        def __init__(self):
            self.inner = None

        def forward(self, x):
            return use(self.inner, x)

    net = Net()
    step = nb.jit(lambda x: net(x))
    yield step
    for net.inner in things[1:]:
        yield step


@pytest.mark.parametrize("before", [None, 3, "text", 2.5, (), np.ones(2), len], ids=str)
@pytest.mark.parametrize(
    "held", [in_a_cell, in_a_cell_of_a_helper, in_a_global, in_a_global_that_was_missing, in_a_list, in_a_list_that_was_empty,
             in_a_dict, in_an_attribute, in_an_attribute_of_self, in_an_attribute_of_a_model])  # fmt: skip
def test_a_name_that_stood_for_no_model_and_does_now_is_noticed(held, before):
    x = jnp.ones((1, 2))
    things = [before, nb.Linear(2, 2, key=0), nb.Linear(2, 2, key=1), before, [nb.Linear(2, 2, key=2)]]
    for thing, step in zip(things, held(things)):
        for _ in range(3):
            np.testing.assert_array_equal(step(x), use(thing, x))


def test_a_name_that_changes_between_other_kinds_does_not_trace_again():
    traced, held = [], None

    @nb.jit
    def step(x):
        traced.append(held)
        return x

    for held in (None, 1, "text", 2.5, (), None, 3):  # noqa: B007 - the step reads it
        step(jnp.ones(2))
    assert len(traced) == 1
