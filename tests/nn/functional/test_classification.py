import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn import metrics

from nbmodule.errors import ArgumentError
from nbmodule.nn.functional.classification import (
    accuracy,
    binary_cross_entropy,
    cross_entropy,
    ctc_loss,
    hinge_loss,
    kl_div,
)
from tests.nn.conftest import close

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")


def logits(draws, *shape):
    return draws.normal(scale=2, size=shape).astype("f")


def test_one_position_needs_no_batch(draws):
    x = logits(draws, 4)
    close(cross_entropy(x, np.int32(2)), F.cross_entropy(torch.tensor(x), torch.tensor(2)))
    close(cross_entropy(x, np.eye(4)[2].astype(int)), cross_entropy(x, 2))


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_a_label_that_is_no_class_gives_nan():
    for label in (-1, 3):
        assert np.isnan(cross_entropy(jnp.zeros((2, 3)), jnp.array([label, 0])))


def test_a_mean_over_no_label_is_zero_with_zero_gradient():
    labels = jnp.array([-100, -100])
    value, gradient = jax.value_and_grad(cross_entropy)(jnp.ones((2, 3)), labels)
    assert float(value) == 0
    assert not gradient.any()


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_no_label_needs_to_be_ignored():
    assert np.isnan(cross_entropy(jnp.ones((1, 3)), jnp.array([-100]), ignore_index=None))


def test_certain_probabilities_have_the_loss_and_gradient_of_torch():
    p, target = np.array([0.0, 1.0, 0.0, 1.0], "f"), np.array([1.0, 0.0, 0.0, 1.0], "f")
    q = torch.tensor(p, requires_grad=True)
    wanted = F.binary_cross_entropy(q, torch.tensor(target), reduction="sum")
    wanted.backward()
    value, gradient = jax.value_and_grad(
        lambda p: binary_cross_entropy(p, target, reduction="sum")
    )(p)
    close(value, wanted.item())
    close(gradient[:2], q.grad[:2])
    assert np.isfinite(gradient).all()


def test_smoothing_moves_binary_targets_towards_one_half():
    x = jnp.array([0.3, -2.0])
    smooth = binary_cross_entropy(x, jnp.array([1, 0]), from_logits=True, label_smoothing=0.2)
    close(smooth, binary_cross_entropy(x, jnp.array([0.9, 0.1]), from_logits=True))


def test_logits_taken_for_probabilities_are_refused_where_values_are_known():
    x, target = jnp.array([0.3, 1.5]), jnp.array([0, 1])
    loss = lambda p: binary_cross_entropy(p, target)
    for call in (loss, jax.grad(loss)):
        with pytest.raises(
            ArgumentError, match=r"must hold probabilities, from 0 to 1.*pass from_logits=True"
        ):
            call(x)
    with pytest.raises(ArgumentError, match="pass from_logits=True"):
        binary_cross_entropy(np.array([-0.1, 0.5]), np.array([0.0, 1.0]))
    assert np.isfinite(binary_cross_entropy(jnp.array([0.0, 1.0]), target))


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
@pytest.mark.not_under("eager", reason="nothing is compiled")
def test_logits_taken_for_probabilities_give_nan_in_a_compiled_function():
    loss = jax.jit(lambda p: binary_cross_entropy(p, jnp.array([0, 1])))
    assert np.isnan(loss(jnp.array([0.3, 1.5])))


def test_looking_for_logits_leaves_no_equation_in_a_compiled_function():
    x = jnp.array([0.3, 0.5])
    jaxpr = jax.make_jaxpr(lambda p: binary_cross_entropy(p, jnp.array([0, 1])))(x)
    assert "gt" not in {equation.primitive.name for equation in jaxpr.eqns}


def test_kullback_leibler_of_logits_and_of_zeros_is_finite(draws):
    x, target = logits(draws, 3, 4), np.eye(4, dtype="f")[:3]
    close(
        kl_div(x, target, from_logits=True, reduction="sum"),
        cross_entropy(x, target, reduction="sum"),
    )
    gradients = jax.grad(lambda x, t: kl_div(x, t), (0, 1))(
        jnp.array([[0.0, -jnp.inf]]), jnp.array([[1.0, 0.0]])
    )
    assert np.isfinite(gradients).all()


