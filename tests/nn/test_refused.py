"""Arguments and inputs that no layer or function takes: each is refused by name, in one line.

A row is a call, and the error with a pattern that its text holds; other lines name arrays for the
rows below.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.nn import functional as F

from jax_settings import spelled

REFUSED = r"""
ReLU(slope=1) -> ArgumentTypeError: ReLU.* got an unexpected keyword argument 'slope'
MultiHeadAttention(8, 2)(ones((5, 8)), value=ones((4, 8)))
    -> ArgumentTypeError: value was given without key
MultiHeadAttention(8, 3) -> ArgumentError: 8 features cannot be divided into 3 heads
MultiHeadAttention(6, 2, rotary=True) -> ArgumentError: an even number of features in each head
Conv2d(3, 4, 3, groups=2) -> ArgumentError: in_channels=3 cannot be divided into 2 groups
Conv2d(4, 3, 3, groups=2) -> ArgumentError: out_channels=3 cannot be divided into 2 groups
Conv2d(3, 4, (3, 3, 3)) -> ArgumentError: kernel_size must be a number or 2 of them, got \[3, 3, 3\]
Conv2d(3, 4, 3, padding="full") -> ArgumentError: 'SAME', 'VALID' or numbers, got 'full'
ConvTranspose2d(3, 4, 3, output_padding=-1) -> ArgumentError: output_padding must be at least 0
DepthwiseConv2d(3, 3, groups=1) -> ArgumentTypeError: unexpected keyword argument 'groups'
Dropout(0.5, key="a") -> ArgumentTypeError: a seed must be an integer
Flatten(2, 1)(ones((2, 3, 4))) -> ShapeError: axes 2 to 1 cannot be joined in float32\[2, 3, 4\]
Flatten(0, 7)(ones(3)) -> ShapeError: axes 0 to 7
Linear(3, True) -> ArgumentTypeError: out_features
Linear(3, 2, weight_initializer="zeros") -> ArgumentTypeError: must be an initializer
Embedding(3, 2, padding_idx=3) -> ArgumentError: padding_idx must lie in -3 to 2, got 3
Embedding(3, 2, max_norm=-1)(jnp.array([1])) -> ArgumentError: max_norm must be
Embedding(3, 2, norm_type="a")(jnp.array([1])) -> ArgumentTypeError: norm_type must be a number
BatchNorm2d(3)(ones((2, 4, 4, 5))) -> ShapeError: x must have axes \(\*batch, H, W, 3\)
BatchNorm1d(3)(ones((4, 3)), {StateKey("a"): 1}) -> ArgumentTypeError: call nb.export_state first
export_state(BatchNorm1d(3))[0](ones((4, 3))) -> ArgumentTypeError: y, state = layer
GroupNorm(2, 4)(ones((2, 6))) -> ShapeError: x must have axes \(\*batch, 4\), got float32\[2, 6\]
GroupNorm(2, 5) -> ArgumentError: 5 channels cannot be divided into 2 groups
LayerNorm((3, 0)) -> ArgumentError: normalized_shape must be at least 1, got 0
AdaptiveAvgPool2d((1, 2, 3)) -> ArgumentError: output_size must be a number or 2 of them
Upsample() -> ArgumentError: give size or scale_factor
SinusoidalPositionalEncoding(4)(ones((5, 3))) -> ShapeError: x must have shape \[5, 4\] .*got
LearnedPositionalEncoding(4, 3)(ones((5, 3))) -> ShapeError: length of at most 4, 3\)
RotaryPositionalEncoding(base=0)(ones((2, 2))) -> ArgumentError: base must be above 0, got 0
SinusoidalPositionalEncoding(4, base="a") -> ArgumentTypeError: base must be a number
LSTM(3, 4)(ones((2, 5, 2))) -> ShapeError: x must have shape \[2, 5, 3\] .*got float32\[2, 5, 2\]
LSTM(3, 4)(ones(3)) -> ShapeError: x must have axes \(\*batch, time, features\), got float32\[3\]
GRU(3, 4)(ones((2, 5, 3)), ones((2, 4))) -> ShapeError: h must have shape \[1, 2, 4\] .*got
LSTM(3, 4)(ones((2, 5, 3)), ones((1, 2, 4))) -> ArgumentTypeError: a pair \(h, c\) of arrays
MultiHeadAttention(8, 4, num_kv_heads=3) -> ArgumentError: must divide the 4 heads, got 3
MultiHeadAttention(8, 2, rotary_base=0) -> ArgumentError: rotary_base
HEADS(ones((1, 3, 8)), cache=HEADS.init_cache(4, batch=2)) -> ShapeError: for leading axes \[2\]
HEADS(ones((1, 3, 8)), ones((1, 3, 8)), cache=HEADS.init_cache(4))
    -> ArgumentTypeError: of self-attention
