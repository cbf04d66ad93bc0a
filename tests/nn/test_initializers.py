import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import nbmodule as nb
from nbmodule.core.numbers.random import RandomStream, seed
from nbmodule.core.variables.variable import Parameter
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError
from nbmodule.nn import initializers as ini
from nbmodule.nn.initializers import base
from tests.nn.conftest import close

from jax_settings import FLOAT, INT

torch = pytest.importorskip("torch")

KEY = jax.random.key(3)
RANDOM = [
    ini.Uniform(2, "fan_out", 0.5, 1.5),
    ini.GlorotUniform(),
    ini.GlorotNormal(),
    ini.KaimingUniform(),
    ini.KaimingNormal(),
    ini.LecunNormal(),
    ini.FirstLayerSiren(),
    ini.Siren(),
    ini.RandomNormal(),
    ini.TruncatedNormal(),
    ini.Orthogonal(),
]
random = pytest.mark.parametrize("initializer", RANDOM, ids=lambda i: type(i).__name__)


def drawn(initializer, shape, **options):
    return np.asarray(initializer.create_variables(shape, key=KEY, **options).value, np.float64)


SHAPE = 8, 3, 4, 5  # fan_in is 60, fan_out is 96


def uniform(limit):
    return lambda: jax.random.uniform(KEY, SHAPE, FLOAT, -limit, limit)


def normal(std, mean=0.0):
    return lambda: jax.random.normal(KEY, SHAPE, FLOAT) * std + mean


def cut(std, lower=-2.0, upper=2.0, mean=0.0):
    return lambda: jax.random.truncated_normal(KEY, lower, upper, SHAPE, FLOAT) * std + mean


CUT = stats.truncnorm(-2, 2).std()
NUMBERS = [
    (ini.Uniform(2, "fan_in", 0.5, 1.5), uniform(math.sqrt(2 / 60) * 1.5)),
    (ini.Uniform(2, "fan_out"), uniform(2 / 96)),
    (ini.Uniform(2, "fan_sum", 2), uniform((2 / 156) ** 2)),
    (ini.Uniform(2, "fan_avg", 1, 3), uniform(2 / 78 * 3)),
    (ini.GlorotUniform(), uniform(math.sqrt(6 / 156))),
    (ini.KaimingUniform(), uniform(math.sqrt(6 / 60))),
    (ini.KaimingUniform("fan_out", negative_slope=math.sqrt(5)), uniform(1 / math.sqrt(96))),
    (ini.FirstLayerSiren(), uniform(1 / 60)),
    (ini.Siren(), uniform(math.sqrt(6 / 60) / 30)),
    (ini.Siren(w0=2.0), uniform(math.sqrt(6 / 60) / 2)),
    (ini.KaimingNormal(), normal(math.sqrt(2 / 60))),
    (ini.KaimingNormal(fan_mode="fan_out"), normal(math.sqrt(2 / 96))),
    (ini.KaimingNormal(0.5, "fan_avg", negative_slope=1.0), normal(math.sqrt(1 / 78), 0.5)),
    (ini.RandomNormal(mean=-1.0, std=0.3), normal(0.3, -1.0)),
    (ini.GlorotNormal(), cut(math.sqrt(2 / 156) / CUT)),
    (ini.LecunNormal(), cut(math.sqrt(1 / 60) / CUT)),
    (ini.TruncatedNormal(1.0, 0.5, -1.0, 3.0), cut(0.5, -1.0, 3.0, 1.0)),
    (ini.Constant(0.5), lambda: np.full(SHAPE, 0.5)),
]


@pytest.mark.parametrize(
    ("initializer", "expected"),
    NUMBERS,
    ids=lambda x: repr(x) if isinstance(x, ini.Initializer) else "",
)
def test_the_numbers_are_those_of_jax_for_the_same_key(initializer, expected):
    close(drawn(initializer, SHAPE), expected(), rtol=1e-5, atol=1e-6)


