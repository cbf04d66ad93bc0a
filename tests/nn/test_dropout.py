import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.numbers import random
from nbmodule.errors import ArgumentTypeError
from tests.nn.conftest import close

SPATIAL = {nb.Dropout1d: (4, 5), nb.Dropout2d: (4, 3, 5), nb.Dropout3d: (4, 2, 3, 5)}


def test_the_numbers_are_those_of_jax_for_the_key_of_the_stream():
    nb.seed(3)
    key = random.default.draw()
    nb.seed(3)
    keep = jax.random.bernoulli(key, np.float32(0.75), (6, 5))
    close(nb.Dropout(0.25)(jnp.ones((6, 5))), np.where(keep, 1 / 0.75, 0))


@pytest.mark.parametrize("own", [None, 5])
def test_a_compiled_call_gives_the_same_numbers_as_an_eager_one(own):
    eager, compiled = nb.Dropout(0.5, key=own), nb.Dropout(0.5, key=own)
    run = nb.jit(compiled)
    x = jnp.ones((6, 5))
    nb.seed(1)
    first = [np.asarray(eager(x)) for _ in range(3)]
    nb.seed(1)
    second = [np.asarray(run(x)) for _ in range(3)]
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any()
    assert (first[1] != first[2]).any()


def test_mapped_rows_differ_and_the_stream_moves_once():
    layer = nb.Dropout(0.5, key=0)
    y = np.asarray(nb.jit(nb.vmap(layer))(jnp.ones((3, 40))))
    assert layer.stream._position()[1] == 1
    assert all((y[i] != y[j]).any() for i, j in [(0, 1), (0, 2), (1, 2)])
    np.testing.assert_array_equal(y, nb.vmap(nb.Dropout(0.5, key=0))(jnp.ones((3, 40))))
    shared = np.asarray(nb.vmap(layer, split_streams=False)(jnp.ones((3, 40))))
    assert layer.stream._position()[1] == 2
    np.testing.assert_array_equal(shared[0], shared[1])


def test_an_own_stream_leaves_the_default_one_alone_and_is_part_of_the_state():
    layer = nb.Dropout(0.5, key=0)
    before = random.default._position()
    layer(jnp.ones(4))
    assert random.default._position() == before
    kept, x = layer.state_dict(), jnp.ones((6, 5))
    first = layer(x)
    layer.load_state_dict(kept)
    np.testing.assert_array_equal(layer(x), first)


@pytest.mark.parametrize("kind", [nb.Dropout, nb.Dropout2d, nb.AlphaDropout])
def test_nothing_is_dropped_after_eval_or_at_rate_zero(kind):
    x, before = jnp.arange(24.0).reshape(2, 3, 4), random.default._position()
    assert kind(0.5).eval()(x) is x
    assert kind(0.0)(x) is x
    assert random.default._position() == before
    assert isinstance(kind(0.0)(np.ones((2, 3), "f")), jax.Array)


@pytest.mark.parametrize(("kind", "shape"), SPATIAL.items())
def test_spatial_dropout_drops_whole_channels_of_each_sample(kind, shape):
    shape = (30, *shape)
    y = np.asarray(kind(0.5, key=0)(jnp.ones(shape))).reshape(30, -1, 5)
    assert ((y == y[:, :1]).all(1)).all()
    dropped = (y[:, 0] == 0).mean()
    assert abs(dropped - 0.5) < 4 * (0.25 / 150) ** 0.5
    assert len({row.tobytes() for row in y[:, 0]}) > 5  # samples have fates of their own


def test_alpha_dropout_keeps_mean_and_variance():
    x = jax.random.normal(jax.random.key(0), (40_000,))
    y = np.asarray(nb.AlphaDropout(0.2, key=0)(x))
    assert abs(y.mean()) < 0.03
    assert abs(y.std() - 1) < 0.03
    assert len(np.unique(y)) < 0.85 * len(x)


def test_the_gradient_is_the_mask_that_was_drawn():
    layer = nb.Dropout(0.5, key=0)
    grads = nb.grad(lambda x: layer(x).sum())(jnp.ones((5, 6)))
    np.testing.assert_array_equal(grads, nb.Dropout(0.5, key=0)(jnp.ones((5, 6))))


def test_scanned_steps_draw_different_numbers_and_the_stream_ends_where_a_loop_ends():
    layer, looped, x = nb.Dropout(0.5, key=0), nb.Dropout(0.5, key=0), jnp.ones(20)
    _, rows = nb.scan(lambda carry, _: (carry, layer(x)), 0, None, length=3)
    np.testing.assert_array_equal(rows, [looped(x) for _ in range(3)])
    assert layer.stream._position() == looped.stream._position()


def test_an_exported_dropout_moves_on_with_its_state_under_plain_jit():
    layer, x = nb.Dropout(0.5, key=3), jnp.ones((4, 8))
    exported, state = nb.export_state(nb.Sequential(nb.Dropout(0.5, key=3)))
    assert list(state) == [nb.StateKey("[0].stream.state")]
    step = jax.jit(lambda model, x, state: model(x, state))
    first, state = step(exported, x, state)
    second, state = step(exported, x, state)
    np.testing.assert_array_equal(first, layer(x))
    np.testing.assert_array_equal(second, layer(x))
    assert (first != second).any()


def test_an_exported_dropout_in_eval_hands_the_state_on():
    exported, state = nb.export_state(nb.Dropout(0.5, key=3).eval())
    y, same = exported(jnp.ones(3), state)
    assert y.tolist() == [1, 1, 1]
    assert same is state


def test_an_exported_stream_says_how_to_draw_from_it():
    exported, state = nb.export_state(nb.Dropout(0.5, key=3))
    with pytest.raises(
        ArgumentTypeError, match=r"was exported .* `key, state = stream.draw\(state\)`"
    ):
        exported(jnp.ones(3))
    with pytest.raises(ArgumentTypeError, match="keeps its own state"):
        nb.Dropout(0.5, key=3)(jnp.ones(3), state)
