"""Law: wherever a compiled function finds its model, and however it uses it, a change of the model is
noticed at the next call, in a script and between the cells of a notebook.

A model that no name leads to is refused with an error that names the fix.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.compiled import program
from nbmodule.core.compiled.key import cells

pytestmark = pytest.mark.not_under("eager", reason="nothing is traced")

HEADER = """
import functools, types, jax, jax.numpy as jnp, nbmodule as nb
class Net(nb.Module):
    def __init__(self, key):
        self.fc, self.out = nb.Linear(3, 3, key=key), nb.Linear(3, 3, key=key + 100)
    def forward(self, x):
        return self.out(jnp.tanh(self.fc(x))) * (2.0 if self.training else 1.0)
X = jnp.ones((2, 3))
"""

# Code that makes the place, the expression that finds the model there, and code that replaces it.
PLACES = {
    "name": ("model = Net(0)", "model", "model = Net(1)"),
    "attribute": (
        "state = types.SimpleNamespace(model=Net(0))",
        "state.model",
        "state.model = Net(1)",
    ),
    "dict_of_dicts": ("nets = {'a': {'g': Net(0)}}", "nets['a']['g']", "nets['a']['g'] = Net(1)"),
    "tuple_in_a_list": ("pairs = [('s', Net(0))]", "pairs[0][1]", "pairs[0] = ('s', Net(1))"),
    "long_list": (
        "models = [None] * 1500; models[700] = Net(0)",
        "models[700]",
        "models[700] = Net(1)",
    ),
    "end_of_a_list": ("models = [Net(0)]", "models[-1]", "models.append(Net(1))"),
    "property": (
        "class State:\n    net = property(lambda self: self._net)\nstate = State(); state._net = Net(0)",
        "state.net",
        "state._net = Net(1)",
    ),
    "class_attribute": (
        "class Registry:\n    model = Net(0)",
        "Registry.model",
        "Registry.model = Net(1)",
    ),
    "global_of_a_method": (
        "class Metrics:\n    def net(self): return model\nmetrics = Metrics(); model = Net(0)",
        "metrics.net()",
        "model = Net(1)",
    ),
    "global_of_a_helper": (
        "def get():\n    return model\nmodel = Net(0)",
        "get()",
        "model = Net(1)",
    ),
    "default_of_a_helper": (
        "def get(model=Net(0)):\n    return model",
        "get()",
        "get.__defaults__ = (Net(1),)",
    ),
    "partial": (
        "def same(m):\n    return m\nget = functools.partial(same, Net(0))",
        "get()",
        "get = functools.partial(same, Net(1))",
    ),
    "part_of_a_model": ("whole = nb.Module(body=Net(0))", "whole.body", "whole.body = Net(1)"),
    "one_name_of_two": ("a = Net(0); b = a", "b", "b = Net(1)"),
    "class_of_an_object": (
        "class Registry:\n    model = Net(0)\nregistry = Registry()",
        "registry.model",
        "Registry.model = Net(1)",
    ),
    "index": (
        "class State:\n    def __getitem__(self, key): return self._nets[key]\n"
        "state = State(); state._nets = {'a': Net(0)}",
        "state['a']",
        "state._nets = {'a': Net(1)}",
    ),
    "closure": (
        "def close(held):\n    return lambda: held\nget = close(Net(0))",
        "get()",
        "get.__closure__[0].cell_contents = Net(1)",
    ),
}

# For each use an expression, and the uncompiled one that gives the same.
USES = {
    "called": ("{m}(x).sum()",) * 2,
    "differentiated": (
        "nb.value_and_grad(lambda m: (m(x) ** 2).sum())({m})[0]",
        "({m}(x) ** 2).sum()",
    ),
    "parameters": ("sum(p.sum() for p in {m}.parameters())",) * 2,
    "one_weight": ("(x @ {m}.fc.weight.value.T).sum()",) * 2,
    "argument_of_a_raw_transform": ("jax.jit(lambda m: m(x).sum())({m})", "{m}(x).sum()"),
    "called_in_another_compiled_function": ("inner(x)", "{m}(x).sum()"),
}
CLOCKED = [*((use, "script") for use in USES), ("differentiated", "cells")]

CHANGES = [
    "{m}.eval()",
    "{m}.fc = nb.Linear(3, 3, key=7)",
    "{m}.out.register_forward_hook(lambda module, args, out: out * 3)",
    "{m}.out.weight = {m}.fc.weight",
    "{replace}",
    "{m}.fc.weight = {m}.fc.weight.value * 2",
    "{m}.eval()",
]


def cases():
    """Every place with every use: two for each place in the short suite, all in the long one."""
    for i, place in enumerate(PLACES):
        for j, (use, clock) in enumerate(CLOCKED):
            is_short = (j - i) % len(CLOCKED) in (0, 3)
            marks = () if is_short else pytest.mark.long
            yield pytest.param(place, use, clock, marks=marks, id=f"{place}-{use}-{clock}")


@pytest.fixture(autouse=True)
def _all_programs_are_kept(monkeypatch):
    monkeypatch.setattr(program, "MOST_PROGRAMS", 128)  # each place needs the same programs


@pytest.mark.parametrize(("place", "use", "clock"), list(cases()))
def test_a_change_of_the_model_is_noticed_wherever_it_is_held(place, use, clock):
    make, found, replace = PLACES[place]
    compiled, plain = (expression.format(m=found) for expression in USES[use])
    names: dict = {"__name__": "__main__"}
    exec(
        f"{HEADER}\n{make}\n@nb.jit\ndef inner(x):\n    return {found}(x).sum()\n"
        f"def plain(x):\n    return {plain}\n"
        f"traces = []\n@nb.jit\ndef step(x):\n    traces.append(1)\n    return {compiled}",
        names,
    )
    x = names["X"]
    for change in ["pass", *CHANGES]:
        if clock == "cells":
            cells.advance()
        exec(change.format(m=found, replace=replace), names)
        np.testing.assert_allclose(names["step"](x), names["plain"](x), rtol=1e-4, err_msg=change)
        traces = len(names["traces"])
        names["step"](x)
        assert len(names["traces"]) == traces, f"traced again after {change}"


def test_teacher_and_student_may_change_places():
    a, b = nb.Linear(2, 2, key=0), nb.Linear(2, 2, key=1)
    nets = {"teacher": a, "student": b}
    step = nb.jit(lambda x: (nets["teacher"](x) - 2 * nets["student"](x)).sum())
    x = jnp.ones(2)
    step(x)
    nets["teacher"], nets["student"] = b, a
    np.testing.assert_allclose(step(x), (b(x) - 2 * a(x)).sum(), rtol=1e-5)


# -- what no name leads to -------------------------------------------------------------------------
held = contextvars.ContextVar("held")


@functools.cache
def cached():
    return nb.Linear(2, 2, key=0)


models = iter([nb.Linear(2, 2) for _ in range(9)])
queue = collections.deque([nb.Linear(2, 2)])


class Slotted:
    __slots__ = ("model",)


slotted = Slotted()
slotted.model = nb.Linear(2, 2)
UNREACHED = {
    "slots": lambda x: slotted.model(x),
    "context_variable": lambda x: held.get()(x),
    "cached_getter": lambda x: cached()(x),
    "iterator": lambda x: next(models)(x),
    "deque": lambda x: queue[0](x),
}


@pytest.mark.parametrize("name", UNREACHED)
def test_a_model_that_no_name_leads_to_is_refused_by_name(name):
    held.set(nb.Linear(2, 2))
    cached()
    with pytest.raises(nb.TraceError, match=r"uses parameter .*Pass it as an argument, or hold it"):
        nb.jit(UNREACHED[name])(jnp.ones(2))


def test_fresh_models_and_optimizers_of_one_class_share_a_program():
    bodies = []

    @nb.jit
    def train(model, optimizer, x):
        bodies.append(1)
        loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    x = jnp.ones((4, 3))
    for fold in range(3):  # with the state at hand, one trace serves all
        model = nb.Sequential(nb.Linear(3, 2, key=fold))
        train(model, nb.Adam(1e-3).init(model), x)
    assert len(bodies) == 1
    for fold in range(3):  # without it, each first call traces again with the new state
        train(nb.Sequential(nb.Linear(3, 2, key=fold)), nb.Adam(1e-3), x)
    assert len(bodies) == 7


@pytest.mark.parametrize("way", ["argument", "path"])
def test_a_compiled_function_keeps_neither_a_model_nor_its_holder_alive(way):
    class Holder: ...

    holder = Holder()
    holder.model = nb.Linear(3, 2)
    names = {"holder": holder}
    exec("def run(x):\n    return holder.model(x)", names)
    run, given = nb.jit(names["run"]), nb.jit(lambda model, x: model(x))
    for _ in range(2):
        run(jnp.ones((1, 3))) if way == "path" else given(holder.model, jnp.ones((1, 3)))
    gone = [weakref.ref(thing) for thing in (holder, holder.model, holder.model.weight)]
    del holder, names["holder"]
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]
