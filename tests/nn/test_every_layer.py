"""Every documented form of an initializer, of an optimizer, of a hook and of `v`, in every layer
that has variables.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.nn.conftest import close, trees_close

from jax_settings import FLOAT

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("f")


LAYERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Linear": (lambda **o: nb.Linear(3, 2, **o), (floats(5, 3),)),
    "Bilinear": (lambda **o: nb.Bilinear(3, 4, 2, **o), (floats(5, 3), floats(5, 4))),
    "Embedding": (lambda **o: nb.Embedding(6, 3, **o), (np.array([0, 2, 5]),)),
    "Conv1d": (lambda **o: nb.Conv1d(2, 3, 3, **o), (floats(2, 6, 2),)),
    "Conv2d": (lambda **o: nb.Conv2d(2, 3, 3, **o), (floats(2, 5, 5, 2),)),
    "Conv3d": (lambda **o: nb.Conv3d(2, 3, 2, **o), (floats(1, 3, 3, 3, 2),)),
    "DepthwiseConv2d": (lambda **o: nb.DepthwiseConv2d(2, 3, **o), (floats(2, 5, 5, 2),)),
    "ConvTranspose1d": (lambda **o: nb.ConvTranspose1d(2, 3, 3, **o), (floats(2, 4, 2),)),
    "ConvTranspose2d": (lambda **o: nb.ConvTranspose2d(2, 3, 3, **o), (floats(2, 4, 4, 2),)),
    "ConvTranspose3d": (lambda **o: nb.ConvTranspose3d(2, 3, 2, **o), (floats(1, 2, 2, 2, 2),)),
    "BatchNorm1d": (lambda **o: nb.BatchNorm1d(3, **o), (floats(5, 3),)),
    "BatchNorm2d": (lambda **o: nb.BatchNorm2d(3, **o), (floats(2, 4, 4, 3),)),
    "BatchNorm3d": (lambda **o: nb.BatchNorm3d(3, **o), (floats(2, 2, 2, 2, 3),)),
    "LayerNorm": (lambda **o: nb.LayerNorm(3, **o), (floats(5, 3),)),
    "RMSNorm": (lambda **o: nb.RMSNorm(3, **o), (floats(5, 3),)),
    "GroupNorm": (lambda **o: nb.GroupNorm(2, 4, **o), (floats(5, 6, 4),)),
    "InstanceNorm": (lambda **o: nb.InstanceNorm(3, affine=True, **o), (floats(2, 5, 5, 3),)),
    "PReLU": (lambda **o: nb.PReLU(3, **o), (floats(5, 3),)),
    "RNN": (lambda **o: nb.RNN(3, 4, return_state=False, **o), (floats(2, 5, 3),)),
    "LSTM": (lambda **o: nb.LSTM(3, 4, num_layers=2, return_state=False, **o), (floats(2, 5, 3),)),
    "GRU": (
        lambda **o: nb.GRU(3, 4, bidirectional=True, return_state=False, **o),
        (floats(2, 5, 3),),
    ),
    "RNNCell": (lambda **o: nb.RNNCell(3, 4, **o), (floats(5, 3), floats(5, 4))),
    "LSTMCell": (lambda **o: nb.LSTMCell(3, 4, **o), (floats(5, 3), (floats(5, 4), floats(5, 4)))),
    "GRUCell": (lambda **o: nb.GRUCell(3, 4, **o), (floats(5, 3), floats(5, 4))),
    "MultiHeadAttention": (lambda **o: nb.MultiHeadAttention(4, 2, **o), (floats(2, 5, 4),)),
    "LearnedPositionalEncoding": (
        lambda **o: nb.LearnedPositionalEncoding(8, 3, **o),
        (floats(2, 5, 3),),
    ),
}

WITHOUT_EFFECT = {
    "MultiHeadAttention": {"key/b"}
}  # adds one number to all scores of a query, which the softmax takes off


def initializer(make: Callable[..., Any], base: type = nb.Initializer) -> Any:
    """An initializer whose `create_variables` gives `make(shape, key)`."""

    class Made(base):
        def create_variables(
            self, var_shape, device=None, fan_out=None, fan_in=None, dtype=None, *, key=None
        ):
            return make(var_shape, key)

    return Made()


def older(make: Callable[..., Any], base: type = nb.Initializer) -> Any:
    """The same of the older form, which is given no key; `make` takes a shape."""

    class Made(base):
        def create_variables(self, var_shape, dev, fan_out=None, fan_in=None):
            return make(var_shape)

    return Made()


class HandsOn(nb.Initializer):
    def create_variables(self, var_shape, *args, **kwargs):
        return nb.RandomNormal(0.0, 0.1).create_variables(var_shape, *args, **kwargs)


class Draws(nb.Initializer):
    def draw(self, key, shape, dtype, fan_out, fan_in):
        return np.random.default_rng(np.asarray(key)).normal(size=shape) * 0.1


def drawn(shape: tuple[int, ...], key: Any) -> jax.Array:
    return 0.1 * jax.random.normal(key, shape)


FORMS: dict[str, Any] = {
    "an initializer of ours": nb.RandomNormal(0.0, 0.1),
    "create_variables that returns a JAX array": initializer(drawn),
    "create_variables that returns a box": initializer(lambda *args: nb.Parameter(drawn(*args))),
    "create_variables of the older form that returns a NumPy array": older(
        lambda shape: np.random.default_rng(0).normal(size=shape) * 0.1
    ),
    "create_variables that hands on to ours": HandsOn(),
    "draw": Draws(),
    "an object of another family": older(
        lambda shape: np.linspace(-0.3, 0.4, int(np.prod(shape))).reshape(shape), object
    ),
    "a function": lambda key, shape, dtype: 0.1 * jax.random.normal(key, shape, dtype),
    "one of jax.nn.initializers": jax.nn.initializers.normal(0.1),
    "a constant of jax.nn.initializers": jax.nn.initializers.constant(0.2),
    "a number": 0.3,
}


def test_every_layer_that_takes_an_initializer_is_tested_here():
    taking = {
        name
        for name in nb.__all__
        if inspect.isclass(kind := getattr(nb, name))
        and issubclass(kind, nb.Module)
        and {"weight_initializer", "bias_initializer"} & set(_options_of(kind))
    }
    assert taking == set(LAYERS)


def _options_of(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)


def initializer_options(make: Callable[..., Any], given: Any) -> dict[str, Any]:
    """The options of a layer that take an initializer, each with `given`."""
    names = _options_of(type(make()))
    return {name: given for name in ("weight_initializer", "bias_initializer") if name in names}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_trains_from_every_form_of_an_initializer(name, form):
    make, _ = LAYERS[name]
    layer = make(**initializer_options(make, FORMS[form]))
    usual = {path: (type(box), box.shape, box.dtype) for path, box in make().named_tensors()}
    assert {path: (type(box), box.shape, box.dtype) for path, box in layer.named_tensors()} == usual
    before = layer.v.cont_deep_copy()
    assert before.cont_all_key_chains() == make().v.cont_all_key_chains()

    optimizer = nb.SGD(lr=1e-2)
    for _ in range(3):
        gradients = gradients_of(name)(layer)
        assert set(gradients.cont_all_key_chains()) == set(before.cont_all_key_chains())
        optimizer.update(layer, gradients)
    moved = {
        chain
        for chain, value in layer.v.cont_to_iterator()
        if not np.array_equal(value, before[chain])
    }
    assert moved | WITHOUT_EFFECT.get(name, set()) == set(before.cont_all_key_chains())


@functools.cache
def gradients_of(name: str) -> Callable[[Any], Any]:
    """The compiled gradient of a loss of that layer, one for all forms: they differ in values
    alone.
    """
    make, inputs = LAYERS[name]
    weights = [floats(*y.shape) for y in jax.tree.leaves(make()(*inputs))]

    def loss(layer: Any) -> Any:
        pairs = zip(jax.tree.leaves(layer(*inputs)), weights, strict=True)
        return sum(jnp.sum(y * weight) + jnp.sum((y - weight) ** 2) for y, weight in pairs)

    return nb.jit(nb.grad(loss))


def test_a_function_of_jax_gives_its_own_numbers_for_the_shape_of_the_weight():
    seen = []

    def fn(key, shape, dtype):
        seen.append((key, shape, dtype))
        return jax.nn.initializers.he_normal(in_axis=-1, out_axis=0)(key, shape, dtype)

    layer = nb.Linear(3, 2, weight_initializer=fn, key=0)
    (key, shape, dtype), value = (layer.weight.value, seen[0])[::-1]
    assert (shape, dtype) == ((2, 3), FLOAT)
    np.testing.assert_array_equal(
        value, jax.nn.initializers.he_normal(in_axis=-1, out_axis=0)(key, (2, 3), FLOAT)
    )


@pytest.mark.parametrize("form", [form for form in FORMS if not form.endswith("a box")])
def test_dtype_and_device_of_the_layer_hold_for_every_form(form):
    device = jax.devices()[0]
    weight = nb.Linear(3, 2, weight_initializer=FORMS[form], dtype="bfloat16", device=device).weight
    assert (weight.dtype, weight.value.dtype, weight.device) == (jnp.bfloat16, jnp.bfloat16, device)


def test_a_variable_is_kept_and_whole_numbers_become_weights_that_train():
    box = nb.Parameter(np.ones((2, 3), "f"))
    shared = initializer(lambda shape, key: box)
    assert nb.Linear(3, 2, weight_initializer=shared, dtype=jnp.bfloat16).weight is box
    assert box.dtype == jnp.float32
    integers = older(lambda shape: np.arange(np.prod(shape)).reshape(shape))
    layer = nb.Linear(3, 2, weight_initializer=integers)
    assert layer.weight.dtype == FLOAT
    np.testing.assert_array_equal(layer.v.w, np.arange(6).reshape(2, 3))


def test_a_value_that_is_given_is_not_drawn():
    def refuse(key, shape, dtype):
        raise AssertionError("drawn")

    layer = nb.Linear(3, 2, weight_initializer=refuse, v={"w": np.ones((2, 3)), "b": np.zeros(2)})
    np.testing.assert_array_equal(layer.v.w, np.ones((2, 3)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            older(lambda shape: np.ones(shape[::-1])),
            r"Linear: weight_initializer: Made.create_variables must give .* \[2, 3\]; it gave \[3, 2\]",
        ),
        (
            lambda key, shape, dtype: jnp.ones(shape[::-1]),
            r"cannot draw a variable of shape \[2, 3\].*gave an array of shape \[3, 2\]",
        ),
        (
            older(lambda shape: None),
            r"Made.create_variables must give an array or a variable; it gave NoneType",
        ),
    ],
)
def test_an_initializer_that_gives_something_else_is_refused_and_named(given, message):
    with pytest.raises((nb.ShapeError, nb.ArgumentTypeError), match=message):
        nb.Linear(3, 2, weight_initializer=given).weight.value


# -- what is no array --
@pytest.mark.parametrize("wrong", ["text", ["a", "b"], {"a": 1}, None], ids=repr)
@pytest.mark.parametrize("name", LAYERS)
def test_text_or_a_dict_in_place_of_an_array_is_refused_by_name(name, wrong):
    make, inputs = LAYERS[name]
    message = rf"must be an array, got {type(wrong).__name__}"  # lists of numbers are taken
    with pytest.raises(nb.ArgumentTypeError, match=message):
        make()(wrong, *inputs[1:])


@pytest.mark.parametrize("kind", [nb.Parameter, nb.Buffer])
@pytest.mark.parametrize("wrong", ["text", {"a": 1}, None, [[1.0], [1.0, 2.0]], object()])
def test_a_variable_of_no_array_is_refused(kind, wrong):
    with pytest.raises(
        nb.ArgumentTypeError, match=rf"{kind.__name__} takes an array or numbers, got"
    ):
        kind(wrong)


# -- axes, dtypes and keys --
@pytest.mark.parametrize("name", sorted({*LAYERS} - {"BatchNorm1d", "GroupNorm", "InstanceNorm"}))
def test_leading_axes_are_only_a_batch(name):
    make, inputs = LAYERS[name]
    layer = make(key=1).eval() if name != "PReLU" else make().eval()
    others = jax.tree.map(lambda x: x[::-1], inputs)
    stacked = jax.tree.map(lambda *xs: np.stack(xs), inputs, others)
    rows = jax.tree.map(lambda *ys: np.stack(ys), layer(*inputs), layer(*others))
    trees_close(layer(*stacked), rows, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted({*LAYERS} - {"PReLU"}))
def test_key_and_dtype_decide_the_first_values(name):
    make, inputs = LAYERS[name]
    options = initializer_options(make, nb.RandomNormal())
    values = make(key=1, **options).state_dict()
    typed, other = (make(key=key, **options).state_dict() for key in (jax.random.key(1), 2))
    for path, value in values.items():
        np.testing.assert_array_equal(value, typed[path])
        assert path.startswith("running") or not np.array_equal(value, other[path])
    drawn = [np.ravel(value) for path, value in values.items() if "running" not in path]
    assert len(np.unique(np.concatenate(drawn))) == sum(map(np.size, drawn))  # a key for each
    layer = make(dtype=jnp.bfloat16)
    assert {variable.dtype for variable in layer.tensors()} == {jnp.dtype(jnp.bfloat16)}
    halves = jax.tree.map(lambda x: x.astype("bfloat16") if x.dtype.kind == "f" else x, inputs)
    assert {y.dtype for y in jax.tree.leaves(layer(*halves))} == {jnp.dtype(jnp.bfloat16)}


OF_IMAGES = "Conv", "Depthwise", "GroupNorm", "InstanceNorm", "BatchNorm2d", "BatchNorm3d"


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith(OF_IMAGES)])
def test_channels_may_come_first(name):
    make, (x,) = LAYERS[name]
    last = make()
    first = make(data_format={3: "NCW", 4: "NCHW", 5: "NCDHW"}[x.ndim], v=last.v)
    y = first(np.moveaxis(x, -1, 1))
    close(np.moveaxis(y, 1, -1), last(x), rtol=1e-4, atol=1e-5)


# -- hooks --
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_of_a_hook_acts_on_every_layer(name):
    make, inputs = LAYERS[name]
    layer, order = make().eval(), []
    wanted = layer(*inputs)

    def twice(outputs: Any) -> Any:
        return jax.tree.map(lambda y: 2 * y, outputs)

    layer.register_forward_pre_hook(lambda module, args: order.append("looks"))
    layer.register_forward_pre_hook(lambda module, args: args, prepend=True)
    layer.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
    layer.register_forward_hook(lambda module, args, outputs: order.append("after"))
    layer.register_forward_hook(
        lambda module, args, kwargs, outputs: order.append("first"), with_kwargs=True, prepend=True
    )
    trees_close(layer(*inputs), wanted)
    assert order == ["looks", "first", "after"]
    with layer.register_forward_hook(lambda module, args, outputs: twice(outputs)):
        trees_close(layer(*inputs), twice(wanted))
        trees_close(nb.jit(lambda m: m(*inputs))(layer), twice(wanted))
    trees_close(layer(*inputs), wanted)
    if len(inputs) == 1:  # one value is one input
        with layer.register_forward_pre_hook(lambda module, args: inputs[0]):
            trees_close(layer(np.zeros_like(inputs[0])), wanted)


# -- v --
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_of_v_is_taken_by_every_layer(name):
    make, inputs = LAYERS[name]
    layer = make().eval()
    other = make(**initializer_options(make, nb.RandomNormal(0.5, 0.5))).eval()
    own, v, wanted = layer(*inputs), other.v, other(*inputs)
    as_dict = jax.tree.map(np.asarray, v.cont_to_dict())
    for given in (v, as_dict):
        trees_close(layer(*inputs, v=given), wanted)
        trees_close(make(v=given).eval()(*inputs), wanted)
    trees_close(nb.jit(lambda m, v: m(*inputs, v=v))(layer, v), wanted)
    by_v = jax.grad(lambda v: sum(y.sum() for y in jax.tree.leaves(layer(*inputs, v=v))))(v)
    assert by_v.cont_all_key_chains() == v.cont_all_key_chains()

    chain = v.cont_all_key_chains()[0]
    less = v.cont_prune_key_chain(chain)
    some = nb.Module(part=make(), v={"part": less}, with_partial_v=True).v.part
    assert all(
        np.array_equal(value, v[kept]) for kept, value in some.cont_to_iterator() if kept != chain
    )
    for call in (lambda: layer(*inputs, v=less), lambda: setattr(layer, "v", less)):
        with pytest.raises(nb.StructureError, match=chain):
            call()
    trees_close(layer(*inputs), own)
    layer.v = as_dict
    trees_close(layer(*inputs), wanted)


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.not_under("eager", reason="each operation of JAX copies the numbers in it")
def test_a_layer_called_again_copies_nothing_to_the_device(name, mode):
    make, args = LAYERS[name]
    layer, arrays = make().train(mode), jax.device_put(args)
    for _ in range(2):  # values are drawn, programs compiled
        layer(*arrays)
    with jax.transfer_guard("disallow"):
        layer(*arrays)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_adds_a_vector_to_each_row_where_jax_refuses_that_of_a_user(name):
    make, inputs = LAYERS[name]
    layer = make().eval()

    def loss(layer: Any, *inputs: Any) -> Any:
        return sum((y**2).sum() for y in jax.tree.leaves(layer(*inputs)))

    wanted = str(jax.make_jaxpr(functools.partial(nb.grad(loss), layer))(*inputs))
    with jax.numpy_rank_promotion("raise"):
        assert str(jax.make_jaxpr(functools.partial(nb.grad(loss), layer))(*inputs)) == wanted


def test_a_sum_of_two_ranks_by_a_user_stays_refused_where_jax_is_set_so():
    with jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank_promotion"):
        nb.Sequential(nb.Linear(3, 2), lambda y: y + jnp.ones(2))(floats(5, 3))
