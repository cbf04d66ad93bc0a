"""A call of a foreign part under a transform of JAX, logged with the arrays that lie under its traced values, and with gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import batching

from nbmodule.base.jax_names import Primitive
from nbmodule.core.boxes.frame import calling, now
from nbmodule.core.recording import tracker
from nbmodule.core.running.notes import annotate
from nbmodule.core.running.scopes import scope_of
from nbmodule.errors import TraceError
from nbmodule.interop.beneath import beneath, concrete
from nbmodule.interop.slopes import sloped

_numbers = count()
_open: dict[int, Callable[..., Any]] = {}


def instead(replaced: Callable[[Any], Any], outputs: object) -> Any:
    """What `replaced(outputs)` gives under a raw `vmap`: it is told of all rows at once, in front, as they are in what is tracked."""
    leaves, form = jax.tree.flatten(outputs)
    number = next(_numbers)
    _open[number] = lambda *rows: jax.tree.leaves(replaced(jax.tree.unflatten(form, rows)))
    try:
        return jax.tree.unflatten(form, _instead.bind(*leaves, number=number))
    finally:
        del _open[number]


def _run(*leaves: object, number: int) -> list[Any]:
    return _open[number](*leaves)


def _rows(leaves: Any, dims: Any, *, number: int) -> tuple[list[Any], list[int]]:
    size = next(x.shape[dim] for x, dim in zip(leaves, dims) if isinstance(dim, int))
    moved = [
        jnp.moveaxis(x, dim, 0) if isinstance(dim, int) else jnp.broadcast_to(x, (size, *x.shape))
        for x, dim in zip(leaves, dims)
    ]
    return _instead.bind(*moved, number=number), [0] * len(moved)


_instead = Primitive("instead_of_seen")
_instead.multiple_results = True
_instead.def_impl(_run)
_instead.def_abstract_eval(lambda *leaves, number: list(leaves))
batching.primitive_batchers[_instead] = _rows


def logged(part: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call that stands under a transform of JAX, and log it."""
    __tracebackhide__ = True
    args, kwargs = now.tracker.given(part, args, kwargs)
    index = tracker.begin(part, (args, kwargs))
    try:
        with calling(part), scope_of(part):
            outputs = run(*args, **kwargs)
            with beneath():
                known = concrete(((args, kwargs), outputs))
            if now.tracker.replaces(part):
                outputs = _replaced(part, args, outputs, known)
                with beneath():
                    known = concrete(((args, kwargs), outputs))
    except Exception as error:
        tracker.fail(index, error)
        annotate(error, part, args, kwargs)
        raise
    log: Any = tracker.current_log()
    records, kept = log.values, now.tracker.kept_by_any(part)
    if known is None:
        log.end(index, tracker.describe(outputs), {}, captured=False)
    else:
        (inputs, arrays), lifted = known
        values: dict[str, Any] = {}
        with beneath():
            for each in kept:
                values |= each.keep(part, inputs, arrays)
        log.infos[index] = replace(log.infos[index], lifted=lifted)
        log.end(index, tracker.describe(outputs), values, captured=True)
    keeping = [each for each in kept if each.keep_gradient is not None]
    if not keeping:
        return outputs
    form, record = jax.tree.structure(outputs), records[index]  # the log may have begun its next step

    def told(gradients: list[Any]) -> None:
        with beneath():
            for each in keeping:
                record.update(each.keep_gradient(jax.tree.unflatten(form, gradients), "return"))

    return sloped(outputs, told, part)


def _replaced(part: object, args: object, outputs: object, known: object) -> Any:
    if known is None:
        raise TraceError(
            f"the return of {type(part).__name__} cannot be replaced: it is called in a function that raw JAX compiles. Call the "
            "model itself, or use the transform of the same name from nbmodule. Nothing was replaced."
        )
    return instead(lambda rows: now.tracker.replaced(part, args, rows), outputs)
