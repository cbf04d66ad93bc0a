import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.variables.frame import Frame
from nbmodule.core.variables.variable import Buffer, Parameter
from nbmodule.errors import ArgumentTypeError, ShapeError
from nbmodule.nn.kernel import kernel
from tests.nn.conftest import close

from jax_settings import spelled

ONES = jnp.ones(2)


@kernel(static=("power",))
def affine(x, weight, bias=None, *, power=1):
    """Scale and shift."""
    if x.shape != weight.shape:
        raise ShapeError(f"affine: x {x.shape} and weight {weight.shape} differ.")
    y = x**power * weight
    return y if bias is None else y + bias


def counted(**options):
    traces = []

    @kernel(**options)
    def fn(x, rate=0.5):
        traces.append(None if isinstance(rate, jax.core.Tracer) else rate)
        return x * rate

    return fn, traces


def test_variables_are_taken_by_position_and_by_name():
    weight, bias = Parameter(jnp.array([2.0])), Buffer(jnp.array([1.0]))
    np.testing.assert_array_equal(affine(jnp.array([3.0]), weight, bias), [7])
    np.testing.assert_array_equal(affine(jnp.array([3.0]), weight=weight, bias=bias, power=2), [19])
    np.testing.assert_array_equal(affine(weight, weight), [4])


@pytest.mark.not_under("eager", reason="counts what is traced")
def test_a_new_value_does_not_trace_again_and_a_new_shape_does():
    fn, traces = counted(static=("rate",))
    for shape in ((2,), (2,), (3,), (2,)):
        fn(jnp.ones(shape), 0.5)
    assert len(traces) == 2


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.not_under("eager", reason="counts what is traced")
def test_all_frames_share_one_trace(guarded):
    fn, traces = counted(static=("rate",))
    for _ in range(3):
        with Frame(guarded=guarded):
            jax.jit(lambda x: fn(x))(jnp.ones(2))
            fn(jnp.ones(2))
    assert len(traces) == 1


def test_a_variable_has_the_value_of_its_frame():
    weight = Parameter(jnp.array([2.0]))
    with Frame([(weight, jnp.array([5.0]))]):
        np.testing.assert_array_equal(affine(jnp.ones(1), weight), [5])
    np.testing.assert_array_equal(affine(jnp.ones(1), weight), [2])


def test_a_list_of_static_values_is_taken_as_a_tuple():
    @kernel(static=("sizes",))
    def total(x, sizes):
        return x + sizes[0][1]

    assert float(total(1.0, [[1, 2], [3, 4]])) == 3
    assert float(total(1.0, sizes=((1, 2),))) == 3


@pytest.mark.not_under("eager", reason="counts what is traced")
def test_a_number_is_static_and_an_array_in_its_place_is_traced():
    fn, traces = counted(numbers=("rate",))
    for rate in (0.25, 0.5, 0.25):
        assert float(fn(2.0, rate)) == 2 * rate
    assert traces == [0.25, 0.5]
    for rate in (0.25, 0.5, 0.75):
        assert float(fn(2.0, rate=jnp.float32(rate))) == 2 * rate
    assert len(traces) == 3
    assert float(fn(2.0, Buffer(jnp.float32(0.75)))) == 1.5


def test_an_error_of_ours_comes_without_jax():
    with pytest.raises(
        ShapeError, match=r"^affine: x \(2,\) and weight \(3,\) differ\.$"
    ) as caught:
        affine(jnp.ones(2), jnp.ones(3))
    assert caught.value.__cause__ is None
    assert not getattr(caught.value, "__notes__", [])
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert not any("/jax/" in file for file in files)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ([ONES], {}, "missing a required argument: 'weight'.$"),
        ([ONES, 1], {"wieght": 2}, "got an unexpected keyword argument 'wieght'.$"),
        (["text", ONES], {}, "x must be an array, got str.$"),
        ([np.array(["a"]), ONES], {}, "x must be an array of numbers, got one of dtype <U1."),
        ([ONES, ONES], {"power": ONES}, r"power must be a Python value, .* an array float32\[2\]"),
        ([ONES, ONES], {"power": {}}, "power must be hashable, such as a tuple, got dict"),
    ],
)
def test_arguments_that_jax_cannot_take_are_named(args, kwargs, message):
    with pytest.raises(ArgumentTypeError, match=spelled(f"^affine: {message}")):
        affine(*args, **kwargs)


def test_other_errors_pass_unchanged():
    @kernel
    def broken(x):
        raise ValueError("from the body")

    with pytest.raises(ValueError, match="from the body"):
        broken(jnp.ones(1))


def test_arrays_of_numpy_give_an_array_of_jax_also_where_nothing_is_compiled():
    given = np.full(3, 2.0, np.float32)
    with jax.disable_jit():
        for y in (affine(given, given), affine(given, weight=given)):
            assert isinstance(y, jax.Array)
            np.testing.assert_array_equal(y, 4.0)


def test_a_kernel_takes_the_same_where_nothing_is_compiled():
    x, weight = jnp.arange(25.0).reshape(1, 5, 5, 1), jnp.ones((1, 3, 3, 1))
    calls = [
        lambda: nb.relu(-1.0),
        lambda: nb.relu(np.float32(2)),
        lambda: nb.cross_entropy(jnp.arange(4.0), np.int32(2)),
        lambda: nb.conv2d(x, weight, padding=[[1, 1], [2, 2]]),
        lambda: nb.dropout(x, jnp.float32(0), jax.random.key(0)),
        lambda: nb.gru(jnp.ones((0, 3)), jnp.ones(2), jnp.ones((6, 3)), jnp.ones((6, 2)))[1],
    ]
    for call in calls:
        wanted = call()
        with jax.disable_jit():
            found = call()
        assert isinstance(found, (jax.Array, tuple))
        jax.tree.map(lambda a, b: close(a, b), found, wanted)
    for refused, name in (
        (lambda: nb.leaky_relu(x, jnp.float32(0.1)), "negative_slope"),
        (lambda: nb.conv2d(x, weight, stride=jnp.array(2)), "stride"),
    ):
        with (
            jax.disable_jit(),
            pytest.raises(ArgumentTypeError, match=f"{name} must be a Python value"),
        ):
            refused()
