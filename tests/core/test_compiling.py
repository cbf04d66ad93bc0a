"""`model.compile()`: the same results, variables as inputs, changes of named objects kept, and an
honest fallback.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT

X = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3)


RUNS: list[tuple[int, ...]] = []


class Counted(nb.Module):
    """Notes when its code runs: at each call if eager, once for each trace if compiled."""

    def __init__(self, **options):
        super().__init__(**options)
        self.linear, self.norm = nb.Linear(3, 2), nb.BatchNorm1d(2)

    def forward(self, x):
        RUNS.append(x.shape)
        return self.norm(self.linear(x))


@pytest.mark.parametrize(
    ("make", "is_traced"),
    [
        (lambda: Counted().compile(args=(X,)), True),
        (lambda: Counted().compile(), False),
        (lambda: Counted(compile_on_next_step=True), False),
    ],
)
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_compiling_traces_at_once_with_arguments_else_at_the_next_call(make, is_traced):
    RUNS.clear()
    model = make()
    assert bool(RUNS) == is_traced
    assert not np.any(model.norm.running_mean)  # nothing was run
    for _ in range(3):
        model(X)
    assert set(RUNS) == {(2, 3)}
    traced = len(RUNS)
    model(X)
    assert len(RUNS) == traced
    assert model.compiled_


class Branching(nb.Module):
    """A forward that looks at a value, which a trace has not."""

    def __init__(self, **options):
        super().__init__(**options)
        self.linear = nb.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) if float(x.sum()) > 0 else self.linear(-x)


@pytest.mark.parametrize("of", ["constructor", "compile"])
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_call_that_fails_compiled_is_done_eagerly_with_one_warning(of):
    model = Branching(fallback_to_non_compiled=of == "constructor")
    options = {"args": (X,), "fallback_to_non_compiled": True} if of == "compile" else {}

    with pytest.warns(
        UserWarning,
        match="Branching: the compiled call failed and runs eagerly .*ConcretizationTypeError",
    ):
        first = model.compile(**options)(X + 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = model(X - 2)

    np.testing.assert_allclose(first, model.linear(X + 2), rtol=1e-6)
    np.testing.assert_allclose(second, model.linear(2 - X), rtol=1e-6)


class Plain:
    """An object of the user's, neither a module nor a container."""

    def __init__(self):
        self.total, self.inner, self.name = jnp.zeros(()), {"last": None}, "plain"


def inner_of(held):
    if isinstance(held, list):
        return held[1]
    return held.inner if isinstance(held, Plain) else held["inner"]


def change(held, x):
    """Change an object, and a dict within it."""
    if isinstance(held, list):
        held[0] = held[0] + x.sum()
        held.append(x)
    elif isinstance(held, Plain):
        held.total, held.name = held.total + x.sum(), "written"
    else:
        held["total"] = held["total"] + x.sum()
    inner_of(held)["last"] = x * 3


class Writing(nb.Module):
    """Changes an object that it is given, or that it finds in its surroundings, and returns it."""

    def __init__(self, found=None, **options):
        super().__init__(**options)
        self._found = lambda: found

    def forward(self, x, cont=None, *, other=None):
        held = cont or other or self._found()
        change(held, x)
        return x * 2, {"cont": held}


