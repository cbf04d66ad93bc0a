"""The table of rules: what it says of optax is so, and the signatures of the classes agree with it."""

from __future__ import annotations

import inspect
from itertools import product

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.optim import optimizer as engine
from nbmodule.optim.kernels import place_of
from nbmodule.optim.table import OPTIONS, ROWS


def options_of(name):
    """The options in the signature of a class, with their defaults."""
    parameters = inspect.signature(getattr(nb, name).__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in ("self", "lr") and p.kind is not p.VAR_KEYWORD}


@pytest.mark.parametrize("name", ROWS)
def test_slots_are_all_that_optax_keeps(name):
    known = options_of(name)
    switches = {
        "momentum": (0.0, 0.9),
        "weight_decay": (0.0, 0.1),
        "centered": (False, True),
        "nesterov": (False, True),
    }
    used = {each: values for each, values in switches.items() if each in known}
    for values in product(*used.values()):
        rule = getattr(nb, name).rule(known | dict(zip(used, values)))
        state = rule.make(0.1, **dict(rule.options)).init([jnp.ones(2)])
        fields = {place_of(path)[0] for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]}
        assert fields - {"count"} == {field for field, _ in rule.slots}


@pytest.mark.parametrize("name", ROWS)
def test_the_options_of_a_class_are_in_the_table(name):
    for option, default in options_of(name).items():
        assert (OPTIONS[option].below is None) == isinstance(default, bool)


def test_a_model_that_trains_is_not_looked_at_for_a_warning(monkeypatch):
    model = nb.Module(offset=nb.Buffer(jnp.ones(2)), weight=nb.Parameter(jnp.ones(2)))
    monkeypatch.delattr(engine, "warn_if_nothing_trains")
    nb.SGD(0.5).update(model, {"weight": jnp.ones(2)})
    assert model.weight.value.tolist() == [0.5, 0.5]
