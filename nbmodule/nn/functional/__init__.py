"""The functions behind the layers: each one inline compiled kernel, pure, over any number of
leading axes.
"""

from typing import TYPE_CHECKING, Any

from nbmodule.base.lazy import no_such
from nbmodule.nn.functional.activations import (
    celu,
    elu,
    geglu,
    gelu,
    glu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    logit,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softsign,
    tanh,
)
from nbmodule.nn.functional.attention import (
    merge_heads,
    multi_head_attention,
    scaled_dot_product_attention,
    split_heads,
)
from nbmodule.nn.functional.classification import (
    accuracy,
    binary_cross_entropy,
    cross_entropy,
    ctc_loss,
    hinge_loss,
    kl_div,
)
from nbmodule.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    depthwise_conv2d,
)
from nbmodule.nn.functional.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d
from nbmodule.nn.functional.linear import bilinear, embedding, linear, renormed
from nbmodule.nn.functional.normalization import (
    batch_norm,
    batch_norm_train,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from nbmodule.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from nbmodule.nn.functional.positions import rotary_embedding, sinusoidal_positions, time_embedding
from nbmodule.nn.functional.recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from nbmodule.nn.functional.regression import (
    cosine_loss,
    cosine_similarity,
    huber_loss,
    log_poisson_loss,
    mae_loss,
    mse_loss,
)
from nbmodule.nn.functional.resize import interpolate
from nbmodule.nn.functional.spectral import dct, fft, idct, ifft, irfft, rfft

# fmt: off
__all__ = [
    "celu", "elu", "geglu", "gelu", "glu", "hardsigmoid", "hardswish", "leaky_relu",
    "log_sigmoid", "log_softmax", "logit", "mish", "prelu", "relu", "relu6", "selu", "sigmoid",
    "silu", "softmax", "softplus", "softsign", "tanh", "bilinear", "embedding", "linear",
    "renormed", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "depthwise_conv2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "interpolate",
    "max_pool1d", "max_pool2d", "max_pool3d", "batch_norm", "batch_norm_train", "group_norm",
    "instance_norm", "layer_norm", "local_response_norm", "rms_norm", "alpha_dropout",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "merge_heads", "multi_head_attention",
    "scaled_dot_product_attention", "split_heads", "rotary_embedding", "sinusoidal_positions",
    "time_embedding", "gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell", "accuracy",
    "binary_cross_entropy", "cosine_loss", "cosine_similarity", "cross_entropy", "ctc_loss",
    "hinge_loss", "huber_loss", "kl_div", "log_poisson_loss", "mae_loss", "mse_loss", "dct",
    "fft", "idct", "ifft", "irfft", "rfft",
]
# fmt: on


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        raise no_such(__name__, name, tuple(__all__))
