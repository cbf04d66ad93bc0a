"""The methods behind the operators of a Container: each is a door to `arithmetic.operate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbmodule.tree.arithmetic import operate
from nbmodule.tree.nested import Nested


def left(operation: Callable[..., Any]) -> Any:
    def method(self: Nested, other: object) -> Any:
        return operate(operation, self, other)

    return method


def right(operation: Callable[..., Any]) -> Any:
    def method(self: Nested, other: object) -> Any:
        return operate(operation, other, self)

    return method


def unary(operation: Callable[..., Any]) -> Any:
    def method(self: Nested) -> Any:
        return operate(operation, self)

    return method
