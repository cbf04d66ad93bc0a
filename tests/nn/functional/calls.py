"""One table of calls of the functions, for the laws that all of them obey.

A row is the name, arrays or their shapes, and options. Images have their channels last; in each
batch of them the first has values without ties and the second whole numbers.
"""

import numpy as np

DRAWS = np.random.default_rng(7)
# Each activation sees values, kinks, and values near zero.
X = DRAWS.normal(scale=3, size=(6, 8)).astype("f")
X[0] = [0.0, -0.0, 6.0, -6.0, 1e-30, -1e-30, 3.0, -3.0]
P = DRAWS.uniform(0.01, 0.99, (5, 3)).astype("f")
SHARES = DRAWS.dirichlet(np.ones(4), 7).astype("f")
LABELS = np.array([0, 2, 3, 1, 2, 3, 0])
WEIGHT = DRAWS.uniform(0.5, 2, 4).astype("f")
TABLE = (DRAWS.normal(size=(5, 3)) * [[1], [1], [1], [1e-3], [1]]).astype("f")


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
    *(
        row("embedding", np.array([0, 2, 2, 3]), TABLE, max_norm=0.9, norm_type=norm_type)
        for norm_type in (2.0, 1.0, np.inf)
    ),
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
