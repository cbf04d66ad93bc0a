"""A compiled function follows its names: what a cell, global, attribute, list or dict holds now is
what it uses.
"""

import collections
import dataclasses
import functools
import gc
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

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
    [
        held_in_a_cell,
        held_by_a_method,
        held_by_a_plain_object,
        held_in_a_list,
        held_in_a_dict,
        held_by_a_global,
    ],
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


class Here:
    """Holds a model in another way than in an attribute that the function names."""

    here = None

    def __init__(self, model=None):
        self._hidden = {"model": model}

    def __getitem__(self, key):
        return self._hidden[key]

    @property
    def model(self):
        return self._hidden["model"]

    def get(self):
        return self._hidden["model"]


@dataclasses.dataclass(slots=True)
class Slots:
    model: Any


class Pair(NamedTuple):
    name: str
    model: Any


def in_a_pair_of_a_list(a):
    pairs = [("first", a)]
    return lambda x: pairs[0][1](x), lambda model: pairs.__setitem__(0, ("first", model))


def in_a_named_tuple(a):
    pairs = {"one": [Pair("first", a)]}
    return lambda x: pairs["one"][0].model(x), lambda model: pairs.update(
        one=[Pair("first", model)]
    )


def in_a_list_of_a_dict(a):
    models = collections.defaultdict(list, all=[a])
    return lambda x: models["all"][0](x), lambda model: models["all"].__setitem__(0, model)


def in_a_deque(a):
    models = collections.deque([a], maxlen=1)
    return lambda x: models[0](x), models.append


def in_an_object_of_a_list(a):
    holders = [SimpleNamespace(model=a)]
    return lambda x: holders[0].model(x), lambda model: setattr(holders[0], "model", model)


def in_a_slot(a):
    holder = Slots(a)
    return lambda x: holder.model(x), lambda model: setattr(holder, "model", model)


def in_a_class(a):
    Holder = type("Holder", (), {"model": a})
    return lambda x: Holder.model(x), lambda model: setattr(Holder, "model", model)


def in_the_class_of_an_object(a):
    Holder = type("Holder", (), {"model": a})
    holder = Holder()
    return lambda x: holder.model(x), lambda model: setattr(Holder, "model", model)


def behind_a_property(a):
    holder = Here(a)
    return lambda x: holder.model(x), lambda model: holder._hidden.update(model=model)


def behind_an_index(a):
    holder = Here(a)
    return lambda x: holder["model"](x), lambda model: holder._hidden.update(model=model)


def behind_a_method(a):
    holder = Here(a)
    return lambda x: holder.get()(x), lambda model: setattr(holder, "_hidden", {"model": model})


def in_an_attribute_of_the_function(a):
    def run(x):
        return run.model(x)

    run.model = a
    return run, lambda model: setattr(run, "model", model)


def in_an_argument_of_a_partial(a):
    holder = SimpleNamespace(models={"one": a})
    run = functools.partial(lambda holder, x: holder.models["one"](x), holder)
    return run, lambda model: holder.models.update(one=model)


def in_a_default(a):
    holder = {"model": a}

    def run(x, holder=holder):
        return holder["model"](x)

    return run, lambda model: holder.update(model=model)


@pytest.mark.parametrize(
    "held",
    [in_a_pair_of_a_list, in_a_named_tuple, in_a_list_of_a_dict, in_a_deque, in_an_object_of_a_list, in_a_slot, in_a_class,
     in_the_class_of_an_object, behind_a_property, behind_an_index, behind_a_method, in_an_attribute_of_the_function,
     in_an_argument_of_a_partial, in_a_default],
)  # fmt: skip
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_another_model_is_noticed_wherever_it_is_held_and_the_same_one_is_not_traced_again(held):
    a, b, x, traces = nb.Linear(3, 2), nb.Linear(3, 2), jnp.ones((1, 3)), []

    def spied(model):
        model.register_forward_pre_hook(lambda module, args: traces.append(1))
        return model

    run, put = held(spied(a))
    step = nb.jit(run)
    np.testing.assert_allclose(step(x), a(x), rtol=1e-6)
    put(spied(b))
    np.testing.assert_allclose(step(x), b(x), rtol=1e-6)
    put(a)
    np.testing.assert_allclose(step(x), a(x), rtol=1e-6)
    traces.clear()
    for _ in range(3):
        put(a)  # as it was, also where what holds it is made anew
        step(x)
    assert not traces
    a.weight.value = a.weight + 1
    np.testing.assert_allclose(step(x), a(x), rtol=1e-6)


def test_a_model_that_its_class_no_longer_has_is_missed_by_its_name():
    class Registry:
        model = nb.Linear(3, 2)

    step = nb.jit(lambda x: Registry.model(x))
    for _ in range(3):
        step(jnp.ones((4, 3)))
    del Registry.model
    with pytest.raises(AttributeError, match="has no attribute 'model'"):
        step(jnp.ones((4, 3)))
    Registry.model = nb.Linear(3, 2)
    np.testing.assert_allclose(step(jnp.ones((4, 3))), Registry.model(jnp.ones((4, 3))), rtol=1e-6)


def test_a_way_to_a_model_keeps_neither_it_nor_what_holds_it_alive():
    holder = Here(nb.Linear(3, 2))
    gone = [weakref.ref(holder), weakref.ref(holder.model)]
    names = {"holder": holder}
    exec("def run(x):\n    return holder.model(x)", names)
    step = nb.jit(names["run"])
    step(jnp.ones((1, 3)))
    del holder, names["holder"]
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.not_under("eager", reason="nothing is traced")
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
