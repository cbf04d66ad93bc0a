"""Log a call of a foreign part under JAX's own `vmap`, `grad` and `jvp`, with values and gradients.

Outside of compiled code the arrays behind such traced values are there: rows of `vmap` are stacked
in front. A return whose gradient is wanted passes through a primitive that is the identity. Its
derivative is a linear primitive that is the identity too; where that one is transposed, the
gradient passes and is reported. So it works wherever a framework differentiates, and changes no
number.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from nbmodule.base.jax_names import Primitive
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.core.call.stages import annotate, scope_of
from nbmodule.core.recording import tracker
from nbmodule.core.variables.frame import calling, now
from nbmodule.errors import TraceError
from nbmodule.interop.frameworks.interception import concrete, eager_arrays

# -- a replaced return under vmap --
_numbers = count()
_replacements: dict[int, Callable[..., Any]] = {}


def replace_batched(replaced: Callable[[Any], Any], outputs: object) -> Any:
    """Return `replaced(outputs)`; under a raw `vmap` it gets all rows at once, in front."""
    leaves, structure = jax.tree.flatten(outputs)
    number = next(_numbers)
    _replacements[number] = lambda *rows: jax.tree.leaves(
        replaced(jax.tree.unflatten(structure, rows))
    )
    try:
        return jax.tree.unflatten(structure, _replace.bind(*leaves, number=number))
    finally:
        del _replacements[number]


def _batch(
    leaves: Sequence[jax.Array], dims: Sequence[int | None], *, number: int
) -> tuple[list[Any], list[int]]:
    size = next(x.shape[dim] for x, dim in zip(leaves, dims) if isinstance(dim, int))
    moved = [
        jnp.moveaxis(x, dim, 0) if isinstance(dim, int) else jnp.broadcast_to(x, (size, *x.shape))
        for x, dim in zip(leaves, dims)
    ]
    return _replace.bind(*moved, number=number), [0] * len(moved)


_replace = Primitive("replace_foreign_return")
_replace.multiple_results = True
_replace.def_impl(lambda *leaves, number: _replacements[number](*leaves))
_replace.def_abstract_eval(lambda *leaves, number: list(leaves))
batching.primitive_batchers[_replace] = _batch


# -- the call --
def logged(part: Any, run: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run a call under a transform of JAX and log it."""
    args, kwargs = now.tracker.given(part, args, kwargs)
    index = tracker.begin(part, (args, kwargs))
    inputs = concrete((args, kwargs))  # before the call, which may use its arguments up
    try:
        with calling(part), scope_of(part):
            outputs = run(*args, **kwargs)
            returned = concrete(outputs)
            if now.tracker.changes_of(part):
                if returned is None:
                    raise TraceError(
                        f"the return of {type(part).__name__} cannot be replaced in a function "
                        "that raw JAX compiles. Call the model itself, or use the transform of "
                        "the same name from nbmodule."
                    )
                change = functools.partial(now.tracker.replaced, part, args)
                outputs = replace_batched(change, outputs)
                returned = concrete(outputs)
    except Exception as error:
        tracker.fail(index, error)
        annotate(error, part, args, kwargs)
        raise
    log: Any = tracker.current_log()
    records, trackers = log.values, now.tracker.kept_by_any(part)
    values: dict[str, Any] = {}
    if returned is not None and inputs is not None:
        with eager_arrays():
            for open_tracker in trackers:
                values |= open_tracker.keep(part, inputs[0], returned[0])
        lifted = tuple(dict.fromkeys((*inputs[1], *returned[1])))
        log.infos[index] = replace(log.infos[index], lifted=lifted)
    is_captured = returned is not None and inputs is not None
    log.end(index, tracker.describe(outputs), values, captured=is_captured)
    keeping = [open_tracker for open_tracker in trackers if open_tracker.keep_gradient is not None]
    if not keeping:
        return outputs
    # The log may have begun its next step
    return with_gradients(outputs, part, records[index], keeping)


# -- gradients by returns --
_listeners: dict[int, Callable[[Any], None]] = {}


def with_gradients(tree: object, part: Any, record: dict[str, Any], keeping: list[Any]) -> Any:
    """Return the same values; trackers record their gradients when JAX computes these, as long as
    the part exists.
    """
    leaves, structure = jax.tree.flatten(tree)
    gradients: list[Any] = [None] * len(leaves)

    def listen(i: int) -> int:
        def receive(gradient: object) -> None:
            gradients[i] = gradient
            known = jax.tree.unflatten(structure, gradients)
            with eager_arrays():
                for open_tracker in keeping:
                    record.update(open_tracker.keep_gradient(known, "return"))

        number = next(_numbers)
        _listeners[number] = receive
        weakref.finalize(part, _listeners.pop, number, None).atexit = False
        return number

    for i, x in enumerate(leaves):
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact):
            leaves[i] = _value.bind(x, number=listen(i))
    return jax.tree.unflatten(structure, leaves)


def _identity(name: str) -> Primitive:
    """Return a primitive that gives back its argument, also in compiled code."""
    primitive = Primitive(name)
    primitive.def_impl(lambda x, **_: x)
    primitive.def_abstract_eval(lambda x, **_: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x, **_: x, multiple_results=False))

    def batch(xs: Sequence[jax.Array], dims: Sequence[int], **options: object) -> tuple[Any, int]:
        """Rows go in front, so that those of the gradient do."""
        return primitive.bind(jnp.moveaxis(xs[0], dims[0], 0), **options), 0

    batching.primitive_batchers[primitive] = batch
    return primitive


_value, _tangent = _identity("foreign_return"), _identity("foreign_tangent")
_cotangent = _identity("foreign_gradient")


def _receive(cotangent: object, *, number: int) -> Any:
    if number in _listeners:
        _listeners[number](cotangent)
    return cotangent


ad.defjvp(_value, lambda tangent, x, number: _tangent.bind(tangent, number=number))
ad.deflinear2(_tangent, lambda cotangent, x, number: [_cotangent.bind(cotangent, number=number)])
ad.defjvp(_cotangent, lambda tangent, x, number: tangent)
_cotangent.def_impl(_receive)
