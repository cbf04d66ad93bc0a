"""The functions behind the layers: each one inline compiled kernel, pure, over any number of
leading axes.
"""

from __future__ import annotations

from nbmodule.base import lazy

_HOMES = {
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
    "nbmodule.nn.functional.linear": "bilinear embedding linear renormed",
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
_ROOMS: dict[str, str] = {}
_ALIASES: dict[str, str] = {}

__getattr__, __dir__, __all__ = lazy.hand_on(__name__, _HOMES, _ROOMS, _ALIASES)
for _name in __all__:  # at once: `linear` and `dropout` are names of modules here as well
    __getattr__(_name)
