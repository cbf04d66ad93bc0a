"""Views change nothing: an unbuilt model stays unbuilt, with no key drawn; changes by a forward are
undone; and compiled functions keep their programs.
"""

import copy

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.core.numbers import random
from nbmodule.core.structure import walk

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
# Views of a callable, and the callables in which they find a model.
TRACING = {
    "first_nonfinite": lambda f: nb.first_nonfinite(f, X),
    "graph": lambda f: nb.graph(f, X),
    "inspect": lambda f: nb.inspect(f, X),
    "eval_shape": lambda f: nb.eval_shape(f, X),
    "make_jaxpr": lambda f: nb.make_jaxpr(f)(X),
    "lower": lambda f: nb.jit(f).lower(X),
    "trace": lambda f: nb.jit(f, donate=True).trace(X),
}
CALLABLES = {
    "itself": lambda m: m,
    "a function": lambda m: lambda x: m(x),
    "a compiled function": lambda m: nb.jit(lambda x: m(x)),
    "a default": lambda m: lambda x, held={"deep": [[m]]}: held["deep"][0][0](x),
}
VIEWS = {
    f"{view} of {place}": lambda m, look=look, make=make: look(make(m))
    for view, look in TRACING.items()
    for place, make in CALLABLES.items()
} | {
    "summary": lambda m: nb.summary(m, X),
    "summary of sizes": lambda m: nb.summary(m),
    "eval_shape of an argument": lambda m: nb.eval_shape(lambda n, x: n(x), m, X),
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


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", UNBUILT)
def test_a_view_leaves_an_unbuilt_model_unbuilt(kind, view):
    model = UNBUILT[kind]()
    before = state(model)
    VIEWS[view](model)
    assert state(model) == before
    assert model(jnp.ones((4, 5))).shape == (4, 2)  # and it may still be built for another width


@pytest.mark.parametrize("look", ["lower", "trace", "eval_shape"])
def test_a_compiled_function_that_was_inspected_first_builds_and_runs_at_its_call(look):
    model = Parent().eval()
    step = nb.jit(lambda x: model(x))
    getattr(step, look)(X)
    assert not model.built_
    found = step(X)
    assert model.built_ and jnp.allclose(found, model(X), rtol=1e-6)
    getattr(step, look)(X)
    assert model.built_ and jnp.allclose(found, step(X), rtol=1e-6)


def test_compile_with_arguments_builds():
    model = OnCall()
    model.compile(args=(X,))
    assert model.built_ and model(X).shape == (4, 2)


OUTSIDE = nb.BatchNorm1d(3)
# The attribute of the model, and the change by its forward.
CHANGES = {
    "a list": (list, lambda model, y: model.kept.append(y)),
    "a dict": (dict, lambda model, y: model.kept.update(last=y)),
    "arrays": (lambda: [jnp.zeros(2)], lambda model, y: model.kept.append(y)),
    "layers": (lambda: [nb.Linear(3, 3)], lambda model, y: model.kept.append(nb.Linear(3, 3))),
    "a set": (set, lambda model, y: model.kept.add(len(model.kept))),
    "a mode": (list, lambda model, y: model.layer.eval()),
    "an attribute": (list, lambda model, y: setattr(model, "new", [OUTSIDE])),
}
OF_FORWARD = TRACING | {"summary": VIEWS["summary"]}
RUN = OF_FORWARD | {
    "profile": lambda model: nb.profile(model, X),
    "what_if": lambda model: nb.what_if(model, X, {"layer": nb.zero()}),
}


class Changing(nb.Module):
    def __init__(self, kept, change):
        self.layer, self.kept, self.change = nb.Linear(3, 3), kept, change

    def forward(self, x):
        y = self.layer(x)
        self.change(self, y)
        return y


def contents(model):
    kept = model.kept.values() if isinstance(model.kept, dict) else model.kept
    modes = [module.training for module in model.modules()]
    return [id(x) for x in kept], sorted(vars(model)), modes


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("view", RUN)
def test_a_view_undoes_changes_by_a_forward(view, change):
    make, act = CHANGES[change]
    model = Changing(make(), act)
    before = contents(model)
    try:
        RUN[view](model)
    except nb.TracerLeakError:  # compiled, the forward is refused
        assert view not in ("graph", "inspect", "first_nonfinite")
    assert contents(model) == before


@pytest.mark.not_under("eager", reason="counts what is traced")
@pytest.mark.parametrize("view", OF_FORWARD)
def test_a_view_leaves_values_and_compiled_functions_as_they_are(view):
    model, traces = nb.Sequential(nb.Linear(3, 2), nb.BatchNorm1d(2), nb.Dropout(0.5)), []
    model.register_forward_hook(lambda *_: traces.append(1))
    step, by_name = nb.jit(lambda model, x: model(x)), nb.jit(lambda x: model(x))
    gradient, compiled = nb.jit(nb.grad(lambda m: m(X).sum())), copy.deepcopy(model).compile()

    def act():
        step(model, X), by_name(X), gradient(model), compiled(X)

    act(), act()
    before = state(model)
    for viewed in (model, compiled, *([by_name] if view != "summary" else [])):
        OF_FORWARD[view](viewed)
    assert state(model) == before
    count = len(traces)
    act()
    assert len(traces) == count


@pytest.mark.parametrize("stage", ["eval_shape", "lower", "trace"])
def test_a_second_inspection_does_not_walk_the_model_again(monkeypatch, stage):
    model = nb.Sequential(*[nb.Sequential(nb.Linear(2, 2), nb.Tanh()) for _ in range(5)])
    inspect, x = getattr(nb.jit(lambda m, x: m(x)), stage), jnp.ones((3, 2))
    inspect(model, x)
    monkeypatch.setattr(walk, "Plan", None)
    inspect(model, x)
