"""A model, a holder or a function made anew runs what was compiled for the one before it; anything that differs traces again."""

import builtins
import gc
import itertools
import types
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.jax_names import stop_listening
from nbmodule.core.transforms.closure import shelf

from jax_settings import FLOAT, with_mixed_dtypes

X, Y = jnp.ones((4, 3)), jnp.zeros((4, 2))


class Net(nb.Module):
    def __init__(self, width=5):
        self.a, self.b = nb.Linear(3, width), nb.Linear(width, 2)

    def forward(self, x):
        return self.b(jax.nn.relu(self.a(x)))


@pytest.fixture
def compiles():
    """The names of what XLA compiles from now on."""
    found = []
    listener = lambda event, *_, **more: found.append(str(more)) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listener)
    yield found
    stop_listening(listener)


def loss(model):
    return ((model(X) - Y) ** 2).mean()


def notebook(cells, names=None):
    """Run cells in a namespace of their own, as a notebook does; gives it."""
    names = {"nb": nb, "jnp": jnp, "jax": jax, "Net": Net, "loss": loss, "X": X, "traces": [], **(names or {})}
    names["__name__"] = "__main__"
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), names)
    return names


STEP = """
@nb.jit
def step():
    traces.append(1)
    value, grads = nb.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value
"""
MODEL = "model, optimizer = Net(), nb.Adam(1e-2)"
RUN = "losses = [float(step()) for _ in range(3)]"


@with_mixed_dtypes
def independent(model):
    """The same training by JAX alone, on the values that the model has now."""
    import optax

    rule = optax.adam(1e-2, eps=1e-7)
    v = jax.tree.map(jnp.array, model.v.cont_to_dict())
    state, losses = rule.init(v), []

    def compute(v):
        hidden = jax.nn.relu(X @ v["a"]["w"].T + v["a"]["b"])
        return ((hidden @ v["b"]["w"].T + v["b"]["b"] - Y) ** 2).mean()

    for _ in range(3):
        value, grads = jax.value_and_grad(compute)(v)
        updates, state = rule.update(grads, state)
        v = optax.apply_updates(v, updates)
        losses.append(float(value))
    return losses


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_cell_that_makes_the_model_anew_compiles_and_traces_nothing(compiles, donate):
    step = STEP.replace("@nb.jit", f"@nb.jit(donate={donate})")
    names = notebook([MODEL, step, RUN])
    traced = len(names["traces"])
    assert any("step" in name for name in compiles)
    for _ in range(3):
        exec(MODEL, names)
        expected = independent(names["model"])
        compiles.clear()
        exec(RUN, names)
        np.testing.assert_allclose(names["losses"], expected, rtol=1e-4)
        assert len(names["traces"]) == traced
        assert not any("step" in name for name in compiles)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_cell_that_also_defines_the_function_anew_compiles_and_traces_nothing(compiles):
    names = notebook([MODEL, STEP, RUN])
    traced = len(names["traces"])
    for _ in range(3):
        exec(compile(MODEL, "<cell>", "exec"), names)
        exec(compile(STEP, "<cell>", "exec"), names)
        expected = independent(names["model"])
        compiles.clear()
        exec(RUN, names)
        np.testing.assert_allclose(names["losses"], expected, rtol=1e-4)
        assert len(names["traces"]) == traced and not any("step" in name for name in compiles)


def test_a_step_that_is_edited_is_traced():
    names = notebook([MODEL, STEP, RUN])
    traced = len(names["traces"])
    exec(MODEL, names)
    exec(compile(STEP.replace("return value", "return value * 2"), "<cell>", "exec"), names)
    before = float(loss(names["model"]))
    exec(RUN, names)
    assert len(names["traces"]) > traced
    np.testing.assert_allclose(names["losses"][0], 2 * before, rtol=1e-5)


TRACES = []


