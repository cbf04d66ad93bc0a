"""Activations as modules, and the layers that the panel of `nb.what_if` offers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from jax import Array
from jaxtyping import Float

from nbmodule.nn import functional as F
from nbmodule.nn.checks import integer, size
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.initializers import Constant, Zeros
from nbmodule.nn.layer import ArrayLike, FunctionLayer, Layer, VariableOptions, WeightedLayer
from nbmodule.nn.linear import Identity, Linear
from nbmodule.nn.normalization import LayerNorm, RMSNorm


class ReLU(FunctionLayer):
    """The positive part: `max(x, 0)`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.ReLU()(jnp.array([-1.0, 0.0, 2.0]))
        Array([0., 0., 2.], dtype=float32)
    """

    _function = staticmethod(F.relu)


class ReLU6(FunctionLayer):
    """The positive part, cut at six: `min(max(x, 0), 6)`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.ReLU6()(jnp.array([-1.0, 0.0, 2.0]))
        Array([0., 0., 2.], dtype=float32)
    """

    _function = staticmethod(F.relu6)


class LeakyReLU(FunctionLayer):
    """`x` where positive, else `negative_slope * x`.

    Args:
        negative_slope: As in the function; 0.01 by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.LeakyReLU()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.01,  0.  ,  2.  ], dtype=float32)
    """

    _function = staticmethod(F.leaky_relu)


class ELU(FunctionLayer):
    """`x` where positive, else `alpha * (exp(x) - 1)`.

    Args:
        alpha: As in the function; 1.0 by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.ELU()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.63212055,  0.        ,  2.        ], dtype=float32)
    """

    _function = staticmethod(F.elu)


class SELU(FunctionLayer):
    """The self-normalizing exponential linear unit.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.SELU()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-1.1113307,  0.       ,  2.101402 ], dtype=float32)
    """

    _function = staticmethod(F.selu)


class CELU(FunctionLayer):
    """`max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`.

    Args:
        alpha: As in the function; 1.0 by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.CELU()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.63212055,  0.        ,  2.        ], dtype=float32)
    """

    _function = staticmethod(F.celu)


class GELU(FunctionLayer):
    """`x` times the normal distribution function of `x`, exact or by tanh.

    Args:
        approximate: As in the function; False by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.GELU()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.15865527,  0.        ,  1.9544997 ], dtype=float32)
    """

    _function = staticmethod(F.gelu)


class SiLU(FunctionLayer):
    """`x * sigmoid(x)`, also called swish.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.SiLU()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.26894143,  0.        ,  1.761594  ], dtype=float32)
    """

    _function = staticmethod(F.silu)


class Mish(FunctionLayer):
    """`x * tanh(softplus(x))`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Mish()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.30340144,  0.        ,  1.943959  ], dtype=float32)
    """

    _function = staticmethod(F.mish)


class Softplus(FunctionLayer):
    """`log(1 + exp(beta * x)) / beta`.

    Args:
        beta: As in the function; 1.0 by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Softplus()(jnp.array([-1.0, 0.0, 2.0]))
        Array([0.3132617, 0.6931472, 2.126928 ], dtype=float32)
    """

    _function = staticmethod(F.softplus)


class Softsign(FunctionLayer):
    """`x / (1 + |x|)`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Softsign()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.5      ,  0.       ,  0.6666667], dtype=float32)
    """

    _function = staticmethod(F.softsign)


class Sigmoid(FunctionLayer):
    """`1 / (1 + exp(-x))`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Sigmoid()(jnp.array([-1.0, 0.0, 2.0]))
        Array([0.26894143, 0.5       , 0.880797  ], dtype=float32)
    """

    _function = staticmethod(F.sigmoid)


class LogSigmoid(FunctionLayer):
    """`log(sigmoid(x))`, exact for large `|x|`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.LogSigmoid()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-1.3132617, -0.6931472, -0.126928 ], dtype=float32)
    """

    _function = staticmethod(F.log_sigmoid)


class Hardsigmoid(FunctionLayer):
    """`min(max(x + 3, 0), 6) / 6`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Hardsigmoid()(jnp.array([-1.0, 0.0, 2.0]))
        Array([0.33333334, 0.5       , 0.8333334 ], dtype=float32)
    """

    _function = staticmethod(F.hardsigmoid)


class Hardswish(FunctionLayer):
    """`x * hardsigmoid(x)`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Hardswish()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.33333334,  0.        ,  1.6666667 ], dtype=float32)
    """

    _function = staticmethod(F.hardswish)


class Tanh(FunctionLayer):
    """The hyperbolic tangent.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Tanh()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.7615942,  0.       ,  0.9640276], dtype=float32)
    """

    _function = staticmethod(F.tanh)


class Softmax(FunctionLayer):
    """Exponentials that sum to one along an axis.

    Args:
        axis: As in the function; -1 by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Softmax()(jnp.array([-1.0, 0.0, 2.0]))
        Array([0.04201007, 0.11419519, 0.8437947 ], dtype=float32)
    """

    _function = staticmethod(F.softmax)


class LogSoftmax(FunctionLayer):
    """The logarithm of softmax, exact for large differences.

    Args:
        axis: As in the function; -1 by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.LogSoftmax()(jnp.array([-1.0, 0.0, 2.0]))
        Array([-3.169846  , -2.169846  , -0.16984604], dtype=float32)
    """

    _function = staticmethod(F.log_softmax)


class Logit(FunctionLayer):
    """`log(x / (1 - x))`, with `x` kept `eps` away from 0 and 1 if given.

    Args:
        eps: As in the function; None by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Logit()(jnp.array([0.2, 0.5]))
        Array([-1.3862944,  0.       ], dtype=float32)
    """

    _function = staticmethod(F.logit)


class GLU(FunctionLayer):
    """Halves an axis, and multiplies the first half by the sigmoid of the second.

    Args:
        axis: The axis to halve; -1 by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.GLU()(jnp.ones((2, 6))).shape
        (2, 3)

    Source: Dauphin, Fan, Auli and Grangier (2016), arXiv:1612.08083.
    """

    _function = staticmethod(F.glu)


class GEGLU(FunctionLayer):
    """Halves an axis, and multiplies the first half by the GELU of the second.

    Args:
        axis: The axis to halve; -1 by default.
        approximate: Whether GELU is computed by tanh.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.GEGLU()(jnp.ones((2, 6))).shape
        (2, 3)

    Source: Shazeer (2020), arXiv:2002.05202.
    """

    _function = staticmethod(F.geglu)


class PReLU(WeightedLayer):
    """`x` where positive, else `weight * x`, with a trained `weight`.

    Args:
        num_parameters: One weight for all channels, or one for each.
        axis: The channel axis.
        weight_initializer: Of `weight`, shape `(num_parameters,)`; 0.25 by default.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones, `{'w': ...}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.PReLU()(jnp.array([-4.0, 2.0]))
        Array([-1.,  2.], dtype=float32)

    Source: He, Zhang, Ren and Sun (2015), arXiv:1502.01852.
    """

    _shown, _without = "num_parameters=", ("bias_initializer",)

    def __init__(
        self, num_parameters: int = 1, *, axis: int = -1, **options: Unpack[VariableOptions]
    ) -> None:
        self.num_parameters = size("num_parameters", num_parameters)
        self.axis = integer("axis", axis)
        defaults = Constant(0.25), Zeros()
        super().__init__((num_parameters,), None, (num_parameters, 1), defaults, **options)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return F.prelu(x, self.weight.value, axis=self.axis)


FIRST = ("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid")


def insertable_layers() -> dict[str, Callable[[int, int], Layer]]:
    """Return by name functions of the numbers of input and output features that make a layer.

    Example:
        >>> layers = insertable_layers()
        >>> layers["LayerNorm"](4, 4), layers["Linear"](4, 2)
        (LayerNorm((4,), eps=1e-05, affine=True), Linear(in_features=4, out_features=2,
        with_bias=True))
    """
    factories = {
        kind.__name__: lambda inputs, outputs, kind=kind: kind()
        for kind in FunctionLayer.__subclasses__()
        if kind.__module__ == __name__
    }
    common = {name: factories.pop(name) for name in FIRST}
    others: dict[str, Callable[[int, int], Layer]] = {
        "Identity": lambda inputs, outputs: Identity(),
        "LayerNorm": lambda inputs, outputs: LayerNorm(inputs),
        "RMSNorm": lambda inputs, outputs: RMSNorm(inputs),
        "Dropout": lambda inputs, outputs: Dropout(),
        "Linear": Linear,
    }
    return common | others | dict(sorted(factories.items()))
