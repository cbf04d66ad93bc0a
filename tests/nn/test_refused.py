"""Arguments and inputs that no layer takes: each is refused by name, in one line.

A row is a call, and the error with a pattern that its text holds.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.nn.conftest import assert_refused, refused_rows

REFUSED = r"""
ReLU(slope=1) -> ArgumentTypeError: ReLU.* got an unexpected keyword argument 'slope'
MultiHeadAttention(8, 2)(ones((5, 8)), value=ones((4, 8)))
    -> ArgumentTypeError: value was given without key
MultiHeadAttention(8, 3) -> ArgumentError: 8 features cannot be divided into 3 heads
MultiHeadAttention(6, 2, rotary=True)
    -> ArgumentError: an even number of features in each head, got 3
Conv2d(3, 4, 3, groups=2) -> ArgumentError: in_channels=3 cannot be divided into 2 groups
Conv2d(4, 3, 3, groups=2) -> ArgumentError: out_channels=3 cannot be divided into 2 groups
Conv2d(3, 4, (3, 3, 3)) -> ArgumentError: kernel_size must be a number or 2 of them, got \[3, 3, 3\]
Conv2d(3, 4, 3, padding="full")
    -> ArgumentError: padding must be 'SAME', 'VALID' or numbers, got 'full'
ConvTranspose2d(3, 4, 3, output_padding=-1) -> ArgumentError: output_padding must be at least 0
DepthwiseConv2d(3, 3, groups=1)
    -> ArgumentTypeError: unexpected keyword argument 'groups'
Dropout(0.5, key="a") -> ArgumentTypeError: a seed must be an integer
Flatten(2, 1)(ones((2, 3, 4))) -> ShapeError: axes 2 to 1 cannot be joined in float32\[2, 3, 4\]
Flatten(0, 7)(ones(3)) -> ShapeError: axes 0 to 7
Linear(3, True) -> ArgumentTypeError: out_features
Linear(3, 2, weight_initializer="zeros")
    -> ArgumentTypeError: weight_initializer must be an initializer
Embedding(3, 2, padding_idx=3) -> ArgumentError: padding_idx must lie in -3 to 2, got 3
Embedding(3, 2, max_norm=-1) -> ArgumentError: max_norm must be
Embedding(3, 2, norm_type="a") -> ArgumentTypeError: norm_type must be a number
BatchNorm2d(3)(ones((2, 4, 4, 5)))
    -> ShapeError: BatchNorm2d: x must have axes \(\*batch, H, W, 3\), got float32\[2, 4, 4, 5\]
BatchNorm1d(3)(ones((4, 3)), {StateKey("a"): 1}) -> ArgumentTypeError: call nb.export_state first
export_state(BatchNorm1d(3))[0](ones((4, 3))) -> ArgumentTypeError: y, state = layer
GroupNorm(2, 4)(ones((2, 6)))
    -> ShapeError: GroupNorm: x must have axes \(\*batch, 4\), got float32\[2, 6\]
GroupNorm(2, 5) -> ArgumentError: 5 channels cannot be divided into 2 groups
LayerNorm((3, 0)) -> ArgumentError: normalized_shape must be at least 1, got 0
AvgPool2d(2, divisor_override=0)(ones((4, 4, 1))) -> ArgumentError: must not be zero
AdaptiveAvgPool2d((1, 2, 3))
    -> ArgumentError: output_size must be a number or 2 of them, got \[1, 2, 3\]
Upsample() -> ArgumentError: give size or scale_factor
Upsample(scale_factor=-1) -> ArgumentError: scale_factor must be above 0, got -1
Upsample(scale_factor=(1, 2, 3)) -> ArgumentError: scale_factor must be a number or 2 of them
SinusoidalPositionalEncoding(4)(ones((5, 3)))
    -> ShapeError: x must have shape \[5, 4\] .*got float32\[5, 3\]
LearnedPositionalEncoding(4, 3)(ones((5, 3)))
    -> ShapeError: length of at most 4, 3\), got float32\[5, 3\]
RotaryPositionalEncoding(base=0)(ones((2, 2))) -> ArgumentError: base must be above 0, got 0
SinusoidalPositionalEncoding(4, base="a") -> ArgumentTypeError: base must be a number
LSTM(3, 4)(ones((2, 5, 2)))
    -> ShapeError: LSTM: x must have shape \[2, 5, 3\] .*got float32\[2, 5, 2\]
LSTM(3, 4)(ones(3)) -> ShapeError: x must have axes \(\*batch, time, features\), got float32\[3\]
GRU(3, 4)(ones((2, 5, 3)), ones((2, 4)))
    -> ShapeError: h must have shape \[1, 2, 4\] .*got float32\[2, 4\]
LSTM(3, 4)(ones((2, 5, 3)), ones((1, 2, 4)))
    -> ArgumentTypeError: a pair \(h, c\) of arrays, got ArrayImpl
MultiHeadAttention(8, 4, num_kv_heads=3) -> ArgumentError: must divide the 4 heads, got 3
MultiHeadAttention(8, 2, rotary_base=0) -> ArgumentError: rotary_base
HEADS(ones((1, 3, 8)), cache=HEADS.init_cache(4, batch=2))
    -> ShapeError: for leading axes \[2\], got \[1\]
HEADS(ones((1, 3, 8)), ones((1, 3, 8)), cache=HEADS.init_cache(4))
    -> ArgumentTypeError: of self-attention
