"""The front door: names handed on one by one, each loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES: dict[str, str] = {
    "core.boxes.variable": "Variable Parameter Buffer",
    "doors.module": "Module",
    "core.shape.state": "StateEntry StateKey export_state update_state merge_states",
    "core.shape.hooks": "HookHandle",
    "core.numbers.random": "RandomStream seed",
    "core.transforms.jit": "jit",
    "core.running.explain": "explain_retrace",
    "core.transforms.differentiate": "grad value_and_grad execute_with_gradients",
    "core.transforms.mapped": "vmap scan",
    "core.transforms.branching": "cond switch while_loop checkpoint",
    "tree.container": "Container",
    "files": "save load save_safetensors checkpoint_steps in_background wait_for_saving",
    "doors.graphs": "graph",
    "flow": "Graph",
    "doors.files": "save_checkpoint restore_checkpoint",
    "doors.health": "doctor",
    "calls": "Call Calls Recorder check compare diff first_nonfinite load_calls memory patch tap track",
    "scale": ("make_mesh shard shard_batch layout Layout data_parallel fsdp tensor_parallel join_hosts is_first_host"),
    "interop.into": "from_equinox from_flax from_haiku from_keras",
    "interop.torch_layers": "from_torch",
    "calls.summary": "summary Summary",
    "views": "show view_for display_all inspect Inspection plot LossCurve",
    "live.live": "Live",
    "live.steering.loop": "steps",
    "core.shape.tree_text": "tree_repr",
    "nn.batches": "batches",
    "nn.linear": "Linear Bilinear Embedding Identity Flatten",
    "nn.convolution": "Conv1d Conv2d Conv3d DepthwiseConv2d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "nn.pooling": "MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d",
    "nn.normalization": "BatchNorm1d BatchNorm2d BatchNorm3d LayerNorm RMSNorm GroupNorm InstanceNorm LocalResponseNorm",
    "nn.dropout": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout",
    "nn.activation": (
        "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU GEGLU GLU SiLU Mish Softplus Softsign Sigmoid LogSigmoid Hardsigmoid Hardswish "
        "Tanh Softmax LogSoftmax Logit PReLU"
    ),
    "nn.containers": "Sequential Residual Lambda",
    "nn.recurrent": "RNN LSTM GRU",
    "nn.attention": "MultiHeadAttention",
    "nn.transformer": "TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder TransformerDecoder",
    "nn.positions": "SinusoidalPositionalEncoding LearnedPositionalEncoding RotaryPositionalEncoding",
    "nn.resizing": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d Upsample",
    "nn.spectral": "FFT IFFT RFFT IRFFT DCT IDCT",
    "nn.weight_normalization": "SpectralNorm WeightNorm",
    "nn.functional": (
        "celu elu geglu gelu glu hardsigmoid hardswish leaky_relu log_sigmoid log_softmax logit mish prelu relu relu6 selu sigmoid "
        "silu softmax softplus softsign tanh bilinear embedding linear renormed conv1d conv2d conv3d conv_transpose1d "
        "conv_transpose2d conv_transpose3d depthwise_conv2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d "
        "avg_pool2d avg_pool3d interpolate max_pool1d max_pool2d max_pool3d alpha_dropout batch_norm batch_norm_train dct dropout "
        "dropout1d dropout2d dropout3d fft group_norm gru gru_cell idct ifft instance_norm irfft layer_norm local_response_norm lstm "
        "lstm_cell merge_heads multi_head_attention rfft rms_norm rnn rnn_cell rotary_embedding scaled_dot_product_attention "
        "sinusoidal_positions split_heads binary_cross_entropy cosine_loss cosine_similarity cross_entropy ctc_loss hinge_loss "
        "huber_loss kl_div log_poisson_loss mae_loss mse_loss"
    ),
    "optim.optimizer": "Optimizer",
    "optim.descent": "SGD Lion LARS",
    "optim.adaptive": "Adam AdamW LAMB RMSprop Adagrad",
    "optim.wrapped": "Optax",
    "optim.functions": (
        "sgd_update momentum_update adam_update adamw_update lamb_update rmsprop_update adagrad_update lion_update lars_update"
    ),
    "optim.schedules": "cosine_schedule linear_schedule step_schedule",
    "optim.clipping": "global_norm clip_by_global_norm",
    "nn.initializers": (
        "Initializer Constant Zeros Ones RandomNormal TruncatedNormal Orthogonal Uniform GlorotUniform GlorotNormal "
        "KaimingUniform KaimingNormal LecunNormal FirstLayerSiren Siren"
    ),
    "errors": (
        "NbModuleError StructureError ShapeError DtypeError PathError UnexpectedKeysError MissingKeysError NotBuiltError "
        "TracerLeakError SubmoduleReturnError FileFormatError FileWriteError ShapeStructureError NotIdenticalError "
        "NotExportedError LayerIndexError DeviceError ArgumentError ArgumentTypeError GradientError "
        "BatchedWriteError TraceError MissingDependencyError"
    ),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}
_ALIASES = {
    f"{kind}{n}D": f"{kind}{n}d"
    for kind in ("Conv", "ConvTranspose", "MaxPool", "AvgPool", "BatchNorm", "Dropout")
    for n in (1, 2, 3)
} | {"DepthwiseConv2D": "DepthwiseConv2d"}
__version__ = "0.1.0"
__all__ = sorted(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    name = _ALIASES.get(name, name)
    home = _NAMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"nbmodule.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_ALIASES})
