"""A compiled function follows its names: what a cell, global, attribute, list or dict holds now is what it uses."""

import collections
import contextvars
import dataclasses
import functools
import gc
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
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
    return lambda x: pairs["one"][0].model(x), lambda model: pairs.update(one=[Pair("first", model)])


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


def in_a_context_variable(a):
    current = contextvars.ContextVar("current")
    current.set(a)
    return lambda x: current.get()(x), current.set


def in_a_weak_reference(a):
    holder = SimpleNamespace(model=weakref.ref(a))
    return lambda x: holder.model()(x), lambda model: setattr(holder, "model", weakref.ref(model))


@pytest.mark.parametrize(
    "held",
    [in_a_pair_of_a_list, in_a_named_tuple, in_a_list_of_a_dict, in_a_deque, in_an_object_of_a_list, in_a_slot, in_a_class,
     in_the_class_of_an_object, behind_a_property, behind_an_index, behind_a_method, in_an_attribute_of_the_function,
     in_an_argument_of_a_partial, in_a_default, in_a_context_variable, in_a_weak_reference],
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


def test_a_class_that_has_no_model_and_then_one_is_noticed():
    x, model = jnp.ones((1, 3)), nb.Linear(3, 2)

    class Holder:
        model = None

        @classmethod
        def run(cls, x):
            return x if cls.model is None else cls.model(x)

    for step in (nb.jit(Holder.run), nb.jit(lambda x: x if Holder.model is None else Holder.model(x))):
        Holder.model = None
        np.testing.assert_array_equal(step(x), x)
        Holder.model = model
        np.testing.assert_allclose(step(x), model(x), rtol=1e-6)


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


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_name_that_changes_between_other_kinds_does_not_trace_again():
    traced, held = [], None

    @nb.jit
    def step(x):
        traced.append(held)
        return x

    for held in (None, 1, "text", 2.5, (), None, 3):  # noqa: B007 - the step reads it
        step(jnp.ones(2))
    assert len(traced) == 1


# -- the same, deeper: whoever holds the model is not what the names stand for -----------------------
def used(thing, x):
    """As `use`, of the last of a sequence, and of the item of a dict; a box and an array multiply."""
    while isinstance(thing, (list, tuple, collections.deque, dict)) and thing:
        thing = thing["model"] if isinstance(thing, dict) else thing[-1]
    if isinstance(thing, (nb.Variable, jax.Array)):
        return x * jnp.asarray(thing)
    return thing(x) if isinstance(thing, nb.Module) else x


def a_slot(thing):
    holder = Slots(thing)
    return lambda x: used(holder.model, x), lambda thing: setattr(holder, "model", thing)


def a_slot_of_a_slot(thing):
    holder = Slots(Slots(thing))
    return lambda x: used(holder.model.model, x), lambda thing: setattr(holder.model, "model", thing)


def a_slot_in_a_list(thing):
    holders = [Slots(thing)]
    return lambda x: used(holders[0].model, x), lambda thing: setattr(holders[0], "model", thing)


def an_object_in_a_list(thing):
    holders = [SimpleNamespace(model=thing)]
    return lambda x: used(holders[0].model, x), lambda thing: setattr(holders[0], "model", thing)


def a_tuple_in_a_list(thing):
    pairs = [("first", thing)]
    return lambda x: used(pairs, x), lambda thing: pairs.__setitem__(0, ("first", thing))


def a_named_tuple_in_a_dict(thing):
    pairs = {"model": Pair("first", thing)}
    return lambda x: used(pairs, x), lambda thing: pairs.update(model=Pair("first", thing))


def a_list_in_a_list(thing):
    models = [[thing]]
    return lambda x: used(models, x), lambda thing: models[0].__setitem__(0, thing)


def another_list_in_a_cell(thing):
    models = [thing]

    def put(thing):
        nonlocal models
        models = [thing]

    return lambda x: used(models, x), put


def another_tuple_in_an_attribute(thing):
    holder = SimpleNamespace(model=("first", thing))
    return lambda x: used(holder.model, x), lambda thing: setattr(holder, "model", ("first", thing))


def another_dict_in_a_dict(thing):
    models = {"model": {"model": thing}}
    return lambda x: used(models, x), lambda thing: models.update(model={"model": thing})


def a_deque(thing):
    models = collections.deque([thing])
    return lambda x: used(models, x), lambda thing: models.__setitem__(0, thing)


def a_default(thing):
    def run(x, model=thing):
        return used(model, x)

    return run, lambda thing: setattr(run, "__defaults__", (thing,))


def a_default_of_a_helper(thing):
    def helper(x, model=thing):
        return used(model, x)

    return lambda x: helper(x), lambda thing: setattr(helper, "__defaults__", (thing,))


def another_dict_of_named_defaults(thing):
    def run(x, *, model=thing):
        return used(model, x)

    return run, lambda thing: setattr(run, "__kwdefaults__", {"model": thing})


def an_item_of_named_defaults(thing):
    def run(x, *, model=thing):
        return used(model, x)

    return run, lambda thing: run.__kwdefaults__.update(model=thing)


def a_context_variable(thing):
    current = contextvars.ContextVar("current")
    current.set(thing)
    return lambda x: used(current.get(), x), current.set


def a_dict_behind_a_property(thing):
    holder = Here(thing)
    return lambda x: used(holder.model, x), lambda thing: holder._hidden.update(model=thing)


def a_class_of_modules(thing):
    class Net(nb.Module):
        shared = thing

        def forward(self, x):
            return used(self.shared, x)

    net = Net()
    return lambda x: net(x), lambda thing: setattr(Net, "shared", thing)


def a_class_of_modules_within(thing):
    class Net(nb.Module):
        shared = thing

        def helper(self, x):
            return used(type(self).shared, x)

        def forward(self, x):
            return self.helper(x)

    class Below(Net): ...

    net = nb.Sequential(Below())
    return functools.partial(lambda net, x: net(x), net), lambda thing: setattr(Net, "shared", thing)


def a_class_below(thing):
    class Net(nb.Module):
        shared = thing

        def forward(self, x):
            return used(self.shared, x)

    class Below(Net): ...

    return Below(), lambda thing: setattr(Below, "shared", thing)


def a_dict_of_a_class_of_modules(thing):
    class Net(nb.Module):
        shared = {"model": thing}

        def forward(self, x):
            return used(self.shared, x)

    return Net(), lambda thing: Net.shared.update(model=thing)


CLASSES_OF_MODULES = [a_class_of_modules, a_class_of_modules_within, a_class_below]
DEEPER = [a_slot, a_slot_of_a_slot, a_slot_in_a_list, an_object_in_a_list, a_tuple_in_a_list, a_named_tuple_in_a_dict, a_list_in_a_list,
          another_list_in_a_cell, another_tuple_in_an_attribute, another_dict_in_a_dict, a_deque, a_default, a_default_of_a_helper,
          another_dict_of_named_defaults, an_item_of_named_defaults, a_context_variable, a_dict_behind_a_property,
          a_dict_of_a_class_of_modules, *CLASSES_OF_MODULES]  # fmt: skip


@pytest.mark.parametrize("held", DEEPER)
def test_a_model_that_comes_and_goes_is_noticed_wherever_it_is_held(held):
    x, a, b, box = jnp.ones((1, 2)), nb.Linear(2, 2, key=0), nb.Linear(2, 2, key=1), nb.Parameter([2.0, 3.0])
    for first in (None, a):
        run, put = held(first)
        step = nb.jit(run)
        for thing in (first, b, None, a, [b], box, "text", a):
            put(thing)
            for _ in range(3):
                np.testing.assert_allclose(step(x), used(thing, x), rtol=1e-6)


@pytest.mark.parametrize("held", CLASSES_OF_MODULES)
def test_another_array_or_number_in_a_class_of_modules_is_noticed(held):
    x = jnp.ones((1, 2))
    run, put = held(jnp.array([2.0, 3.0]))
    step = nb.jit(run)
    for thing in (jnp.array([2.0, 3.0]), jnp.array([4.0, 5.0]), None, jnp.array([6.0, 7.0])):
        put(thing)
        for _ in range(2):
            np.testing.assert_array_equal(step(x), used(thing, x))


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_what_holds_no_model_may_be_made_anew_without_a_trace_and_a_class_may_count_its_traces():
    class Net(nb.Module):
        traces = 0

        def forward(self, x):
            Net.traces += 1
            return x * settings["scale"] + len(log[0])

    net, settings, log = Net(), {"scale": 2.0, "more": [1, 2]}, [("epoch", 1)]
    step = nb.jit(lambda x: net(x))
    for i in range(4):
        settings, log = {"scale": 2.0, "more": [1, i]}, [("epoch", i)]
        log[0] = ("epoch", -i)
        np.testing.assert_array_equal(step(jnp.ones(2)), [4.0, 4.0])
    assert Net.traces == 1


def test_what_has_come_and_gone_leaves_the_watch_on_what_a_method_belongs_to():
    class Trainer:
        model, note = None, "first"

        def run(self, x):
            return (self.note, used(self.model, x))[1]

    trainer, x = Trainer(), jnp.ones((1, 2))
    step = nb.jit(trainer.run)
    for thing in (None, nb.Linear(2, 2, key=0), None, [nb.Linear(2, 2, key=1)], None, nb.Linear(2, 2, key=2)):
        trainer.model, trainer.note = thing, str(thing)
        np.testing.assert_allclose(step(x), used(thing, x), rtol=1e-6)