HEADS.init_cache(0) -> ArgumentError: max_length must be at least 1
Uniform(1, "fan")
    -> ArgumentError: Uniform: fan_mode must be one of 'fan_in', 'fan_out', .*, got 'fan'
RandomNormal(std=-1) -> ArgumentError: RandomNormal: std must be at least 0, got -1
TruncatedNormal(lower=2.0) -> ArgumentError: lower must be less than upper, got 2\.0, 2\.0
Siren(0) -> ArgumentError: Siren: w0 must be above zero
Orthogonal(np.nan) -> ArgumentError: Orthogonal: gain must be finite, got nan
RandomNormal("0") -> ArgumentTypeError: RandomNormal: mean must be a number, got '0'
Constant([1]) -> ArgumentTypeError: Constant takes a number, got list
Constant(0.5).create_variables((2,), dtype="int32")
    -> DtypeError: Constant\(0\.5\) cannot be held in dtype int32
Siren().create_variables((2, 3), fan_in=-1) -> ArgumentError: Siren: fan_in must be at least 0
Siren().create_variables((2, 3), fan_out="2")
    -> ArgumentTypeError: fan_out must be a number, got '2'
Zeros().create_variables((2, -3)) -> ArgumentError: sizes must be at least 0, got shape \(2, -3\)
Zeros().create_variables(3) -> ArgumentTypeError: expected a shape such as \(3, 4\), got 3
Linear(3, 2, weight_initializer=GlorotUniform)
    -> ArgumentTypeError: ^Linear: weight_initializer must be an initializer .*Make one: GlorotUniform
Linear(3, 2, weight_initializer=jax.nn.initializers.he_normal)
    -> ArgumentTypeError: got he_normal, which makes an initializer.*Call it: he_normal\(\.\.\.\)
Linear(3, 2, weight_initializer="glorot_uniform")
    -> ArgumentTypeError: got 'glorot_uniform': use nb\.GlorotUniform\(\)\.
Linear(3, 2, weight_initializer=np.ones((2, 3)))
    -> ArgumentTypeError: a function of \(key, shape, dtype\).*got ndarray
Linear(3, 2, weight_initializer=lambda tensor: tensor) -> ArgumentTypeError: got <lambda>\(tensor\)
Sequential(ReLU(), 3)
    -> ArgumentTypeError: a layer must be a module or a function, got int
Sequential(ReLU()).append("relu") -> ArgumentTypeError: got str
Sequential(ReLU()).insert(0, ReLU(), "name") -> ArgumentError: its layers have no names
NAMED.append(ReLU(), "last") -> ArgumentError: has a layer named 'last' already
NAMED.append(ReLU(), "a.b") -> ArgumentError: str without '\.' and '/', got 'a\.b'
Sequential({1: ReLU(), "1": ReLU()}) -> ArgumentError: has a layer named '1' already
Sequential(ReLU())[3] -> LayerIndexError: Sequential has 1 layers, there is no layer 3
Sequential(ReLU())["first"] -> PathError: no layer named "first".* none
NAMED["lats"] -> PathError: the closest name is "last"
NAMED[1.0] -> ArgumentTypeError: by a number, a name or a slice, got 1.0
Residual(Linear(3, 2))(ones((5, 3)))
    -> ShapeError: returned shape \[5, 2\] for an input of shape \[5, 3\]
Lambda(3) -> ArgumentTypeError: got int
RNN(3, 4, nonlinearity="sin")
    -> ArgumentError: nonlinearity must be one of 'tanh', 'relu', got 'sin'
LSTM(3, 4, dropout_rate=0.5) -> ArgumentError: acts between layers, and there is one layer
FFT(norm="none")(ones(4)) -> ArgumentError: norm must be one of 'backward', 'ortho', 'forward', got
DCT(5)(ones(4)) -> ArgumentError: type must be 1, 2, 3 or 4, got 5
TransformerEncoderLayer(8, 2, 0) -> ArgumentError: hidden_features must be at least 1
TransformerEncoderLayer(8, 2, activation="relu")
    -> ArgumentTypeError: activation must be a function or a module, got 'relu'
TransformerEncoder(1, 8, 2, final_norm="no") -> ArgumentTypeError: final_norm must be True or False
SpectralNorm(jnp.tanh) -> ArgumentTypeError: expected a layer with a weight, got
WeightNorm(ReLU()) -> ArgumentError: ReLU has no parameter 'weight'; its own parameters are: none
WeightNorm(Linear(2, 3), name="wieght") -> ArgumentError: its own parameters are: bias, weight
SpectralNorm(Linear(2, 3), axis=2) -> ArgumentError: axis must lie in -2 to 1
SpectralNorm(Linear(2, 3), num_iterations=0) -> ArgumentError: num_iterations must be at least 1
SpectralNorm(Linear(2, 3), eps=0) -> ArgumentError: eps must be above 0
export_state(SpectralNorm(Linear(2, 3)))[0](ones(2)) -> ArgumentTypeError: y, state = layer
"""
NAMES = {**vars(nb.nn), "jax": jax, "jnp": jnp, "np": np, "ones": jnp.ones, "zeros": jnp.zeros}
NAMES |= {name: getattr(nb, name) for name in nb.__all__}
NAMES |= {"HEADS": nb.MultiHeadAttention(8, 2), "NAMED": nb.Sequential({"last": nb.ReLU()})}


@pytest.mark.parametrize(("call", "wanted", "names"), refused_rows(REFUSED, NAMES))
def test_bad_input_is_refused_in_one_line(call, wanted, names):
    assert_refused(call, wanted, names)