class Trainer:
    def __init__(self, rate=1e-2):
        self.model, self.optimizer, self.rate = Net(), nb.Adam(1e-2), rate

    @nb.jit
    def step(self):
        TRACES.append(1)
        value, grads = nb.value_and_grad(loss)(self.model)
        self.optimizer.update(self.model, grads)
        return value * self.rate


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_trainer_made_anew_traces_nothing_and_keeps_no_earlier_one_alive():
    TRACES.clear()
    seen = []
    for i in range(20):
        trainer = Trainer()
        before = float(loss(trainer.model))
        np.testing.assert_allclose(float(trainer.step()), before * 1e-2, rtol=1e-5)
        trainer.step()
        seen.append((weakref.ref(trainer), weakref.ref(trainer.model), weakref.ref(trainer.model.a.weight)))
        first = len(TRACES) if i == 0 else first
    assert len(TRACES) == first
    del trainer
    gc.collect()
    assert all(reference() is None for each in seen for reference in each)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_function_that_reads_the_model_of_a_holder_serves_a_holder_made_anew():
    names = notebook(
        [
            "class Holder:\n    def __init__(self):\n        self.model = Net()",
            "@nb.jit\ndef step():\n    traces.append(1)\n    return loss(holder.model)",
        ]
    )
    seen = []
    for i in range(10):
        exec("holder = Holder()", names)
        seen.append(weakref.ref(names["holder"].model))
        np.testing.assert_allclose(names["step"](), loss(names["holder"].model), rtol=1e-6)
        first = len(names["traces"]) if i == 0 else first
    assert len(names["traces"]) == first
    gc.collect()
    assert sum(reference() is not None for reference in seen) == 1


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_folds_share_one_program():
    traced, scores = [], []

    def train(rows):
        model, optimizer = Net(), nb.SGD(0.1)

        @nb.jit
        def step(x, y):
            traced.append(1)
            value, grads = nb.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(model)
            optimizer.update(model, grads)
            return value

        before = float(((model(X[rows]) - Y[rows]) ** 2).mean())
        np.testing.assert_allclose(float(step(X[rows], Y[rows])), before, rtol=1e-5)
        step(X[rows], Y[rows])
        return weakref.ref(model)

    for k in range(5):
        scores.append(train(np.array([i for i in range(4) if i != k % 4])))
        first = len(traced) if k == 0 else first
    assert len(traced) == first
    gc.collect()
    assert all(model() is None for model in scores)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_sweep_over_seeds_shares_one_program_and_each_seed_has_its_own_result():
    traced, found = [], []

    def train(seed):
        nb.seed(seed)
        model = nb.Sequential(Net(), nb.Dropout(0.5))

        @nb.jit
        def predict(x):
            traced.append(1)
            return model(x)

        return predict(X), model

    for seed in range(50):
        y, model = train(seed)
        found.append(np.asarray(y))
        first = len(traced) if seed == 0 else first
        plain = model.eval()(X)
        assert np.all((y == 0) | np.isclose(y, 2 * plain, rtol=1e-5))
    assert len(traced) == first
    assert len({y.tobytes() for y in found}) == 50


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_list_of_models_shares_one_program_whatever_holds_them():
    traced = []
    models = [Net() for _ in range(6)]

    @nb.jit
    def predict(x):
        traced.append(1)
        return model(x)

    for model in (*models, *models):
        np.testing.assert_allclose(predict(X), model(X), rtol=1e-6)
    assert len(traced) == 1


# -- never a wrong program ---------------------------------------------------------------------------
def rate_in_a_cell(value):
    model = nb.Linear(3, 2, key=0)
    return nb.jit(lambda x: model(x) * value), lambda x: model(x) * value


def rate_as_a_default(value):
    model = nb.Linear(3, 2, key=0)
    return nb.jit(lambda x, rate=value: model(x) * rate), lambda x: model(x) * value


def rate_as_a_keyword_default(value):
    model = nb.Linear(3, 2, key=0)

    def step(x, *, rate=value):
        return model(x) * rate

    return nb.jit(step), lambda x: model(x) * value


def rate_as_a_global(value):
    names = {"model": nb.Linear(3, 2, key=0), "rate": value}
    exec("def step(x):\n    return model(x) * rate", names)
    return nb.jit(names["step"]), lambda x: names["model"](x) * value


