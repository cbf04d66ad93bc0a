"""The operators of a variable: each reads the array and gives a plain array or a number."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import received

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
