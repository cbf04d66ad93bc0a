"""The rules of the frame, each by the trap that it prevents."""

import contextlib
import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT, stop_listening


def test_each_shape_of_one_compiled_function_has_effects_of_its_own():
    first, second = nb.Buffer(0.0), nb.Buffer(0.0)

    @nb.jit
    def step(x):
        if x.shape[0] == 2:
            first.value = first + 1
        else:
            second.value = second + 10
        return x

    step(jnp.ones(2)), step(jnp.ones(3)), step(jnp.ones(2))
    assert (float(first), float(second)) == (2.0, 10.0)


def test_a_write_between_two_calls_of_one_inner_jit_is_seen_by_the_second():
    variable = nb.Buffer(1.0)
    inner = nb.jit(lambda x: x * variable.value)

    @nb.jit
    def outer(x):
        first = inner(x)
        variable.value = variable + 1
        return first, inner(x)

    assert [float(y) for y in outer(jnp.float32(3))] == [3.0, 6.0]
    assert [float(y) for y in outer(jnp.float32(3))] == [6.0, 9.0]


RAW = {
    "jit": lambda variable: jax.jit(lambda x: x * variable.value),
    "scan": lambda variable: (lambda body: lambda x: jax.lax.scan(body, x, None, length=1)[0])(
        lambda c, _: (c * variable.value, None)
    ),
    "checkpoint": lambda variable: jax.checkpoint(lambda x: x * variable.value),
}


STALE = pytest.mark.not_under(
    "leaks", reason="JAX's cache of a transform that lives on keeps the traced value it closes over"
)


@pytest.mark.parametrize("kind", RAW)
@STALE
def test_a_raw_transform_inside_never_reuses_a_trace_with_an_old_value_from_another_call(kind):
    variable = nb.Buffer(7.0)
    raw = RAW[kind](variable)
    plain, shifted = nb.jit(lambda x: raw(x)), nb.jit(lambda x: raw(x) + 1)
    seen = [float(plain(jnp.ones(())))]
    variable.value = jnp.float32(9)
    assert [*seen, float(plain(jnp.ones(()))), float(shifted(jnp.ones(())))] == [7.0, 9.0, 10.0]


@pytest.mark.parametrize("how", [nb.jit, nb.checkpoint], ids=lambda how: how.__name__)
@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("kind", RAW)
@STALE
def test_a_raw_transform_inside_never_reuses_a_trace_with_an_old_value(kind, is_local, how):
    outer = nb.Buffer(jnp.array(1.0))

    @how
    def writing(x):
        variable = nb.Buffer(jnp.array(1.0)) if is_local else outer
        raw = RAW[kind](variable)
        first = raw(x)
        variable.value = variable + 1
        return first, raw(x)

    assert [float(y) for y in writing(jnp.array(3.0))] == [3.0, 6.0]


class Hidden:
    """A place of variables that only the trace itself finds."""


def in_shard_map(f):
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.shard_map(
        lambda rows: f(rows[0])[None], mesh=mesh, in_specs=jax.P("rows"), out_specs=jax.P("rows")
    )
    return lambda x: spread(x[None])[0]


def under_another_name(f):
    def call(x):
        try:
            return f(x)
        except BaseException as error:
            raise RuntimeError("could not be computed") from error

    return call


ENTERED_AGAIN = {
    "jit": lambda f: nb.jit(f),
    "grad": lambda f: nb.grad(f),
    "grad in jit": lambda f: nb.jit(nb.grad(f)),
    "make_jaxpr": lambda f: (
        lambda x: jax.core.eval_jaxpr((made := nb.make_jaxpr(f)(x)).jaxpr, made.consts, 5.0, x)[0]
    ),
}


@pytest.mark.parametrize("surroundings", [in_shard_map, under_another_name])
@pytest.mark.parametrize("how", ENTERED_AGAIN)
def test_a_frame_is_entered_again_where_another_exception_takes_the_place_of_its_own(
    how, surroundings
):
    Hidden.places = {"a": [nb.Parameter(5.0)]}
    reads = jax.grad(lambda x: x * x * vars(Hidden)["places"]["a"][0].value)
    with jax.checking_leaks():
        found = ENTERED_AGAIN[how](surroundings(reads))(jnp.float32(3))
    assert float(found) == (10.0 if "grad" in how else 30.0)