def rate_as_a_global_of_a_helper(value):
    names = {"model": nb.Linear(3, 2, key=0), "rate": value}
    exec("def helper(y):\n    return y * rate\ndef step(x):\n    return helper(model(x))", names)
    return nb.jit(names["step"]), lambda x: names["model"](x) * value


def rate_in_a_helper_that_is_passed_along(value):
    model = nb.Linear(3, 2, key=0)
    helper = lambda y: y * value
    return nb.jit(lambda x: helper(model(x))), lambda x: model(x) * value


def rate_in_a_list(value):
    model, rates = nb.Linear(3, 2, key=0), [1, value]
    return nb.jit(lambda x: model(x) * rates[1]), lambda x: model(x) * value


def rate_in_a_dict(value):
    model, settings = nb.Linear(3, 2, key=0), {"inner": {"rate": value}}
    return nb.jit(lambda x: model(x) * settings["inner"]["rate"]), lambda x: model(x) * value


def rate_in_a_namespace(value):
    model, settings = nb.Linear(3, 2, key=0), types.SimpleNamespace(rate=value)
    return nb.jit(lambda x: model(x) * settings.rate), lambda x: model(x) * value


class Settings:
    def __init__(self, rate):
        self._rate = rate

    @property
    def rate(self):
        return self._rate

    def scaled(self, y):
        return y * self._rate


def rate_behind_a_property(value):
    model, settings = nb.Linear(3, 2, key=0), Settings(value)
    return nb.jit(lambda x: model(x) * settings.rate), lambda x: model(x) * value


def rate_behind_a_method(value):
    model, settings = nb.Linear(3, 2, key=0), Settings(value)
    return nb.jit(lambda x: settings.scaled(model(x))), lambda x: model(x) * value


def rate_behind_getattr(value):
    model, settings = nb.Linear(3, 2, key=0), types.SimpleNamespace(rate_1=value)
    return nb.jit(lambda x: model(x) * getattr(settings, f"rate_{1}")), lambda x: model(x) * value


def rate_in_a_partial(value):
    import functools

    model = nb.Linear(3, 2, key=0)
    scale = functools.partial(lambda rate, y: y * rate, value)
    return nb.jit(lambda x: scale(model(x))), lambda x: model(x) * value


def rate_in_an_array(value):
    model, rate = nb.Linear(3, 2, key=0), np.array(value, FLOAT)
    return nb.jit(lambda x: model(x) * rate), lambda x: model(x) * value


def rate_in_a_jax_array(value):
    model, rate = nb.Linear(3, 2, key=0), jnp.array(value)
    return nb.jit(lambda x: model(x) * rate), lambda x: model(x) * value


def rate_of_the_model(value):
    class Scaled(nb.Module):
        def __init__(self):
            self.inner, self.rate = nb.Linear(3, 2, key=0), value

        def forward(self, x):
            return self.inner(x) * self.rate

    model = Scaled()
    return nb.jit(lambda x: model(x)), lambda x: model.inner(x) * value


class Shared(nb.Module):
    def __init__(self, fn):
        self.inner, self.fn = nb.Linear(3, 2, key=0), fn

    def forward(self, x):
        return self.fn(self.inner(x))


def rate_in_a_function_of_the_model(value):
    model = Shared(lambda y: y * value)
    return nb.jit(lambda x: model(x)), lambda x: model.inner(x) * value


def rate_in_a_class(value):
    kind = type("Scale", (), {"rate": value, "__call__": lambda self, y: y * self.rate})
    model, scale = nb.Linear(3, 2, key=0), kind()
    return nb.jit(lambda x: scale(model(x))), lambda x: model(x) * value


def rate_in_a_jitted_helper(value):
    model = nb.Linear(3, 2, key=0)
    helper = jax.jit(lambda y: y * value)
    return nb.jit(lambda x: helper(model(x))), lambda x: model(x) * value


def rate_in_a_generator(value):
    model, rates = nb.Linear(3, 2, key=0), itertools.repeat(value)
    return nb.jit(lambda x: model(x) * next(rates)), lambda x: model(x) * value


def rate_by_eval(value):
    names = {"model": nb.Linear(3, 2, key=0), "rate": value}
    exec("def step(x):\n    return model(x) * eval('ra' + 'te')", names)
    return nb.jit(names["step"]), lambda x: names["model"](x) * value


