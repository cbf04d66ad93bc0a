import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import BatchedWriteError
from tests.nn.conftest import close

torch = pytest.importorskip("torch")

SHAPES = {1: (4, 5, 3), 2: (2, 5, 4, 3), 3: (2, 3, 2, 4, 3)}


def channels_last(module, x):
    return module(x.movedim(-1, 1)).movedim(1, -1)


def batch_norms(n, **options):
    for_torch = {name: value for name, value in options.items() if name != "data_format"}
    return getattr(nb, f"BatchNorm{n}d")(3, **options), getattr(torch.nn, f"BatchNorm{n}d")(
        3, **for_torch
    )


@pytest.mark.parametrize("way", ["eager", "compiled", "exported"])
def test_statistics_move_step_by_step_as_in_torch(way, draws):
    ours, theirs = batch_norms(2, momentum=0.3)
    model, state = nb.export_state(ours)
    call = nb.jit(ours) if way == "compiled" else ours
    functional = jax.jit(lambda model, x, state: model(x, state))
    for step in range(3):
        x = draws.normal(step, 2, size=SHAPES[2]).astype("f")
        wanted = channels_last(theirs, torch.tensor(x))
        if way == "exported":
            found, state = functional(model, x, state)
            mean, var = (state[nb.StateKey(f".{name}")] for name in ("running_mean", "running_var"))
        else:
            found, mean, var = call(x), ours.running_mean(), ours.running_var()
        close(found, wanted.detach(), rtol=1e-3, atol=1e-4)
        close(mean, theirs.running_mean)
        close(var, theirs.running_var)
    assert (way == "exported") == (
        not ours.running_mean().any()
    )  # exporting leaves the layer itself alone


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
    x = draws.normal(2, 3, size=SHAPES[2]).astype("f")
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