GIVEN = {  # raw transforms to which a model is given
    "jit": lambda m, x: jax.jit(lambda m, x: m(x).sum())(m, x),
    "grad": lambda m, x: jax.grad(lambda m, x: m(x).sum())(m, x).weight.value.sum(),
    "checkpoint": lambda m, x: jax.checkpoint(lambda m, x: m(x).sum())(m, x),
    "v": lambda m, x: jax.jit(lambda v, x: m(x, v=v).sum())(m.v, x),
    "variables": lambda m, x: jax.jit(lambda w, b: (x @ w.value.T + b).sum())(m.weight, m.bias),
}
AROUND = {
    "eager": lambda f, x: f(x),
    "jit": lambda f, x: nb.jit(f)(x),
    "checkpoint": lambda f, x: nb.checkpoint(f)(x),
    "eval_shape": lambda f, x: nb.eval_shape(f, x),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("around", AROUND)
def test_a_model_that_is_given_to_a_raw_transform_inside_leaves_nothing_traced(around, given):
    model, x = nb.Linear(3, 2), jnp.ones((5, 3))
    weight, bias = np.asarray(model.weight), np.asarray(model.bias)
    expected = 2 * 5 * 3 if given == "grad" else (np.ones((5, 3)) @ weight.T + bias).sum()
    with jax.checking_leaks():
        plain = AROUND[around](lambda x: GIVEN[given](model, x), x)
        with nb.track(model, returns=True, inputs=True) as calls:
            tracked = AROUND[around](lambda x: GIVEN[given](model, x), x)
    assert not any(
        isinstance(leaf, jax.core.Tracer)
        for leaf in jax.tree.leaves([[c.returns, c.inputs] for c in calls])
    )
    if around != "eval_shape":
        np.testing.assert_allclose([plain, tracked], [expected, expected], rtol=1e-5)


def test_a_module_made_inside_is_local_where_nothing_is_traced():
    kept = []

    @nb.jit
    def inside(x):
        local = nb.Module(weight=nb.Parameter(jnp.ones(3)))
        local.weight.value = local.weight * 2
        kept.append(local)
        return x + local.weight

    with jax.disable_jit():
        for _ in range(2):
            np.testing.assert_array_equal(inside(jnp.ones(3)), [3.0, 3.0, 3.0])
    assert len(kept) == 2


def test_one_variable_under_two_arguments_is_one_input():
    model = nb.Module(scale=nb.Parameter(2.0))

    @nb.jit
    def twice(a, b):
        a.scale.value = a.scale + 1
        return b.scale * 1

    assert float(twice(model, model)) == 3.0
    assert float(twice(model, nb.Module(scale=nb.Parameter(10.0)))) == 10.0
    assert float(model.scale) == 4.0


@pytest.mark.parametrize("transform", [jax.jit, jax.grad], ids=["jit", "grad"])
@pytest.mark.not_under("eager", reason="jax.jit is plain Python there")
def test_a_refused_write_in_a_raw_transform_names_the_variable(transform):
    model = nb.Module(net=nb.Module(scale=nb.Buffer(1.0)))  # never walked before
    named = rf'cannot write buffer "[a-z.]*scale" \({FLOAT}\[\]\)'
    with pytest.raises(nb.TracerLeakError, match=rf"{named}.*is unchanged.*nb\.jit"):
        transform(lambda x: setattr(model.net.scale, "value", x))(jnp.float32(3))
    assert float(model.net.scale) == 1.0


def test_effects_come_out_through_grad_in_vmap_in_scan_in_jit():
    count, weight = nb.Buffer(0.0), nb.Parameter(2.0)

    def loss(w, x):
        count.value = count + 1
        return w * x * weight.value

    def body(carry, xs):
        return carry, nb.vmap(nb.grad(loss), in_axes=(None, 0))(carry, xs)

    @nb.jit
    def run(xs):
        return nb.scan(body, jnp.float32(1), xs)[1]

    xs = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(run(xs), xs * 2)
    assert float(count) == 3.0  # once for each step: a vmap runs its function once
    run(xs)
    assert float(count) == 6.0


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_variable_that_outlives_the_trace_it_was_made_in_keeps_nothing_of_it():
    kept, scale, ready = [], nb.Parameter(2.0), jnp.ones(3)

    @nb.jit
    def f(x):
        scale.value = scale * x
        kept.append(nb.Buffer(ready))
        return kept[-1] * scale

    with jax.checking_leaks():
        np.testing.assert_array_equal(f(3.0), [6.0] * 3)
    np.testing.assert_array_equal(kept[-1], ready)
    kept[-1].value = ready + 1
    np.testing.assert_array_equal(nb.jit(lambda x: kept[-1] * x)(3.0), [6.0] * 3)


def test_a_compiled_function_that_failed_keeps_nothing_of_the_one_that_called_it():
    scale = nb.Parameter(2.0)

    @nb.jit
    def inner(x):
        raise ValueError("not today")

    @nb.jit
    def outer(x):
        with contextlib.suppress(ValueError):
            inner(scale * x)
        return scale * x

    with jax.checking_leaks():
        assert float(outer(3.0)) == 6.0


@pytest.mark.parametrize(
    "of_a_model",
    [
        lambda m, x: copy.deepcopy(m)(x),
        lambda m, x: nb.vmap(lambda row: nb.Linear(2, 2, key=jax.random.key(1))(row))(x),
        lambda m, x: nb.grad(lambda m: jax.tree.map(jnp.sin, m)(x).sum())(m)["submodules/v0/w"],
        lambda m, x: nb.scan(
            lambda c, i: (nb.cond(i == 1, m, lambda x: x, c), None), x, jnp.arange(3)
        )[0],
    ],
    ids=["a deep copy", "made in vmap", "a gradient of a copy", "a branch in a scan"],
)
def test_a_compiled_function_gives_the_same_where_nothing_is_compiled(of_a_model):
    model, x = nb.Sequential(nb.Linear(2, 2), nb.BatchNorm1d(2)), jnp.arange(6.0).reshape(3, 2)
    before = model.state_dict()
    compiled, after = nb.jit(of_a_model)(model, x), model.state_dict()
    model.load_state_dict(before)
    with jax.disable_jit():
        np.testing.assert_allclose(nb.jit(of_a_model)(model, x), compiled, atol=1e-5)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(value, after[name], atol=1e-5)


@pytest.fixture
def compiles():
    """Collect the compiles of a test."""
    events = []
    listener = lambda event, *_, **__: "backend_compile" in event and events.append(event)
    jax.monitoring.register_event_duration_secs_listener(listener)
    yield events
    stop_listening(listener)


@pytest.mark.not_under(
    "leaks", reason="counts compiles, and JAX compiles each operation anew there"
)
def test_where_nothing_is_compiled_each_operation_of_a_step_is_compiled_once(compiles):
    model, optimizer = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2)), nb.Adam(0.1)
    x = jnp.ones((5, 3))

    @nb.jit
    def step():
        loss, grads = nb.value_and_grad(lambda m: jnp.mean((m(x) - 10.0) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    with jax.disable_jit():
        losses = [float(step()) for _ in range(2)]
        compiles.clear()
        losses.append(float(step()))
        assert len(compiles) <= 1  # there were 27, in every call
    assert losses[2] < losses[1] < losses[0]


def test_where_nothing_is_compiled_a_trace_inside_is_not_used_again_for_another_value():
    scale = nb.Parameter(2.0)
    inner = jax.checkpoint(lambda x: x * scale.value)
    with jax.disable_jit():
        compiled = nb.jit(inner)
        for value in (2.0, 5.0, 7.0):
            scale.value = jnp.array(value)
            assert float(compiled(1.0)) == value
            assert float(nb.jit(lambda x: nb.grad(inner)(x))(1.0)) == value
