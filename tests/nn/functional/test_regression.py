import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn.functional.regression import (
    cosine_loss,
    cosine_similarity,
    huber_loss,
    log_poisson_loss,
    mae_loss,
    mse_loss,
)
from tests.nn.conftest import close

F = pytest.importorskip("torch.nn.functional")

LOSSES = {
    "mse": (mse_loss, F.mse_loss, {}),
    "mae": (mae_loss, F.l1_loss, {}),
    "huber": (huber_loss, F.huber_loss, {"delta": 0.7}),
}


def each(loss):
    """A function that gives the loss with each reduction."""
    return lambda *args: tuple(
        loss(*args, reduction=reduction) for reduction in ("mean", "sum", "none")
    )


@pytest.mark.parametrize("name", LOSSES)
def test_losses_agree_with_torch(name, draws, agrees_with_torch):
    ours, theirs, options = LOSSES[name]
    prediction = draws.normal(size=(5, 3)).astype("f")
    target = draws.normal(size=(5, 3)).astype("f")
    prediction[0] = target[0]  # gradients at zero too
    agrees_with_torch(
        each(lambda p, t, reduction: ours(p, t, reduction=reduction, **options)),
        each(lambda p, t, reduction: theirs(p, t, reduction=reduction, **options)),
        prediction,
        target,
    )


@pytest.mark.parametrize("full", [False, True])
def test_log_poisson_agrees_with_torch(full, draws, agrees_with_torch):
    prediction = draws.normal(size=(5, 3)).astype("f")
    target = draws.poisson(2, (5, 3)).astype("i4")
    agrees_with_torch(
        each(lambda p, t, reduction: log_poisson_loss(p, t, full=full, reduction=reduction)),
        each(
            lambda p, t, reduction: F.poisson_nll_loss(
                p, t.double(), full=full, reduction=reduction
            )
        ),
        prediction,
        target,
    )


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_cosine_similarity_agrees_with_torch(axis, draws, agrees_with_torch):
    a, b = draws.normal(size=(5, 3, 4)).astype("f"), draws.normal(size=(5, 3, 4)).astype("f")
    agrees_with_torch(
        lambda a, b: cosine_similarity(a, b, axis=axis),
        lambda a, b: F.cosine_similarity(a, b, axis),
        a,
        b,
    )
    close(cosine_loss(a, b, axis=axis, reduction="none"), 1 - cosine_similarity(a, b, axis=axis))


def test_a_zero_vector_has_no_direction_but_a_finite_gradient():
    value, gradient = jax.value_and_grad(cosine_loss)(jnp.zeros((1, 3)), jnp.ones((1, 3)))
    assert float(value) == 1
    assert np.isfinite(gradient).all()


def test_integer_targets_are_taken_as_numbers():
    assert float(mse_loss(jnp.array([1.5, 2.0]), jnp.array([1, 4]))) == 2.125


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_the_gradient_of_an_infinite_error_is_that_of_torch(eager):
    x, zeros = np.array([np.inf, -np.inf, 0.1, 3.0], "f"), np.zeros(4, "f")
    torch = pytest.importorskip("torch")
    given = torch.tensor(x, requires_grad=True)
    F.huber_loss(given, torch.tensor(zeros), delta=0.5, reduction="sum").backward()
    with jax.debug_nans(True), jax.disable_jit(eager):
        gradient = jax.grad(lambda x: huber_loss(x, zeros, delta=0.5, reduction="sum"))(
            jnp.asarray(x)
        )
    close(gradient, given.grad)
