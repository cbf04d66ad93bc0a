"""Functions that PyTorch has under the same names and options: values and gradients are PyTorch's.

A row is the name, arrays or their shapes, and options. Images have their channels last; in each
batch of them the first has values without ties and the second whole numbers.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn import functional as ours
from tests.nn.conftest import close, functions_agree

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")

DRAWS = np.random.default_rng(7)
# Each activation sees values, kinks, and values near zero.
X = DRAWS.normal(scale=3, size=(6, 8)).astype("f")
X[0] = [0.0, -0.0, 6.0, -6.0, 1e-30, -1e-30, 3.0, -3.0]
P = DRAWS.uniform(0.01, 0.99, (5, 3)).astype("f")
SHARES = DRAWS.dirichlet(np.ones(4), 7).astype("f")
LABELS = np.array([0, 2, 3, 1, 2, 3, 0])
WEIGHT = DRAWS.uniform(0.5, 2, 4).astype("f")


def row(name, *arrays, **options):
    return name, arrays, options


def image(n, channels=3):
    x = DRAWS.normal(size=(2, *(9, 8, 7)[:n], channels))
    x[1] = x[1].round()
    return x.astype("f")


def convolve(name, c_in, c_out, **options):
    n = int(name[-2])
    kernel = (c_out, *(3, 2, 3)[:n], c_in // options.get("groups", 1))
    return row(name, image(n, c_in), kernel, (c_out,), **options)


def pool(name, *windows, **options):
    size = {"output_size" if name.startswith("adaptive") else "kernel_size": windows[0]}
    return row(name, image(int(name[-2])), **size, **options)


def resize(n, **options):
    return row("interpolate", (2, *(5, 6, 4)[:n], 3), data_format=FORMATS[n], **options)


def attend(queries=4, keys=6, **options):
    shapes = ((2, 3, length, size) for length, size in ((queries, 5), (keys, 5), (keys, 7)))
    return row("scaled_dot_product_attention", *shapes, **options)


FORMATS = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
CORNERS = {"mode": "bilinear", "align_corners": True}
POINTWISE = [
    *(row(name, X) for name in "relu relu6 selu hardsigmoid hardswish sigmoid log_sigmoid".split()),
    *(row(name, X) for name in "tanh softsign silu mish gelu softmax glu".split()),
    row("leaky_relu", X, negative_slope=0.2),
    row("elu", X, alpha=1.5),
    row("celu", X, alpha=0.7),
    row("softplus", X, beta=2.0),
    row("gelu", X, approximate=True),
    row("log_softmax", X, axis=0),
]
LOSSES = [  # compared with each reduction
    *(
        row("cross_entropy", (7, 4), LABELS, **weight, **options)
        for weight in ({}, {"weight": WEIGHT})
        for options in ({}, {"label_smoothing": 0.1}, {"ignore_index": 2, "label_smoothing": 0.2})
    ),
    row("cross_entropy", (7, 4), SHARES, label_smoothing=0.1),
    row("cross_entropy", (7, 4), SHARES, label_smoothing=0.1, weight=WEIGHT),
    row("cross_entropy", (2, 4, 3, 5), DRAWS.integers(0, 4, (2, 3, 5)), axis=1),
    row("cross_entropy", SHARES, LABELS, from_logits=False),
    row("binary_cross_entropy", P, DRAWS.integers(0, 2, (5, 3)).astype("f")),
    *(
        row("binary_cross_entropy", (5, 3), P, from_logits=True, pos_weight=weight)
        for weight in (None, np.float32(2.5), np.array([1, 2, 0.5], "f"))
    ),
    row("kl_div", np.log(SHARES), SHARES[::-1].copy()),
    row("kl_div", np.log(SHARES), np.log(SHARES[::-1]), log_target=True),
    row("mse_loss", X, X.round()),
    row("mae_loss", X, X.round()),  # gradients at zero too
    row("huber_loss", X, X.round(), delta=0.2),
    *(
        row("log_poisson_loss", (5, 3), DRAWS.poisson(2, (5, 3)), full=full)
        for full in (False, True)
    ),
]
CASES = [
    *POINTWISE,
    *LOSSES,
    row("softmax", np.array([[1.0, -np.inf, 2.0]], "f")),
    *(row("prelu", (4, 3), np.full(shape, 0.3, "f")) for shape in [(), (1,)]),
    row("logit", P),
    row("logit", np.array([0.0, 0.05, 0.5, 1.0], "f"), eps=0.1),
    row("geglu", X),
    row("geglu", X, axis=0, approximate=True),
    *(row("cosine_similarity", (5, 3, 4), (5, 3, 4), axis=axis) for axis in (-1, 0, 1)),
    convolve("conv1d", 3, 4),
    convolve("conv1d", 4, 6, stride=2, padding=1, dilation=2, groups=2),
    convolve("conv1d", 3, 4, padding="same"),
    convolve("conv2d", 3, 4),
    convolve("conv2d", 3, 4, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    convolve("conv2d", 4, 6, groups=2, padding=1),
    convolve("conv2d", 4, 4, groups=4, stride=2, padding=2, dilation=2),  # depthwise
    convolve("conv2d", 3, 6, groups=3, padding=(0, 1), stride=(1, 2)),  # two kernels a channel
    convolve("conv3d", 2, 4, stride=2, padding=(1, 0, 1), groups=2),
    convolve("conv3d", 2, 2, groups=2, padding=(1, 0, 1)),
    row("conv2d", (2, 5, 6, 3), (4, 1, 1, 3)),
    row("conv2d", (2, 5, 6, 3), (4, 1, 1, 3), stride=2),
    row("conv2d", (2, 5, 6, 3), (4, 1, 1, 3), stride=(1, 3), padding=(1, 0)),
    row("depthwise_conv2d", (2, 10, 11, 3), (6, 9, 8, 1)),
    convolve("conv_transpose1d", 3, 4),
    convolve("conv_transpose1d", 4, 6, stride=3, padding=1, output_padding=2, groups=2),
    convolve("conv_transpose2d", 3, 4, stride=2, padding=1, output_padding=1),
    convolve("conv_transpose2d", 4, 6, stride=(2, 1), dilation=(2, 3), groups=2, padding=(1, 0)),
    convolve("conv_transpose3d", 2, 4, stride=2, groups=2),
    pool("max_pool1d", 2),
    pool("max_pool1d", 3, stride=2, padding=1, dilation=2),
    pool("max_pool2d", 2),
    pool("max_pool2d", (3, 2), stride=(2, 3), padding=(1, 0)),
    pool("max_pool2d", 3, stride=2, ceil_mode=True, padding=1),
    pool("max_pool2d", 2, stride=3, ceil_mode=True),
    pool("max_pool2d", 2, dilation=(2, 3), stride=1),
    pool("max_pool3d", (2, 3, 2), stride=2, padding=(1, 1, 0), ceil_mode=True),
    pool("avg_pool1d", 3, stride=2, padding=1),
    pool("avg_pool2d", 2),
    pool("avg_pool2d", (3, 2), stride=(2, 3), padding=(1, 0)),
    pool("avg_pool2d", 3, stride=2, padding=1, count_include_pad=False),
    pool("avg_pool2d", 3, stride=2, padding=1, ceil_mode=True),
    pool("avg_pool2d", 2, stride=3, ceil_mode=True, count_include_pad=False),
    pool("avg_pool2d", 3, stride=2, divisor_override=5),
    pool("avg_pool3d", (2, 3, 2), stride=2, padding=(1, 1, 0), ceil_mode=True),
    *(pool("adaptive_avg_pool1d", size) for size in (4, 12)),
    *(pool("adaptive_avg_pool2d", size) for size in (1, (4, None), (3, 5))),
    *(pool("adaptive_avg_pool3d", size) for size in (2, (1, 3, 7))),
    resize(1, size=7),
    resize(1, scale_factor=2.5),
    resize(2, size=(4, 13)),
    resize(2, scale_factor=(2.0, 0.7)),
    resize(3, size=(3, 8, 5)),
    resize(1, size=11, mode="linear"),
    resize(2, size=(4, 13), mode="bilinear"),
    resize(2, size=(4, 13), **CORNERS),
    resize(2, size=(1, 1), **CORNERS),
    resize(2, scale_factor=(2.3, 0.7), mode="bilinear"),
    resize(2, size=(9, 12), mode="bicubic"),
    resize(2, size=(9, 3), mode="bicubic", align_corners=True),
    resize(3, scale_factor=2.0, mode="trilinear"),
    *(row("layer_norm", (2, 3, 4, 5), part, part) for part in [(5,), (4, 5), (3, 4, 5)]),
    row("layer_norm", (2, 3, 4, 5), normalized_shape=[4, 5], eps=0.1),
    *(row("rms_norm", (2, 3, 4, 5), part, eps=1e-6) for part in [(5,), (4, 5)]),
    *(row("group_norm", (4, 6), (6,), (6,), num_groups=groups) for groups in (1, 3)),
    *(row("group_norm", (2, 5, 6), (6,), (6,), num_groups=groups) for groups in (2, 6)),
    row("group_norm", (2, 3, 4, 6), (6,), (6,), num_groups=3),
    *(row("instance_norm", (*s, 3), (3,), (3,)) for s in [(2, 5), (2, 5, 4), (2, 3, 4, 2)]),
    *(
        row("local_response_norm", (2, 4, 6), size=size, alpha=0.3, beta=0.6, k=1.5)
        for size in (1, 2, 3, 5)
    ),
    attend(),
    attend(mask=DRAWS.random((4, 6)) > 0.3),
    attend(mask=DRAWS.random((2, 1, 4, 6)) > 0.3),
    attend(mask=DRAWS.normal(size=(3, 4, 6))),
    attend(mask=np.where(DRAWS.random((4, 6)) > 0.3, 0, -np.inf)),
    *(attend(*lengths, is_causal=True, scale=0.3) for lengths in [(4, 6), (6, 4), (5, 5)]),
]


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
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    return torch.tensor(value.astype("f8") if value.dtype.kind == "f" else value)


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
    of_layers = {"linear", "bilinear", "embedding", "batch_norm", "ctc_loss"}
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