HEADS.init_cache(0) -> ArgumentError: max_length must be at least 1
Uniform(1, "fan") -> ArgumentError: fan_mode must be one of 'fan_in', 'fan_out', .*, got 'fan'
RandomNormal(std=-1) -> ArgumentError: RandomNormal: std must be at least 0, got -1
TruncatedNormal(lower=2.0) -> ArgumentError: lower must be less than upper, got 2\.0, 2\.0
Siren(0) -> ArgumentError: Siren: w0 must be above zero
Orthogonal(np.nan) -> ArgumentError: Orthogonal: gain must be finite, got nan
RandomNormal("0") -> ArgumentTypeError: RandomNormal: mean must be a number, got '0'
Constant([1]) -> ArgumentTypeError: Constant takes a number, got list
Constant(0.5).create_variables((2,), dtype="int32") -> DtypeError: Constant\(0\.5\) cannot be held
Siren().create_variables((2, 3), fan_in=-1) -> ArgumentError: Siren: fan_in must be at least 0
Siren().create_variables((2, 3), fan_out="2") -> ArgumentTypeError: fan_out must be a number
Zeros().create_variables((2, -3)) -> ArgumentError: sizes must be at least 0, got shape \(2, -3\)
Zeros().create_variables(3) -> ArgumentTypeError: expected a shape such as \(3, 4\), got 3
Linear(3, 2, weight_initializer=GlorotUniform) -> ArgumentTypeError: Make one: GlorotUniform
Linear(3, 2, weight_initializer=jax.nn.initializers.he_normal)
    -> ArgumentTypeError: got he_normal, which makes an initializer.*Call it: he_normal\(\.\.\.\)
