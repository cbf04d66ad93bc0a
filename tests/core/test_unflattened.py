"""A module that JAX unflattened makes its attributes when one is first read."""

import copy
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.structure.attributes import missing
from nbmodule.core.structure.structure import Folded, unfolded


class Net(nb.Module):
    def __init__(self):
        self.first = nb.Linear(3, 4, key=0)
        self.layers = [nb.Linear(4, 4, key=1), nb.Linear(4, 2, key=2)]
        self.again, self.rate = self.first, 0.5

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x * self.rate


@pytest.fixture
def net():
    return Net()


X = jnp.ones((2, 3))
LOOKS = {
    "call": lambda m: m(X),
    "vars": lambda m: sorted(vars(m)),
    "dict": lambda m: sorted(m.__dict__),
    "attribute": lambda m: np.asarray(m.first.weight()),
    "sharing": lambda m: m.again is m.first,
    "v": lambda m: {k: np.asarray(x) for k, x in m.v.cont_to_iterator()},
    "repr": repr,
    "tree": lambda m: nb.tree_repr(m),
    "names": lambda m: [name for name, _ in m.named_parameters()],
    "state_dict": lambda m: {k: np.asarray(x) for k, x in m.state_dict().items()},
    "training": lambda m: m.training,
    "modules": lambda m: [type(each).__name__ for each in m.modules()],
    "dir": dir,
    "copy": lambda m: np.asarray(copy.deepcopy(m)(X)),
    "pickle": lambda m: np.asarray(pickle.loads(pickle.dumps(m))(X)),
    "eval": lambda m: m.eval().training,
    "hasattr": lambda m: (hasattr(m, "first"), hasattr(m, "nothing")),
    "partition": lambda m: [sorted(map(str, part)) for part in m.partition(nb.Parameter)[1:]],
    "structure": lambda m: str(jax.tree.structure(m)),
    "walk": lambda m: [name for name, _ in m.named_modules()],
}


def folded(model):
    made = jax.tree.map(lambda x: x, model)
    assert type(object.__getattribute__(made, "_nbm")) is Folded
    return made


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_first_look_of_any_kind_sees_what_the_model_shows(net, look):
    jax.tree.map(np.testing.assert_array_equal, look(folded(net)), look(net))


def test_what_is_not_looked_at_is_flattened_without_being_made(net):
    made = jax.tree.map(lambda x: x * 2, jax.tree.map(lambda x: x + 1, net))
    assert type(object.__getattribute__(made, "_nbm")) is Folded
    assert jax.tree.structure(made) == jax.tree.structure(net)
    for new, old in zip(jax.tree.leaves(made), jax.tree.leaves(net), strict=True):
        np.testing.assert_allclose(new, (old + 1) * 2, rtol=1e-6)
    made.first.weight.value = jnp.zeros((4, 3))
    assert sum(not np.asarray(x).any() for x in jax.tree.leaves(made)) == 1
    assert float(jnp.abs(net.first.weight()).sum()) > 0


def test_a_change_is_the_first_look(net):
    for change in (
        lambda m: setattr(m, "rate", 2.0),
        lambda m: setattr(m, "extra", nb.Linear(2, 2)),
        lambda m: delattr(m, "rate"),
        lambda m: m.register_forward_hook(lambda module, inputs, outputs: outputs * 0),
        lambda m: m.requires_grad_(False),
    ):
        made = folded(net)
        change(made)
        assert jax.tree.structure(made) != jax.tree.structure(net)
        assert np.asarray(net(X)).any()


def test_a_forward_that_was_defined_again_is_not_taken_for_the_old_one(net):
    class Late(nb.Module):
        def __init__(self):
            self.w = nb.Parameter(jnp.ones(2))

        def forward(self, x):
            return x * self.w

    made = folded(Late())
    before = jax.tree.structure(made)
    Late.forward.__code__ = (lambda self, x: x - self.w).__code__
    assert jax.tree.structure(made) != before
    np.testing.assert_array_equal(made(jnp.ones(2)), jnp.zeros(2))


def test_a_model_unflattened_inside_a_trace_and_looked_at_later_is_local_there(net):
    @jax.jit
    def step(m, x):
        m = jax.tree.map(lambda p: p + 1, m)
        m.layers[1].bias.value = m.layers[1].bias.value * 0
        return m, m(x)

    made, y = step(net, X)
    np.testing.assert_array_equal(made.layers[1].bias(), jnp.zeros(2))
    np.testing.assert_allclose(y, made(X), rtol=1e-5)


def test_threads_that_look_first_at_the_same_moment_see_one_model(net):
    for _ in range(20):
        made, seen, ready = folded(net), [], threading.Barrier(4)

        def look(made=made, seen=seen, ready=ready):
            ready.wait()
            seen.append((made.first, made.layers[0].weight))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({(id(a), id(b)) for a, b in seen}) == 1


def test_an_attribute_that_something_else_has_made_since_python_missed_it_is_found():
    copy = jax.tree.map(lambda leaf: leaf, nb.Sequential(nb.Linear(2, 3)))
    unfolded(copy)  # as a thread, or a finalizer, that looks at the module in between
    assert missing(copy, "_submodules") is copy._submodules
