"""Activations as modules; see the functions of the same name for the formulas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from nbmodule.base.kinds import DeviceLike
from nbmodule.core.call.entry import ConstructorSignature
from nbmodule.errors import ArgumentError
from nbmodule.nn import functional as F
from nbmodule.nn.checks import integer, size
from nbmodule.nn.initializers import Constant, InitializerLike
from nbmodule.nn.layer import ArrayLike, FunctionLayer, Layer, initializer


class _Options(ConstructorSignature):
    """The options of an activation, as arguments by name."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is not None or owner.__init__ is not _Activation.__init__:
            return super().__get__(instance, owner)
        activation = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [inspect.Parameter(name, activation, default=it) for name, it in owner._options.items()]
        )


class _Activation(FunctionLayer):
    """A function without variables; its options are attributes of the same name."""

    __signature__ = _Options()
    _options: ClassVar[dict[str, Any]] = {}

    def __init__(self, **options: object) -> None:
        unknown = [name for name in options if name not in self._options]
        if unknown:
            options_ = ", ".join(self._options) or "none"
            raise ArgumentError(
                f"{type(self).__name__} has no option {', '.join(unknown)}; its options are: "
                f"{options_}."
            )
        for name, usual in self._options.items():
            setattr(self, name, options.get(name, usual))
        super().__init__()

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x)


def _activation(
    name: str, function: Callable[..., Any], meaning: str, example: str, **options: object
) -> type[_Activation]:
    """Make the class of one activation; its docstring shows the function's formula and an
    example.
    """
    listed = "".join(
        f"\n        {option}: as in the function; {usual!r} by default."
        for option, usual in options.items()
    )
    doc = f"""{meaning}
{
        f'''
    Args:{listed}
'''
        if options
        else ""
    }
    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.{name}()({example}).shape == {example}.shape
        True
    """
    return type(_Activation)(
        name,
        (_Activation,),
        {
            "_function": staticmethod(function),
            "_options": options,
            "__doc__": doc,
            "__module__": __name__,
        },
    )


_X = "jnp.array([-1.0, 0.0, 2.0])"
ReLU = _activation("ReLU", F.relu, "The positive part: `max(x, 0)`.", _X)
ReLU6 = _activation("ReLU6", F.relu6, "The positive part, cut at six: `min(max(x, 0), 6)`.", _X)
LeakyReLU = _activation(
    "LeakyReLU",
    F.leaky_relu,
    "`x` where positive, else `negative_slope * x`.",
    _X,
    negative_slope=0.01,
)
ELU = _activation("ELU", F.elu, "`x` where positive, else `alpha * (exp(x) - 1)`.", _X, alpha=1.0)
SELU = _activation("SELU", F.selu, "The self-normalizing exponential linear unit.", _X)
CELU = _activation(
    "CELU", F.celu, "`max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`.", _X, alpha=1.0
)
GELU = _activation(
    "GELU",
    F.gelu,
    "`x` times the normal distribution function of `x`, exact or by tanh.",
    _X,
    approximate=False,
)
SiLU = _activation("SiLU", F.silu, "`x * sigmoid(x)`, also called swish.", _X)
Mish = _activation("Mish", F.mish, "`x * tanh(softplus(x))`.", _X)
Softplus = _activation("Softplus", F.softplus, "`log(1 + exp(beta * x)) / beta`.", _X, beta=1.0)
Softsign = _activation("Softsign", F.softsign, "`x / (1 + |x|)`.", _X)
Sigmoid = _activation("Sigmoid", F.sigmoid, "`1 / (1 + exp(-x))`.", _X)
LogSigmoid = _activation(
    "LogSigmoid", F.log_sigmoid, "`log(sigmoid(x))`, exact for large `|x|`.", _X
)
Hardsigmoid = _activation("Hardsigmoid", F.hardsigmoid, "`min(max(x + 3, 0), 6) / 6`.", _X)
Hardswish = _activation("Hardswish", F.hardswish, "`x * hardsigmoid(x)`.", _X)
Tanh = _activation("Tanh", F.tanh, "The hyperbolic tangent.", _X)
Softmax = _activation(
    "Softmax", F.softmax, "Exponentials that sum to one along an axis.", _X, axis=-1
)
LogSoftmax = _activation(
    "LogSoftmax",
    F.log_softmax,
    "The logarithm of softmax, exact for large differences.",
    _X,
    axis=-1,
)
Logit = _activation(
    "Logit",
    F.logit,
    "`log(x / (1 - x))`, with `x` kept `eps` away from 0 and 1 if given.",
    "jnp.array([0.2, 0.5])",
    eps=None,
)


class GLU(_Activation):
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

    _function, _options = staticmethod(F.glu), {"axis": -1}


class GEGLU(_Activation):
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

    _function, _options = staticmethod(F.geglu), {"axis": -1, "approximate": False}


class PReLU(Layer):
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

    _shown = "num_parameters="

    def __init__(
        self,
        num_parameters: int = 1,
        *,
        axis: int = -1,
        weight_initializer: InitializerLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_parameters = size("PReLU", "num_parameters", num_parameters)
        self.axis = integer("PReLU", "axis", axis)
        weights = initializer("PReLU", "weight_initializer", weight_initializer, Constant(0.25))
        self.weight = weights.create_variables((num_parameters,), device, dtype=dtype)
        super().__init__(device=device, dtype=dtype, v=v)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return F.prelu(x, self.weight.value, axis=self.axis)


def activations() -> dict[str, type[Layer]]:
    """Activations that take only their input, by name."""
    return {activation.__name__: activation for activation in _Activation.__subclasses__()}
