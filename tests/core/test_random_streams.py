"""Random streams: typed keys, whatever generator JAX uses by default."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


@pytest.fixture(params=["threefry2x32", "rbg"])
def generator(request):
    before = jax.config.jax_default_prng_impl
    jax.config.update("jax_default_prng_impl", request.param)
    yield request.param
    jax.config.update("jax_default_prng_impl", before)


def test_keys_are_typed_and_work_in_jax_random(generator):
    stream = nb.RandomStream(0)
    for key in (stream.draw(), stream()):
        assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()
        assert jax.random.normal(key, (2,)).shape == (2,)


def test_a_stream_gives_the_same_keys_under_each_generator(generator):
    words = jax.random.key_data(nb.RandomStream(3).draw())
    reference = jax.random.fold_in(jax.random.key(3, impl="threefry2x32"), np.uint32(1 << 31))
    np.testing.assert_array_equal(words, jax.random.key_data(reference))


def test_a_stream_starts_from_a_key_of_any_generator(generator):
    first, second = nb.RandomStream(jax.random.key(1)), nb.RandomStream(jax.random.key(2))
    assert not jnp.array_equal(first.draw(), second.draw())
    again = nb.RandomStream(jax.random.key(1))
    assert jnp.array_equal(nb.RandomStream(jax.random.key(1)).draw(), again.draw())


def test_split_gives_distinct_keys_and_advances_the_stream_once():
    stream, other = nb.RandomStream(5), nb.RandomStream(5)
    keys = stream.split(4)
    assert len(np.unique(jax.random.key_data(keys), axis=0)) == 4
    other.draw()
    assert jnp.array_equal(stream.draw(), other.draw())


def test_only_drawing_is_public():
    names = {name for name in dir(nb.RandomStream(0)) if not name.startswith("_")}
    assert names == {"draw", "split", "state"}


@pytest.mark.not_under("eager", reason="nothing is traced")
@pytest.mark.parametrize(
    "draw", [nb.RandomStream.draw, nb.RandomStream.split, nb.RandomStream.__call__]
)
def test_drawing_in_a_raw_jit_is_refused_rather_than_baked_in(draw):
    stream = nb.RandomStream(0)
    with pytest.raises(nb.TracerLeakError, match=r"nb\.jit"):
        jax.jit(lambda: draw(stream))()
    first, second = nb.jit(lambda: draw(stream))(), draw(stream)
    assert not jnp.array_equal(first, second)


def test_freezing_a_module_by_the_value_for_patches_names_requires_grad():
    with pytest.raises(nb.ArgumentTypeError, match=r"requires_grad_\(False\)"):
        nb.freeze(nb.Linear(2, 2))
