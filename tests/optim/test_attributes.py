"""An optimizer of a user's own: arrays as attributes are its state, in eager code and inside the
transforms.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from tests.optim.test_laws import Momentum, Plain

from jax_settings import SETTING


def own(step, lr=0.1):
    """Return an optimizer whose `_step` is a function."""
    return type("Own", (nb.Optimizer,), {"_step": step})(lr)


def test_a_variable_that_is_met_late_does_not_count_as_a_step(net, gradients, reference, agree):
    optimizer, seen = Momentum(0.1), {"inside": [nb.Buffer(0)]}

    @nb.jit
    def update(g):
        optimizer.update(net, g)
        inside = seen["inside"][0]  # met after the step: all of it is traced again
        inside.value = inside + 1

    expected = reference(optax.sgd(0.1, 0.5), net.v, [gradients(0), gradients(1)])
    update(gradients(0))
    update(gradients(1))
    agree(net.v, expected)
    assert int(seen["inside"][0]()) == 2


def test_two_steps_may_be_in_one_compiled_function(net, gradients, reference, agree):
    optimizer = Momentum(0.1)

    @nb.jit
    def twice(first, second):
        optimizer.update(net, first)
        optimizer.update(net, second)

    expected = reference(optax.sgd(0.1, 0.5), net.v, [gradients(i) for i in range(4)])
    twice(gradients(0), gradients(1))
    twice(gradients(2), gradients(3))
    agree(net.v, expected)


def test_a_first_step_inside_scan_is_refused_with_a_remedy(net, gradients, train):
    optimizer, before = Momentum(0.1), net.v
    message = r"Momentum sets its attribute _mw in a step that is inside.*one step outside first"
    with pytest.raises(nb.TraceError, match=message):
        train("scan", optimizer, net, [gradients(0), gradients(1)])
    assert net.v is before
    assert optimizer._first


def test_state_and_set_state_of_a_subclass_are_used(net, make_net, gradients, train, agree):
    class Named(Momentum):
        @property
        def state(self):
            return nb.Container(average=self._mw)

        def set_state(self, state):
            self._mw, self._first = state.average, False

    optimizer, second, other = Named(0.1), Named(0.1), make_net()
    train("jit", optimizer, net, [gradients(i) for i in range(5)])
    other.v = net.v
    second.set_state(optimizer.state)
    optimizer.update(net, gradients(7))
    nb.jit(lambda g: second.update(other, g))(gradients(7))
    # eager code is not fused in each setting, which rounds the last bit otherwise
    agree(other.v, net.v, exactly=not SETTING)


def test_all_array_attributes_are_the_state_by_default():
    optimizer = Plain(0.1)
    optimizer.last = last = nb.Container(w=jnp.ones(2))
    assert sorted(optimizer.state) == ["count", "last"]
    for state, missing in (({"count": 1}, "last/w"), ({"last": last}, "count")):
        message = f'(?s)cannot set the state of Plain.*missing: "{missing}"'
        with pytest.raises(nb.StructureError, match=message):
            optimizer.set_state(state)


def test_state_has_the_names_of_the_attributes_without_their_underscore():
    optimizer = Plain(0.1)
    optimizer._mean, optimizer._square, optimizer.square = jnp.zeros(1), jnp.ones(2), jnp.ones(3)
    assert sorted(optimizer.state.keys()) == ["_square", "count", "mean", "square"]
    assert optimizer.state.square.shape == (3,)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_setting_a_plain_attribute_to_an_equal_value_compiles_nothing(net, gradients, train):
    def step(self, v, grads):
        self.note = "".join(["pl", "ain"])  # equal each time, and another object
        return v - grads * self._lr

    optimizer = own(step)
    optimizer.note = "plain"
    assert len(train("jit", optimizer, net, [gradients(i) for i in range(3)])) == 1


def test_an_attribute_is_read_in_the_structure_in_which_it_was_set():
    optimizer = Plain(0.1)
    optimizer.pair = (jnp.ones(2), {"a": np.zeros(3)})
    optimizer.note = "text"
    assert isinstance(optimizer.pair, tuple)
    assert isinstance(optimizer.pair[1]["a"], jax.Array)
    optimizer.pair = (jnp.zeros(2), {"a": np.ones(3, "f")})
    np.testing.assert_array_equal(optimizer.pair[1]["a"], [1, 1, 1])
    del optimizer.pair
    with pytest.raises(AttributeError, match='Plain has no attribute "pair"'):
        optimizer.pair
    assert optimizer.note == "text"


def test_arrays_and_text_are_not_kept_together():
    with pytest.raises(nb.ArgumentTypeError, match="Plain.mixed: arrays and str cannot be kept"):
        Plain(0.1).mixed = {"a": jnp.ones(1), "b": "text"}


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_counter_that_is_a_plain_number_counts(net, gradients, train):
    def step(self, v, grads):
        self.t += 1
        return v - grads * (self._lr / self.t)

    optimizer = own(step, 1.0)
    optimizer.t = 0
    expected = net.bias() - sum(gradients(i).bias / (i + 1) for i in range(5))
    train("jit", optimizer, net, [gradients(i) for i in range(5)])
    np.testing.assert_allclose(net.bias, expected, rtol=1e-5, atol=1e-6)
    assert optimizer.t == 5


def test_attributes_may_be_set_before_the_base_is_made():
    class Early(nb.Optimizer):
        def __init__(self):
            self.scale = jnp.full((), 2.0)
            super().__init__(0.1)

        def _step(self, v, grads):
            return v - grads * self.scale

    np.testing.assert_array_equal(Early().step({"w": jnp.ones(1)}, {"w": jnp.ones(1)})["w"], [-1.0])


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_plain_attribute_set_inside_a_transform_warns(net, gradients):
    optimizer = Momentum(0.1)
    optimizer.update(net, gradients(0))  # once a step is over, attributes are no state any more

    @nb.jit
    def update(g):
        optimizer.note = "text"
        optimizer.update(net, g)

    with pytest.warns(UserWarning, match=r"Momentum.note is set inside a transform: this happens"):
        update(gradients(0))


def test_a_constructor_that_forgets_the_base_is_pointed_out():
    class Forgetful(nb.Optimizer):
        def __init__(self):
            self.momentum = 0.9

    message = r"Forgetful has no learning rate: its __init__ must call super\(\).__init__\(lr\)"
    with pytest.raises(nb.NotBuiltError, match=message):
        Forgetful().step({"w": jnp.ones(1)}, {"w": jnp.ones(1)})


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda v: {"scale": v.scale}, nb.StructureError, '(?s)must return the .*missing: "bias"'),
        (lambda v: {**v, "bias": jnp.zeros(7)}, nb.ShapeError, "in returned values it is float32"),
        (lambda v: None, nb.ArgumentTypeError, "Own._step .*returned values must be .* NoneType"),
    ],
)
def test_the_variables_that_a_step_returns_are_checked(returned, error, message, net, gradients):
    optimizer, before = own(lambda self, v, grads: returned(v)), net.v
    with pytest.raises(error, match=message):
        optimizer.update(net, gradients(0))
    assert net.v is before
    assert int(optimizer._count) == 0


def test_a_step_sees_only_variables_that_change(net, gradients):
    seen = []

    def step(self, v, grads):
        seen.append((sorted(v), sorted(grads)))
        return v

    net.scale.requires_grad_(False)
    own(step).update(net, gradients(0))
    assert seen == [(["bias", "layers"], ["bias", "layers"])]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("learning_rate", "use optimizer.lr"),
        ("momentum", "what can be set is lr, beta1, beta2, epsilon"),
        ("speed", "what can be set is lr, beta1, beta2, epsilon"),
        ("_beta1", "what can be set is lr"),
    ],
)
def test_attributes_that_nothing_reads_are_refused(name, fix):
    with pytest.raises(AttributeError, match=f"cannot set Adam.{name}.*{fix}"):
        setattr(nb.Adam(0.1), name, 0.5)
    with pytest.raises(AttributeError):
        setattr(nb.Optax(optax.sgd(0.1)), name, 0.5)


def test_a_class_attribute_cannot_hide_arrays():
    class Hidden(Plain):
        average = None

    with pytest.raises(nb.ArgumentTypeError, match="cannot set Hidden.average to arrays.*hide"):
        Hidden(0.1).average = jnp.ones(2)


def test_a_step_that_raises_leaves_attributes_as_they_were():
    def step(self, v, grads):
        self.steps += 1
        self.total = grads
        if grads["w"].shape:
            raise RuntimeError("too late")
        return v

    optimizer = own(step)
    optimizer.steps = 0
    with pytest.raises(RuntimeError, match="too late"):
        optimizer.step({"w": jnp.ones(1)}, {"w": jnp.ones(1)})
    assert optimizer.steps == 0 and list(optimizer.state) == ["count"]
    optimizer.step({"w": jnp.ones(())}, {"w": jnp.ones(())})
    assert optimizer.steps == 1 and list(optimizer.state) == ["count", "total"]
