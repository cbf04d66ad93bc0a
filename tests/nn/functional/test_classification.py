import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn import metrics

from nbmodule.errors import ArgumentError, ShapeError
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

REDUCTIONS = ("mean", "sum", "none")


def logits(draws, *shape):
    return draws.normal(scale=2, size=shape).astype("f")


def each(loss, reductions=REDUCTIONS):
    """A function that gives the loss with each reduction."""
    return lambda *args: tuple(loss(*args, reduction=reduction) for reduction in reductions)


def pair(ours, theirs, reductions=REDUCTIONS):
    """Our loss and that of PyTorch with each reduction."""
    return each(ours, reductions), each(theirs, reductions)


def doubles(weight):
    return None if weight is None else torch.tensor(weight).double()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.1}, {"ignore_index": 2, "label_smoothing": 0.2}]
)
def test_cross_entropy_of_labels_agrees_with_torch(options, weighted, draws, agrees_with_torch):
    x, labels = logits(draws, 7, 4), np.array([0, 2, 3, 1, 2, 3, 0], "i4")
    weight = draws.uniform(0.5, 2, 4).astype("f") if weighted else None
    losses = pair(
        lambda x, t, **o: cross_entropy(x, t, weight=weight, **o, **options),
        lambda x, t, **o: F.cross_entropy(x, t.long(), weight=doubles(weight), **o, **options),
    )
    agrees_with_torch(*losses, x, labels)


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_probabilities_agrees_with_torch(weighted, draws, agrees_with_torch):
    x, target = logits(draws, 7, 4), draws.dirichlet(np.ones(4), 7).astype("f")
    weight = draws.uniform(0.5, 2, 4).astype("f") if weighted else None
    losses = pair(
        lambda x, t, **o: cross_entropy(x, t, weight=weight, label_smoothing=0.1, **o),
        lambda x, t, **o: F.cross_entropy(x, t, weight=doubles(weight), label_smoothing=0.1, **o),
    )
    agrees_with_torch(*losses, x, target)


def test_classes_may_be_on_another_axis(draws, agrees_with_torch):
    x, labels = logits(draws, 2, 4, 3, 5), draws.integers(0, 4, (2, 3, 5)).astype("i4")
    agrees_with_torch(
        lambda x, t: cross_entropy(x, t, axis=1),
        lambda x, t: F.cross_entropy(x, t.long()),
        x,
        labels,
    )


def test_one_position_needs_no_batch(draws):
    x = logits(draws, 4)
    close(cross_entropy(x, np.int32(2)), F.cross_entropy(torch.tensor(x), torch.tensor(2)))
    close(cross_entropy(x, np.eye(4)[2].astype(int)), cross_entropy(x, 2))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32, np.int64])
def test_labels_of_any_integer_dtype(dtype, draws):
    x = logits(draws, 3, 4)
    close(cross_entropy(x, np.array([0, 3, 1], dtype)), cross_entropy(x, np.array([0, 3, 1])))


def test_probabilities_in_place_of_logits(draws, agrees_with_torch):
    p = draws.dirichlet(np.ones(4), 6).astype("f")
    labels = draws.integers(0, 4, 6).astype("i4")
    agrees_with_torch(
        lambda p, t: cross_entropy(p, t, from_logits=False),
        lambda p, t: F.nll_loss(p.log(), t.long()),
        p,
        labels,
    )


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


@pytest.mark.parametrize("pos_weight", [None, 2.5, [1.0, 2.0, 0.5]])
def test_binary_cross_entropy_of_logits_agrees_with_torch(pos_weight, draws, agrees_with_torch):
    x, target = logits(draws, 5, 3), draws.uniform(size=(5, 3)).astype("f")
    weight = None if pos_weight is None else np.asarray(pos_weight, "f")
    theirs = F.binary_cross_entropy_with_logits
    losses = pair(
        lambda x, t, **o: binary_cross_entropy(x, t, pos_weight=weight, from_logits=True, **o),
        lambda x, t, **o: theirs(x, t, pos_weight=doubles(weight), **o),
    )
    agrees_with_torch(*losses, x, target)


