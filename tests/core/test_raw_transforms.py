"""Transforms of ours inside every raw transform of JAX, and the reverse: a right number or a clear
error, and a whole model.

What a function reads comes out right everywhere. What it writes would have to leave the raw
transform, which cannot carry it: that is refused before anything has changed. The same shapes of
functions are made once with the transforms of this package and once with JAX's own; the numbers of
the second are those that the first must give.
"""

import itertools
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.variables.frame import gate, now

from jax_settings import FLOAT

JAX = SimpleNamespace(
    jit=jax.jit, grad=jax.grad, value_and_grad=jax.value_and_grad, vmap=jax.vmap, scan=jax.lax.scan, cond=jax.lax.cond,
    switch=jax.lax.switch, while_loop=jax.lax.while_loop, checkpoint=jax.checkpoint,
)  # fmt: skip


def by_gradients(f, x):
    """What `execute_with_gradients` gives, in plain JAX."""
    return f(x) + jax.grad(f)(x)


def execute(f, x):
    value, grads = nb.execute_with_gradients(lambda v: f(v.x), nb.Container(x=x))
    return value + grads.x


def repeated(loop, f, x):
    return loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + f(x)), (0, x * 0))[1]


# Each makes of a function of one number another one, with the transforms `t`: this package's, or
# JAX's.
SHAPES = {
    "jit": lambda t, f, x: t.jit(f)(x),
    "grad": lambda t, f, x: t.grad(f)(x),
    "value_and_grad": lambda t, f, x: sum(t.value_and_grad(f)(x)),
    "vmap": lambda t, f, x: t.vmap(f)(jnp.stack([x, x + 1])).sum(),
    "scan": lambda t, f, x: t.scan(lambda c, _: (c + f(x), None), x * 0, None, 2)[0],
    "cond": lambda t, f, x: t.cond(x > 0, f, lambda x: -x, x),
    "switch": lambda t, f, x: t.switch(1, [lambda x: -x, f], x),
    "while_loop": lambda t, f, x: repeated(t.while_loop, f, x),
    "checkpoint": lambda t, f, x: t.checkpoint(f)(x),
}
OURS = {name: (lambda f, x, make=make: make(nb, f, x)) for name, make in SHAPES.items()} | {
    "execute_with_gradients": execute
}
PLAIN = {name: (lambda f, x, make=make: make(JAX, f, x)) for name, make in SHAPES.items()} | {
    "execute_with_gradients": by_gradients
}


def by_custom_jvp(f, x):
    g = jax.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (f(primals[0]), 2 * tangents[0]))
    return g(x)


def by_custom_vjp(f, x):
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), None), lambda _, t: (2 * t,))
    return g(x)


def by_vjp(f, x):
    value, back = jax.vjp(f, x)
    return value + back(jnp.ones_like(value))[0]


def by_linearize(f, x):
    value, push = jax.linearize(f, x)
    return value + push(jnp.ones_like(x))


def by_jaxpr(f, x):
    return jax.jit(jax.extend.core.jaxpr_as_fun(jax.make_jaxpr(f)(x)))(x)[0]


def by_shard_map(f, x):
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.shard_map(
        lambda rows: f(rows[0])[None], mesh=mesh, in_specs=jax.P("rows"), out_specs=jax.P("rows")
    )
    return spread(x[None])[0]


RAW = {name: PLAIN[name] for name in SHAPES} | {
    "fori_loop": lambda f, x: jax.lax.fori_loop(0, 2, lambda _, c: c + f(x), x * 0),
    "map": lambda f, x: jax.lax.map(f, jnp.stack([x, x + 1])).sum(),
    "eval_shape": lambda f, x: jnp.zeros(jax.eval_shape(f, x).shape),
    "make_jaxpr": by_jaxpr,
    "lower": lambda f, x: jax.jit(f).lower(x).compile()(x),
    "custom_jvp": by_custom_jvp,
    "custom_vjp": by_custom_vjp,
    "vjp": by_vjp,
    "jvp": lambda f, x: sum(jax.jvp(f, (x,), (jnp.ones_like(x),))),
    "linearize": by_linearize,
    "jacfwd": lambda f, x: jax.jacfwd(f)(x),
    "hessian": lambda f, x: jax.hessian(f)(x),
    "shard_map": by_shard_map,
    "pmap": lambda f, x: jax.pmap(f)(x[None])[0],
}


