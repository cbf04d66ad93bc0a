"""Report gradients by what submodules of a foreign model return, while JAX's own `grad` runs.

A return passes through a primitive that is the identity. Its derivative is a linear primitive that
is the identity too; where that one is transposed, the gradient passes and is reported. So it works
wherever a framework differentiates, and changes no number.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from nbmodule.base.jax_names import Primitive

_numbers = count()
_listeners: dict[int, Callable[[Any], None]] = {}


def report_gradients(tree: object, report: Callable[[list[Any]], None], owner: object) -> Any:
    """Return the same values, whose gradients are reported when JAX computes them.

    Args:
        tree: What a call returned.
        report: Called for each gradient with those of all arrays; None where there is none yet.
        owner: Nothing is reported once this is gone.
    """
    leaves, structure = jax.tree.flatten(tree)
    gradients: list[Any] = [None] * len(leaves)

    def listen(i: int) -> int:
        def receive(gradient: object) -> None:
            gradients[i] = gradient
            report(gradients)

        number = next(_numbers)
        _listeners[number] = receive
        weakref.finalize(owner, _listeners.pop, number, None).atexit = False
        return number

    passed = [
        _value.bind(x, number=listen(i)) if _is_smooth(x) else x for i, x in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, passed)


def _is_smooth(x: object) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)


def _identity(name: str) -> Primitive:
    """Return a primitive that gives back its argument, also in compiled code."""
    primitive = Primitive(name)
    primitive.def_impl(lambda x, **_: x)
    primitive.def_abstract_eval(lambda x, **_: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x, **_: x, multiple_results=False))

    def batch(xs: Any, dims: Any, **options: Any) -> tuple[Any, int]:
        """Rows go in front, so that those of the gradient do."""
        return primitive.bind(jnp.moveaxis(xs[0], dims[0], 0), **options), 0

    batching.primitive_batchers[primitive] = batch
    return primitive


_value, _tangent, _cotangent = (
    _identity("foreign_return"),
    _identity("foreign_tangent"),
    _identity("foreign_gradient"),
)


def _jvp_of(primitive: Primitive) -> Callable[..., Any]:
    def jvp(primals: Any, tangents: Any, *, number: int) -> tuple[Any, Any]:
        tangent = tangents[0]
        if type(tangent) is not ad.Zero and primitive is not _cotangent:
            tangent = _tangent.bind(tangent, number=number)
        return primitive.bind(primals[0], number=number), tangent

    return jvp


def _transpose(cotangent: object, x: object, *, number: int) -> list[Any]:
    if type(cotangent) is ad.Zero:
        return [cotangent]
    return [_cotangent.bind(cotangent, number=number)]


def _receive(cotangent: object, *, number: int) -> Any:
    if number in _listeners:
        _listeners[number](cotangent)
    return cotangent


for _primitive in (_value, _tangent, _cotangent):
    ad.primitive_jvps[_primitive] = _jvp_of(_primitive)
ad.primitive_transposes[_tangent] = _transpose
_cotangent.def_impl(_receive)