def test_hinge_loss_agrees_with_optax_and_scikit_learn(draws):
    x, target = logits(draws, 9), draws.choice([-1, 1], 9)
    wanted = optax.hinge_loss(x, target)
    for reduction, value in (("mean", wanted.mean()), ("sum", wanted.sum()), ("none", wanted)):
        close(hinge_loss(x, target, reduction=reduction), value)
    close(hinge_loss(x, target), metrics.hinge_loss(target, x))
    assert float(hinge_loss(jnp.array([0.5]), jnp.array([1]), margin=0.25)) == 0


MASKED = [[[0, 1, 2, -np.inf]] * 4, [[0, -np.inf, 1, 2], [-np.inf, 3, 1, 0]] * 2]
# Labels, their numbers, and the times that count.
CTC = {
    "padded": (
        lambda draws: logits(draws, 3, 12, 5),
        [[1, 4, 2, 2], [3, 1, 0, 0], [4, 4, 1, 0]],
        [4, 2, 3],
        [12, 9, 7],
    ),
    "too many for the times": (
        lambda draws: logits(draws, 5, 4, 3),
        [[1, 2, 1, 2], [1, 1, 2, 2], [1, 1, 2, 0], [1, 2, 0, 0], [1, 1, 1, 0]],
        [4, 4, 3, 2, 3],
        [4, 4, 4, 1, 4],
    ),
    "masked": (lambda draws: np.array(MASKED, "f"), [[1, 2], [1, 2]], [2, 2], [4, 4]),
}


@pytest.mark.parametrize("case", CTC)
def test_ctc_agrees_with_torch(case, draws):
    make, *numbers = CTC[case]
    x, (labels, lengths, times) = make(draws), (np.array(each, "i4") for each in numbers)
    given = torch.tensor(x).double().requires_grad_()
    # PyTorch's own gradient of a masked class is NaN: it is given a very small logit
    log_p = given.clamp(min=-1e4).log_softmax(-1).movedim(0, 1)

    def theirs(**options):
        return F.ctc_loss(log_p, *map(torch.tensor, (labels, times, lengths)), **options)

    theirs(reduction="sum", zero_infinity=True).backward()
    ours = functools.partial(
        ctc_loss, target=labels, prediction_lengths=times, target_lengths=lengths
    )
    with jax.debug_nans(True):
        for reduction in ("mean", "sum", "none"):
            wanted = theirs(reduction=reduction).detach()
            close(ours(jnp.asarray(x), reduction=reduction), wanted, rtol=1e-4)
        gradient = jax.grad(lambda x: ours(x, reduction="sum"))(jnp.asarray(x))
    close(gradient, given.grad, rtol=1e-3, atol=1e-5)


def test_ctc_takes_any_leading_axes_and_another_blank(draws):
    x, labels = logits(draws, 2, 3, 6, 4), draws.integers(0, 3, (2, 3, 2))
    many = ctc_loss(x, labels, blank=3, reduction="none")
    assert many.shape == (2, 3)
    close(many[1, 2], ctc_loss(x[1, 2], labels[1, 2], blank=-1, reduction="none"))


def test_a_target_of_no_probability_adds_nothing_to_the_divergence():
    p, x = jnp.array([[1.0, 0.0]]), jnp.array([[-0.5, -jnp.inf]])
    loss = jax.value_and_grad(lambda x, t: kl_div(x, t, log_target=True, reduction="sum"), (0, 1))
    value, (of_prediction, of_target) = loss(x, jnp.log(p))
    close(value, 0.5)
    close(of_prediction, [[-1.0, 0.0]])
    close(of_target, [[1.5, 0.0]])


def test_labels_that_have_no_probability_at_any_time_have_an_infinite_ctc_loss():
    x = jnp.zeros((3, 4)).at[:, 2].set(-jnp.inf)
    for dtype in ("float32", "bfloat16", "float16"):
        found = ctc_loss(x.astype(dtype), jnp.array([2]))
        assert found.dtype == dtype and np.isposinf(found)
        assert np.isfinite(ctc_loss(x.astype(dtype), jnp.array([1])))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_accuracy_is_the_share_of_right_classes(axis):
    draw = np.random.default_rng(0)
    scores, target = draw.normal(size=(6, 5, 4)).astype("f"), draw.integers(0, 4, (6, 5))
    expected = metrics.accuracy_score(target.ravel(), scores.argmax(-1).ravel())
    moved = jnp.moveaxis(scores, -1, axis)
    close(accuracy(moved, target, axis=axis), expected)
    close(accuracy(scores.argmax(-1), target), expected)
