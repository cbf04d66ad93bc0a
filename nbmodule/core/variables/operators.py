"""The operators of a box: each reads the array and gives a plain array, never a box."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import received

_BINARY = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
)
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_UNARY = {name: getattr(operator, f"__{name}__") for name in ("neg", "pos", "abs", "invert")} | {
    "divmod": divmod,
    "round": round,
}


def install_operators(cls: type) -> None:
    """Give a class of boxes all operators, reflected ones too."""
    for name in (*_BINARY, *_COMPARISONS):
        fn = getattr(operator, f"__{name}__")
        setattr(cls, f"__{name}__", _binary(fn))
        if name in _BINARY:
            setattr(cls, f"__r{name}__", _reflected(fn))
    for name, fn in _UNARY.items():
        setattr(cls, f"__{name}__", _unary(fn))
    cls.__rdivmod__ = _reflected(divmod)  # type: ignore[attr-defined]


def _binary(fn: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, second: Any) -> Any:
        if isinstance(second, dict):  # a Container works leaf by leaf, and asks the box itself
            return NotImplemented
        if isinstance(second, np.ndarray):
            second = received(second, "the other operand")
        return fn(self.value, second.value if hasattr(type(second), "_is_variable") else second)

    return operate


def _reflected(fn: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, second: object) -> Any:
        if isinstance(second, dict):
            return NotImplemented
        if isinstance(second, np.ndarray):
            second = jnp.asarray(received(second, "the other operand"))
        return fn(second, self.value)

    return operate


def _unary(fn: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, *args: object) -> Any:
        return fn(self.value, *args)

    return operate
