"""Arguments and inputs that no function takes: each is refused by name, in one line.

A row is a call, and the error with a pattern that its text holds; other lines name arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn import functional as F
from tests.nn.conftest import assert_refused, refused_rows

REFUSED = r"""
# activations
prelu(ones((4, 3)), ones(2))
    -> ShapeError: prelu: weight must hold one slope or 3, as many as x has channels on axis 1, got
prelu(ones((4, 3)), ones((3, 3)))
    -> ShapeError: prelu: weight must have one axis or none, got float32\[3, 3\]
glu(ones((2, 3)))
    -> ShapeError: ^glu: axis 1 must have an even size, to be halved, got float32\[2, 3\]
softmax(ones((2, 3)), axis=2) -> ArgumentError: axis must lie in -2 to 1 for .* 2 axes, got 2
log_softmax(ones((2, 3)), axis=(0, 1))
    -> ArgumentTypeError: log_softmax: axis must be an integer, got \(0, 1\)
softplus(ones(2), beta=0.0) -> ArgumentError: softplus: beta must be above 0, got 0\.0
celu(ones(2), alpha=0) -> ArgumentError: celu: alpha must not be zero
logit(ones(2), eps=0.7) -> ArgumentError: eps must be at least 0 and at most 0\.5, got 0\.7
leaky_relu(ones(2), negative_slope=jnp.float32(0.1))
    -> ArgumentTypeError: negative_slope must be a Python value, .* float32\[\]
# linear
W = jnp.ones((4, 5))
linear(ones((2, 3)), W)
    -> ShapeError: ^linear: x must have 5 features on its last axis \(weight float32\[4, 5\]\), got
linear(ones(5), ones(5)) -> ShapeError: weight must have axes \(out_features, in_features\), got
linear(ones(5), W, ones(5)) -> ShapeError: bias must have shape \[4\] \(one for each row of weight\)
linear("12", W) -> ArgumentTypeError: linear: x must be an array, got str
bilinear(ones((2, 3)), ones((2, 5)), ones((6, 3, 4)))
    -> ShapeError: x2 must have 4 features on its last axis \(weight float32\[6, 3, 4\]\), got
bilinear(ones((2, 3)), ones((1, 4)), ones((6, 3, 4)))
    -> ShapeError: the same leading axes, got float32\[2, 3\] and float32\[1, 4\]
bilinear(ones((2, 3)), ones((2, 4)), ones((3, 4)))
    -> ShapeError: weight must have axes \(out_features, in1_features, in2_features\), got
bilinear(ones((2, 3)), ones((2, 4)), ones((6, 3, 4)), ones(4))
    -> ShapeError: bias must have shape \[6\] \(one for each matrix of weight\)
embedding(jnp.array([1]), ones(4))
    -> ShapeError: weight must have axes \(num_embeddings, features\)
embedding(jnp.array([1]), W, padding_idx=4) -> ArgumentError: padding_idx must lie in -4 to 3, got 4
embedding(jnp.array([1]), W, max_norm=0) -> ArgumentError: max_norm must be above 0, got 0
# attention
X, Y = jnp.ones((2, 4, 6)), jnp.ones((2, 5, 6))
scaled_dot_product_attention(X, ones((2, 5, 7)), Y)
    -> ShapeError: query and key must have as many features, got float32\[2, 4, 6\] and
scaled_dot_product_attention(X, Y, X)
    -> ShapeError: key and value must have as many positions, got float32\[2, 5, 6\] and
scaled_dot_product_attention(X, ones((3, 5, 6)), ones((3, 5, 6)))
    -> ShapeError: leading axes must fit together
scaled_dot_product_attention(X[0, 0], Y, Y)
    -> ShapeError: query must have axes \(\*batch, length, features\), got float32\[6\]
scaled_dot_product_attention(X, Y, Y, ones((4, 4), bool))
    -> ShapeError: mask must broadcast to \[2, 4, 5\], got bool\[4, 4\]
scaled_dot_product_attention(X, Y, Y, ones((4, 5), int))
    -> DtypeError: mask must hold booleans .*, got int32\[4, 5\]
scaled_dot_product_attention(X, Y, Y, dropout_rate=0.1)
    -> ArgumentError: dropout_rate 0\.1 needs a dropout_key
multi_head_attention(X, Y, Y, 4)
    -> ShapeError: 4 heads must divide the 6 features of query float32\[2, 4, 6\]
multi_head_attention(X, Y, Y, 2, key_mask=ones((2, 4), bool))
    -> ShapeError: key_mask must have shape \[2, 5\] \(one for each key\)
