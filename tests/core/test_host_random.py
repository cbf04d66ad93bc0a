import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from nbmodule.core.numbers import host_random as host
from nbmodule.errors import ArgumentError

KEY = jax.random.key(42)
SHAPE = (9, 4097)  # crosses a block
EPS = {name: float(jnp.finfo(name).eps) for name in ("float16", "bfloat16", "float32", "float64")}
dtypes = pytest.mark.parametrize("dtype", EPS)


@pytest.fixture(autouse=True)
def _double_precision_for_float64(request):
    with jax.enable_x64("float64" in request.node.name):
        yield


def close(ours, theirs, dtype, *, size=0.0):
    """Equal to three units in the last place of the value, or of numbers as large as `size`."""
    assert type(ours) is np.ndarray
    assert ours.dtype == theirs.dtype == jnp.dtype(dtype)
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    np.testing.assert_allclose(ours, theirs, rtol=3 * EPS[dtype], atol=EPS[dtype] * size)


@dtypes
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-2.0, 3.0), (-0.1, 0.3)])
def test_uniform_agrees_with_jax(dtype, low, high):
    theirs = jax.random.uniform(KEY, SHAPE, dtype, low, high)
    close(
        host.draw_uniform(KEY, SHAPE, low, high, jnp.dtype(dtype)),
        theirs,
        dtype,
        size=max(-low, high),
    )


@dtypes
def test_normal_agrees_with_jax(dtype):
    # float64: XLA computes 1 - x**2 and loses digits near one, which SciPy keeps
    size = 1e5 if dtype == "float64" else 0.0
    close(
        host.draw_normal(KEY, SHAPE, jnp.dtype(dtype)),
        jax.random.normal(KEY, SHAPE, dtype),
        dtype,
        size=size,
    )


@dtypes
def test_truncated_normal_agrees_with_jax(dtype):
    theirs = jax.random.truncated_normal(KEY, -2.0, 1.5, SHAPE, dtype)
    close(
        host.draw_truncated_normal(KEY, -2.0, 1.5, SHAPE, jnp.dtype(dtype)),
        theirs,
        dtype,
        size=1e5 if dtype == "float64" else 16.0,
    )


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_small_shapes_agree_with_jax(shape):
    for ours, theirs in (
        (host.draw_uniform(KEY, shape), jax.random.uniform(KEY, shape)),
        (host.draw_normal(KEY, shape), jax.random.normal(KEY, shape)),
    ):
        assert ours.shape == shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_uniform_stays_below_its_upper_bound_and_reaches_the_lower():
    x = host.draw_uniform(0, (200, 1000), -1.0, 1.0, jnp.bfloat16).astype("f")
    assert x.min() == -1
    assert x.max() < 1


def test_truncated_normal_stays_inside():
    x = host.draw_truncated_normal(0, -0.5, 0.25, (100000,))
    assert -0.5 < x.min() < x.max() < 0.25


def test_truncated_normal_wants_its_bounds_in_order():
    with pytest.raises(ArgumentError, match="lower must be less than upper, got lower=2, upper=1"):
        host.draw_truncated_normal(0, 2, 1, (3,))


DRAWS = {
    "uniform": (host.draw_uniform, jax.random.uniform),
    "normal": (host.draw_normal, jax.random.normal),
    "truncated_normal": (
        lambda key, shape: host.draw_truncated_normal(key, -1.0, 1.0, shape),
        lambda key, shape: jax.random.truncated_normal(key, -1.0, 1.0, shape),
    ),
}
draws = pytest.mark.parametrize(("ours", "theirs"), DRAWS.values(), ids=DRAWS)


@draws
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_traced_key_draws_with_jax(ours, theirs, impl):
    key = jax.random.key(3, impl=impl)
    np.testing.assert_array_equal(jax.jit(lambda k: ours(k, (5, 3)))(key), theirs(key, (5, 3)))


@draws
def test_a_key_of_another_generator_draws_with_jax(ours, theirs):
    key = jax.random.key(3, impl="rbg")
    x = ours(key, (5, 3))
    assert isinstance(x, jax.Array)
    np.testing.assert_array_equal(x, theirs(key, (5, 3)))


@draws
def test_the_older_layout_of_counters_draws_with_jax(ours, theirs):
    with jax.threefry_partitionable(False):
        for key in (KEY, np.array([0, 42], np.uint32), 42):
            np.testing.assert_array_equal(ours(key, (5, 3)), theirs(KEY, (5, 3)))


def test_a_dtype_the_host_does_not_speak_draws_with_jax():
    x = host.draw_normal(KEY, (4,), np.complex64)
    np.testing.assert_array_equal(x, jax.random.normal(KEY, (4,), np.complex64))


def test_double_precision_is_drawn_only_where_jax_has_it():
    assert host.draw_normal(KEY, (4,), np.float64).dtype == np.float32
    with jax.enable_x64(True):
        assert host.draw_normal(KEY, (4,), np.float64).dtype == np.float64


def test_drawing_compiles_nothing(run_python):
    code = """
        import jax, jax.monitoring
        import jax.numpy as jnp
        import numpy as np
        compiled = []
        jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
        from nbmodule.core.numbers import host_random
        from nbmodule.core.numbers import threefry
        key = threefry.fold_in(threefry.split(42, 3)[1], 7)
        for draw in (host_random.draw_uniform, host_random.draw_normal):
            for dtype in (np.float32, jnp.bfloat16):
                draw(key, (64, 64), dtype=dtype)
        host_random.draw_truncated_normal(key, -2, 2, (64, 64))
        before = sum("backend_compile" in name for name in compiled)
        jax.random.normal(jax.random.key(0), (3,))
        print(before, sum("backend_compile" in name for name in compiled) > 0)
    """
    assert run_python(code) == "0 True"


def test_the_inverse_error_function_agrees_with_scipy():
    x = np.concatenate([np.linspace(-1, 1, 40001)[1:-1], [1e-20, -1e-8, 0.99999]])
    ours = host.erfinv(x.astype(np.float32))
    np.testing.assert_allclose(
        ours, special.erfinv(x.astype(np.float32).astype(np.float64)), rtol=60 * EPS["float32"]
    )
