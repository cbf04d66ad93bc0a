"""Log a call of a foreign part under JAX's own `vmap`, `grad` and `jvp`, with values and gradients.

Outside of compiled code the arrays behind such traced values are there: rows of `vmap` are stacked
in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.interpreters import batching

from nbmodule.base.jax_names import Primitive
from nbmodule.core.call.error_notes import annotate
from nbmodule.core.call.stages import scope_of
from nbmodule.core.recording import tracker
from nbmodule.core.variables.frame import calling, now
from nbmodule.errors import TraceError
from nbmodule.interop.frameworks.interception import concrete
from nbmodule.interop.gradients import report_gradients


@contextmanager
def eager_arrays() -> Iterator[None]:
    """Compute with concrete arrays at once, whatever JAX traces outside."""
    with jax.ensure_compile_time_eval(), jax.disable_jit(False):
        yield


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


def _batch(leaves: Any, dims: Any, *, number: int) -> tuple[list[Any], list[int]]:
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


def _replaced(part: object, args: object, outputs: object, returned: object) -> Any:
    if returned is None:
        raise TraceError(
            f"the return of {type(part).__name__} cannot be replaced in a function that raw JAX "
            f"compiles. "
            "Call the model itself, or use the transform of the same name from nbmodule."
        )
    return replace_batched(lambda rows: now.tracker.replaced(part, args, rows), outputs)


# -- the call --
def logged(
    part: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a call under a transform of JAX and log it."""
    __tracebackhide__ = True
    args, kwargs = now.tracker.given(part, args, kwargs)
    index = tracker.begin(part, (args, kwargs))
    with eager_arrays():
        inputs = concrete((args, kwargs))  # before the call, which may use its arguments up
    try:
        with calling(part), scope_of(part):
            outputs = run(*args, **kwargs)
            with eager_arrays():
                returned = concrete(outputs)
            if now.tracker.replaces(part):
                outputs = _replaced(part, args, outputs, returned)
                with eager_arrays():
                    returned = concrete(outputs)
    except Exception as error:
        tracker.fail(index, error)
        annotate(error, part, args, kwargs)
        raise
    log: Any = tracker.current_log()
    records, trackers = log.values, now.tracker.kept_by_any(part)
    if returned is None or inputs is None:
        log.end(index, tracker.describe(outputs), {}, captured=False)
    else:
        lifted = tuple(dict.fromkeys((*inputs[1], *returned[1])))
        values: dict[str, Any] = {}
        with eager_arrays():
            for open_tracker in trackers:
                values |= open_tracker.keep(part, inputs[0], returned[0])
        log.infos[index] = replace(log.infos[index], lifted=lifted)
        log.end(index, tracker.describe(outputs), values, captured=True)
    keeping = [open_tracker for open_tracker in trackers if open_tracker.keep_gradient is not None]
    if not keeping:
        return outputs
    structure = jax.tree.structure(outputs)
    record = records[index]  # the log may have begun its next step

    def keep(gradients: list[Any]) -> None:
        with eager_arrays():
            for open_tracker in keeping:
                record.update(
                    open_tracker.keep_gradient(jax.tree.unflatten(structure, gradients), "return")
                )

    return report_gradients(outputs, keep, part)
