"""The operators of a Container: each is a door to `arithmetic.operate`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from nbmodule.tree.arithmetic import operate
from nbmodule.tree.nested import Nested


def _left(operation: Callable[..., Any]) -> Any:
    def method(self: Nested, other: Any) -> Any:
        return operate(operation, self, other)

    return method


def _right(operation: Callable[..., Any]) -> Any:
    def method(self: Nested, other: Any) -> Any:
        return operate(operation, other, self)

    return method


def _unary(operation: Callable[..., Any]) -> Any:
    def method(self: Nested) -> Any:
        return operate(operation, self)

    return method


class Operators(Nested):
    """Arithmetic, comparison and logic, leaf by leaf.

    `c += x` makes a new Container, as with arrays. `|` is logic and not the union of dicts, which is `cont_combine`.
    """

    __slots__ = ()

    # NumPy then leaves `array * container` to the Container.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]  # `==` gives a Container, so there is no equality to hash by

    __add__, __radd__ = _left(operator.add), _right(operator.add)
    __sub__, __rsub__ = _left(operator.sub), _right(operator.sub)
    __mul__, __rmul__ = _left(operator.mul), _right(operator.mul)
    __truediv__, __rtruediv__ = _left(operator.truediv), _right(operator.truediv)
    __floordiv__, __rfloordiv__ = _left(operator.floordiv), _right(operator.floordiv)
    __mod__, __rmod__ = _left(operator.mod), _right(operator.mod)
    __pow__, __rpow__ = _left(operator.pow), _right(operator.pow)
    __matmul__, __rmatmul__ = _left(operator.matmul), _right(operator.matmul)
    __and__, __rand__ = _left(operator.and_), _right(operator.and_)
    __or__, __ror__ = _left(operator.or_), _right(operator.or_)
    __xor__, __rxor__ = _left(operator.xor), _right(operator.xor)
    __lshift__, __rlshift__ = _left(operator.lshift), _right(operator.lshift)
    __rshift__, __rrshift__ = _left(operator.rshift), _right(operator.rshift)
    __eq__, __ne__ = _left(operator.eq), _left(operator.ne)
    __lt__, __le__ = _left(operator.lt), _left(operator.le)
    __gt__, __ge__ = _left(operator.gt), _left(operator.ge)
    __neg__, __pos__ = _unary(operator.neg), _unary(operator.pos)
    __invert__, __abs__ = _unary(operator.invert), _unary(operator.abs)
    # A dict would merge in place here.
    __ior__ = _left(operator.or_)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __round__(self, digits: int | None = None) -> Any:
        return operate(lambda x: round(x) if digits is None else round(x, digits), self)
