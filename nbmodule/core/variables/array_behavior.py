"""How a variable acts like its array: operators, each of which gives a plain array or a number, and
text, without a copy of anything large from a device.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.foreign import received
from nbmodule.base.format import describe_shape

_BINARY = ("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod").split()
_COMPARISONS = "eq ne lt le gt ge".split()
_UNARY = (
    *(operator.neg, operator.pos, operator.abs, operator.invert, operator.index),
    *(round, bool, int, float, complex),
)


def install_operators(cls: type) -> None:
    """Give a class of variables all operators, reflected ones too."""
    for name in (*_BINARY, *_COMPARISONS):
        fn = divmod if name == "divmod" else getattr(operator, f"__{name}__")
        setattr(cls, f"__{name}__", _binary(fn))
        if name in _BINARY:
            setattr(cls, f"__r{name}__", _binary(fn, is_reflected=True))
    for fn in _UNARY:
        setattr(cls, f"__{fn.__name__}__", _unary(fn))


def _binary(fn: Callable[..., Any], *, is_reflected: bool = False) -> Callable[..., Any]:
    def operate(self: Any, second: Any) -> Any:
        if isinstance(second, dict):  # a Container works leaf by leaf, and reads the variable
            return NotImplemented
        if isinstance(second, np.ndarray):  # whose own operators would give NumPy's arrays
            second = jnp.asarray(received(second, "the other operand"))
        elif hasattr(type(second), "_is_variable"):
            second = second.value
        return fn(second, self.value) if is_reflected else fn(self.value, second)

    return operate


def _unary(fn: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, *args: object) -> Any:
        return fn(self.value, *args)

    return operate


_SMALL = 100
"""Elements of an array whose values are written."""


def describe_array(x: Any) -> str:
    """`[1 2 3], dtype=int32, device=cpu:0`; larger arrays by dtype and shape, without a copy from
    the device.
    """
    value, is_small = x, x.size <= _SMALL
    if hasattr(type(x), "_is_variable"):
        value = x.value if is_small and not x.is_released else getattr(x, "_value", None)
    text = describe_shape(x)
    if isinstance(value, jax.core.Tracer):
        return f"{text}, traced"
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"{text}, no value"
    if value is not None and getattr(value, "is_deleted", bool)():
        return f"{text}, deleted"
    if is_small and value is not None and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        text = np.array2string(np.asarray(value), separator=" ", prefix="Parameter(")
        text += "" if x.dtype == np.float32 else f", dtype={x.dtype}"
    return f"{text}, device={describe_device(x)}"


def describe_device(x: Array) -> str:
    """`cpu:0`, or `cpu:0,1,2` for an array on several."""
    if x.sharding is None:
        return "no value"
    devices = sorted(x.sharding.device_set, key=lambda d: d.id)
    return f"{devices[0].platform}:" + ",".join(str(d.id) for d in devices)
