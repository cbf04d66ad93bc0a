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
_ROOMS = {"functional": "nbmodule.nn.functional", "initializers": "nbmodule.nn.initializers"}
_ALIASES = {
    f"{kind}{n}D": f"{kind}{n}d"
    for kind in ("Conv", "ConvTranspose", "MaxPool", "AvgPool", "BatchNorm", "Dropout")
    for n in (1, 2, 3)
} | {"DepthwiseConv2D": "DepthwiseConv2d"}

__getattr__, __dir__, __all__ = lazy.hand_on(__name__, _HOMES, _ROOMS, _ALIASES)