def test_an_orthogonal_weight_is_that_of_jax():
    # JAX flattens the axes that are not columns in another order
    matrix = jax.nn.initializers.orthogonal(0.7, column_axis=0)(KEY, (4, 36), FLOAT)
    close(drawn(ini.Orthogonal(0.7), (4, 3, 2, 6)), matrix.reshape(4, 3, 2, 6))


def test_fans_count_the_area_of_the_kernel():
    assert ini.compute_fans((64, 3)) == (3, 64) and ini.compute_fans((16, 5, 7, 3)) == (105, 560)
    with pytest.raises(ArgumentError, match=r"from a shape of two or more axes, got \[3\]"):
        ini.compute_fans((3,))


def test_given_fans_win_over_the_shape():
    assert abs(drawn(ini.GlorotUniform(), (50, 40), fan_in=600, fan_out=0)).max() <= 0.1
    assert abs(drawn(ini.Siren(), (50,), fan_in=6)).max() <= 1 / 30


@random
def test_every_draw_follows_its_key_and_dtype(initializer):
    def make(key):
        return np.asarray(initializer.create_variables((4, 6), key=key).value)

    np.testing.assert_array_equal(make(5), make(jax.random.key(5)))
    np.testing.assert_array_equal(make(5), make(jax.random.key_data(jax.random.key(5))))
    assert not np.array_equal(make(5), make(6))
    for dtype in ("float16", "bfloat16"):
        box = initializer.create_variables((4, 6), dtype=dtype, key=0)
        assert box.dtype == box.value.dtype == jnp.dtype(dtype)
    assert drawn(initializer, (4, 0)).shape == (4, 0)  # no division by zero
    with pytest.raises(
        DtypeError, match=rf"{type(initializer).__name__} draws floating values, got dtype {INT}"
    ):
        initializer.create_variables((4, 6), dtype=int)


def test_a_traced_key_draws_the_same_numbers():
    key = jax.random.key(8)
    traced = jax.jit(lambda key: [i.draw(key, (4, 6), jnp.float32, 4, 6) for i in RANDOM])(key)
    for initializer, value in zip(RANDOM, traced, strict=True):
        eager = initializer.draw(key, (4, 6), jnp.float32, 4, 6)
        assert type(eager) is np.ndarray
        close(value, eager, rtol=1e-5, atol=1e-6, err_msg=repr(initializer))


def test_another_generator_draws_with_jax():
    key = jax.random.key(8, impl="rbg")
    x = ini.RandomNormal(std=2.0).create_variables((4, 6), key=key).value
    close(x, jax.random.normal(key, (4, 6)) * 2)


@pytest.mark.parametrize(
    "initializer", [i for i in RANDOM if not isinstance(i, (ini.RandomNormal, ini.TruncatedNormal))]
)
def test_a_vector_without_fans_is_refused(initializer):
    with pytest.raises(
        ArgumentError, match=rf"{type(initializer).__name__} needs .* shape .*\[7\]"
    ):
        initializer.create_variables((7,))


@given(rows=st.integers(1, 6), columns=st.integers(1, 6), kernel=st.integers(1, 3))
def test_orthogonal_rows_or_columns_are_orthonormal(rows, columns, kernel):
    w = drawn(ini.Orthogonal(2.0), (rows, kernel, columns)).reshape(rows, -1) / 2
    gram = w @ w.T if rows <= kernel * columns else w.T @ w
    close(gram, np.eye(len(gram)), atol=1e-5)


@pytest.mark.parametrize(
    ("initializer", "dtype", "filled"),
    [
        (ini.Constant(3), "int32", [3, 3]),
        (ini.Constant(True), "bool", [True]),
        (ini.Zeros(), "float32", 0.0),
        (ini.Ones(), "bfloat16", [[1], [1]]),
    ],
)
def test_constants_fill_any_shape_and_dtype(initializer, dtype, filled):
    value = initializer.create_variables(np.shape(filled), dtype=dtype).value
    assert (value.dtype, value.tolist()) == (dtype, filled)


def test_the_variable_is_a_parameter_that_waits():
    box = ini.KaimingNormal().create_variables((4, 6), "cpu:0")
    assert type(box) is Parameter
    assert box.is_pending
    assert (box.shape, box.dtype) == ((4, 6), FLOAT)
    assert isinstance(box.value, jax.Array)
    assert not box.is_pending