def test_binary_cross_entropy_of_probabilities_agrees_with_torch(draws, agrees_with_torch):
    p, target = draws.uniform(0.01, 0.99, (5, 3)), draws.integers(0, 2, (5, 3))
    losses = pair(binary_cross_entropy, F.binary_cross_entropy)
    agrees_with_torch(*losses, p.astype("f"), target.astype("f"))


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


def test_labels_that_cannot_fit_have_an_infinite_ctc_loss_as_in_torch(draws):
    x = logits(draws, 5, 4, 3)
    labels = np.array([[1, 2, 1, 2], [1, 1, 2, 2], [1, 1, 2, 0], [1, 2, 0, 0], [1, 1, 1, 0]], "i4")
    lengths, times = np.array([4, 4, 3, 2, 3], "i4"), np.array([4, 4, 4, 1, 4], "i4")
    log_p = torch.tensor(x).log_softmax(-1).transpose(0, 1)
    theirs = F.ctc_loss(log_p, *map(torch.tensor, (labels, times, lengths)), reduction="none")
    values = ctc_loss(jnp.asarray(x), labels, times, lengths, reduction="none")
    close(values, theirs)
    assert np.isinf(values).tolist() == [False, True, False, True, True]
    gradient = jax.grad(lambda x: ctc_loss(x, labels, times, lengths, reduction="sum"))(
        jnp.asarray(x)
    )
    assert np.isfinite(gradient).all() and not gradient[1].any() and gradient[0].any()


@pytest.mark.filterwarnings("ignore:reduction")  # of torch, which plans to change its mean
@pytest.mark.parametrize("log_target", [False, True])
def test_kullback_leibler_agrees_with_torch(log_target, draws, agrees_with_torch):
    x, target = (draws.dirichlet(np.ones(4), 5).astype("f") for _ in range(2))
    target = np.log(target) if log_target else target
    losses = pair(
        lambda x, t, **o: kl_div(x, t, log_target=log_target, **o),
        lambda x, t, **o: F.kl_div(x, t, log_target=log_target, **o),
        ("mean", "batchmean", "sum", "none"),
    )
    agrees_with_torch(*losses, np.log(x), target)


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


def test_ctc_agrees_with_torch(draws):
    x = logits(draws, 3, 12, 5)
    labels, lengths, times = draws.integers(1, 5, (3, 4)), np.array([4, 2, 3]), np.array([12, 9, 7])
    given = torch.tensor(x, requires_grad=True)

    def theirs(reduction):
        log_p = F.log_softmax(given, -1).movedim(0, 1)
        lengths_ = torch.tensor(times), torch.tensor(lengths)
        return F.ctc_loss(log_p, torch.tensor(labels), *lengths_, reduction=reduction)

    def ours(x):
        mean, total, values = each(
            lambda x, reduction: ctc_loss(x, labels, times, lengths, reduction=reduction)
        )(x)
        return mean, (total, values)

    theirs("mean").backward()
    (mean, (total, values)), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(x)
    for value, reduction in ((mean, "mean"), (total, "sum"), (values, "none")):
        close(value, theirs(reduction).detach(), rtol=1e-4)
    close(gradient, given.grad, rtol=1e-3, atol=1e-5)


def test_ctc_takes_any_leading_axes_and_another_blank(draws):
    x, labels = logits(draws, 2, 3, 6, 4), draws.integers(0, 3, (2, 3, 2))
    many = ctc_loss(x, labels, blank=3, reduction="none")
    assert many.shape == (2, 3)
    close(many[1, 2], ctc_loss(x[1, 2], labels[1, 2], blank=-1, reduction="none"))


