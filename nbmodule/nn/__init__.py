"""Layers, one family in a file; the functions behind them; initializers; losses."""

from __future__ import annotations

from nbmodule.base import lazy

_HOMES = {
    "nbmodule.api.module": "Module",
    "nbmodule.core.variables.variable": "Parameter Buffer",
    "nbmodule.nn.linear": "Linear Bilinear Embedding Identity Flatten",
    ("nbmodule.nn.convolution"): (
        "Conv1d Conv2d Conv3d DepthwiseConv2d ConvTranspose1d ConvTranspose2d ConvTranspose3d"
    ),
    "nbmodule.nn.pooling": (
        "MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d "
        "AdaptiveAvgPool2d AdaptiveAvgPool3d Upsample"
    ),
    "nbmodule.nn.normalization": (
        "BatchNorm1d BatchNorm2d BatchNorm3d LayerNorm RMSNorm GroupNorm InstanceNorm "
        "LocalResponseNorm"
    ),
    "nbmodule.nn.dropout": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout",
    "nbmodule.nn.activation": (
        "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU GEGLU GLU SiLU Mish Softplus Softsign "
        "Sigmoid LogSigmoid Hardsigmoid Hardswish Tanh Softmax LogSoftmax Logit PReLU"
    ),
    "nbmodule.nn.containers": "Sequential Residual Lambda",
    "nbmodule.nn.recurrent": "RNN LSTM GRU RNNCell LSTMCell GRUCell",
    "nbmodule.nn.attention": "MultiHeadAttention",
    ("nbmodule.nn.transformer"): (
        "TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder TransformerDecoder"
    ),
    ("nbmodule.nn.positions"): (
        "SinusoidalPositionalEncoding LearnedPositionalEncoding RotaryPositionalEncoding "
        "TimeEmbedding"
    ),
    "nbmodule.nn.spectral": "FFT IFFT RFFT IRFFT DCT IDCT",
    "nbmodule.nn.weight_normalization": "SpectralNorm WeightNorm",
}
# the names of `nn.functional`
_FUNCTIONS = {
    "nbmodule.nn.functional.activations": (
        "celu elu geglu gelu glu hardsigmoid hardswish leaky_relu log_sigmoid log_softmax logit "
        "mish prelu relu relu6 selu sigmoid silu softmax softplus softsign tanh"
    ),
    "nbmodule.nn.functional.attention": (
        "merge_heads multi_head_attention scaled_dot_product_attention split_heads"
    ),
    "nbmodule.nn.functional.classification": (
        "accuracy binary_cross_entropy cross_entropy ctc_loss hinge_loss kl_div"
    ),
    "nbmodule.nn.functional.convolution": (
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d depthwise_conv2d"
    ),
    "nbmodule.nn.functional.dropout": "alpha_dropout dropout dropout1d dropout2d dropout3d",
    "nbmodule.nn.functional.linear": "bilinear embedding linear",
    "nbmodule.nn.functional.normalization": (
        "batch_norm batch_norm_train group_norm instance_norm layer_norm local_response_norm "
        "rms_norm"
    ),
    "nbmodule.nn.functional.pooling": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d "
        "avg_pool3d max_pool1d max_pool2d max_pool3d"
    ),
    "nbmodule.nn.functional.positions": "rotary_embedding sinusoidal_positions time_embedding",
    "nbmodule.nn.functional.recurrent": "gru gru_cell lstm lstm_cell rnn rnn_cell",
    "nbmodule.nn.functional.regression": (
        "cosine_loss cosine_similarity huber_loss log_poisson_loss mae_loss mse_loss"
    ),
    "nbmodule.nn.functional.resize": "interpolate",
    "nbmodule.nn.functional.spectral": "dct fft idct ifft irfft rfft",
}
_ROOMS = {"functional": "nbmodule.nn.functional", "initializers": "nbmodule.nn.initializers"}
_ALIASES = {
    f"{kind}{n}D": f"{kind}{n}d"
    for kind in ("Conv", "ConvTranspose", "MaxPool", "AvgPool", "BatchNorm", "Dropout")
    for n in (1, 2, 3)
} | {"DepthwiseConv2D": "DepthwiseConv2d"}

__getattr__, __dir__, __all__ = lazy.hand_on(__name__, _HOMES, _ROOMS, _ALIASES)