def rate_in_the_rule_of_a_derivative(value):
    model, names = nb.Linear(3, 2, key=0), {"jax": jax, "rate": value}
    exec("same = jax.custom_jvp(lambda y: y)\n@same.defjvp\ndef rule(y, t):\n    return y[0], t[0] * rate", names)
    same = names["same"]
    return (
        nb.jit(lambda x: jax.jvp(lambda y: same(model(y)), (x,), (x,))[1]),
        lambda x: (model(x) - model.bias()) * value,
    )


class Doubles:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, y):
        return y * 2


class Triples(Doubles):
    def apply(self, y):
        return y * 3


def test_things_of_a_compiled_module_are_not_taken_for_those_of_another():
    class Scaled(nb.Module):
        def __init__(self):
            self.inner = nb.Linear(3, 2, key=0)

        def forward(self, x, thing):
            return thing.apply(self.inner(x))

    for kind, factor in ((Doubles, 2), (Triples, 3), (Doubles, 2)):
        model = Scaled()
        plain = model.inner(X) * factor
        model.compile()
        found = model(X, kind(1.0), arg_stateful_idxs=[[1]])
        np.testing.assert_allclose(found, plain, rtol=1e-6)


MAKERS = [make for name, make in list(globals().items()) if name.startswith("rate_")]


@pytest.mark.parametrize("make", MAKERS)
def test_a_value_that_differs_is_never_taken_from_another_program(make):
    for value in (0.1, 0.0, -0.0, 1, 0.1):
        step, plain = make(value)
        found, expected = step(X), plain(X)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("a", "b"), [(jax.nn.relu, jnp.tanh), (lambda y: y + 1, lambda y: y + 2), (jnp.sin, jnp.cos)])
def test_another_activation_function_traces_again(a, b):
    for act in (a, b, a):
        model = nb.Linear(3, 2)
        step = nb.jit(lambda x, act=act, model=model: act(model(x)))
        np.testing.assert_allclose(step(X), act(model(X)), rtol=1e-5, atol=1e-6)


def test_a_setting_that_changes_with_the_model_is_noticed():
    names = notebook(["@nb.jit\ndef step():\n    return model(X) * rate"], names={"rate": 0.1})
    for rate in (0.1, 0.2, 0.1, 3):
        names.update(model=Net(), rate=rate)
        np.testing.assert_allclose(names["step"](), names["model"](X) * rate, rtol=1e-6)


def test_a_value_that_a_later_trace_has_seen_differently_ends_the_sharing():
    names = notebook(["@nb.jit\ndef step(x):\n    return model(x) * rate"], names={"rate": 0.1})
    names["model"] = Net()
    names["step"](X)
    names["rate"] = 0.2
    names["step"](X[:2])  # traced with 0.2, as JAX does
    names.update(model=Net(), rate=0.1)
    for x in (X, X[:2]):
        np.testing.assert_allclose(names["step"](x), names["model"](x) * 0.1, rtol=1e-6)


def test_models_that_share_a_variable_are_not_run_by_the_program_of_models_that_do_not():
    def make(shared):
        a = nb.Linear(3, 3, key=0)
        b = nb.Linear(3, 3, key=1)
        if shared:
            b.weight = a.weight

        @nb.jit
        def grow(x):
            a.weight.value = a.weight.value + 1
            return b(x)

        return a, b, grow

    for shared in (False, True, False, True):
        _, b, grow = make(shared)
        expected = X @ (b.weight() + (1 if shared else 0)).T + b.bias()
        np.testing.assert_allclose(grow(X), expected, rtol=1e-5)


def test_two_names_that_swap_their_models_are_followed():
    @nb.jit
    def both(x):
        return a(x) - 2 * b(x)

    a, b = nb.Linear(3, 2), nb.Linear(3, 2)
    for _ in range(3):
        np.testing.assert_allclose(both(X), a(X) - 2 * b(X), rtol=1e-5, atol=1e-6)
        a, b = b, a
    b = a
    np.testing.assert_allclose(both(X), -a(X), rtol=1e-5, atol=1e-6)