MASKED = np.array([[1.0, -np.inf, 0.0], [-200.0, 200.0, -np.inf]], "f")
SOME = np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]], "f")
# Loss, the same in PyTorch, predictions. Zero times infinity stands in each of them, or a position
# that counts for nothing.
EDGES = {
    "labels": (
        lambda x: cross_entropy(x, np.array([0, 1])),
        lambda x: F.cross_entropy(x, torch.tensor([0, 1])),
        MASKED,
    ),
    "weighted labels": (
        lambda x: cross_entropy(x, np.array([2, 1]), weight=np.array([0.0, 3.0, 2.0], "f")),
        lambda x: F.cross_entropy(
            x, torch.tensor([2, 1]), weight=torch.tensor([0.0, 3.0, 2.0]).double()
        ),
        MASKED,
    ),
    "an ignored label": (
        lambda x: cross_entropy(x, np.array([-100, 1]), label_smoothing=0.1),
        lambda x: F.cross_entropy(x, torch.tensor([-100, 1]), label_smoothing=0.1),
        SOME,
    ),
    "probabilities for targets": (
        lambda x: cross_entropy(x, SOME, reduction="none"),
        lambda x: (
            -torch.where(torch.tensor(SOME) > 0, torch.tensor(SOME) * x.log_softmax(-1), 0.0).sum(
                -1
            )
        ),
        MASKED,
    ),
    "probabilities": (
        lambda x: cross_entropy(x, np.array([0, 1]), from_logits=False),
        lambda x: F.nll_loss(x.clamp(min=1e-30).log(), torch.tensor([0, 1])),
        SOME,
    ),
    "yes and no": (
        lambda x: binary_cross_entropy(x, SOME, from_logits=True),
        lambda x: F.binary_cross_entropy_with_logits(x, torch.tensor(SOME).double()),
        np.array([[3e38, -3e38, 0.0], [-1e4, 1e4, 200.0]], "f"),
    ),
    "log-probabilities": (
        lambda x: kl_div(x, np.log([[0.25, 0.75], [1.0, 1e-30]]).astype("f"), log_target=True),
        lambda x: F.kl_div(x, torch.tensor(np.log([[0.25, 0.75], [1.0, 1e-30]])), log_target=True),
        np.array([[0.0, -1.0], [-2.0, -300.0]], "f"),
    ),
}


@pytest.mark.filterwarnings("ignore:reduction")  # of torch, which plans to change its mean
@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_a_finite_loss_raises_nothing_while_jax_looks_for_nan(name, eager):
    loss, theirs, x = EDGES[name]
    given = torch.tensor(x).double().requires_grad_()
    theirs(given).sum().backward()
    with jax.debug_nans(True), jax.disable_jit(eager):
        value, gradient = jax.value_and_grad(lambda x: loss(x).sum())(jnp.asarray(x))
    close(value, theirs(given).sum().detach())
    close(gradient, given.grad, rtol=1e-4, atol=1e-6)


def test_a_target_of_no_probability_adds_nothing_to_the_divergence():
    p, x = jnp.array([[1.0, 0.0]]), jnp.array([[-0.5, -jnp.inf]])
    loss = jax.value_and_grad(lambda x, t: kl_div(x, t, log_target=True, reduction="sum"), (0, 1))
    value, (of_prediction, of_target) = loss(x, jnp.log(p))
    close(value, 0.5)
    close(of_prediction, [[-1.0, 0.0]])
    close(of_target, [[1.5, 0.0]])


def test_a_masked_class_has_no_part_in_the_ctc_loss():
    """PyTorch's own gradient is NaN there: it is given a very small logit."""
    x = np.array(
        [[[0.0, 1.0, 2.0, -np.inf]] * 4, [[0.0, -np.inf, 1.0, 2.0], [-np.inf, 3.0, 1.0, 0.0]] * 2],
        "f",
    )
    labels = np.array([[1, 2], [1, 2]])
    given = torch.tensor(x).double().requires_grad_()
    log_p = given.clamp(min=-1e4).log_softmax(-1).movedim(0, 1)
    theirs = F.ctc_loss(log_p, torch.tensor(labels), (4, 4), (2, 2), reduction="sum")
    theirs.backward()
    with jax.debug_nans(True):
        value, gradient = jax.value_and_grad(lambda x: ctc_loss(x, labels, reduction="sum"))(
            jnp.asarray(x)
        )
    close(value, theirs.item())
    close(gradient, given.grad, rtol=1e-4, atol=1e-6)


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


def test_accuracy_refuses_labels_of_another_shape():
    with pytest.raises(ShapeError, match=r"labels of shape \[3\].*got int.*\[4\]"):
        accuracy(jnp.ones((3, 2)), jnp.zeros(4, "int32"))
    with pytest.raises(ShapeError, match=r"For one score a position"):
        accuracy(jnp.ones(3), jnp.zeros(3, "int32"))