Linear(3, 2, weight_initializer="glorot_uniform") -> ArgumentTypeError: use nb\.GlorotUniform\(\)
Linear(3, 2, weight_initializer=np.ones((2, 3))) -> ArgumentTypeError: shape, dtype\).*got ndarray
Linear(3, 2, weight_initializer=lambda tensor: tensor) -> ArgumentTypeError: got <lambda>\(tensor\)
Sequential(ReLU(), 3) -> ArgumentTypeError: a layer must be a module or a function, got int
Sequential(ReLU()).append("relu") -> ArgumentTypeError: got str
Sequential(ReLU()).insert(0, ReLU(), "name") -> ArgumentError: its layers have no names
NAMED.append(ReLU(), "last") -> ArgumentError: has a layer named 'last' already
NAMED.append(ReLU(), "a.b") -> ArgumentError: str without '\.' and '/', got 'a\.b'
Sequential({1: ReLU(), "1": ReLU()}) -> ArgumentError: has a layer named '1' already
Sequential(ReLU())[3] -> LayerIndexError: Sequential has 1 layers, there is no layer 3
Sequential(ReLU())["first"] -> PathError: no layer named "first".* none
NAMED["lats"] -> PathError: the closest name is "last"
NAMED[1.0] -> ArgumentTypeError: by a number, a name or a slice, got 1.0
Residual(Linear(3, 2))(ones((5, 3))) -> ShapeError: returned shape \[5, 2\] for an input of shape
Lambda(3) -> ArgumentTypeError: got int
RNN(3, 4, nonlinearity="sin") -> ArgumentError: nonlinearity must be one of 'tanh', 'relu'
LSTM(3, 4, dropout_rate=0.5) -> ArgumentError: acts between layers, and there is one layer
TransformerEncoderLayer(8, 2, 0) -> ArgumentError: hidden_features must be at least 1
TransformerEncoderLayer(8, 2, activation="relu") -> ArgumentTypeError: activation must be a function
TransformerEncoder(1, 8, 2, final_norm="no") -> ArgumentTypeError: final_norm must be True or False
SpectralNorm(jnp.tanh) -> ArgumentTypeError: expected a layer with a weight, got
WeightNorm(ReLU()) -> ArgumentError: ReLU has no parameter 'weight'; its own parameters are: none
WeightNorm(Linear(2, 3), name="wieght") -> ArgumentError: its own parameters are: bias, weight
SpectralNorm(Linear(2, 3), axis=2) -> ArgumentError: axis must lie in -2 to 1
SpectralNorm(Linear(2, 3), num_iterations=0) -> ArgumentError: num_iterations must be at least 1
SpectralNorm(Linear(2, 3), eps=0) -> ArgumentError: eps must be above 0
export_state(SpectralNorm(Linear(2, 3)))[0](ones(2)) -> ArgumentTypeError: y, state = layer
# activations
prelu(ones((4, 3)), ones(2)) -> ShapeError: weight must hold one slope or 3, as many as x
prelu(ones((4, 3)), ones((3, 3))) -> ShapeError: weight must have one axis or none
glu(ones((2, 3))) -> ShapeError: axis 1 must have an even size, to be halved, got float32\[2, 3\]
softmax(ones((2, 3)), axis=2) -> ArgumentError: axis must lie in -2 to 1 for .* 2 axes, got 2
log_softmax(ones((2, 3)), axis=(0, 1)) -> ArgumentTypeError: axis must be an integer, got \(0, 1\)
softplus(ones(2), beta=0.0) -> ArgumentError: beta must be above 0, got 0\.0
celu(ones(2), alpha=0) -> ArgumentError: alpha must not be zero
logit(ones(2), eps=0.7) -> ArgumentError: eps must be at least 0 and at most 0\.5, got 0\.7
leaky_relu(ones(2), negative_slope=jnp.float32(0.1)) -> ArgumentTypeError: must be a Python value
# linear
W = jnp.ones((4, 5))
linear(ones((2, 3)), W) -> ShapeError: x must have 5 features on its last axis
linear(ones(5), ones(5)) -> ShapeError: weight must have axes \(out_features, in_features\), got
linear(ones(5), W, ones(5)) -> ShapeError: bias must have shape \[4\] \(one for each row of weight\)
linear("12", W) -> ArgumentTypeError: x must be an array, got str
bilinear(ones((2, 3)), ones((2, 5)), ones((6, 3, 4))) -> ShapeError: x2 must have 4 features
bilinear(ones((2, 3)), ones((1, 4)), ones((6, 3, 4))) -> ShapeError: the same leading axes
bilinear(ones((2, 3)), ones((2, 4)), ones((3, 4)))
    -> ShapeError: weight must have axes \(out_features, in1_features, in2_features\), got
bilinear(ones((2, 3)), ones((2, 4)), ones((6, 3, 4)), ones(4))
    -> ShapeError: bias must have shape \[6\] \(one for each matrix of weight\)
embedding(jnp.array([1]), ones(4)) -> ShapeError: weight must have axes \(num_embeddings, features\)
embedding(jnp.array([1]), W, padding_idx=4) -> ArgumentError: padding_idx must lie in -4 to 3, got 4
embedding(jnp.array([1]), W, max_norm=0) -> ArgumentError: max_norm must be above 0, got 0
# attention
X, Y = jnp.ones((2, 4, 6)), jnp.ones((2, 5, 6))
scaled_dot_product_attention(X, ones((2, 5, 7)), Y) -> ShapeError: query and key must have as many features
scaled_dot_product_attention(X, Y, X) -> ShapeError: key and value must have as many positions
scaled_dot_product_attention(X, ones((3, 5, 6)), ones((3, 5, 6)))
    -> ShapeError: leading axes must fit together
scaled_dot_product_attention(X[0, 0], Y, Y) -> ShapeError: query must have axes
scaled_dot_product_attention(X, Y, Y, ones((4, 4), bool)) -> ShapeError: mask must broadcast to
scaled_dot_product_attention(X, Y, Y, ones((4, 5), int)) -> DtypeError: mask must hold booleans
scaled_dot_product_attention(X, Y, Y, dropout_rate=0.1) -> ArgumentError: dropout_rate 0\.1 needs
multi_head_attention(X, Y, Y, 4) -> ShapeError: 4 heads must divide the 6 features of query
multi_head_attention(X, Y, Y, 2, key_mask=ones((2, 4), bool))
    -> ShapeError: key_mask must have shape \[2, 5\] \(one for each key\)
