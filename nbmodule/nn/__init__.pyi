"""The names of `nbmodule.nn`, and second spellings of some."""

from nbmodule.api.module import Module as Module
from nbmodule.core.variables.variable import Buffer as Buffer
from nbmodule.core.variables.variable import Parameter as Parameter
from nbmodule.nn import functional as functional
from nbmodule.nn import initializers as initializers
from nbmodule.nn.activation import CELU as CELU
from nbmodule.nn.activation import ELU as ELU
from nbmodule.nn.activation import GEGLU as GEGLU
from nbmodule.nn.activation import GELU as GELU
from nbmodule.nn.activation import GLU as GLU
from nbmodule.nn.activation import SELU as SELU
from nbmodule.nn.activation import Hardsigmoid as Hardsigmoid
from nbmodule.nn.activation import Hardswish as Hardswish
from nbmodule.nn.activation import LeakyReLU as LeakyReLU
from nbmodule.nn.activation import Logit as Logit
from nbmodule.nn.activation import LogSigmoid as LogSigmoid
from nbmodule.nn.activation import LogSoftmax as LogSoftmax
from nbmodule.nn.activation import Mish as Mish
from nbmodule.nn.activation import PReLU as PReLU
from nbmodule.nn.activation import ReLU as ReLU
from nbmodule.nn.activation import ReLU6 as ReLU6
from nbmodule.nn.activation import Sigmoid as Sigmoid
from nbmodule.nn.activation import SiLU as SiLU
from nbmodule.nn.activation import Softmax as Softmax
from nbmodule.nn.activation import Softplus as Softplus
from nbmodule.nn.activation import Softsign as Softsign
from nbmodule.nn.activation import Tanh as Tanh
from nbmodule.nn.attention import LearnedPositionalEncoding as LearnedPositionalEncoding
from nbmodule.nn.attention import MultiHeadAttention as MultiHeadAttention
from nbmodule.nn.attention import RotaryPositionalEncoding as RotaryPositionalEncoding
from nbmodule.nn.attention import SinusoidalPositionalEncoding as SinusoidalPositionalEncoding
from nbmodule.nn.attention import TimeEmbedding as TimeEmbedding
from nbmodule.nn.containers import Lambda as Lambda
from nbmodule.nn.containers import Residual as Residual
from nbmodule.nn.containers import Sequential as Sequential
from nbmodule.nn.convolution import Conv1d as Conv1d
from nbmodule.nn.convolution import Conv2d as Conv2d
from nbmodule.nn.convolution import Conv3d as Conv3d
from nbmodule.nn.convolution import ConvTranspose1d as ConvTranspose1d
from nbmodule.nn.convolution import ConvTranspose2d as ConvTranspose2d
from nbmodule.nn.convolution import ConvTranspose3d as ConvTranspose3d
from nbmodule.nn.convolution import DepthwiseConv2d as DepthwiseConv2d
from nbmodule.nn.dropout import AlphaDropout as AlphaDropout
from nbmodule.nn.dropout import Dropout as Dropout
from nbmodule.nn.dropout import Dropout1d as Dropout1d
from nbmodule.nn.dropout import Dropout2d as Dropout2d
from nbmodule.nn.dropout import Dropout3d as Dropout3d
from nbmodule.nn.linear import DCT as DCT
from nbmodule.nn.linear import FFT as FFT
from nbmodule.nn.linear import IDCT as IDCT
from nbmodule.nn.linear import IFFT as IFFT
from nbmodule.nn.linear import IRFFT as IRFFT
from nbmodule.nn.linear import RFFT as RFFT
from nbmodule.nn.linear import Bilinear as Bilinear
from nbmodule.nn.linear import Embedding as Embedding
from nbmodule.nn.linear import Flatten as Flatten
from nbmodule.nn.linear import Identity as Identity
from nbmodule.nn.linear import Linear as Linear
from nbmodule.nn.normalization import BatchNorm1d as BatchNorm1d
from nbmodule.nn.normalization import BatchNorm2d as BatchNorm2d
from nbmodule.nn.normalization import BatchNorm3d as BatchNorm3d
from nbmodule.nn.normalization import GroupNorm as GroupNorm
from nbmodule.nn.normalization import InstanceNorm as InstanceNorm
from nbmodule.nn.normalization import LayerNorm as LayerNorm
from nbmodule.nn.normalization import LocalResponseNorm as LocalResponseNorm
from nbmodule.nn.normalization import RMSNorm as RMSNorm
from nbmodule.nn.pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from nbmodule.nn.pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from nbmodule.nn.pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from nbmodule.nn.pooling import AvgPool1d as AvgPool1d
from nbmodule.nn.pooling import AvgPool2d as AvgPool2d
from nbmodule.nn.pooling import AvgPool3d as AvgPool3d
from nbmodule.nn.pooling import MaxPool1d as MaxPool1d
from nbmodule.nn.pooling import MaxPool2d as MaxPool2d
from nbmodule.nn.pooling import MaxPool3d as MaxPool3d
from nbmodule.nn.pooling import Upsample as Upsample
from nbmodule.nn.recurrent import GRU as GRU
from nbmodule.nn.recurrent import LSTM as LSTM
from nbmodule.nn.recurrent import RNN as RNN
from nbmodule.nn.recurrent import GRUCell as GRUCell
from nbmodule.nn.recurrent import LSTMCell as LSTMCell
from nbmodule.nn.recurrent import RNNCell as RNNCell
from nbmodule.nn.transformer import TransformerDecoder as TransformerDecoder
from nbmodule.nn.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from nbmodule.nn.transformer import TransformerEncoder as TransformerEncoder
from nbmodule.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from nbmodule.nn.weight_normalization import SpectralNorm as SpectralNorm
from nbmodule.nn.weight_normalization import WeightNorm as WeightNorm

Conv1D = Conv1d
Conv2D = Conv2d
Conv3D = Conv3d
ConvTranspose1D = ConvTranspose1d
ConvTranspose2D = ConvTranspose2d
ConvTranspose3D = ConvTranspose3d
MaxPool1D = MaxPool1d
MaxPool2D = MaxPool2d
MaxPool3D = MaxPool3d
AvgPool1D = AvgPool1d
AvgPool2D = AvgPool2d
AvgPool3D = AvgPool3d
BatchNorm1D = BatchNorm1d
BatchNorm2D = BatchNorm2d
BatchNorm3D = BatchNorm3d
Dropout1D = Dropout1d
Dropout2D = Dropout2d
Dropout3D = Dropout3d
DepthwiseConv2D = DepthwiseConv2d
