import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import BatchedWriteError
from tests.nn.conftest import close, steps_agree

torch = pytest.importorskip("torch")

SHAPE = 2, 5, 4, 3


@pytest.mark.parametrize("way", ["eager", "compiled", "exported"])
def test_statistics_move_step_by_step_as_in_torch(way, draws):
    ours, theirs = nb.BatchNorm2d(3, momentum=0.3), torch.nn.BatchNorm2d(3, momentum=0.3)
    steps_agree(
        way,
        ours,
        lambda x: theirs(x.movedim(-1, 1)).movedim(1, -1),
        {"running_mean": theirs.running_mean, "running_var": theirs.running_var},
        [draws.normal(step, 2, size=SHAPE).astype("f") for step in range(3)],
    )
    # exporting leaves the layer itself alone
    assert (way == "exported") == (not ours.running_mean().any())


def test_an_empty_batch_in_training_gives_nothing_and_leaves_the_statistics_as_in_torch():
    layer, theirs = nb.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    layer.running_mean.value = np.full(3, 0.5, "f")
    theirs.running_mean.fill_(0.5)
    y = layer(jnp.zeros((0, 4, 4, 3)))
    assert y.shape == tuple(theirs(torch.zeros(0, 3, 4, 4)).permute(0, 2, 3, 1).shape)
    np.testing.assert_array_equal(layer.running_mean.value, theirs.running_mean)
    np.testing.assert_array_equal(layer.running_var.value, theirs.running_var)
    gradients = nb.grad(lambda m: m(jnp.zeros((0, 4, 4, 3))).sum())(layer)
    assert all(not value.any() for value in (gradients.w, gradients.b))
    assert nb.BatchNorm1d(3, track_running_stats=False)(jnp.zeros((0, 3))).shape == (0, 3)


def test_after_eval_the_statistics_stay_also_where_exported(draws):
    x = draws.normal(2, 3, size=SHAPE).astype("f")
    layer = nb.BatchNorm2d(3)
    layer(x)
    kept, expected = layer.running_mean(), layer.eval()(2 * x)
    np.testing.assert_array_equal(layer.running_mean(), kept)
    model, state = nb.export_state(layer)
    found, after = model(2 * x, state)
    np.testing.assert_array_equal(found, expected)
    assert after == state


def test_variables_of_batch_norm_are_named_and_left_out_as_asked():
    assert sorted(nb.BatchNorm2d(3).v.keys()) == ["b", "w"]
    assert list(nb.BatchNorm2d(3, affine=False).state_dict()) == ["running_mean", "running_var"]
    assert list(nb.BatchNorm2d(3, track_running_stats=False).state_dict()) == ["bias", "weight"]


def test_a_gradient_through_batch_norm_also_moves_its_statistics(draws):
    layer, x = nb.BatchNorm1d(3), jnp.asarray(draws.normal(size=(6, 3)), jnp.float32)
    nb.grad(lambda layer: (layer(x) ** 3).sum())(layer)
    close(layer.running_mean(), 0.1 * np.asarray(x).mean(0))


def test_statistics_are_shared_over_a_mapped_axis(draws):
    x = jnp.asarray(draws.normal(2, 3, size=(3, 4, 2)), jnp.float32)
    layer, whole = nb.BatchNorm1d(2, axis_name="rows"), nb.BatchNorm1d(2)
    found = nb.vmap(layer, axis_name="rows")(x)
    close(found.reshape(12, 2), whole(x.reshape(12, 2)), rtol=1e-4, atol=1e-5)
    close(layer.running_var(), whole.running_var())


def test_statistics_that_differ_from_row_to_row_are_refused(draws):
    with pytest.raises(BatchedWriteError, match="pmean"):
        nb.vmap(nb.BatchNorm1d(2))(jnp.ones((3, 4, 2)))
