"""A model, a holder or a function made anew runs what was compiled for the one before it; what is kept for that is bounded."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.jax_names import stop_listening
from nbmodule.core.transforms.closure import shelf
from tests.core.rerunning import Net, X, Y, loss, notebook

from jax_settings import FLOAT, with_mixed_dtypes


@pytest.fixture
def compiles():
    """The names of what XLA compiles from now on."""
    found = []
    listener = lambda event, *_, **more: found.append(str(more)) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listener)
    yield found
    stop_listening(listener)


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
