"""Copies of models and of what belongs to them, also in other processes: what a notebook defines
travels as cloudpickle takes it.
"""

import copy
import functools
import json
import pickle
import subprocess
import sys

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.frame import gate, now

NOTEBOOK = """
from functools import partial
import jax
import jax.numpy as jnp
import nbmodule as nb

nb.seed(3)
X = jnp.arange(6.0).reshape(2, 3)

class Net(nb.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nb.Linear(3, 4), nb.Linear(4, 1)
        self.seen = nb.Buffer(jnp.zeros(()))

    def forward(self, x):
        self.seen.value = self.seen.value + 1
        return self.second(nb.relu(self.first(x)))

class Stateful(nb.Module):
    def _create_variables(self, device=None, dtype=None):
        return {"w": jnp.arange(3.0)}

    def _forward(self, x):
        return self.v.w * x

class Called(Stateful):
    def __call__(self, x):
        return super()._forward(x) + 1

class Scale(nb.Parameter):
    def twice(self):
        return self.value * 2

class Descent(nb.Optimizer):
    def _step(self, v, grads):
        return v - grads * self._lr

    @property
    def state(self):
        return nb.Container()

    def set_state(self, state):
        pass

model, optimizer = Net(), nb.Adam(0.1)

@nb.jit
def step(x):
    loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.update(model, grads)
    return loss

step(X)
own = Net()

def train(optimizer, net):
    losses = []
    for _ in range(2):
        loss, grads = nb.value_and_grad(lambda m: (m(X) ** 2).mean())(net)
        optimizer.update(net, grads)
        losses.append(loss)
    return jnp.stack(losses)

def tracked(net):
    with nb.track(net, gradients=True) as calls:
        nb.grad(lambda m: m(X).sum())(net)
    return jnp.stack([calls["first"].returns.sum(), calls["first"].gradient.sum(), calls.gradients["first.weight"].sum()])

hooked = Net()
handle = hooked.register_forward_hook(lambda module, inputs, outputs: outputs * 100)
hooked.handle = handle

def unhooked():
    before = hooked(X)
    other = hooked.register_forward_hook(lambda module, inputs, outputs: outputs + 1)
    both = hooked(X)
    hooked.handle.remove()
    return jnp.stack([before, both, hooked(X)])

with nb.track(own) as calls:
    own(X)
stream = nb.RandomStream(4)
wrapped = nb.grad(lambda m: m(X).sum())

CASES = {
    "a function that uses the package": lambda: nb.relu(X - 2) + len(nb.graph(nb.relu, X).nodes),
    "a class": lambda: Stateful()(X),
    "a class with a call of its own": lambda: Called()(X),
    "a class in a transform": lambda: nb.vmap(Stateful())(X),
    "an instance": lambda: own(X),
    "an unread layer": partial(nb.Linear(3, 2, device="cpu:0"), X),
    "a compiled step": lambda: jnp.stack([step(X), step(X), model.seen.value]),
    "a compiled function": partial(nb.jit(lambda x: own(x) * 2), X),
    "a compiled model": lambda: own.compile() and own(X),
    "a variable of a user's class": lambda: Scale(jnp.arange(3.0)).twice(),
    "an optimizer": lambda: train(optimizer, own),
    "an optimizer of one's own": lambda: train(Descent(0.1), Net().load_state_dict(own.state_dict()) or own),
    "a gradient": lambda: wrapped(own).first.w,
    "hooks": unhooked,
    "a tracker": lambda: tracked(own),
    "calls": lambda: calls["first"].returns,
    "a stream": lambda: jax.random.key_data(stream.draw()),
    "a container": lambda v=own.v: (v * 2).first.w,
    "spectral": partial(nb.SpectralNorm(nb.Linear(3, 4)).eval(), X),
}
"""

