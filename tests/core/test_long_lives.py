"""Any sequence of actions on one model, compared with a reference in plain JAX.

After each action, functions compiled at the beginning give the outputs of the current model, its
values are those of the reference, and copies that were set aside have not changed.
"""

from __future__ import annotations

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import nbmodule as nb

BATCH = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
RATE = 0.125
CLOSE = {"rtol": 2e-4, "atol": 1e-4}
PICKS = st.integers(0, 50)


class Net(nb.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nb.Linear(3, 4), nb.Linear(4, 2)
        self.layers = [nb.Linear(4, 4)]
        self.scale = nb.Parameter(jnp.ones(4))
        self.count = nb.Buffer(jnp.zeros(()))
        self.gain = 1.0

    def forward(self, x):
        if self.training:
            self.count.value = self.count.value + 1
        x = jnp.tanh(self.first(x))
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return self.head(x * self.scale.value) * self.gain


def loss_of(model):
    return jnp.mean(model(BATCH) ** 2)


def raised(module, inputs, outputs):
    return outputs + 10.0


class Cell:
    """One variable; tied variables are one cell."""

    def __init__(self, value):
        self.value, self.trainable = np.array(value, np.float32), True


class Affine:
    """A layer: two cells."""

    def __init__(self, layer):
        self.weight, self.bias = Cell(layer.weight.value), Cell(layer.bias.value)

    def __call__(self, values, x):
        return x @ values[self.weight].T + values[self.bias]


class Record:
    """The reference model, without nbmodule."""

    def __init__(self, net):
        self.first, self.head, self.layers = (
            Affine(net.first),
            Affine(net.head),
            [Affine(net.layers[0])],
        )
        self.scale = Cell(net.scale.value)
        self.gain, self.training, self.is_raised, self.count = 1.0, True, False, 0

    def names(self):
        layers = {
            "first": self.first,
            "head": self.head,
            **{f"layers.{i}": x for i, x in enumerate(self.layers)},
        }
        return {
            f"{at}.{kind}": vars(layer)[kind]
            for at, layer in layers.items()
            for kind in vars(layer)
        } | {"scale": self.scale}

    def cells(self):
        return list(dict.fromkeys(self.names().values()))

    def values(self):
        return {cell: cell.value for cell in self.cells()}

    def outputs(self, values=None):
        values = values or self.values()
        x = jnp.tanh(self.first(values, BATCH))
        for layer in self.layers:
            x = jnp.tanh(layer(values, x))
        return self.head(values, x * values[self.scale]) * self.gain + (
            10.0 if self.is_raised else 0.0
        )

    def loss_and_gradients(self, arrays=None):
        cells = self.cells()
        loss, gradients = jax.value_and_grad(
            lambda a: jnp.mean(self.outputs(dict(zip(cells, a))) ** 2)
        )(arrays or [cell.value for cell in cells])
        return loss, [g * cell.trainable for g, cell in zip(gradients, cells)]


class Session(RuleBasedStateMachine):
    @initialize(seed=PICKS)
    def begin(self, seed):
        nb.seed(seed)
        self.model = model = Net()
        self.record, self.holder, self.hook = Record(model), {"model": model}, None
        self.remembered, self.aside = [], []
        self.closed = nb.jit(lambda x: self.holder["model"](x))
        self.asked = nb.jit(lambda m, x: m(x))

        def step(model):
            loss, gradients = nb.value_and_grad(loss_of)(model)
            model.v = model.v - gradients * RATE
            return loss

        donated = nb.jit(step, donate=True)
        self.ways = {
            "closed": nb.jit(lambda: step(self.holder["model"])),
            "donated": lambda: donated(self.model),
            "eager": lambda: step(self.model),
        }

    def called(self, times=1):
        self.record.count += times * self.record.training

    def found(self, name):
        here = self.model
        for part in name.split("."):
            here = here[int(part)] if part.isdigit() else getattr(here, part)
        return here

    def picked(self, pick):
        names = self.record.names()
        name = sorted(names)[pick % len(names)]
        return self.found(name), names[name]

    # -- values change --
    @rule(way=st.sampled_from(["closed", "donated", "eager"]))
    def train(self, way):
        loss, gradients = self.record.loss_and_gradients()
        np.testing.assert_allclose(self.ways[way](), loss, **CLOSE)
        for cell, g in zip(self.record.cells(), gradients):
            cell.value = np.asarray(cell.value - RATE * g)
        self.called()

    @rule(factor=st.sampled_from([0.5, 0.9, 1.1]))
    def scale_all(self, factor):
        self.model.v = self.model.v * factor
        for cell in self.record.cells():
            cell.value = cell.value * np.float32(factor)

    @rule(pick=PICKS)
    def set_one(self, pick):
        variable, cell = self.picked(pick)
        cell.value = np.cos(np.arange(cell.value.size, dtype=np.float32) + pick).reshape(
            cell.value.shape
        )
        variable.value = jnp.asarray(cell.value)

    @rule(pick=PICKS)
    def set_through_v(self, pick):
        self.record.scale.value = np.full((4,), 0.1 * pick, np.float32)
        self.model.v.scale = jnp.asarray(self.record.scale.value)

    @rule()
    def remember(self):
        values = {name: cell.value for name, cell in self.record.names().items()}
        self.remembered.append((self.model.v, self.model.state_dict(), values, self.record.count))

    @precondition(
        lambda self: self.remembered and len(self.record.cells()) == len(self.record.names())
    )
    @rule(pick=PICKS, how=st.sampled_from(["v", "state_dict"]))
    def go_back(self, pick, how):
        v, state, values, count = self.remembered[pick % len(self.remembered)]
        names = self.record.names()
        if {n: a.shape for n, a in values.items()} != {n: c.value.shape for n, c in names.items()}:
            with pytest.raises((nb.StructureError, KeyError, ValueError)):
                self.model.load_state_dict(state)
            return
        if how == "state_dict":
            self.model.load_state_dict(state)
            self.record.count = count
        elif len(jax.tree.leaves(v)) == len(values):  # nothing was tied then
            self.model.v = v
        else:
            return
        for name, value in values.items():
            names[name].value = value

    # -- structure changes --
    @precondition(lambda self: len(self.record.layers) < 4)
    @rule(pick=PICKS)
    def insert(self, pick):
        layer, at = nb.Linear(4, 4), pick % (len(self.record.layers) + 1)
        self.model.layers.insert(at, layer)
        self.record.layers.insert(at, Affine(layer))

    @precondition(lambda self: self.record.layers)
    @rule(pick=PICKS)
    def remove(self, pick):
        del self.model.layers[pick % len(self.record.layers)]
        del self.record.layers[pick % len(self.record.layers)]

    @rule(features=st.integers(1, 3))
    def replace_the_head(self, features):
        self.model.head = nb.Linear(4, features)
        self.record.head = Affine(self.model.head)

    @precondition(lambda self: len(self.record.layers) > 1)
    @rule(how=st.sampled_from(["layer", "weight", "order"]))
    def tie_or_turn(self, how):
        for layers in (self.model.layers, self.record.layers):
            if how == "layer":
                layers[0] = layers[-1]
            elif how == "weight":
                layers[0].weight = layers[-1].weight
            else:
                layers.reverse()

    @rule(pick=PICKS, flag=st.booleans())
    def freeze(self, pick, flag):
        variable, cell = self.picked(pick)
        variable.requires_grad_(flag)
        cell.trainable = flag

    @rule(flag=st.booleans())
    def change_mode(self, flag):
        self.model.train(flag)
        self.record.training = flag

    @rule(gain=st.sampled_from([1.0, 2.0, 1, True, -0.5]))
    def change_an_attribute(self, gain):
        self.model.gain = self.record.gain = gain

    @rule()
    def hook_or_unhook(self):
        if self.record.is_raised:
            self.hook.remove()
        else:
            self.hook = self.model.register_forward_hook(raised)
        self.record.is_raised = not self.record.is_raised

    # -- copies --
    @precondition(lambda self: not self.record.is_raised)
    @rule(how=st.sampled_from(["deepcopy", "pickle", "tree", "partition"]))
    def go_on_with_a_copy(self, how):
        if how == "partition":
            definition, *leaves = self.model.partition()
            self.model = definition(*leaves)
        else:
            make = {
                "deepcopy": copy.deepcopy,
                "pickle": lambda model: pickle.loads(pickle.dumps(model)),
                "tree": lambda model: jax.tree.map(jnp.copy, model),
            }
            self.model = make[how](self.model)
        self.holder["model"] = self.model

    @precondition(lambda self: not self.record.is_raised)
    @rule()
    def set_a_copy_aside(self):
        other = copy.deepcopy(self.model).eval()
        self.aside.append((other, np.asarray(self.record.outputs()), other.state_dict()))

    # -- views and failures change nothing --
    @rule(how=st.sampled_from(["shape", "error"]))
    def fail(self, how):
        def broken(x):
            self.model.v = self.model.v * 0
            raise RuntimeError("mine")

        if how == "shape":
            with pytest.raises(Exception, match=r"7"):
                self.closed(np.ones((2, 7), np.float32))
        else:
            with pytest.raises(RuntimeError, match="mine"):
                nb.jit(broken)(BATCH)

    @rule(how=st.sampled_from(["track", "patch", "v", "raw jit", "vmap", "scan"]))
    def view(self, how):
        model, wanted = self.model, self.record.outputs()
        if how == "track":
            with nb.track(model, returns=True) as calls:
                found = self.closed(BATCH)
            np.testing.assert_allclose(calls[""].returns, wanted, **CLOSE)
            self.called()
        elif how == "patch":
            with nb.patch(model, {"head": nb.zero()}):
                found = self.closed(BATCH)
            wanted = jnp.full_like(wanted, 10.0 if self.record.is_raised else 0.0)
            self.called()
        elif how == "v":
            found = model(BATCH, v=model.v * 2)
            wanted = self.record.outputs(
                {cell: value * 2 for cell, value in self.record.values().items()}
            )
            self.called()
        elif how == "raw jit":
            found = jax.jit(lambda m, x: m(x))(model, BATCH)
        elif how == "vmap":
            mode = model.training
            found = nb.vmap(lambda x: model.eval()(x[None])[0])(BATCH)
            model.train(mode)
        else:
            found = nb.jit(lambda: nb.scan(lambda c, _: (c, model(BATCH)), 0.0, None, length=2))()[
                1
            ][1]
            self.called(2)
        np.testing.assert_allclose(found, wanted, **CLOSE, err_msg=how)

    # -- what holds after each --
    @invariant()
    def every_value_is_that_of_the_record(self):
        names = self.record.names()
        found = dict(self.model.named_parameters())
        assert len(found) == len(self.record.cells())
        for name, variable in found.items():
            np.testing.assert_allclose(variable.value, names[name].value, **CLOSE, err_msg=name)
            names[name].value = np.asarray(variable.value)  # so that rounding does not add up
        assert int(self.model.count.value) == self.record.count

    @invariant()
    def compiled_functions_give_the_outputs_of_the_current_model(self):
        wanted = self.record.outputs()
        for how, found in (
            ("closed", self.closed(BATCH)),
            ("asked", self.asked(self.model, BATCH)),
            ("eager", self.model(BATCH)),
        ):
            np.testing.assert_allclose(found, wanted, **CLOSE, err_msg=how)
            self.called()

    @invariant()
    def copies_set_aside_have_not_changed(self):
        for other, wanted, state in self.aside:
            np.testing.assert_allclose(self.asked(other, BATCH), wanted, **CLOSE)
            for name, array in other.state_dict().items():
                np.testing.assert_array_equal(array, state[name], err_msg=name)


@pytest.mark.parametrize(
    "examples", [3, *(pytest.param(9, marks=pytest.mark.long, id=f"9-{i}") for i in range(8))]
)
def test_any_sequence_of_actions_gives_the_model_of_the_reference(examples):
    run_state_machine_as_test(
        Session,
        settings=settings(
            max_examples=examples,
            stateful_step_count=14,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
