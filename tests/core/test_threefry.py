import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.core.numbers import threefry as tf
from nbmodule.errors import ArgumentError, ArgumentTypeError

KEY = jax.random.key(42)
SEEDS = [0, 1, -1, 2**31, 2**40 + 5, -(2**40) - 3, 2**63 - 1, -(2**63), True]
SEEDS += [np.int32(-1), np.uint32(2**32 - 1), np.int64(-7), np.uint8(3), np.uint64(2**63 + 9)]


def words(key):
    return np.asarray(jax.random.key_data(key))


@pytest.fixture(params=[0, 3])
def offset(request):
    jax.config.update("jax_random_seed_offset", request.param)
    yield
    jax.config.update("jax_random_seed_offset", 0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("double", [False, True])
def test_a_seed_gives_the_key_of_jax(seed, double, offset):
    with jax.enable_x64(double):
        np.testing.assert_array_equal(tf.key_data(seed), words(jax.random.key(seed)))


@pytest.mark.parametrize(
    ("key", "got"),
    [
        (jax.random.key(0, impl="rbg"), r"key<rbg>\[\]"),
        (jax.random.split(KEY, 3), r"key<fry>\[3\]"),
        (np.zeros(4, np.uint32), r"uint32\[4\]"),
        (np.zeros(2), r"float64\[2\]"),
        ("seed", "str"),
        (1.5, "float"),
    ],
)
def test_any_other_value_is_refused(key, got):
    message = "expected one key of threefry2x32 .*integer seed, got"
    with pytest.raises(ArgumentTypeError, match=f"{message} {got}"):
        tf.key_data(key)
    assert not tf.is_threefry(key)
    with pytest.raises(ArgumentTypeError, match=f"{message} .* that is traced"):
        jax.eval_shape(lambda key: jnp.asarray(tf.key_data(key)), KEY)
    with pytest.raises(ArgumentError, match="must fit into 64 bits, got 9223372036854775808"):
        tf.key_data(2**63)


@pytest.mark.parametrize(
    "key", [42, np.int64(42), KEY, words(KEY), jax.random.key_data(KEY), jnp.int32(42)]
)
def test_threefry_keys_and_seeds_are_taken_in_every_form(key):
    assert tf.is_threefry(key)
    np.testing.assert_array_equal(tf.key_data(key), [0, 42])


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 8, 9, 20]), st.integers(0, 2**32 - 1))
def test_split_and_fold_in_give_the_keys_of_jax(seed, count, number):
    key = jax.random.key(seed)
    np.testing.assert_array_equal(tf.split(seed, count), words(jax.random.split(key, count)))
    np.testing.assert_array_equal(tf.fold_in(seed, number), words(jax.random.fold_in(key, number)))


def test_a_shape_without_meaning_is_refused():
    with pytest.raises(ArgumentError, match=r"sizes must be at least 0, got shape \(2, -1\)"):
        tf.checked_shape((2, -1))
    with pytest.raises(ArgumentTypeError, match=r"a shape such as \(3, 4\), got 3"):
        tf.checked_shape(3)