def test_an_address_that_is_used_again_is_another_model():
    @nb.jit
    def predict(x):
        return model(x)

    for i in range(30):
        model = nb.Linear(3, 2, key=i)
        np.testing.assert_array_equal(predict(X), model(X))
        del model


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_training_and_evaluation_stay_two_programs_for_a_new_model():
    traced = []

    @nb.jit
    def predict(x):
        traced.append(1)
        return model(x)

    for i in range(3):
        model = nb.Sequential(nb.Linear(3, 2), nb.Dropout(0.9))
        assert (np.asarray(predict(X)) == 0).any()
        model.eval()
        np.testing.assert_array_equal(predict(X), model(X))
        model.train()
        assert (np.asarray(predict(X)) == 0).any()
        first = len(traced) if i == 0 else first
    assert len(traced) == first


def test_a_hook_of_one_model_does_not_run_for_another():
    def make(hooked):
        model = nb.Linear(3, 2, key=0)
        if hooked:
            model.register_forward_hook(lambda module, inputs, outputs: outputs * 0)
        return nb.jit(lambda x: model(x)), model

    for hooked in (True, False, True, False):
        step, model = make(hooked)
        np.testing.assert_allclose(step(X), model(X), rtol=1e-6)
        assert (np.asarray(step(X)) == 0).all() == hooked


def test_a_frozen_parameter_of_a_new_model_has_no_gradient():
    def make(frozen):
        model = Net()
        model.a.weight.requires_grad_(not frozen)
        return nb.jit(lambda: nb.grad(loss)(model))()

    assert [bool((np.asarray(make(frozen).a.w) == 0).all()) for frozen in (False, True, False)] == [False, True, False]


def test_what_a_trace_leaves_on_an_object_is_left_on_each_object():
    class Holder:
        def __init__(self):
            self.model, self.shape = nb.Linear(3, 2), None

        @nb.jit
        def run(self, x):
            self.shape = x.shape
            return self.model(x)

    for _ in range(3):
        holder = Holder()
        holder.run(X)
        assert holder.shape == (4, 3)


def test_a_model_that_builds_at_its_first_call_is_built_each_time():
    class Late(nb.Module):
        def __init__(self):
            super().__init__(build_mode="on_call")

        def _build(self, x):
            self.layer = nb.Linear(x.shape[-1], 2)

        def forward(self, x):
            return self.layer(x)

    for _ in range(3):
        model = Late()
        found = nb.jit(lambda x, model=model: model(x))(X)
        assert model.built_
        np.testing.assert_allclose(found, model(X), rtol=1e-6)


# -- what is kept ------------------------------------------------------------------------------------
def test_a_sweep_over_rates_leaves_a_bounded_number_of_programs():
    @nb.jit
    def step(x):
        return model(x) * rate

    for rate in np.linspace(0.1, 1, 12).tolist():
        model = nb.Linear(3, 2)
        np.testing.assert_allclose(step(X), model(X) * rate, rtol=1e-5)
    assert sum(map(len, step.programs.values())) <= 9
    assert len(shelf) <= 32


def test_what_a_function_reads_is_let_go_with_it():
    class Big:
        def __init__(self):
            self.model, self.rate = Net(), 0.5

    def make():
        holder, extra = Big(), jnp.ones(2**16)
        step = nb.jit(lambda x: holder.model(x) * holder.rate + extra.sum())
        step(X)
        return [weakref.ref(thing) for thing in (holder, holder.model, step)]

    seen = make()
    gc.collect()
    assert all(reference() is None for reference in seen)


def test_a_list_of_models_made_anew_is_let_go():
    seen, models = [], []

    @nb.jit
    def total(x):
        return models[0](x) + models[1](x)

    for _ in range(5):
        models = [Net(), Net()]
        np.testing.assert_allclose(total(X), models[0](X) + models[1](X), rtol=1e-5)
        seen += map(weakref.ref, models)
    gc.collect()
    assert sum(reference() is not None for reference in seen) == 2


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_retrace_is_explained_after_a_program_was_taken_over():
    @nb.jit
    def predict(x):
        return model(x)

    for _ in range(2):
        model = Net()
        predict(X)
    found = nb.explain_retrace(predict, X)
    assert not found.expected and found.traces == 1
    assert f"{FLOAT}[2, 3] now" in repr(nb.explain_retrace(predict, X[:2]))


