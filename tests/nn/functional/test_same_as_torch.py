"""Functions that PyTorch has under the same names and options: values and gradients are PyTorch's."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn import functional as ours
from tests.nn.conftest import close, functions_agree
from tests.nn.functional.calls import CASES, POINTWISE, row

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")


def gated(x, dim=-1, approximate=False):
    a, b = x.chunk(2, dim)
    return a * F.gelu(b, approximate="tanh" if approximate else "none")


def of_classes(x, target, dim=1, from_logits=True, **options):
    if from_logits:
        return F.cross_entropy(x, target, **options)
    return F.nll_loss(x.clamp(min=1e-30).log(), target, **options)


def of_two(x, target, from_logits=False, **options):
    return (F.binary_cross_entropy_with_logits if from_logits else F.binary_cross_entropy)(
        x, target, **options
    )


OURS = {"group_norm": lambda x, *weights, num_groups: ours.group_norm(x, num_groups, *weights)}
THEIRS = {
    "log_sigmoid": F.logsigmoid,
    "softplus": lambda x, beta: F.softplus(x, beta, threshold=1e9),
    "gelu": lambda x, approximate=False: F.gelu(x, approximate="tanh" if approximate else "none"),
    "softmax": lambda x: F.softmax(x, -1),
    "embedding": lambda indices, weight, **options: F.embedding(indices, weight.clone(), **options),
    "prelu": lambda x, weight: F.prelu(x, weight.reshape(1)),
    "logit": torch.logit,
    "geglu": gated,
    "layer_norm": lambda x, *w, normalized_shape=None, **options: F.layer_norm(
        x, normalized_shape or w[0].shape, *w, **options
    ),
    "rms_norm": lambda x, w, eps: F.rms_norm(x, w.shape, w, eps),
    "group_norm": lambda x, *weights, num_groups: F.group_norm(x, num_groups, *weights),
    "instance_norm": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "scaled_dot_product_attention": lambda *qkv, mask=None, **options: (
        F.scaled_dot_product_attention(*qkv, mask, **options)
    ),
    "depthwise_conv2d": lambda x, w: F.conv2d(x, w, groups=3),
    "cross_entropy": of_classes,
    "binary_cross_entropy": of_two,
    "mae_loss": F.l1_loss,
    "cosine_loss": lambda a, b, dim: (1 - F.cosine_similarity(a, b, dim)).mean(),
    "log_poisson_loss": lambda p, t, **options: F.poisson_nll_loss(p, t.double(), **options),
}
WITH_CHANNELS = re.compile(r".*(conv|pool|interpolate|group_norm|instance_norm|response_norm)")


def theirs(name, options):
    """PyTorch's function of a name, in our layout and with our options."""
    fn = THEIRS.get(name) or getattr(F, name)
    options = {
        "dim" if option == "axis" else option: tensor(value)
        for option, value in options.items()
        if option != "data_format"
    }

    def channels_first(x, *weights, **more):
        if name.startswith("conv_transpose"):
            # (out, *kernel, in / groups) -> (in, out / groups, *kernel)
            weight = weights[0].unflatten(0, (options.get("groups", 1), -1))
            weights = (weight.movedim(-1, 1).flatten(0, 1), *weights[1:])
        elif "conv" in name:
            weights = (weights[0].movedim(-1, 1), *weights[1:])
        return fn(x.movedim(-1, 1), *weights, **options, **more).movedim(1, -1)

    if WITH_CHANNELS.match(name):
        return channels_first
    return lambda *arrays, **more: fn(*arrays, **options, **more)


def tensor(value):
    if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return value
    is_floating = jnp.issubdtype(value.dtype, jnp.floating)
    return torch.tensor(np.asarray(value, "f8" if is_floating else None))


@pytest.mark.filterwarnings("ignore:reduction")  # of torch, which plans to change its mean
@pytest.mark.parametrize(("name", "arrays", "options"), CASES, ids=lambda part: str(part)[:60])
def test_values_and_gradients_are_those_of_torch(name, arrays, options):
    draws = np.random.default_rng(7)
    arrays = [draws.normal(size=x).astype("f") if isinstance(x, tuple) else x for x in arrays]
    reductions = [{}]
    if "cross_entropy" in name or "loss" in name or name == "kl_div":
        reductions = [{"reduction": reduction} for reduction in ("mean", "sum", "none")]
        reductions += [{"reduction": "batchmean"}] * (name == "kl_div")
    fn, other = OURS.get(name) or getattr(ours, name), theirs(name, options)
    functions_agree(
        lambda *xs: [fn(*xs, **options, **more) for more in reductions],
        lambda *xs: [other(*xs, **more) for more in reductions],
        *arrays,
        rtol=1e-5,
        atol=1e-4 if "conv" in name or "_norm" in name else 1e-5,
    )


MASKED = np.array([[1.0, -np.inf, 0.0], [-200.0, 200.0, -np.inf]], "f")
SOME = np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]], "f")
FAR = np.array([[3e38, -3e38, 0.0], [-1e4, 1e4, 200.0]], "f")
LOGS = np.log([[0.25, 0.75], [1.0, 1e-30]]).astype("f")
# Zero times infinity stands in each of them, or a position that counts for nothing.
EDGES = [
    row("cross_entropy", MASKED, np.array([0, 1])),
    row("cross_entropy", MASKED, np.array([2, 1]), weight=np.array([0.0, 3.0, 2.0], "f")),
    row("cross_entropy", MASKED, SOME),
    row("cross_entropy", SOME, np.array([-100, 1]), label_smoothing=0.1),
    row("cross_entropy", SOME, np.array([0, 1]), from_logits=False),
    row("binary_cross_entropy", FAR, SOME, from_logits=True),
    row("kl_div", np.array([[0.0, -1.0], [-2.0, -300.0]], "f"), LOGS, log_target=True),
]


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize(("name", "arrays", "options"), EDGES)
@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_a_finite_loss_raises_nothing_while_jax_looks_for_nan(name, arrays, options, eager):
    x, target = arrays
    given = torch.tensor(x).double().requires_grad_()
    wanted = theirs(name, options)(given.clamp(min=-1e300), tensor(target))
    wanted.backward()
    with jax.debug_nans(True), jax.disable_jit(eager):
        loss = jax.value_and_grad(lambda x: getattr(ours, name)(x, target, **options))
        value, gradient = loss(jnp.asarray(x))
    close(value, wanted.detach())
    close(gradient, given.grad, rtol=1e-4, atol=1e-6)


def test_every_function_of_a_name_of_torch_is_compared_here_or_by_its_layer():
    of_layers = {"linear", "bilinear", "batch_norm", "ctc_loss"}
    drawn = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"}
    named = {name for name in ours.__all__ if hasattr(F, name)}
    assert named - {name for name, *_ in CASES} == of_layers | drawn


pointwise = pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, _, options in POINTWISE]
)


@pointwise
def test_gradient_is_finite_for_large_inputs(name, options):
    x = jnp.array([[-1e4, -90.0, -20.0, 20.0, 90.0, 1e4]])
    found = jax.value_and_grad(lambda x: getattr(ours, name)(x, **options).sum())(x)
    assert all(np.isfinite(part).all() for part in found)


@pointwise
@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_nan_is_kept(name, options):
    assert np.isnan(getattr(ours, name)(jnp.full((2, 4), jnp.nan), **options)).all()