def test_the_key_is_taken_when_the_variable_is_made():
    seed(11)
    first, second = (ini.RandomNormal().create_variables((3,)) for _ in range(2))
    late, early = np.asarray(second.value), np.asarray(first.value)
    stream = RandomStream(11)
    for found in (early, late):
        wanted = (
            jax.random.normal(jax.random.wrap_key_data(jnp.asarray(stream._next_key())), (3,))
            * 0.05
        )
        close(found, wanted)
    seed(0)


def test_initializers_are_values():
    assert ini.Siren() == ini.Siren(30.0)
    assert ini.Siren() != ini.Siren(1.0)
    assert hash(ini.Uniform(1)) == hash(ini.Uniform(1))
    assert (
        repr(ini.KaimingNormal())
        == "KaimingNormal(mean=0.0, fan_mode='fan_in', negative_slope=0.0)"
    )


def test_a_users_own_initializer_needs_draw_only():
    class Identity(ini.Initializer):
        def draw(self, key, shape, dtype, fan_out, fan_in):
            return np.eye(*shape, dtype=dtype)

    np.testing.assert_array_equal(Identity().create_variables((2, 3)).value, np.eye(2, 3))
    with pytest.raises(
        nb.MissingMethodError, match=r"Initializer defines no draw\(self, key, shape"
    ):
        ini.Initializer().create_variables((2,)).value


def test_a_constant_is_given_by_position_or_by_either_name():
    same = ini.Constant(0.5), ini.Constant(constant=0.5), ini.Constant(value=0.5)
    assert len(set(same)) == 1 and same[0].constant == 0.5
    np.testing.assert_array_equal(same[1].create_variables((2,)).value, np.full(2, 0.5, "f"))
    for wrong in (lambda: ini.Constant(1.0, value=2.0), lambda: ini.Constant()):
        with pytest.raises(ArgumentTypeError, match="by position and as value=|needs constant"):
            wrong()


# -- inside transforms of JAX's own --
ALIKE = {
    "vmap": lambda make: jax.vmap(lambda i: make())(jnp.arange(2)),
    "jit": lambda make: jax.jit(make)(),
    "scan": lambda make: jax.lax.scan(lambda c, _: (c, make()), 0, None, 2),
    "grad of nb.jit": lambda make: nb.jit(lambda: jax.grad(lambda x: x * make().sum())(1.0))(),
}
APART = {
    "eval_shape": lambda make: jax.eval_shape(make),
    "grad": lambda make: jax.grad(lambda x: x * make().sum())(1.0),
    "ours": lambda make: nb.vmap(lambda i: make())(jnp.arange(2)),
}


@pytest.mark.not_under("eager", reason="jax.jit runs at each call there")
@pytest.mark.parametrize("name", ALIKE)
def test_a_draw_that_a_transform_of_jax_reuses_warns_once(name, monkeypatch):
    monkeypatch.setattr(base, "_warned", False)
    make = lambda: nb.Linear(3, 2).weight.value
    with pytest.warns(
        UserWarning, match=r"all its rows, steps and later calls get the same.*nb.vmap.*key=key"
    ) as said:
        ALIKE[name](make)
    ALIKE[name](make)
    assert [Path(each.filename).name for each in said] == [Path(__file__).name]


@pytest.mark.parametrize("name", [*APART, "key", "constant", "given"])
def test_draws_that_differ_or_are_equal_on_purpose_do_not_warn(name, monkeypatch):
    monkeypatch.setattr(base, "_warned", False)
    layers = {
        "key": lambda: nb.Linear(3, 2, key=0),
        "constant": lambda: nb.Linear(3, 2, weight_initializer=nb.Ones()),
        "given": lambda: nb.Linear(3, 2, v={"w": jnp.ones((2, 3)), "b": jnp.ones(2)}),
    }
    make = layers.get(name, lambda: nb.Linear(3, 2))
    APART.get(name, ALIKE["vmap"])(lambda: make().weight.value)