CHILD = """
import json, pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    parts = pickle.load(file)
found = {}
for name, part in parts.items():
    try:
        found[name] = np.asarray(pickle.loads(part)()).tolist()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Results of the cases of a notebook in a process that has never seen it, and here."""
    names = {"__name__": "__main__"}
    exec(compile(NOTEBOOK, "<notebook>", "exec"), names)
    cases = {name: cloudpickle.dumps(case) for name, case in names["CASES"].items()}
    path = tmp_path_factory.mktemp("elsewhere") / "cases.pkl"
    path.write_bytes(pickle.dumps(cases))
    made = subprocess.run(
        [sys.executable, "-c", CHILD, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout.splitlines()[-1])
    # Each case was packed by itself, so here each begins from the same state too.
    return found, {name: np.asarray(cloudpickle.loads(case)()) for name, case in cases.items()}


def test_objects_of_a_notebook_give_the_same_results_in_another_process(elsewhere):
    found, here = elsewhere
    assert found.keys() == here.keys()
    for case, value in found.items():
        assert not isinstance(value, str), (case, value)
        np.testing.assert_allclose(value, here[case], rtol=1e-6, err_msg=case)


def test_a_pickle_of_a_singleton_is_the_singleton():
    for one in (nb, now, gate, clock):
        assert cloudpickle.loads(cloudpickle.dumps(one)) is one


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize(
    "options", [{"device": "cpu:0"}, {"device": jax.devices()[0]}, {"devices": ["cpu:0"]}]
)
def test_a_model_on_a_device_of_its_own_can_be_copied(options, copied):
    model = nb.Module(layer=nb.Linear(2, 3), w=nb.Parameter(jnp.ones(2)), **options)
    np.testing.assert_array_equal(copied(model).layer.weight, model.layer.weight)
    layer = nb.Linear(2, 3, device="cpu:0")
    assert copied(layer)._nbm.config.device == jax.devices()[0]


def test_the_handle_of_a_copy_removes_the_hook_of_the_copy():
    layer = nb.Identity()
    layer.handle = layer.register_forward_hook(lambda module, inputs, outputs: outputs + 1)
    other = copy.deepcopy(layer)
    other.handle.remove()
    assert (layer(1), other(1)) == (2, 1)


def test_a_copy_of_a_compiled_function_compiles_for_itself():
    scale = nb.Parameter(2.0)
    double = nb.jit(lambda x: scale * x)
    assert double(3.0) == 6
    other = copy.copy(double)
    assert other is not double
    assert other(3.0) == 6
    assert other.entries is not double.entries


@nb.jit
def tripled(x):
    return 3 * x


def test_a_compiled_function_of_a_module_goes_by_its_name():
    assert pickle.loads(pickle.dumps(tripled)) is tripled
    assert copy.deepcopy(tripled) is tripled


def test_calls_can_be_copied_and_pickled():
    model = nb.Sequential(nb.Linear(3, 2), nb.ReLU())
    with nb.track(model, returns="stats", gradients=True) as calls:
        nb.grad(lambda m: m(jnp.ones((2, 3))).sum())(model)
    for again in (copy.deepcopy(calls), pickle.loads(pickle.dumps(calls))):
        assert [call.path for call in again] == [call.path for call in calls]
        assert again["0"].statistics == calls["0"].statistics
        assert again["0"].gradient_statistics == calls["0"].gradient_statistics
        assert again["0"].parent is again[""]
        assert repr(again).splitlines()[1:] == repr(calls).splitlines()[1:]


@pytest.mark.parametrize(
    "act",
    [
        jax.nn.relu,
        jnp.tanh,
        jnp.add,
        [jax.nn.silu],
        {"act": jax.nn.gelu},
        functools.partial(jax.nn.leaky_relu, negative_slope=0.1),
    ],
)
def test_a_copy_of_a_model_with_a_function_of_jax_is_of_the_same_structure(act):
    model = nb.Module(layer=nb.Linear(2, 2), act=act)
    mean = jax.tree.map(lambda a, b: (a + b) / 2, model, copy.deepcopy(model))
    np.testing.assert_array_equal(mean.layer.weight, model.layer.weight)
    assert jax.tree.structure(copy.deepcopy(model)) == jax.tree.structure(model)
