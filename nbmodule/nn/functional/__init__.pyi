"""Names of `nbmodule.nn.functional`, written by `python tools/make_stubs.py`. Do not edit."""

from nbmodule.nn.functional.activations import celu as celu
from nbmodule.nn.functional.activations import elu as elu
from nbmodule.nn.functional.activations import geglu as geglu
from nbmodule.nn.functional.activations import gelu as gelu
from nbmodule.nn.functional.activations import glu as glu
from nbmodule.nn.functional.activations import hardsigmoid as hardsigmoid
from nbmodule.nn.functional.activations import hardswish as hardswish
from nbmodule.nn.functional.activations import leaky_relu as leaky_relu
from nbmodule.nn.functional.activations import log_sigmoid as log_sigmoid
from nbmodule.nn.functional.activations import log_softmax as log_softmax
from nbmodule.nn.functional.activations import logit as logit
from nbmodule.nn.functional.activations import mish as mish
from nbmodule.nn.functional.activations import prelu as prelu
from nbmodule.nn.functional.activations import relu as relu
from nbmodule.nn.functional.activations import relu6 as relu6
from nbmodule.nn.functional.activations import selu as selu
from nbmodule.nn.functional.activations import sigmoid as sigmoid
from nbmodule.nn.functional.activations import silu as silu
from nbmodule.nn.functional.activations import softmax as softmax
from nbmodule.nn.functional.activations import softplus as softplus
from nbmodule.nn.functional.activations import softsign as softsign
from nbmodule.nn.functional.activations import tanh as tanh
from nbmodule.nn.functional.attention import merge_heads as merge_heads
from nbmodule.nn.functional.attention import multi_head_attention as multi_head_attention
from nbmodule.nn.functional.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from nbmodule.nn.functional.attention import split_heads as split_heads
from nbmodule.nn.functional.classification import accuracy as accuracy
from nbmodule.nn.functional.classification import binary_cross_entropy as binary_cross_entropy
from nbmodule.nn.functional.classification import cross_entropy as cross_entropy
from nbmodule.nn.functional.classification import ctc_loss as ctc_loss
from nbmodule.nn.functional.classification import hinge_loss as hinge_loss
from nbmodule.nn.functional.classification import kl_div as kl_div
from nbmodule.nn.functional.convolution import conv1d as conv1d
from nbmodule.nn.functional.convolution import conv2d as conv2d
from nbmodule.nn.functional.convolution import conv3d as conv3d
from nbmodule.nn.functional.convolution import conv_transpose1d as conv_transpose1d
from nbmodule.nn.functional.convolution import conv_transpose2d as conv_transpose2d
from nbmodule.nn.functional.convolution import conv_transpose3d as conv_transpose3d
from nbmodule.nn.functional.convolution import depthwise_conv2d as depthwise_conv2d
from nbmodule.nn.functional.dropout import alpha_dropout as alpha_dropout
from nbmodule.nn.functional.dropout import dropout as dropout
from nbmodule.nn.functional.dropout import dropout1d as dropout1d
from nbmodule.nn.functional.dropout import dropout2d as dropout2d
from nbmodule.nn.functional.dropout import dropout3d as dropout3d
from nbmodule.nn.functional.linear import bilinear as bilinear
from nbmodule.nn.functional.linear import embedding as embedding
from nbmodule.nn.functional.linear import linear as linear
from nbmodule.nn.functional.normalization import batch_norm as batch_norm
from nbmodule.nn.functional.normalization import batch_norm_train as batch_norm_train
from nbmodule.nn.functional.normalization import group_norm as group_norm
from nbmodule.nn.functional.normalization import instance_norm as instance_norm
from nbmodule.nn.functional.normalization import layer_norm as layer_norm
from nbmodule.nn.functional.normalization import local_response_norm as local_response_norm
from nbmodule.nn.functional.normalization import rms_norm as rms_norm
from nbmodule.nn.functional.pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from nbmodule.nn.functional.pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from nbmodule.nn.functional.pooling import adaptive_avg_pool3d as adaptive_avg_pool3d
from nbmodule.nn.functional.pooling import avg_pool1d as avg_pool1d
from nbmodule.nn.functional.pooling import avg_pool2d as avg_pool2d
from nbmodule.nn.functional.pooling import avg_pool3d as avg_pool3d
from nbmodule.nn.functional.pooling import max_pool1d as max_pool1d
from nbmodule.nn.functional.pooling import max_pool2d as max_pool2d
from nbmodule.nn.functional.pooling import max_pool3d as max_pool3d
from nbmodule.nn.functional.positions import rotary_embedding as rotary_embedding
from nbmodule.nn.functional.positions import sinusoidal_positions as sinusoidal_positions
from nbmodule.nn.functional.positions import time_embedding as time_embedding
from nbmodule.nn.functional.recurrent import gru as gru
from nbmodule.nn.functional.recurrent import gru_cell as gru_cell
from nbmodule.nn.functional.recurrent import lstm as lstm
from nbmodule.nn.functional.recurrent import lstm_cell as lstm_cell
from nbmodule.nn.functional.recurrent import rnn as rnn
from nbmodule.nn.functional.recurrent import rnn_cell as rnn_cell
from nbmodule.nn.functional.regression import cosine_loss as cosine_loss
from nbmodule.nn.functional.regression import cosine_similarity as cosine_similarity
from nbmodule.nn.functional.regression import huber_loss as huber_loss
from nbmodule.nn.functional.regression import log_poisson_loss as log_poisson_loss
from nbmodule.nn.functional.regression import mae_loss as mae_loss
from nbmodule.nn.functional.regression import mse_loss as mse_loss
from nbmodule.nn.functional.resize import interpolate as interpolate
from nbmodule.nn.functional.spectral import dct as dct
from nbmodule.nn.functional.spectral import fft as fft
from nbmodule.nn.functional.spectral import idct as idct
from nbmodule.nn.functional.spectral import ifft as ifft
from nbmodule.nn.functional.spectral import irfft as irfft
from nbmodule.nn.functional.spectral import rfft as rfft

_HOMES: dict[str, str]
_ROOMS: dict[str, str]
_ALIASES: dict[str, str]
__all__: list[str]
