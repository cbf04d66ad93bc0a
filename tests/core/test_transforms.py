"""Transforms for code that uses stateful modules: what is carried, what is refused, what is traced
again.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.compiled.key import cells

from jax_settings import FLOAT, INT, SETTING

X = jnp.arange(12.0).reshape(4, 3) / 12


class Counter(nb.Module):
    def __init__(self):
        self.count, self.scale = nb.Buffer(0.0), nb.Parameter(2.0)

    def forward(self, x):
        self.count.value = self.count + 1
        return x * self.scale


# -- BatchNorm against NumPy --
def test_batch_norm_statistics_under_value_and_grad_in_jit_equal_numpy():
    norm = nb.BatchNorm1d(3)

    @nb.jit
    def step(x):
        value, _ = nb.value_and_grad(lambda m: (m(x) ** 2).sum())(norm)
        return value

    mean, var = np.zeros(3), np.ones(3)
    for scale in (1.0, 2.0, 3.0):
        x = np.asarray(X) * scale
        step(x)
        mean, var = 0.9 * mean + 0.1 * x.mean(0), 0.9 * var + 0.1 * x.var(0, ddof=1)
    np.testing.assert_allclose(norm.running_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(norm.running_var, var, rtol=1e-5)


def test_a_method_is_compiled_as_a_decorator():
    class Net(nb.Module):
        def __init__(self):
            self.scale = nb.Parameter(2.0)

        @nb.jit
        def twice(self, x):
            self.scale.value = self.scale * 2
            return x * self.scale

    a, b = Net(), Net()
    assert (float(a.twice(1.0)), float(a.twice(1.0)), float(b.twice(1.0))) == (4.0, 8.0, 4.0)


# -- donation, options --
@pytest.mark.not_under("nans", reason="JAX donates nothing while it looks for NaN")
@pytest.mark.not_under("eager", reason="only a compiled program donates")
def test_donation_deletes_what_is_overwritten_and_nothing_else():
    model = nb.Module(w=nb.Parameter(jnp.ones(1000)), kept=nb.Parameter(jnp.ones(1000)))
    old, kept = model.v, model.kept.value

    @functools.partial(nb.jit, donate=True)
    def step():
        model.w.value = model.w * 2 + model.kept

    step(), step()
    assert old.w.is_deleted() and not kept.is_deleted()
    np.testing.assert_array_equal(model.w, np.full(1000, 7.0))


def test_one_array_in_two_donated_slots_is_copied_first():
    x = jnp.ones(8)
    model = nb.Module(a=nb.Parameter(x), b=nb.Parameter(x))

    @functools.partial(nb.jit, donate=True)
    def step():
        model.a.value, model.b.value = model.a + 1, model.b + 2

    step()
    model.a.value = model.b.value
    step()
    assert (float(model.a[0]), float(model.b[0])) == (4.0, 5.0)


# -- structure --
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_changes_of_structure_trace_again_and_changes_of_value_do_not():
    class Stack(nb.Sequential):
        note = ""

    model, traces = Stack(nb.Linear(3, 3), nb.ReLU()), []

    @nb.jit
    def run(x):
        traces.append(1)
        return model(x)

    def count(change):
        before = len(traces)
        change()
        np.testing.assert_allclose(run(X), model(X), rtol=1e-5)
        return len(traces) - before

    assert count(lambda: None) == 1
    assert count(lambda: setattr(model, "v", model.v * 2)) == 0
    assert count(lambda: setattr(model[0].weight, "value", jnp.ones((3, 3)))) == 0
    assert count(model.eval) == 1
    assert count(model.train) == 0
    assert count(lambda: model.append(nb.Tanh())) == 1
    assert count(lambda: model.__setitem__(1, nb.Sigmoid())) == 1
    assert count(lambda: setattr(model, "note", "a flag")) == 1


def test_a_forward_defined_again_takes_effect_in_a_compiled_function():
    class Net(nb.Module):
        def __init__(self):
            self.scale = nb.Parameter(2.0)

        def forward(self, x):
            return x * self.scale

    model = Net()
    run, given = nb.jit(lambda x: model(x)), nb.jit(lambda m, x: m(x))
    assert (float(run(3.0)), float(given(model, 3.0))) == (6.0, 6.0)
    Net.forward = lambda self, x: x + self.scale
    assert (float(run(3.0)), float(given(model, 3.0)), float(model(3.0))) == (5.0, 5.0, 5.0)

    def other(self, x):
        return x - self.scale

    Net.forward.__code__ = other.__code__  # what autoreload does before a cell
    cells.advance()
    assert (float(run(3.0)), float(given(model, 3.0)), float(model(3.0))) == (1.0, 1.0, 1.0)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_plain_attribute_set_inside_a_transform_warns():
    model = Counter()

    def step(x):
        model.last = "seen"
        return model(x)

    with pytest.warns(UserWarning, match="Counter.last is set inside a transform"):
        nb.jit(step)(1.0)


# -- random streams --
def test_dropout_is_reproducible_jitted_or_not():
    layer, x = nb.Dropout(0.5), jnp.ones(64)
    run = nb.jit(lambda x: layer(x))
    nb.seed(3)
    eager = [np.asarray(layer(x)) for _ in range(3)]
    nb.seed(3)
    compiled = [np.asarray(run(x)) for _ in range(3)]
    np.testing.assert_array_equal(eager, compiled)
    assert not np.array_equal(eager[0], eager[1])


def test_inside_vmap_rows_differ_and_the_stream_moves_once():
    stream = nb.RandomStream(1)
    keys = nb.vmap(lambda x: stream.draw())(jnp.arange(4))
    assert len(np.unique(jax.random.key_data(keys), axis=0)) == 4 and stream._position()[1] == 1
    same = nb.vmap(lambda x: stream.draw(), split_streams=False)(jnp.arange(4))
    assert len(np.unique(jax.random.key_data(same), axis=0)) == 1 and stream._position()[1] == 2


# -- vmap, scan, branches --
def test_a_batched_write_names_the_variable_and_the_cures():
    norm = nb.Module(mean=jnp.zeros(3))

    def row(x):
        norm.mean.value = 0.9 * norm.mean + 0.1 * x
        return x

    with pytest.raises(
        nb.BatchedWriteError,
        match=rf"(?s)buffer \"mean\" \({FLOAT}\[3\]\).*Average over the axis.*stacked copy",
    ):
        nb.vmap(row)(X)

    def averaged(x):
        norm.mean.value = jax.lax.pmean(x, "rows")
        return x

    nb.vmap(averaged, axis_name="rows")(X)
    np.testing.assert_allclose(norm.mean, np.asarray(X).mean(0), rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_branches_carry_the_union_of_their_writes(compiled):
    a, b = nb.Buffer(0.0), nb.Buffer(0.0)

    def first(x):
        a.value = a + 1
        return x

    def second(x):
        b.value = b + 10
        return -x

    run = lambda p, x: nb.cond(p, first, second, x)
    run = nb.jit(run) if compiled else run
    assert [float(run(True, 2.0)), float(run(False, 2.0)), float(run(True, 2.0))] == [
        2.0,
        -2.0,
        2.0,
    ]
    assert (float(a), float(b)) == (2.0, 10.0)
    assert float(nb.switch(5, [first, second], 1.0)) == -1.0
    assert (float(a), float(b)) == (2.0, 20.0)


def test_while_loop_carries_writes_of_the_body_and_refuses_those_of_the_condition():
    turns = nb.Buffer(0)

    def body(x):
        turns.value = turns + 1
        return x * 2

    assert int(nb.while_loop(lambda x: x < 50, body, 3)) == 96 and int(turns) == 5
    with pytest.raises(nb.TracerLeakError, match="condition writes"):
        nb.while_loop(lambda x: body(x) < 50, lambda x: x * 2, 3)


@pytest.mark.parametrize("outer", ["jit", "grad", "vmap", "scan", "checkpoint", "cond"])
@pytest.mark.parametrize("inner", ["jit", "grad", "vmap", "scan", "checkpoint", "cond"])
def test_any_two_transforms_nest(outer, inner):
    wrap = {
        "jit": nb.jit,
        "grad": lambda f: lambda x: nb.grad(lambda y: f(y).sum())(x),
        "vmap": lambda f: (
            lambda x: nb.vmap(lambda _, x: f(x), in_axes=(0, None), axis_size=2)(jnp.arange(2), x)[
                0
            ]
        ),
        "scan": lambda f: lambda x: nb.scan(lambda c, _: (c, f(x)), 0.0, length=2)[1][0],
        "checkpoint": nb.checkpoint,
        "cond": lambda f: lambda x: nb.cond(True, f, lambda x: x, x),
    }
    model = Counter()
    run = wrap[outer](wrap[inner](lambda x: model(x)))
    result = run(jnp.array(3.0))
    expected = (
        6.0 if "grad" not in (outer, inner) else 2.0 if (outer, inner) != ("grad", "grad") else 0.0
    )
    assert float(result) == expected
    assert float(model.count) == {("scan", "scan"): 4.0}.get(
        (outer, inner), 2.0 if "scan" in (outer, inner) else 1.0
    )


# -- gradients --
def test_the_gradient_by_a_module_is_a_container_like_its_v():
    model = nb.Sequential(nb.Linear(3, 2), nb.Linear(2, 1))
    grads = nb.grad(lambda m: m(X).sum())(model)
    assert (
        isinstance(grads, nb.Container)
        and grads.cont_all_key_chains() == model.v.cont_all_key_chains()
    )
    raw = jax.grad(lambda v: model(X, v=v).sum())(model.v)
    np.testing.assert_allclose(grads.submodules.v0.w, raw.submodules.v0.w, rtol=1e-6)


def test_integer_and_frozen_parameters_stand_in_gradients_as_zeros():
    model = nb.Module(
        w=nb.Parameter(jnp.ones(2)),
        n=nb.Parameter(jnp.arange(2)),
        f=nb.Parameter(jnp.ones(2)).requires_grad_(False),
    )
    _, grads = nb.execute_with_gradients(
        lambda v: (v.w * v.n.astype(v.w.dtype) + v.f).sum(), model.v
    )
    assert grads.n.dtype == INT and float(jnp.abs(grads.n).sum()) == 0
    with jax.numpy_dtype_promotion("standard"):  # integers times a float
        model.v = model.v - grads * 0.1
    assert model.n.dtype == INT
    assert float(jnp.abs(nb.grad(lambda m: (m.w * m.f).sum())(model).f).sum()) == 0


def test_twenty_thousand_steps_leave_nothing_behind():
    model = Counter()
    count = (
        200 if SETTING == "eager" else 20_000
    )  # nothing is compiled there: a step takes a hundred times as long

    @functools.partial(nb.jit, donate=True)
    def step(x):
        value, grads = nb.value_and_grad(lambda m: m(x))(model)
        model.v = model.v - 1e-6 * grads
        return value

    step(1.0)
    before = len(jax.live_arrays())
    for _ in range(count):
        step(1.0)
    assert len(jax.live_arrays()) <= before + 2


def test_one_model_given_twice_is_one_and_two_models_are_two_whatever_was_given_before():
    model, other, x = nb.Linear(3, 2), nb.Linear(3, 2), jnp.ones((1, 3))
    around = nb.jit(lambda a, x, b: a(x) - 2 * b(x))
    before = nb.jit(lambda a, b, x: a(x) - 2 * b(x))
    for second in (model, model, other, other, model, model, other):
        for _ in range(2):
            np.testing.assert_allclose(
                around(model, x, second), model(x) - 2 * second(x), rtol=1e-5
            )
            np.testing.assert_allclose(
                before(model, second, x), model(x) - 2 * second(x), rtol=1e-5
            )


@pytest.mark.parametrize("inside", [lambda f: f, nb.jit], ids=["eager", "jit"])
def test_models_in_a_dict_are_differentiated_as_they_are(inside):
    x = jnp.linspace(-1.0, 2.0, 8).reshape(4, 2)
    first, last, factor = nb.Linear(2, 2, key=0), nb.Linear(2, 1, key=1), jnp.float32(3)
    first.bias.requires_grad_(False)
    first.calls = nb.Buffer(0.0)

    def loss(models):
        first, (last, factor) = models["first"], models["rest"]
        first.calls.value = first.calls + 1
        return ((last(first(x)) * factor) ** 2).mean() + (last.weight**2).sum()

    def by_hand(w, last, factor):
        h = x @ w.T + first.bias.value
        return (((h @ last["w"].T + last["b"]) * factor) ** 2).mean() + (last["w"] ** 2).sum()

    models = {"first": first, "rest": [last, factor]}
    value, grads = inside(lambda: nb.value_and_grad(loss)(models))()
    wanted, (of_first, of_last, of_factor) = jax.value_and_grad(by_hand, argnums=(0, 1, 2))(
        first.weight.value, last.v.cont_to_dict(), factor
    )
    found = value, grads["first"].w, grads["rest"][0].cont_to_dict(), grads["rest"][1]
    expected = wanted, of_first, of_last, of_factor
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found, expected)
    np.testing.assert_array_equal(grads["first"].b, [0, 0])
    assert float(first.calls) == 1
    nb.SGD(0.1).update(first, grads["first"])


@pytest.mark.parametrize("pred", [-1, 0, 2, 0.5, np.True_, True, False])
def test_a_condition_holds_for_whatever_is_not_zero_as_in_jax(pred):
    assert (
        int(nb.cond(pred, lambda: 1, lambda: 0))
        == int(jax.lax.cond(pred, lambda: 1, lambda: 0))
        == bool(pred)
    )


LOOPS = {
    "scan": lambda step, init: nb.scan(lambda c, _: (step(c), None), init, None, length=3)[0],
    "while": lambda step, init: nb.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, step(c[1])), (0, init)
    )[1],
}


@pytest.mark.parametrize("transform", [lambda f: f, nb.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_module_in_the_carry_of_a_loop_keeps_what_the_steps_write(loop, transform):
    x = jnp.arange(12.0).reshape(4, 3)
    norm, expected = nb.BatchNorm1d(3), nb.BatchNorm1d(3)
    for _ in range(3):
        expected(x)

    def step(pair):
        pair[0](x)
        return pair

    transform(lambda norm: loop(step, (norm, norm)) and None)(norm)
    np.testing.assert_allclose(norm.running_mean, expected.running_mean, rtol=1e-6)
    first, second = loop(step, (norm, norm))
    assert first is second is norm


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_module_that_a_step_of_a_loop_replaces_is_left_as_it_was(loop):
    model = nb.Linear(2, 2)
    before = model.weight()
    doubled = loop(lambda m: jax.tree.map(lambda a: 2 * a, m), model)
    np.testing.assert_array_equal(doubled.weight, 8 * before)
    assert model.weight() is before