multi_head_attention(X, Y, Y, 2, key_mask=ones((2, 5))) -> DtypeError: key_mask must hold booleans
split_heads(X, 0) -> ArgumentError: num_heads must be at least 1, got 0
merge_heads(X[0]) -> ShapeError: x must have axes \(\*batch, num_heads, length, head_features\)
# classification
X, LABELS = jnp.ones((2, 3)), jnp.array([0, 2])
cross_entropy(LABELS, X) -> ArgumentError: float32\[2, 3\] look swapped
cross_entropy(X, jnp.array([0, 1, 2])) -> ShapeError: hold labels of shape \[2\] or prob
cross_entropy(X, ones(2)) -> DtypeError: integer labels, .*: target.astype\("int32"\)
cross_entropy(X, LABELS, weight=ones(2)) -> ShapeError: weight must have shape \[3\]
cross_entropy(X, LABELS, label_smoothing=2.0) -> ArgumentError: must be .* at most 1, got
cross_entropy(X, LABELS, reduction="avg") -> ArgumentError: reduction must be one of 'mean', 'sum'
binary_cross_entropy(X, ones((2, 1))) -> ShapeError: float32\[2, 1\]; they are not broadcast
binary_cross_entropy(X, X, pos_weight=ones(2)) -> ShapeError: pos_weight must broadcast to
kl_div(X, X, reduction="all") -> ArgumentError: reduction must be one of 'mean', 'batchmean', 'sum'
kl_div(jnp.float32(1), jnp.float32(1), reduction="batchmean") -> ShapeError: must have a batch axis
hinge_loss(X, LABELS) -> ShapeError: .* the same shape, got float32\[2, 3\] and int32\[2\]
ctc_loss(X, jnp.array([[1, 2]])) -> ShapeError: must share their leading axes, got float32\[2, 3\]
ctc_loss(X, jnp.array([1]), jnp.array([2])) -> ShapeError: prediction_lengths must have shape \[\]
ctc_loss(X, jnp.array([1]), blank=3) -> ArgumentError: blank must lie in -3 to 2, got 3
accuracy(ones((3, 2)), zeros(4, "int32")) -> ShapeError: labels of shape \[3\].*got int.*\[4\]
accuracy(ones(3), zeros(3, "int32")) -> ShapeError: For one score a position
# convolution
IMAGE, WEIGHT = jnp.ones((8, 8, 3)), jnp.ones((4, 3, 3, 3))
conv2d(ones((8, 8, 2)), WEIGHT) -> ShapeError: x must have 3 channels .*, read as NHWC
conv2d(ones((8, 8, 9)), ones((4, 3, 3, 3)), groups=3) -> ShapeError: divide the 4 output channels
conv2d(IMAGE[0], WEIGHT) -> ShapeError: x must have axes \(\*batch, H, W, C\), got float32\[8, 3\]
conv2d(IMAGE, WEIGHT[0]) -> ShapeError: weight must have axes \(out_channels, \*kernel, in_channels
conv2d(IMAGE, WEIGHT, ones(3)) -> ShapeError: bias must have shape \[4\]
conv2d(IMAGE[:2], WEIGHT) -> ShapeError: a window of \[3, 3\] does not fit into
conv2d(IMAGE, ones((4, 0, 3, 3))) -> ShapeError: the kernel must not be empty
conv2d(IMAGE, WEIGHT, data_format="NCW") -> ArgumentError: data_format must be 'NHWC' or 'NCHW'
conv2d(IMAGE, WEIGHT, stride=0) -> ArgumentError: stride must be at least 1, got 0
conv2d(IMAGE, WEIGHT, stride=(1, 2, 3)) -> ArgumentError: stride must be a number or 2 of them
conv2d(IMAGE, WEIGHT, padding=-1) -> ArgumentError: padding must be at least 0, got -1
conv2d(IMAGE, WEIGHT, padding="FULL") -> ArgumentError: padding must be 'SAME', 'VALID' or numbers
conv2d(IMAGE, WEIGHT, padding=((1, 2),)) -> ArgumentError: padding must hold 2 pairs
conv2d(IMAGE, WEIGHT, groups=0) -> ArgumentError: groups must be at least 1, got 0
conv2d(IMAGE, WEIGHT, stride=jnp.array(2)) -> ArgumentTypeError: stride must be a Python value
conv_transpose2d(IMAGE, WEIGHT, output_padding=1) -> ArgumentError: output_padding must be less than
conv_transpose2d(IMAGE[:1], WEIGHT, padding=2) -> ShapeError: padding 2 leaves nothing
depthwise_conv2d(IMAGE, ones((4, 3, 3, 1))) -> ShapeError: 3 groups must divide the 4
# dropout
KEY = jax.random.key(4)
dropout(ones(3), 1.5, KEY) -> ArgumentError: rate must be at least 0 and at most 1, got 1\.5
dropout(ones(3), "half", KEY) -> ArgumentTypeError: rate must be a number, got 'half'
dropout(ones(3), ones(3), KEY) -> ArgumentError: rate must be one number, got float32\[3\]
dropout(ones(3), 0.5, None) -> ArgumentTypeError: key must be one JAX key, or its data uint32\[2\]
dropout(ones(3), 0.5, KEY, shared_axes=(1,)) -> ArgumentError: axis must lie in -1 to 0 .* got 1
# normalization
X = jnp.ones((2, 5, 4, 6))
batch_norm(X, ones(5), ones(6)) -> ShapeError: mean must have shape \[6\]
batch_norm(X, ones(6), ones(6), eps=-1.0) -> ArgumentError: eps must be at least 0, got -1\.0
batch_norm_train(X[:1, :1, :1]) -> ShapeError: more than one value for each channel to learn from
batch_norm_train(X, momentum=1.5) -> ArgumentError: momentum must be at least 0 and at most 1
layer_norm(X, ones(4)) -> ShapeError: x must end with the normalized shape \[4\], got
layer_norm(X, ones(6), ones(5)) -> ShapeError: bias must have shape \[6\] \(the normalized shape\)
group_norm(X, 4) -> ShapeError: 4 groups must divide the 6 channels of x float32\[2, 5, 4, 6\]
group_norm(X, 0) -> ArgumentError: num_groups must be at least 1, got 0
group_norm(X, 2, data_format="NHW") -> ArgumentError: data_format must be one of 'NC', 'NWC'
group_norm(X[0, 0], 2, data_format="NHWC") -> ShapeError: x must have axes \(\*batch, H, W, C\)
instance_norm(X[:, :1, :1]) -> ShapeError: x must have more than one pixel, got .*, read as N\.\.\.C
local_response_norm(X, 2.0) -> ArgumentTypeError: size must be an integer, got 2\.0
# pooling
IMAGE = jnp.ones((8, 8, 3))
max_pool2d(IMAGE, 9) -> ShapeError: a window of \[9, 9\] does not fit into x float32\[8, 8, 3\]
max_pool2d(IMAGE, 3, padding=2) -> ArgumentError: padding must be at most half the window, got 2
max_pool2d(IMAGE, 0) -> ArgumentError: kernel_size must be at least 1, got 0
max_pool2d(ones((4, 4, 1), bool), 2) -> DtypeError: hold numbers, got bool.* Convert it first: x.astype\("uint8"\)
avg_pool2d(IMAGE, 2, divisor_override=0) -> ArgumentError: divisor_override must not be zero
adaptive_avg_pool2d(IMAGE, (1, 2, 3)) -> ArgumentError: output_size must be a number or 2 of them
adaptive_avg_pool2d(IMAGE[:, :0], 1) -> ShapeError: x must have pixels, got float32\[8, 0, 3\]
# positions
time_embedding(ones(2), 5) -> ShapeError: features must be even, a sine and a cosine for each wave
rotary_embedding(ones((4, 5))) -> ShapeError: x must have an even number of features
rotary_embedding(ones((4, 6)), jnp.arange(3)) -> ShapeError: positions must broadcast to \[4\]
rotary_embedding(ones(4)) -> ShapeError: x must have axes \(\*batch, length, features\)
sinusoidal_positions(4, 0) -> ArgumentError: features must be at least 1, got 0
sinusoidal_positions(4, 6, base=0.0) -> ArgumentError: base must be above 0, got 0\.0
# recurrent
X, H, W = jnp.ones((2, 5, 3)), jnp.ones((2, 4)), [jnp.ones((16, 3)), jnp.ones((16, 4))]
lstm(X, None, W[0][:12], W[1]) -> ShapeError: weight_ih must have shape \[16, 3\]
lstm(X, None, W[0], W[1][:12]) -> ShapeError: weight_hh must have shape \[16, 4\] \(4 gates\)
lstm(X, (H, H[:1]), *W) -> ShapeError: c must have shape \[2, 4\]
lstm(X, H, *W) -> ShapeError: state must be a pair \(h, c\)
lstm(X[0, 0], None, *W) -> ShapeError: x must have axes \(\*batch, time, in_features\)
lstm(X, None, *W, ones(4)) -> ShapeError: bias_ih must have shape \[16\]
lstm(X, None, *W, lengths=jnp.array([1])) -> ShapeError: lengths must have shape \[2\]
rnn(X, None, ones((4, 3)), ones((4, 4)), nonlinearity="sin")
    -> ArgumentError: nonlinearity must be one of 'tanh', 'relu'
gru_cell(X[:, 0], H, W[0], W[1]) -> ShapeError: weight_hh must have shape \[12, 4\] \(3 gates\)
# regression
mse_loss(ones((4, 1)), ones(4)) -> ShapeError: prediction and target must have the same shape
huber_loss(ones(2), ones(2), delta=0.0) -> ArgumentError: delta must be above 0, got 0\.0
# resize
IMAGE = jnp.ones((4, 4, 1))
interpolate(IMAGE) -> ArgumentError: give size or scale_factor, got size=None and scale_factor=None
interpolate(IMAGE, 3, mode="linear") -> ArgumentError: mode 'linear' is not for 2 spatial axes
interpolate(IMAGE, 3, mode="cubic") -> ArgumentError: mode must be one of 'nearest', 'linear'
interpolate(IMAGE, 3, align_corners=True) -> ArgumentError: align_corners is not for mode 'nearest'
interpolate(IMAGE, scale_factor=0.1) -> ShapeError: scale_factor 0\.1 leaves nothing
interpolate(IMAGE, scale_factor=(1, 2, 3)) -> ArgumentError: number or 2 of them, got \[1, 2, 3\]
interpolate(IMAGE, scale_factor=-1.0) -> ArgumentError: scale_factor must be above 0, got -1\.0
interpolate(IMAGE, 3, data_format="HW") -> ArgumentError: data_format must be one of 'NWC'
interpolate(IMAGE[:0], 3) -> ShapeError: x must have pixels, got float32\[0, 4, 1\]
# spectral
fft(ones(4), norm="unitary") -> ArgumentError: norm must be one of 'backward', 'ortho', 'forward'
fft(ones(4), n=0) -> ArgumentError: n must be at least 1, got 0
fft(ones((2, 0))) -> ShapeError: axis 1 must not be empty, got float32\[2, 0\]
irfft(ones(1, complex)) -> ShapeError: axis 0 must have two values at least, or n be given
dct(ones(4), type=5) -> ArgumentError: type must be 1, 2, 3 or 4, got 5
dct(ones(1), type=1) -> ShapeError: type 1 needs two values at least on axis 0, got float32\[1\]
"""
NAMES = {"jax": jax, "jnp": jnp, "np": np, "ones": jnp.ones, "zeros": jnp.zeros, **vars(F)}
NAMES |= {name: getattr(nb, name) for name in nb.__all__}
NAMES |= {"HEADS": nb.MultiHeadAttention(8, 2), "NAMED": nb.Sequential({"last": nb.ReLU()})}


def rows():
    """A call, the error that it must raise, and the names in the call, for each row."""
    known = dict(NAMES)
    for line in REFUSED.strip().replace("\n    ->", " ->").splitlines():
        if " -> " in line:
            call, wanted = line.split(" -> ")
            yield pytest.param(call, wanted, dict(known), id=call)
        elif not line.startswith("#"):
            exec(line, known)


@pytest.mark.parametrize(("call", "wanted", "names"), list(rows()))
def test_bad_arguments_are_refused_in_one_line(call, wanted, names):
    kind, message = wanted.split(": ", 1)
    with pytest.raises(getattr(nb.errors, kind), match=spelled(message)) as caught:
        eval(call, names)
    assert "\n" not in str(caught.value)
    function = call.partition("(")[0]
    assert function not in F.__all__ or str(caught.value).startswith(f"{function}: ")
