"""Looking never builds: whoever shows an unbuilt model leaves it unbuilt, with no key drawn and no
flag moved, parents too.
"""

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.core.numbers import random

X = jnp.ones((4, 3))


class OnCall(nb.Module):
    def __init__(self):
        super().__init__(build_mode="on_call")

    def _build(self, x):
        self.linear = nb.Linear(x.shape[-1], 2)

    def forward(self, x):
        return self.linear(x)


class Parent(nb.Module):
    def __init__(self):
        self.first, self.norm, self.drop = OnCall(), nb.BatchNorm1d(2), nb.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.first(x)))


class InForward(nb.Module):
    def forward(self, x):
        if not hasattr(self, "linear"):
            self.linear = nb.Linear(x.shape[-1], 2)
        return self.linear(x)


UNBUILT = {
    "on_call": OnCall,
    "a parent": Parent,
    "made in forward": InForward,
    "in a Sequential": lambda: nb.Sequential(OnCall(), nb.ReLU()),
}
LOOK = {
    "summary": lambda m: nb.summary(m, X),
    "summary of sizes": lambda m: nb.summary(m),
    "first_nonfinite": lambda m: nb.first_nonfinite(m, X),
    "first_nonfinite of a function": lambda m: nb.first_nonfinite(lambda x: m(x), X),
    "first_nonfinite of a compiled function": lambda m: nb.first_nonfinite(
        nb.jit(lambda x: m(x)), X
    ),
    "graph": lambda m: nb.graph(m, X),
    "graph of a function": lambda m: nb.graph(lambda x: m(x), X),
    "inspect": lambda m: nb.inspect(m, X),
    "inspect of a function": lambda m: nb.inspect(lambda x: m(x), X),
    "eval_shape": lambda m: nb.eval_shape(m, X),
    "eval_shape of a function": lambda m: nb.eval_shape(lambda x: m(x), X),
    "eval_shape of an argument": lambda m: nb.eval_shape(lambda n, x: n(x), m, X),
    "eval_shape of what is found late": lambda m: nb.eval_shape(
        lambda x, held={"deep": [[m]]}: held["deep"][0][0](x), X
    ),
    "make_jaxpr": lambda m: nb.make_jaxpr(m)(X),
    "make_jaxpr of a function": lambda m: nb.make_jaxpr(lambda x: m(x))(X),
    "lower": lambda m: nb.jit(m).lower(X),
    "lower, donated": lambda m: nb.jit(lambda x: m(x), donate=True).lower(X),
    "trace": lambda m: nb.jit(lambda x: m(x)).trace(X),
    "graph of what is found late": lambda m: nb.graph(
        lambda x, held={"deep": [[m]]}: held["deep"][0][0](x), X
    ),
    "repr": repr,
    "tree_repr": nb.tree_repr,
    "display": lambda m: m._repr_mimebundle_(),
}


def state(model):
    modules = list(model.modules())
    return (
        model.built_,
        [
            (type(m), sorted(vars(m)), m.training, m._nbm.built, m._nbm.first_arguments)
            for m in modules
        ],
        random.default._position(),
        {name: value.tolist() for name, value in model.state_dict().items()},
    )


@pytest.mark.parametrize("looker", LOOK)
@pytest.mark.parametrize("kind", UNBUILT)
def test_views_never_build(kind, looker):
    model = UNBUILT[kind]()
    before = state(model)
    LOOK[looker](model)
    assert state(model) == before
    assert model(jnp.ones((4, 5))).shape == (4, 2)  # and it may still be built for another width


@pytest.mark.parametrize("look", ["lower", "trace", "eval_shape"])
def test_a_compiled_function_that_was_looked_at_first_builds_and_runs_at_its_call(look):
    model = Parent().eval()
    step = nb.jit(lambda x: model(x))
    getattr(step, look)(X)
    assert not model.built_
    found = step(X)
    assert model.built_ and jnp.allclose(found, model(X), rtol=1e-6)
    getattr(step, look)(X)
    assert model.built_ and jnp.allclose(found, step(X), rtol=1e-6)


@pytest.mark.not_under("eager", reason="counts what is compiled")
def test_lowering_a_compiled_function_leaves_its_program_in_place():
    model, traces = nb.Linear(3, 2), []
    step = nb.jit(lambda x: (traces.append(1), model(x))[1])
    step(X)
    step.lower(X), step.eval_shape(X)
    before = len(traces)
    step(X)
    assert len(traces) == before


def test_compile_with_arguments_builds():
    model = OnCall()
    model.compile(args=(X,))
    assert model.built_ and model(X).shape == (4, 2)