class Net(nb.Module):
    def __init__(self):
        self.w, self.count, self.stream = nb.Parameter(2.0), nb.Buffer(0.0), nb.RandomStream(0)

    def forward(self, x):
        return x * x * self.w


def read(model, x):
    return model(x)


def write_buffer(model, x):
    model.count.value = model.count + 1
    return model(x)


def draw_random(model, x):
    return model(x) + 0 * jax.random.uniform(model.stream.draw())


def assign_v(model, x):
    y = model(x)
    model.v = model.v * 3
    return y


ACTS = {"read": read, "write": write_buffer, "draw": draw_random, "assign": assign_v}
WRITES = ("write", "draw", "assign")


def pure(x):
    return x * x * 2.0


def outcome(run):
    """A number, or the error that there was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX on donation, ours on constants in a raw `jit`
        try:
            return float(run()), None
        except Exception as error:  # noqa: BLE001 - it is looked at
            return None, error


def assert_whole(model, before):
    """Every variable holds what it held, nothing is left open, and the model can be used and
    compiled.
    """
    assert (
        now.frame is None
        and now.tracker is None
        and now.job is None
        and not now.stack
        and not gate.open
    )
    after = model.state_dict()
    assert all(
        isinstance(variable._value, jax.Array) and not isinstance(variable._value, jax.core.Tracer)
        for variable in model.tensors()
    )
    assert all(np.array_equal(after[name], array) for name, array in before.items())
    scale = float(before["w"])
    assert (
        float(model(jnp.array(3.0)))
        == 9 * scale
        == float(nb.jit(lambda x: model(x))(jnp.array(3.0)))
    )


EAGER = ("custom_jvp", "custom_vjp")  # without a gradient these call the function as it is
UNROLLED = ("jit", "scan", "cond", "switch", "while_loop", "fori_loop", "map")
PLAIN_PYTHON = pytest.mark.not_under("eager", reason="that raw transform is plain Python there")
# As raw JAX does by itself: `jax.jit(lambda x: jax.pmap(lambda y: y * x)(x[None])[0])(1.0)`.
KEPT = pytest.mark.not_under(
    "leaks", reason="JAX's cache of a pmap keeps the traced value that it closes over"
)
# Of `jax.grad` of a raw shard_map: the traceback of what is raised holds a traced value, and JAX
# reports that instead.
REPORTED = pytest.mark.not_under(
    "leaks", reason="JAX's report of a leak takes the place of any exception there"
)
SHORT = ("jit", "grad", "scan")  # of ours; the whole matrix is run by `make test-long`


JAX_FAILS = {
    ("raw inside", "read", "jit", "pmap"): KEPT,
    **{("raw inside", act, "grad", "shard_map"): REPORTED for act in WRITES},
}


def cells():
    """Each of ours around and inside each raw one, with each act."""
    for cell in itertools.product(("ours inside", "raw inside"), ACTS, OURS, RAW):
        _, act, ours, raw = cell
        if act == "read" or raw not in EAGER:
            is_short = ours in SHORT and (act in ("read", "write") or raw == ours == "jit")
            marks = [] if is_short else [pytest.mark.long]
            marks += [PLAIN_PYTHON] if act in WRITES and raw in UNROLLED else []
            marks += [JAX_FAILS[cell]] if cell in JAX_FAILS else []
            yield pytest.param(*cell, id="-".join(cell), marks=marks)


@pytest.mark.parametrize(("order", "act", "ours", "raw"), list(cells()))
def test_transforms_of_ours_and_of_jax_in_each_other_read_rightly_and_refuse_writes(
    order, act, ours, raw
):
    pairs = (OURS[ours], PLAIN[ours]), (RAW[raw], RAW[raw])
    (inner, plain_inner), (outer, plain_outer) = pairs if order == "ours inside" else pairs[::-1]
    model, x = Net(), jnp.array(1.5)
    before = model.state_dict()
    found, error = outcome(lambda: outer(lambda x: inner(lambda x: ACTS[act](model, x), x), x))
    if act in WRITES:
        assert isinstance(error, nb.NbModuleError), (found, error)
        assert "unchanged" in str(error)
    else:
        expected, plain_error = outcome(lambda: plain_outer(lambda x: plain_inner(pure, x), x))
        # There may be one: a reverse gradient of a while_loop.
        assert type(error) is type(plain_error), error
        assert (found is None) == (expected is None)
        np.testing.assert_allclose(found or 0, expected or 0, rtol=1e-6)
    assert_whole(model, before)


def refusing(raws):
    """Those of the raw transforms, with what is said of the ones that trace nothing under
    `jax.disable_jit`.
    """
    return [pytest.param(raw, marks=PLAIN_PYTHON if raw in UNROLLED else ()) for raw in raws]


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("raw", refusing(raw for raw in RAW if raw not in EAGER))
def test_a_compiled_step_that_has_run_before_is_refused_inside_a_raw_transform(raw, donate):
    model, x = Net(), jnp.array(1.5)
    step = nb.jit(lambda x: assign_v(model, write_buffer(model, x)), donate=donate)
    for _ in range(3):
        step(x)
    before = model.state_dict()
    for run in (step, lambda x: x + step(jnp.array(1.5))):  # by what is traced, and by what is not
        _, error = outcome(lambda run=run: RAW[raw](run, x))
        assert isinstance(error, nb.TracerLeakError), error
        assert_whole(model, before)
    step(x)
    assert float(model.count) == 4


@pytest.mark.parametrize(
    "step",
    [
        lambda model, optimizer: optimizer.update(model, model.v * 0.1),
        lambda model, optimizer: model.load_state_dict(model.state_dict()),
        lambda model, optimizer: model.to(dtype="bfloat16"),
        lambda model, optimizer: setattr(model, "v", model.v * 2),
    ],
    ids=["optimizer", "load_state_dict", "to", "v"],
)
@pytest.mark.parametrize("raw", refusing(["jit", "vmap", "eval_shape", "grad"]))
def test_each_change_of_a_model_is_refused_inside_a_raw_transform(raw, step):
    model, optimizer = Net(), nb.Adam(0.1)
    optimizer.update(model, model.v * 0)
    before = model.state_dict()

    def run(x):
        step(model, optimizer)
        return model(x)

    _, error = outcome(lambda: RAW[raw](run, jnp.array(1.5)))
    assert isinstance(error, nb.TracerLeakError), error
    assert_whole(model, before)
    optimizer.update(model, model.v * 0)


NO_LOWER = pytest.mark.not_under(
    "eager", reason="raw JAX itself does not run a lowered function there"
)


@pytest.mark.parametrize(
    "raw", [*refusing(raw for raw in RAW if raw != "lower"), pytest.param("lower", marks=NO_LOWER)]
)
def test_tracking_a_raw_transform_around_one_of_ours_keeps_no_traced_value(raw):
    model, x = Net(), jnp.array(1.5)
    run = nb.jit(lambda x: model(x))
    with nb.track(model, returns=True, inputs=True) as calls:
        found = outcome(lambda: RAW[raw](run, x))[0]
    np.testing.assert_allclose(found, outcome(lambda: RAW[raw](jax.jit(pure), x))[0])
    assert calls and (raw in EAGER or not any(call.captured for call in calls))
    assert not any(
        isinstance(leaf, jax.core.Tracer)
        for call in calls
        for leaf in jax.tree.leaves((call.returns, call.inputs))
    )
    assert_whole(model, Net().state_dict())


# -- what works instead --
def test_a_step_is_looked_at_without_being_run():
    model, optimizer, x = Net(), nb.SGD(0.1), jnp.array(1.5)

    def step(x):
        value, grads = nb.value_and_grad(write_buffer)(model, x)
        optimizer.update(model, grads)
        return value

    optimizer.update(model, model.v * 0)
    before = model.state_dict()
    for fn in (step, nb.jit(step), nb.jit(step, donate=True)):
        shape = nb.eval_shape(fn, jax.ShapeDtypeStruct((), FLOAT))
        assert (shape.shape, shape.dtype) == ((), FLOAT)
        closed = nb.make_jaxpr(fn)(x)
        assert len(closed.jaxpr.outvars) >= 3  # the value, the new weight, the new count
        assert "mul" in str(closed)
        assert_whole(model, before)
    assert FLOAT.replace("loat", "") in nb.jit(step).lower(x).as_text()
    assert_whole(model, before)
    with pytest.raises(
        nb.TracerLeakError,
        match=r"nb\.eval_shape\(fn, x\), nb\.make_jaxpr\(fn\)\(x\), nb\.jit\(fn\)\.lower",
    ):
        jax.eval_shape(nb.jit(step), x)