multi_head_attention(X, Y, Y, 2, key_mask=ones((2, 5)))
    -> DtypeError: key_mask must hold booleans, .* got float32\[2, 5\]
split_heads(X, 0) -> ArgumentError: num_heads must be at least 1, got 0
merge_heads(X[0])
    -> ShapeError: x must have axes \(\*batch, num_heads, length, head_features\), got float32\[4,
# classification
X, LABELS = jnp.ones((2, 3)), jnp.array([0, 2])
cross_entropy(LABELS, X)
    -> ArgumentError: ^cross_entropy: prediction int32\[2\] and target float32\[2, 3\] look
cross_entropy(X, jnp.array([0, 1, 2]))
    -> ShapeError: target must hold labels of shape \[2\] or probabilities of shape \[2, 3\] .*,
cross_entropy(X, ones(2))
    -> DtypeError: target of shape \[2\] must hold integer labels, got float32\[2\]
cross_entropy(X, LABELS, weight=ones(2))
    -> ShapeError: weight must have shape \[3\] \(one for each class\)
cross_entropy(X, LABELS, label_smoothing=2.0)
    -> ArgumentError: label_smoothing must be .* at most 1, got 2\.0
cross_entropy(X, LABELS, reduction="avg")
    -> ArgumentError: reduction must be one of 'mean', 'sum', 'none', got 'avg'
binary_cross_entropy(X, ones((2, 1)))
    -> ShapeError: got float32\[2, 3\] and float32\[2, 1\]; they are not
binary_cross_entropy(X, X, pos_weight=ones(2))
    -> ShapeError: pos_weight must broadcast to .*, got float32\[2\]
kl_div(X, X, reduction="all")
    -> ArgumentError: reduction must be one of 'mean', 'batchmean', 'sum', 'none', got 'all'
kl_div(jnp.float32(1), jnp.float32(1), reduction="batchmean")
    -> ShapeError: prediction must have a batch axis
hinge_loss(X, LABELS)
    -> ShapeError: hinge_loss: .* the same shape, got float32\[2, 3\] and int32\[2\]
ctc_loss(X, jnp.array([[1, 2]]))
    -> ShapeError: must share their leading axes, got float32\[2, 3\] and int32\[1, 2\]
ctc_loss(X, jnp.array([1]), jnp.array([2]))
    -> ShapeError: prediction_lengths must have shape \[\] \(one for each sequence\)
ctc_loss(X, jnp.array([1]), blank=3) -> ArgumentError: blank must lie in -3 to 2, got 3
accuracy(ones((3, 2)), zeros(4, "int32")) -> ShapeError: labels of shape \[3\].*got int.*\[4\]
accuracy(ones(3), zeros(3, "int32")) -> ShapeError: For one score a position
# convolution
IMAGE, WEIGHT = jnp.ones((8, 8, 3)), jnp.ones((4, 3, 3, 3))
conv2d(ones((8, 8, 2)), WEIGHT)
    -> ShapeError: ^conv2d: x must have 3 channels \(weight float32\[4, 3, 3, 3\]\), got 2 in x
conv2d(ones((8, 8, 9)), ones((4, 3, 3, 3)), groups=3)
    -> ShapeError: 3 groups must divide the 4 output channels
conv2d(IMAGE[0], WEIGHT) -> ShapeError: x must have axes \(\*batch, H, W, C\), got float32\[8, 3\]
conv2d(IMAGE, WEIGHT[0])
    -> ShapeError: weight must have axes \(out_channels, \*kernel, in_channels / groups\), got
conv2d(IMAGE, WEIGHT, ones(3))
    -> ShapeError: bias must have shape \[4\] \(one for each output channel\)
conv2d(IMAGE[:2], WEIGHT)
    -> ShapeError: a window of \[3, 3\] does not fit into x float32\[2, 8, 3\], padded to \[2, 8\]
conv2d(IMAGE, ones((4, 0, 3, 3))) -> ShapeError: the kernel must not be empty
conv2d(IMAGE, WEIGHT, data_format="NCW")
    -> ArgumentError: data_format must be 'NHWC' or 'NCHW', got 'NCW'
conv2d(IMAGE, WEIGHT, stride=0) -> ArgumentError: stride must be at least 1, got 0
conv2d(IMAGE, WEIGHT, stride=(1, 2, 3))
    -> ArgumentError: stride must be a number or 2 of them, got \[1, 2, 3\]
conv2d(IMAGE, WEIGHT, padding=-1) -> ArgumentError: padding must be at least 0, got -1
conv2d(IMAGE, WEIGHT, padding="FULL")
    -> ArgumentError: padding must be 'SAME', 'VALID' or numbers, got 'FULL'
conv2d(IMAGE, WEIGHT, padding=((1, 2),))
    -> ArgumentError: padding must hold 2 pairs \(before, after\)
conv2d(IMAGE, WEIGHT, groups=0) -> ArgumentError: groups must be at least 1, got 0
conv2d(IMAGE, WEIGHT, stride=jnp.array(2)) -> ArgumentTypeError: stride must be a Python value
conv_transpose2d(IMAGE, WEIGHT, output_padding=1)
    -> ArgumentError: output_padding must be less than stride or dilation
conv_transpose2d(IMAGE[:1], WEIGHT, padding=2)
    -> ShapeError: padding 2 leaves nothing of x float32\[1, 8, 3\]
depthwise_conv2d(IMAGE, ones((4, 3, 3, 1)))
    -> ShapeError: depthwise_conv2d: 3 groups must divide the 4 output channels
# dropout
KEY = jax.random.key(4)
dropout(ones(3), 1.5, KEY)
    -> ArgumentError: dropout: rate must be at least 0 and at most 1, got 1\.5
dropout(ones(3), "half", KEY) -> ArgumentTypeError: dropout: rate must be a number, got 'half'
dropout(ones(3), ones(3), KEY) -> ArgumentError: dropout: rate must be one number, got float32\[3\]
dropout(ones(3), 0.5, None)
    -> ArgumentTypeError: key must be one JAX key, or its data uint32\[2\], got NoneType
dropout(ones(3), 0.5, KEY, shared_axes=(1,)) -> ArgumentError: axis must lie in -1 to 0 .* got 1
# normalization
X = jnp.ones((2, 5, 4, 6))
batch_norm(X, ones(5), ones(6))
    -> ShapeError: ^batch_norm: mean must have shape \[6\] \(one for each channel on axis 3 of x
batch_norm(X, ones(6), ones(6), eps=-1.0) -> ArgumentError: eps must be at least 0, got -1\.0
batch_norm_train(X[:1, :1, :1])
    -> ShapeError: more than one value for each channel to learn from, got
batch_norm_train(X, momentum=1.5)
    -> ArgumentError: momentum must be at least 0 and at most 1, got 1\.5
layer_norm(X, ones(4)) -> ShapeError: x must end with the normalized shape \[4\], got
layer_norm(X, ones(6), ones(5))
    -> ShapeError: bias must have shape \[6\] \(the normalized shape\), got
group_norm(X, 4) -> ShapeError: 4 groups must divide the 6 channels of x float32\[2, 5, 4, 6\]
group_norm(X, 0) -> ArgumentError: num_groups must be at least 1, got 0
group_norm(X, 2, data_format="NHW")
    -> ArgumentError: data_format must be one of 'NC', 'NWC', .*, got 'NHW'
group_norm(X[0, 0], 2, data_format="NHWC")
    -> ShapeError: x must have axes \(\*batch, H, W, C\), got float32\[4, 6\]
instance_norm(X[:, :1, :1]) -> ShapeError: x must have more than one pixel, got .*, read as N\.\.\.C
local_response_norm(X, 2.0) -> ArgumentTypeError: size must be an integer, got 2\.0
# pooling
IMAGE = jnp.ones((8, 8, 3))
max_pool2d(IMAGE, 9)
    -> ShapeError: max_pool2d: a window of \[9, 9\] does not fit into x float32\[8, 8, 3\]
max_pool2d(IMAGE, 3, padding=2)
    -> ArgumentError: padding must be at most half the window, got 2 for .* \[3, 3\]
max_pool2d(IMAGE, 0) -> ArgumentError: kernel_size must be at least 1, got 0
max_pool2d(ones((4, 4, 1), bool), 2)
    -> DtypeError: hold numbers, got bool\[4, 4, 1\]. Convert it first: x.astype\("uint8"\)
avg_pool2d(IMAGE, 2, divisor_override=0) -> ArgumentError: divisor_override must not be zero
adaptive_avg_pool2d(IMAGE, (1, 2, 3)) -> ArgumentError: output_size must be a number or 2 of them
adaptive_avg_pool2d(IMAGE[:, :0], 1)
    -> ShapeError: adaptive_avg_pool2d: x must have pixels, got float32\[8, 0, 3\]
# positions
time_embedding(ones(2), 5)
    -> ShapeError: features must be even, a sine and a cosine for each wave, got 5
rotary_embedding(ones((4, 5)))
    -> ShapeError: x must have an even number of features, got float32\[4, 5\]
rotary_embedding(ones((4, 6)), jnp.arange(3))
    -> ShapeError: positions must broadcast to \[4\], got int32\[3\]
rotary_embedding(ones(4))
    -> ShapeError: x must have axes \(\*batch, length, features\), got float32\[4\]
sinusoidal_positions(4, 0) -> ArgumentError: features must be at least 1, got 0
sinusoidal_positions(4, 6, base=0.0) -> ArgumentError: base must be above 0, got 0\.0
# recurrent
X, H, W = jnp.ones((2, 5, 3)), jnp.ones((2, 4)), [jnp.ones((16, 3)), jnp.ones((16, 4))]
lstm(X, None, W[0][:12], W[1])
    -> ShapeError: lstm: weight_ih must have shape \[16, 3\] \(rows as in weight_hh, .*, got
lstm(X, None, W[0], W[1][:12])
    -> ShapeError: weight_hh must have shape \[16, 4\] \(4 gates\), got float32\[12, 4\]
lstm(X, (H, H[:1]), *W)
    -> ShapeError: c must have shape \[2, 4\] \(leading axes as in x float32\[2, 5, 3\], 4
lstm(X, H, *W) -> ShapeError: state must be a pair \(h, c\)
lstm(X[0, 0], None, *W)
    -> ShapeError: x must have axes \(\*batch, time, in_features\), got float32\[3\]
lstm(X, None, *W, ones(4))
    -> ShapeError: bias_ih must have shape \[16\] \(one for each row of weight_hh\)
lstm(X, None, *W, lengths=jnp.array([1]))
    -> ShapeError: lengths must have shape \[2\] \(one for each sequence\), got int32\[1\]
rnn(X, None, ones((4, 3)), ones((4, 4)), nonlinearity="sin")
    -> ArgumentError: nonlinearity must be one of 'tanh', 'relu'
gru_cell(X[:, 0], H, W[0], W[1])
    -> ShapeError: gru_cell: weight_hh must have shape \[12, 4\] \(3 gates\), got float32\[16, 4\]
# regression
mse_loss(ones((4, 1)), ones(4))
    -> ShapeError: ^mse_loss: prediction and target must have the same shape, got float32\[4, 1\]
huber_loss(ones(2), ones(2), delta=0.0) -> ArgumentError: delta must be above 0, got 0\.0
# resize
IMAGE = jnp.ones((4, 4, 1))
interpolate(IMAGE) -> ArgumentError: give size or scale_factor, got size=None and scale_factor=None
interpolate(IMAGE, 3, mode="linear")
    -> ArgumentError: mode 'linear' is not for 2 spatial axes \(NHWC\)
interpolate(IMAGE, 3, mode="cubic")
    -> ArgumentError: mode must be one of 'nearest', 'linear', .*, got 'cubic'
interpolate(IMAGE, 3, align_corners=True) -> ArgumentError: align_corners is not for mode 'nearest'
interpolate(IMAGE, scale_factor=0.1)
    -> ShapeError: scale_factor 0\.1 leaves nothing of x float32\[4, 4, 1\]
interpolate(IMAGE, scale_factor=(1, 2, 3)) -> ArgumentError: number or 2 of them, got \[1, 2, 3\]
interpolate(IMAGE, scale_factor=-1.0) -> ArgumentError: scale_factor must be above 0, got -1\.0
interpolate(IMAGE, 3, data_format="HW")
    -> ArgumentError: data_format must be one of 'NWC', .*, got 'HW'
interpolate(IMAGE[:0], 3) -> ShapeError: x must have pixels, got float32\[0, 4, 1\]
# spectral
fft(ones(4), norm="unitary")
    -> ArgumentError: norm must be one of 'backward', 'ortho', 'forward', got 'unitary'
fft(ones(4), n=0) -> ArgumentError: n must be at least 1, got 0
fft(ones((2, 0))) -> ShapeError: fft: axis 1 must not be empty, got float32\[2, 0\]
irfft(ones(1, complex))
    -> ShapeError: irfft: axis 0 must have two values at least, or n be given, got complex64\[1\]
dct(ones(4), type=5) -> ArgumentError: dct: type must be 1, 2, 3 or 4, got 5
dct(ones(1), type=1) -> ShapeError: type 1 needs two values at least on axis 0, got float32\[1\]
"""
NAMES = {**vars(F), "jax": jax, "jnp": jnp, "np": np, "ones": jnp.ones, "zeros": jnp.zeros}


@pytest.mark.parametrize(("call", "wanted", "names"), refused_rows(REFUSED, NAMES))
def test_bad_arguments_are_refused_in_one_line(call, wanted, names):
    assert_refused(call, wanted, names)
