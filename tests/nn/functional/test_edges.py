"""Functions at the edges of what they take, their dtypes, and the programs that they leave."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.core.variables.variable import Buffer, Parameter
from nbmodule.errors import ShapeError
from nbmodule.nn import functional as ours
from nbmodule.nn.kernel import nan_where
from tests.nn.conftest import close
from tests.nn.functional.test_all_functions import function_of

from jax_settings import COMPLEX, FLOAT, INT

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")


# -- vectors --
def test_relu_takes_integers_and_softmax_an_empty_axis():
    np.testing.assert_array_equal(ours.relu(jnp.array([-2, 3])), [0, 3])
    assert ours.relu(jnp.array([-2, 3])).dtype == INT
    assert ours.softmax(jnp.ones((2, 0))).shape == (2, 0)
    assert ours.log_softmax(jnp.ones((2, 0))).shape == (2, 0)


def test_linear_takes_variables_and_leaves_two_operations(operations):
    w, b = Parameter(jnp.ones((3, 2))), Parameter(jnp.ones(3))
    np.testing.assert_array_equal(ours.linear(jnp.ones((1, 2)), w, bias=b), [[3, 3, 3]])
    found = operations(lambda x: ours.linear(x, w, b), jnp.ones((4, 2)))
    assert found == ["dot_general", "broadcast_in_dim", "add"]


def test_linear_promotes_mixed_precision_and_keeps_half():
    half = jnp.ones((2, 2), jnp.bfloat16)
    assert ours.linear(half, half).dtype == jnp.bfloat16
    assert ours.linear(half, jnp.ones((2, 2))).dtype == FLOAT
    assert ours.linear(jnp.ones(2, complex), jnp.ones((2, 2))).dtype == COMPLEX


def test_an_error_inside_a_transform_is_the_same_one_line():
    with pytest.raises(ShapeError, match=rf"linear: x must have 5 features .* got {FLOAT}\[3\]"):
        jax.jit(jax.vmap(lambda x: ours.linear(x, jnp.ones((4, 5)))))(jnp.ones((2, 3)))


@pytest.mark.parametrize("index", [-3, -1, 4, 100])
@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_an_index_outside_of_the_table_gives_nan_and_no_gradient(index):
    table = jnp.ones((4, 2))
    assert np.isnan(ours.embedding(jnp.array([index]), table)).all()
    assert not jax.grad(lambda w: ours.embedding(jnp.array([index]), w).sum())(table).any()


def test_recurrent_states_may_be_variables_and_an_empty_sequence_keeps_them(draws):
    w = [draws.normal(size=shape).astype("f") for shape in ((16, 3), (16, 4), (16,), (16,))]
    h, c = np.ones(4, "f"), np.full(4, 2, "f")
    plain, _ = ours.lstm(jnp.ones((2, 3)), (h, c), *w)
    boxed, _ = ours.lstm(jnp.ones((2, 3)), (Buffer(h), Buffer(c)), *w)
    np.testing.assert_array_equal(boxed, plain)
    ys, last = ours.gru(jnp.ones((0, 3)), h, *(part[:12] for part in w))
    assert ys.shape == (0, 4)
    np.testing.assert_array_equal(last, h)


# -- losses of numbers --
def test_the_loss_of_the_cosine_is_one_less_it_and_finite_for_a_zero_vector(draws):
    a, b = draws.normal(size=(2, 5, 3)).astype("f")
    for axis in (0, 1):
        found = ours.cosine_loss(a, b, axis=axis, reduction="none")
        close(found, 1 - ours.cosine_similarity(a, b, axis=axis))
    value, gradient = jax.value_and_grad(ours.cosine_loss)(jnp.zeros((1, 3)), jnp.ones((1, 3)))
    assert float(value) == 1
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_the_gradient_of_an_infinite_error_is_that_of_torch(eager):
    x, zeros = np.array([np.inf, -np.inf, 0.1, 3.0], "f"), np.zeros(4, "f")
    given = torch.tensor(x, requires_grad=True)
    F.huber_loss(given, torch.tensor(zeros), delta=0.5, reduction="sum").backward()
    loss = lambda x: ours.huber_loss(x, zeros, delta=0.5, reduction="sum")
    with jax.debug_nans(True), jax.disable_jit(eager):
        close(jax.grad(loss)(jnp.asarray(x)), given.grad)


# -- norms --
def test_without_memory_the_statistics_are_those_of_the_batch(draws):
    x = draws.normal(size=(8, 3)).astype("f")
    _, mean, var = ours.batch_norm_train(x)
    close(mean, x.mean(0))
    close(var, x.var(0, ddof=1))


def test_remembered_statistics_are_no_way_for_gradients(draws):
    x = draws.normal(size=(8, 3)).astype("f")
    gradient = jax.grad(
        lambda x: sum(s.sum() for s in ours.batch_norm_train(x, jnp.zeros(3), jnp.ones(3))[1:])
    )(x)
    assert not gradient.any()


def test_layer_norm_gives_another_deviation(draws):
    x, weight = draws.normal(size=(7, 50)).astype("f"), np.full(50, 2, "f")
    y = ours.layer_norm(x, weight, new_std=3.0)
    close(y.std(-1), 6, rtol=1e-3)
    close(y, 3 * ours.layer_norm(x, weight))


@pytest.mark.parametrize("fn", [lambda x, **k: ours.group_norm(x, 2, **k), ours.instance_norm])
def test_the_layout_tells_batch_from_space(fn, draws):
    x = draws.normal(size=(2, 3, 5, 4)).astype("f")
    rows = np.array([[fn(row[None], data_format="NWC")[0] for row in part] for part in x])
    close(fn(x, data_format="NWC"), rows, rtol=1e-4, atol=1e-5)
    first = fn(np.moveaxis(x, -1, 1), data_format="NCHW")
    close(np.moveaxis(first, 1, -1), fn(x), rtol=1e-4, atol=1e-5)


NORMS = "batch_norm_train layer_norm rms_norm group_norm instance_norm local_response_norm"


@pytest.mark.parametrize("name", NORMS.split())
def test_constant_input_has_a_finite_value_and_gradient(name):
    fn, shapes = function_of(name)
    total = lambda arrays: sum((y**2).sum() for y in jax.tree.leaves(fn(arrays)))
    for fill in (0.0, 3.0, 1e4):
        found = jax.value_and_grad(total)({key: jnp.full(s, fill) for key, s in shapes.items()})
        assert all(np.isfinite(part).all() for part in jax.tree.leaves(found))


def test_variables_in_float32_leave_half_precision_half():
    x, ones = jnp.ones((2, 3, 4), jnp.bfloat16), jnp.ones(4, jnp.float32)
    assert (
        ours.batch_norm(x, ones, ones, ones, ones).dtype
        == ours.layer_norm(x, ones, ones).dtype
        == jnp.bfloat16
    )
    y, mean, _ = ours.batch_norm_train(x, ones, ones, ones, ones)
    assert (y.dtype, mean.dtype) == (jnp.bfloat16, jnp.float32)


def test_nan_comes_where_it_is_asked_for_and_only_there():
    x, half = jnp.array([1.0, jnp.inf, -2.0]), jnp.ones((2, 2), jnp.bfloat16)
    for how in (nan_where, jax.jit(nan_where)):
        with jax.debug_nans(False):
            np.testing.assert_array_equal(
                how(jnp.array([False, False, True]), x), [1, np.inf, np.nan]
            )
        with jax.debug_nans(True):
            np.testing.assert_array_equal(how(x > jnp.inf, x), x)
            assert how(jnp.array(False), half).dtype == jnp.bfloat16


# -- images --
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (4, 3), (1, 2)])
def test_same_transposed_convolution_is_the_gradient_of_the_same_convolution(kernel, stride, draws):
    small = draws.normal(size=(2, 4, 3)).astype("f")
    weight = draws.normal(size=(5, kernel, 3)).astype("f")
    options = {"stride": stride, "padding": "SAME"}
    forward = lambda x: ours.conv1d(x, weight.transpose(2, 1, 0), **options)
    (wanted,) = jax.vjp(forward, jnp.zeros((2, 4 * stride, 5), "f"))[1](small)
    close(ours.conv_transpose1d(small, weight, **options), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 3, 2), (8, 3, 2), (5, 2, 3), (4, 5, 1)])
def test_same_padding_gives_one_output_for_each_stride(size, kernel, stride):
    y = ours.conv1d(jnp.ones((size, 1)), jnp.ones((1, kernel, 1)), stride=stride, padding="same")
    assert y.shape == (-(-size // stride), 1)


@pytest.mark.parametrize("padding", [(1, 2), ((1, 1), (2, 2)), [[1, 1], [2, 2]], (np.int64(1), 2)])
def test_forms_of_padding_mean_the_same(padding):
    x, weight = jnp.ones((0, 4, 4, 1)), jnp.ones((1, 3, 3, 1))
    assert ours.conv2d(x, weight, padding=padding).shape == (0, 4, 6, 1)
    x = jnp.ones((4, 4, 1))
    wanted = ours.conv2d(jnp.pad(x, ((1, 1), (2, 2), (0, 0))), weight)
    np.testing.assert_array_equal(ours.conv2d(x, weight, padding=padding), wanted)


def test_uneven_padding_makes_a_causal_convolution(draws):
    x, weight = draws.normal(size=(6, 1)).astype("f"), draws.normal(size=(1, 3, 1)).astype("f")
    y = ours.conv1d(x, weight, padding=((2, 0),))
    changed = ours.conv1d(np.concatenate([x[:4], x[4:] + 9]), weight, padding=((2, 0),))
    np.testing.assert_array_equal(y[:4], changed[:4])


def test_programs_of_images_are_small(operations):
    image, weight = jnp.ones((8, 8, 3)), jnp.ones((4, 3, 3, 3))
    assert operations(ours.conv2d, image, weight).count("conv_general_dilated") == 1
    spread = operations(lambda x, w: ours.conv_transpose2d(x, w, stride=2), image, weight)
    assert not {"jit", "pjit"} & set(spread)
    mean = operations(lambda x: ours.adaptive_avg_pool2d(x, 1), jnp.ones((2, 64, 64, 3)))
    assert mean.count("reduce_sum") == 2
    assert "dot_general" not in mean
    repeated = operations(lambda x: ours.interpolate(x, scale_factor=2.0), image)
    assert not {"dot_general", "gather"} & set(repeated)


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_the_largest_is_nan_before_any_number_and_may_be_an_integer():
    x = jnp.zeros((4, 4, 1)).at[1, 2].set(jnp.nan)
    found = np.isnan(ours.max_pool2d(x, 2)[..., 0])
    np.testing.assert_array_equal(found, [[False, True], [False, False]])
    integers = ours.max_pool1d(jnp.array([[-9], [-4], [-7]]), 3, stride=1, padding=1)
    np.testing.assert_array_equal(integers[:, 0], [-4, -4, -4])


@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize(("size", "window", "stride"), [(2, 3, 2), (2, 3, 3), (3, 5, 4), (1, 2, 2)])
def test_with_ceil_mode_the_first_window_may_reach_over_the_end_as_well(
    pool, size, window, stride, draws
):
    x = draws.normal(size=(2, size, 6, 3)).astype("f")
    fn = getattr(ours, pool)
    expected = getattr(F, pool)(
        torch.tensor(x).movedim(-1, 1), (window, 2), (stride, 2), ceil_mode=True
    )
    close(fn(x, (window, 2), stride=(stride, 2), ceil_mode=True), expected.movedim(1, -1))
    for options in ({"stride": (stride, 2)}, {"stride": (window - size, 2), "ceil_mode": True}):
        with pytest.raises(ShapeError, match=rf"a window of \[{window}, 2\] does not fit into x"):
            fn(x, (window, 2), **options)


@settings(max_examples=12)
@given(old=st.integers(1, 12), new=st.integers(1, 30))
def test_nearest_pixels_are_those_of_torch(old, new):
    x = np.arange(old, dtype="f")
    wanted = F.interpolate(torch.tensor(x)[None, None], size=new, mode="nearest")[0, 0]
    found = ours.interpolate(x[:, None], new, data_format="NWC")
    np.testing.assert_array_equal(found[:, 0], wanted)


IMAGES = {
    "interpolate": lambda x, **o: ours.interpolate(x, (7, 8), mode="bilinear", **o),
    "max_pool2d": lambda x, **o: ours.max_pool2d(x, 2, **o),
    "avg_pool2d": lambda x, **o: ours.avg_pool2d(x, 2, **o),
    "adaptive_avg_pool2d": lambda x, **o: ours.adaptive_avg_pool2d(x, 2, **o),
}


@pytest.mark.parametrize("name", IMAGES)
def test_leading_axes_and_channel_order_change_nothing(name, draws):
    x, fn = draws.normal(size=(2, 3, 4, 6, 2)).astype("f"), IMAGES[name]
    y = fn(x)
    close(y, np.array([[fn(image) for image in row] for row in x]))
    first = fn(np.moveaxis(x, -1, -3), data_format="NCHW")
    close(np.moveaxis(first, -3, -1), y)