DRAWS = """
import datetime, functools, os, pathlib, random, time, uuid
import numpy as np
from datetime import datetime as clock
from functools import partial
from os import environ, getenv
from random import gauss
from time import perf_counter
from numpy.random import default_rng, rand
from numpy import random as dice
from scipy.stats import norm
generator, seeded = np.random.default_rng(), random.Random()
draw = generator.normal
def helper():
    return random.random()
class Holder:
    def __init__(self):
        self.rng = np.random.default_rng()
    @property
    def now(self):
        return time.perf_counter()
holder = Holder()
"""


@pytest.mark.parametrize(
    "expression",
    [
        "np.random.rand()",
        "rand()",
        "default_rng().normal()",
        "dice.rand()",
        "generator.normal()",
        "draw()",
        "seeded.random()",
        "random.random()",
        "gauss(0, 1)",
        "helper()",
        "holder.rng.normal()",
        "holder.now % 1",
        "time.time() % 1",
        "perf_counter() % 1",
        "clock.now().timestamp() % 1",
        "datetime.datetime.now().timestamp() % 1",
        "uuid.uuid4().int / 2**128",
        "float(environ['NBMODULE_TEST_NUMBER'])",
        "float(getenv('NBMODULE_TEST_NUMBER'))",
        "float(os.environ['NBMODULE_TEST_NUMBER'])",
        "float(pathlib.Path(os.environ['NBMODULE_TEST_FILE']).read_text())",
        "float(np.loadtxt(FILE))",
        "functools.partial(random.random)()",
        "norm.rvs()",
    ],
)
def test_what_a_trace_learns_from_the_world_it_learns_again_when_the_cell_runs_again(expression, monkeypatch, tmp_path):
    file = tmp_path / "number.txt"
    cell = f"""
@nb.jit
def step():
    return model(X).sum() * 0 + ({expression}) * 1e-3
"""
    found = []
    names = notebook([DRAWS, "model = Net()"], {"FILE": str(file)})
    monkeypatch.setenv("NBMODULE_TEST_FILE", str(file))
    for number in (1, 2):
        monkeypatch.setenv("NBMODULE_TEST_NUMBER", str(number))
        file.write_text(str(number))
        exec(compile(cell, "<cell>", "exec"), names)
        found.append(float(names["step"]()))
    assert found[0] != found[1]


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_what_a_step_prints_while_it_is_traced_is_printed_again_when_its_cell_runs_again(capsys):
    cell = "@nb.jit\ndef step():\n    print('traced')\n    return model(X).sum()\nstep(), step()"
    notebook(["model = Net()", cell, cell])
    assert capsys.readouterr().out == "traced\n" * 2


@pytest.mark.parametrize(
    ("given", "expression", "changed"),
    [
        ("class Kind(type):\n    rate = 1.0\nclass C(metaclass=Kind): pass", "C.rate", "Kind.rate = 2.0"),
        ("import builtins", "put_there", "builtins.put_there = 2.0"),
        ("", "max(1.0, 0.0)", "def max(a, b): return 2.0"),
        (
            "old = nb.Linear.forward",
            "jnp.where(model.a(X).sum() != 0, 1.0, 0.0)",
            "nb.Linear.forward = lambda self, x: old(self, x) * 0",
        ),
    ],
)
def test_what_stands_above_classes_and_globals_is_compared_as_well(given, expression, changed, monkeypatch):
    monkeypatch.setattr(nb.Linear, "forward", nb.Linear.forward)
    monkeypatch.setattr(builtins, "put_there", 1.0, raising=False)
    cell = f"@nb.jit\ndef step():\n    return model(X).sum() * 0 + ({expression})\nfound = float(step())"
    names = notebook([given, "model = Net()", cell])
    first = names["found"]
    exec(compile(changed, "<cell>", "exec"), names)
    exec(compile(cell, "<cell>", "exec"), names)
    assert (first, names["found"]) in ((1.0, 2.0), (1.0, 0.0))
