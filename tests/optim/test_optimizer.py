"""Input and output of a step, in eager code and inside the transforms."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from tests.optim.test_laws import Plain

from jax_settings import FLOAT

NOT_STRICT = pytest.mark.not_under("strict", reason="mixes bfloat16 and float32 on purpose")


# -- inputs and outputs --
TREES = [
    {"layers": [{"w": jnp.ones(2)}, {"w": np.ones(3, "f")}], "b": jnp.zeros(())},
    {"w": 1.0},
    {"a": [jnp.ones(1)], "a/v0": jnp.zeros(1)},  # of one spelling
    {"w": nb.Parameter([1.0, 2.0])},
]


@pytest.mark.parametrize("v", TREES)
@pytest.mark.parametrize("inplace", [False, True])
def test_step_takes_any_tree_of_arrays_numbers_and_variables(v, inplace):
    v = copy.deepcopy(v)
    before = [np.array(leaf) for leaf in jax.tree.leaves(v)]
    new = nb.SGD(0.5, inplace=inplace).step(v, jax.tree.map(jnp.ones_like, v))
    assert (new is v) == inplace
    for leaf, old, kept in zip(*map(jax.tree.leaves, (new, before, v)), strict=True):
        np.testing.assert_array_equal(leaf, old - 0.5)
        np.testing.assert_array_equal(kept, leaf if inplace else old)


def test_variables_and_gradients_are_paired_by_name_not_by_order():
    v = nb.Container(layers={f"v{i}": {"w": jnp.full(2, float(i))} for i in range(12)})
    # v10 sorts before v2 here
    grads = {"layers": {f"v{i}": {"w": jnp.full(2, float(i))} for i in range(12)}}
    new = nb.Adam(1.0).step(v, grads)
    np.testing.assert_allclose(nb.SGD(1.0).step(v, grads).layers.v10.w, [0, 0])
    assert new.layers.v0.w[0] == 0
    np.testing.assert_allclose(new.layers.v10.w, [9, 9], rtol=1e-5)


def test_inplace_refuses_tuples():
    optimizer, v = nb.SGD(0.5, inplace=True), {"a": (jnp.ones(2),)}
    with pytest.raises(nb.ArgumentTypeError, match="inplace=True cannot write into a tuple. Keep"):
        optimizer.step(v, v)
    assert int(optimizer.count) == 0


def test_inplace_on_the_v_of_a_model_changes_the_model(net, gradients, agree):
    expected = net.v - gradients(0) * 0.1
    v = net.v
    assert nb.SGD(0.1, inplace=True).step(v, gradients(0)) is v
    agree(net.v, expected)
    assert net.v is v


def test_a_model_is_not_variables_nor_are_variables_a_model(net, gradients):
    with pytest.raises(nb.ArgumentTypeError, match=r"a dict of arrays, got Net\..*`update"):
        nb.SGD(0.1).step(net, gradients(0))
    with pytest.raises(nb.ArgumentTypeError, match="takes a module and changes it, got Container"):
        nb.SGD(0.1).update(net.v, gradients(0))


# -- missing, unexpected, of another shape --
WEIGHT = "layers/v1/weight"
OTHER_SHAPE = rf'"{WEIGHT}" is float32\[2, 3\], in gradients it is float32\[3, 2\]'


@pytest.mark.parametrize("how", ["step", "update"])
@pytest.mark.parametrize(
    ("gradient", "error", "message"),
    [
        ({}, nb.StructureError, rf'(?s)take a step.*missing: "{WEIGHT}".*ignore_missing=True'),
        ({WEIGHT: 0.0, "wieght": 0.0}, nb.StructureError, 'unexpected: "wieght"'),
        ({WEIGHT: np.zeros((3, 2), "f")}, nb.ShapeError, OTHER_SHAPE),
    ],
)
def test_gradients_that_do_not_fit_change_nothing(
    how, gradient, error, message, net, gradients, train
):
    grads, optimizer, before = gradients(0), nb.Adam(), net.v
    del grads[WEIGHT]
    for chain, value in gradient.items():
        grads[chain] = value
    with pytest.raises(error, match=message):
        train(how, optimizer, net, [grads])
    assert net.v is before
    assert int(optimizer.count) == 0


@pytest.mark.parametrize("how", ["step", "update", "jit"])
def test_variables_without_a_gradient_can_stay(how, net, gradients, agree):
    grads = gradients(0)
    del grads["layers"]
    optimizer, before = nb.Adam(0.1), net.v
    if how == "step":
        new = optimizer.step(net.v, grads, ignore_missing=True)
    else:
        update = lambda: optimizer.update(net, grads, ignore_missing=True)
        (nb.jit(update) if how == "jit" else update)()
        new = net.v
    agree(new.layers, before.layers, exactly=True)
    agree({"b": new.bias}, {"b": nb.Adam(0.1).step({"b": before.bias}, {"b": grads.bias})["b"]})
    assert list(optimizer.state.mw.keys()) == ["bias", "scale"]


# -- frozen and integer variables --
@pytest.mark.parametrize("how", ["step", "update", "jit"])
def test_frozen_parameters_are_left_alone_until_they_are_free(how, net, gradients, agree):
    optimizer, before = nb.AdamW(0.1, weight_decay=0.5), net.v
    update = lambda g: optimizer.update(net, g)
    if how == "step":
        update = lambda g: setattr(net, "v", optimizer.step(net.v, g))
    update = nb.jit(update) if how == "jit" else update
    net.layers[0].requires_grad_(False)
    update(gradients(0))
    agree(net.v.layers.v0, before.layers.v0, exactly=True)
    assert (net.v.layers.v1.weight != before.layers.v1.weight).all()
    assert list(optimizer.state.mw.layers.keys()) == ["v1"]
    net.layers[0].requires_grad_(True)
    update(gradients(1))
    assert (net.v.layers.v0.weight != before.layers.v0.weight).all()


@pytest.mark.parametrize("make", [lambda: nb.Adam(0.1), lambda: nb.Optax(optax.adam(0.1))])
def test_integers_stay(make):
    model = nb.Module(w=nb.Parameter([1.0]), table=nb.Parameter([1, 2]))
    make().update(model, nb.grad(lambda m: m.w.sum())(model))
    np.testing.assert_allclose(model.w, [0.9], rtol=1e-5)
    np.testing.assert_array_equal(model.table, [1, 2])
    v = {"w": jnp.ones(1), "table": jnp.arange(2)}
    np.testing.assert_array_equal(make().step(v, v)["table"], [0, 1])


# -- inside the transforms --
def test_two_optimizers_may_share_a_model(net, gradients, agree):
    one, two, before, grads = nb.SGD(0.1), nb.SGD(0.5), net.v, gradients(0)

    @nb.jit
    def step(g):
        one.update(net, {"bias": g.bias}, ignore_missing=True)
        two.update(net, {"scale": g.scale}, ignore_missing=True)

    step(grads)
    after = {"bias": before.bias - 0.1 * grads.bias, "scale": before.scale - 0.5 * grads.scale}
    agree(net.v, {**after, "layers": before.layers.cont_to_dict()})


def test_an_optimizer_may_be_made_inside_a_compiled_function():
    @nb.jit
    def fit(w):
        optimizer = nb.Adam(0.1)
        v = {"w": w}
        for _ in range(2):
            v = optimizer.step(v, {"w": jnp.ones(1)})
        return v["w"]

    np.testing.assert_allclose(fit(jnp.ones(1)), [0.8], rtol=1e-5)


# -- differentiating through a step --
@pytest.mark.parametrize(("stop", "expected"), [(True, 0.0), (False, -2.0)])
def test_gradients_stop_at_a_step_unless_stop_gradients_is_false(stop, expected):
    # w' = w - lr * g with w = g = 1: d(w')^2 / dlr = -2 w' g, at lr = 0
    def after(lr):
        optimizer = nb.SGD(lr, stop_gradients=stop)
        return (optimizer.step({"w": jnp.array(1.0)}, {"w": jnp.array(1.0)})["w"]) ** 2

    assert float(nb.grad(after)(0.0)) == expected
    assert float(nb.grad(nb.jit(after))(0.0)) == expected


# -- trace_on_next_step --
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_trace_on_next_step_compiles_a_whole_step_once(net, gradients, agree):
    traces = []

    class Counted(nb.Optimizer):
        def _step(self, v, grads):
            traces.append(1)
            return v - grads * self._lr

    optimizer = Counted(0.1, trace_on_next_step=True)
    v = net.v
    for i in range(3):
        v = optimizer.step(v, gradients(i))
    assert len(traces) == 1
    for i in range(3):
        optimizer.update(net, gradients(i))
    assert len(traces) == 2
    agree(net.v, v)


# -- copies, text, arguments --
def test_a_module_that_holds_an_optimizer_is_a_tree(net, gradients, agree):
    holder = nb.Module(model=net, optimizer=nb.Adam(1e-2))
    holder.optimizer.update(net, gradients(0))
    other = jax.tree.map(lambda leaf: leaf, holder)
    other.optimizer.update(other.model, gradients(1))
    net_after = holder.optimizer.step(net.v, gradients(1))
    agree(other.model.v, net_after, exactly=True)
    assert int(other.optimizer.count) == 2


def test_text_names_options_and_the_learning_rate():
    assert repr(nb.SGD(0.1, 0.9)) == "SGD(lr=0.1, momentum=0.9, nesterov=False, weight_decay=0.0)"
    optimizer = nb.Adam(1.0, clip_norm=1.0, accumulate=2, groups={"bias": {"frozen": True}})
    assert repr(optimizer).endswith("clip_norm=1, accumulate=2, groups=['bias'])")


def test_flags_are_flags():
    with pytest.raises(nb.ArgumentTypeError, match="inplace= must be True or False, got 'yes'"):
        nb.SGD(0.1, inplace="yes")
    with pytest.raises(TypeError, match="unexpected keyword argument 'clip'"):
        nb.SGD(0.1, clip=1.0)


def test_state_is_put_on_the_given_device(run_python):
    code = """
        import jax, jax.numpy as jnp, nbmodule as nb
        optimizer = nb.Adam(0.1, device="cpu:1")
        new = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
        print(*(array.device.id for array in (optimizer.state.mw.w, optimizer.count, optimizer.lr, new["w"])))
        try:
            nb.Adam(0.1, device="tpu:7")
        except nb.DeviceError as error:
            print(error)
    """
    first, second = run_python(code, devices=2).splitlines()
    assert first == "1 1 1 1"
    assert "there is no device 'tpu:7'" in second


def test_state_lies_where_its_variables_do(run_python):
    code = """
        import jax, jax.numpy as jnp, numpy as np, nbmodule as nb
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
        over = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
        model = nb.Module(w=nb.Parameter(jnp.arange(8.0), device=over), b=nb.Parameter(jnp.ones(3), device=jax.NamedSharding(mesh, jax.P())))
        for compiled in (False, True):
            optimizer = nb.Adam(0.1, clip_norm=1.0)
            update = lambda: optimizer.update(model, nb.grad(lambda m: (m.w ** 2).sum() + m.b.sum())(model))
            step = nb.jit(update, donate=True) if compiled else update
            step(), step()
            print(optimizer.state.mw.w.sharding == model.w.sharding == over, int(optimizer.count))
    """
    assert run_python(code, devices=4).splitlines() == ["True 2"] * 2


# -- variables and gradients --


ONES, TEXT = {"w": jnp.ones(2)}, {"w": "text"}
FLOAT0 = {"w": jax.grad(lambda w: w.sum().astype(float), allow_int=True)(jnp.arange(2))}
NO_DICT = "SGD cannot take a step: gradients must be a Container or a dict of arrays, got float"
OF_COMPLEX = f'the gradient of "w" is complex64, the variable is {FLOAT}'


@pytest.mark.parametrize(
    ("v", "grads", "error", "message"),
    [
        (TEXT, ONES, nb.ArgumentTypeError, "variables and gradients must be arrays, got str"),
        (ONES, 1.0, nb.ArgumentTypeError, NO_DICT),
        (ONES, {"w": jnp.ones(2, jnp.complex64)}, nb.DtypeError, OF_COMPLEX),
        (ONES, FLOAT0, nb.DtypeError, f'the gradient of "w" is .*the variable is {FLOAT}'),
    ],
)
def test_an_invalid_variable_or_gradient_is_refused(v, grads, error, message):
    with pytest.raises(error, match=message):
        nb.SGD(0.1).step(v, grads)


@pytest.mark.parametrize("grad", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", [nb.Adam, pytest.param(Plain, marks=NOT_STRICT)])
def test_variables_keep_their_dtype_whatever_that_of_the_gradient(make, kind, grad):
    new = make(0.1).step({"w": jnp.ones(2, kind)}, {"w": jnp.ones(2, grad)})
    assert new["w"].dtype == kind
    np.testing.assert_allclose(new["w"].astype("f"), 0.9, rtol=1e-2)


def test_complex_variables_agree_with_optax(reference, agree):
    v = nb.Container(w=jnp.array([1 + 2j, -1j], jnp.complex64))
    agree(nb.Adam(0.1).step(v, v), reference(optax.adam(0.1), v, [v]))


def test_double_precision_is_kept():
    with jax.enable_x64(True):
        optimizer, v = nb.SGD(0.1, 0.9), {"d": jnp.ones(1), "s": jnp.ones(1, "float32")}
        new = optimizer.step(v, v)
    kept = new["d"].dtype, new["s"].dtype, optimizer.state.mw.s.dtype
    assert [dtype.name for dtype in kept] == ["float64", "float32", "float32"]
    np.testing.assert_allclose(new["d"], 0.9, rtol=1e-15)


def test_the_pair_of_value_and_grad_is_refused_with_the_fix(net):
    pair = nb.value_and_grad(lambda m: (m.bias**2).sum())(net)
    with pytest.raises(nb.ArgumentTypeError, match=r"Write value, grads = nb.value_and_grad"):
        nb.Adam(0.1).update(net, pair)