KINDS = {
    "dict": lambda: {"total": jnp.zeros(()), "inner": {"last": None}, "name": "mine"},
    "Container": lambda: nb.Container(total=jnp.zeros(()), inner=nb.Container(last=X)),
    "list": lambda: [jnp.zeros(()), {"last": None}],
    "object": Plain,
}
WAYS = {
    "arg_stateful_idxs": ({"arg_stateful_idxs": [[1]]}, lambda model, held: model(X + 1, held)),
    "kwarg_stateful_idxs": (
        {"kwarg_stateful_idxs": [["other"]]},
        lambda model, held: model(X + 1, other=held),
    ),
    "of the call": ({}, lambda model, held: model(X + 1, held, arg_stateful_idxs=[[1]])),
    "stateful": ({}, lambda model, held: model(X + 1, held, stateful=[held])),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_changes_of_a_named_object_belong_to_the_compiled_call(way, kind):
    options, call = WAYS[way]
    model, held, expected = Writing(**options).compile(), KINDS[kind](), KINDS[kind]()
    inner = inner_of(held)

    for _ in range(3):
        change(expected, X + 1)
        y, found = call(model, held)
        np.testing.assert_allclose(y, (X + 1) * 2)
        assert found["cont"] is held

    np.testing.assert_allclose(inner["last"], (X + 1) * 3)  # the dict that others may hold
    contents, wanted = (
        jax.tree.leaves(vars(obj) if kind == "object" else obj) for obj in (held, expected)
    )
    for x, y in zip(contents, wanted, strict=True):
        assert not isinstance(x, jax.core.Tracer)
        np.testing.assert_array_equal(x, y)


def test_compiling_that_is_refused_leaves_the_choices_of_the_module():
    held = KINDS["dict"]()
    model = Writing(found=held, stateful=[held])

    with pytest.raises(nb.errors.ArgumentTypeError, match="no option typo"):
        model.compile(stateful=[], typo=1)
    model.compile()
    model(X + 1)

    assert float(held["total"]) == pytest.approx(6.0)


def test_compiling_with_arguments_changes_nothing_that_is_named():
    held = KINDS["dict"]()
    Writing(arg_stateful_idxs=[[1]]).compile(args=(X, held))

    assert float(held["total"]) == 0.0
    assert held["inner"] == {"last": None}


def test_a_call_that_raises_changes_nothing():
    class Failing(Writing):
        def forward(self, x, cont):
            cont["total"] = cont["total"] + 1
            raise ValueError("no")

    held = KINDS["dict"]()
    with pytest.raises(ValueError, match="no"):
        Failing(arg_stateful_idxs=[[1]]).compile()(X, held)
    assert float(held["total"]) == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arg_stateful_idxs": [[7]]}, r"=\[\[7\]\] names no argument of this call \(IndexError"),
        ({"kwarg_stateful_idxs": [["there"]]}, r"=\[\['there'\]\] names no argument of this call"),
    ],
)
def test_a_path_of_a_stateful_object_must_lead_to_an_argument(options, message):
    with pytest.raises(nb.NbModuleError, match=next(iter(options)) + message):
        Writing(**options).compile()(X, {})


@pytest.mark.parametrize(
    ("options", "what"), [({"args": X}, "positional"), ({"kwargs": [X]}, "keyword")]
)
def test_arguments_of_another_kind_are_refused(options, what):
    message = rf"compile\({next(iter(options))}=\.\.\.\) takes the {what} arguments"
    with pytest.raises(nb.ArgumentTypeError, match=message):
        Counted().compile(**options)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_retrace_of_a_compiled_call_with_named_objects_is_explained():
    held = KINDS["dict"]()
    model = Writing(arg_stateful_idxs=[[1]]).compile()
    model(X, held)
    model(X, held)  # `inner.last` was None in the first

    assert not nb.explain_retrace(model, X, held).expected
    assert [str(change) for change in nb.explain_retrace(model, X[:1], held).changes] == [
        f"argument x: {FLOAT}[2, 3] before, {FLOAT}[1, 3] now"
    ]


@pytest.mark.parametrize("how", ["argument", "name"])
def test_returns_kept_inside_a_compiled_function_reach_the_model_that_was_called(how):
    held = {}

    @nb.jit
    def by_name(x):
        return held["model"](x, track_submod_rets=True)

    by_argument = nb.jit(lambda model, x: model(x, track_submod_rets=True))
    for seed in (0, 1):
        held["model"] = model = nb.Sequential(nb.Linear(2, 2, key=seed))
        output = by_argument(model, jnp.ones(2)) if how == "argument" else by_name(jnp.ones(2))
        np.testing.assert_array_equal(model.submod_rets["0"][0], output)
