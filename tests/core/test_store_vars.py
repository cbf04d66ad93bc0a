"""Parts made with store_vars=False: the parent works and passes them variables at each call."""

from __future__ import annotations

import copy
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


class Target(nb.Module):
    """A small network whose weights come from elsewhere; its batch norm keeps statistics of its
    own.
    """

    def __init__(self):
        self.first, self.norm, self.second = nb.Linear(3, 4), nb.BatchNorm1d(4), nb.Linear(4, 2)
        super().__init__(store_vars=False)

    def forward(self, x):
        return self.second(nb.tanh(self.norm(self.first(x))))


class Hyper(nb.Module):
    """Makes the weights of `target` out of a code, and calls it with them."""

    def __init__(self):
        self.target = Target()
        self.shapes = {
            chain: variable.shape for chain, variable in self.target.build().cont_to_iterator()
        }
        self.maker = nb.Linear(5, sum(int(np.prod(shape)) for shape in self.shapes.values()))

    def forward(self, code, x):
        weights = nb.Container()
        for chain, array in cut(self.maker(code), self.shapes).items():
            weights[chain] = array
        return self.target(x, v=weights)


def cut(flat, shapes):
    """Return consecutive parts of a vector in these shapes, by name."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = zip(shapes.items(), jnp.split(flat, ends[:-1]))
    return {name: part.reshape(shape) for (name, shape), part in parts}


@pytest.fixture
def hyper() -> Hyper:
    nb.seed(3)
    return Hyper()


CODE, X = np.linspace(-1, 1, 5, dtype="f"), np.random.default_rng(0).normal(size=(6, 3)).astype("f")
Y = np.random.default_rng(1).normal(size=(6, 2)).astype("f")


def loss(model):
    return jnp.mean((model(CODE, X) - Y) ** 2)


def by_hand(weight, bias, shapes):
    """The same loss in plain JAX."""
    w = cut(CODE @ weight.T + bias, shapes)
    h = X @ w["first/w"].T + w["first/b"]
    h = (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-5) * w["norm/w"] + w["norm/b"]
    return jnp.mean((jnp.tanh(h) @ w["second/w"].T + w["second/b"] - Y) ** 2)


def test_the_part_has_no_variables_of_its_own_in_its_parent(hyper):
    assert hyper.v.cont_all_key_chains() == ["maker/b", "maker/w"]
    assert [name for name, _ in hyper.named_parameters()] == ["maker.bias", "maker.weight"]
    buffers = ["target.norm.running_mean", "target.norm.running_var"]
    assert [name for name, _ in hyper.named_buffers()] == buffers
    assert sorted(hyper.state_dict()) == ["maker.bias", "maker.weight", *buffers]
    assert len(jax.tree.leaves(hyper)) == 4
    assert "target" in dict(hyper.named_modules())


def test_a_network_that_makes_the_weights_of_another_trains_through_it(hyper):
    value, gradients = nb.value_and_grad(loss)(hyper)
    wanted, by_weight = jax.value_and_grad(by_hand)(
        hyper.maker.weight.value, hyper.maker.bias.value, hyper.shapes
    )
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    np.testing.assert_allclose(gradients.maker.w, by_weight, rtol=1e-3, atol=1e-6)

    optimizer = nb.Adam(lr=1e-2)

    @nb.jit
    def step(model):
        value, gradients = nb.value_and_grad(loss)(model)
        optimizer.update(model, gradients)
        return value

    losses = [float(step(hyper)) for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0]
    assert hyper.target.norm.running_mean.value.any()


@pytest.mark.parametrize("donate", [False, True])
def test_compiled_and_eager_agree_and_buffers_of_the_part_come_out(hyper, donate):
    twin = copy.deepcopy(hyper)
    compiled = nb.jit(lambda model: model(CODE, X), donate=donate)(twin)
    np.testing.assert_allclose(compiled, hyper(CODE, X), rtol=1e-5)
    np.testing.assert_allclose(
        twin.target.norm.running_mean.value, hyper.target.norm.running_mean.value, rtol=1e-5
    )


def test_a_raw_transform_takes_the_parent_as_a_pytree(hyper):
    hyper.eval()
    np.testing.assert_allclose(
        jax.jit(lambda model: model(CODE, X))(hyper), hyper(CODE, X), rtol=1e-5
    )
    definition, weights, rest = hyper.partition(nb.Parameter)
    assert len(weights) == 2 and len(rest) == 2
    np.testing.assert_allclose(definition(weights, rest)(CODE, X), hyper(CODE, X), rtol=1e-6)


def test_the_part_called_without_variables_raises_an_error_with_the_fix(hyper):
    class Forgets(nb.Module):
        def __init__(self):
            self.target, self.maker = Target(), nb.Linear(3, 3)

        def forward(self, x):
            return self.target(self.maker(x))

    model = Forgets()
    for call in (model, nb.jit(model), functools.partial(nb.jit(lambda m, x: m(x)), model)):
        with pytest.raises(
            nb.NotBuiltError,
            match=r"Target was made with store_vars=False.*model\(x, v=variables\)",
        ):
            call(X)
    with pytest.raises(nb.NotBuiltError, match="store_vars=False"):
        model.target.first(X)
    np.testing.assert_array_equal(model.target.norm.running_mean.value, np.zeros(4))


def test_parent_files_copies_and_displays_work(hyper, tmp_path):
    hyper(CODE, X)
    hyper.save_weights(tmp_path / "w.h5")
    other = Hyper()
    other.load_weights(tmp_path / "w.h5")
    hyper.eval(), other.eval()
    np.testing.assert_array_equal(other(CODE, X), hyper(CODE, X))
    for twin in (copy.deepcopy(hyper), pickle.loads(pickle.dumps(hyper))):
        np.testing.assert_array_equal(twin(CODE, X), hyper(CODE, X))
    assert "(target): Target(" in repr(hyper)
    assert "maker" in str(nb.summary(hyper, CODE, X)) and "target" in nb.tree_repr(hyper)
    nb.save_checkpoint(tmp_path / "c", step=1, model=hyper)
    assert nb.restore_checkpoint(tmp_path / "c", model=other)[0] == 1
    assert [call.path for call in tracked(hyper)][:3] == ["", "maker", "target"]


def tracked(hyper):
    with nb.track(hyper, returns=True) as calls:
        hyper(CODE, X)
    return calls


def test_a_part_that_is_built_later_is_absent_before_and_after():
    class Parent(nb.Module):
        def __init__(self):
            self.part, self.own = Late(build_mode="explicit", store_vars=False), nb.Linear(2, 2)

        def forward(self, x, variables):
            return self.part(self.own(x), v=variables)

    class Late(nb.Module):
        def _create_variables(self, device=None, dtype=None):
            return {"w": jnp.full((2, 2), 3.0)}

        def forward(self, x):
            return x @ self.v.w

    model = Parent()
    assert model.v.cont_all_key_chains() == ["own/b", "own/w"]
    variables = model.part.build()
    assert model.v.cont_all_key_chains() == ["own/b", "own/w"]
    np.testing.assert_allclose(
        nb.jit(model)(jnp.ones(2), variables), model.own(jnp.ones(2)) @ variables.w, rtol=1e-6
    )
