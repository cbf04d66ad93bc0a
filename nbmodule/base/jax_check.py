"""The self-check of a few milliseconds by which the core makes sure, when it is first used, that
JAX behaves as it builds on.

There is no upper bound on JAX: a release that behaves as before is welcome on the day it comes out,
and one that does not is named here, instead of giving wrong numbers later. Nothing is compiled and
no device is touched.
"""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np

from nbmodule.base import jax_names
from nbmodule.base.jax_names import here, unfit


def check_jax() -> Any:
    """Prove what the core stands on, and hand back the state of "no trace is open".

    The core may be imported in the middle of a trace (names of the front door are loaded on first
    use), so this runs in a thread of its own, where none is.

    Raises:
        MissingDependencyError: an `ImportError` that names what is gone, the versions and what to
            install.
    """
    results: list[Any] = []

    def run() -> None:
        try:
            with jax.disable_jit(False):
                results.append(_prove())
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that asked
            results.append(error)

    thread = threading.Thread(target=run, name="nbmodule self-check of JAX")
    thread.start()
    thread.join()
    (result,) = results
    if isinstance(result, ImportError):
        raise result
    if isinstance(result, BaseException):
        raise unfit(f"its self-check ended in {type(result).__name__}: {result}") from result
    return result


def _prove() -> Any:
    _prove_that_traces_are_told_apart()
    _prove_that_a_changed_token_traces_again()
    _prove_that_a_raw_jit_is_noticed()
    return here()


def _prove_that_traces_are_told_apart() -> None:
    states: list[Any] = []

    def inner(x: object) -> Any:
        states.append(here())
        return x

    def outer(x: object) -> Any:
        states.append(here())
        return jax.vmap(inner)(x)

    jax.eval_shape(outer, _VECTOR)
    outside, (enclosing, within) = here(), states
    if outside != here():
        raise unfit("`get_opaque_trace_state` does not know the same trace again")
    if outside in (enclosing, within) or enclosing == within:
        raise unfit("`get_opaque_trace_state` does not tell an open trace from another")


def _prove_that_a_changed_token_traces_again() -> None:
    traced: list[None] = []
    token = jax_names.make_user_context(None)

    @jax.jit
    def fn(x: object) -> Any:
        traced.append(None)
        return x

    for value in (None, 1, 2):
        with token(value):
            jax.eval_shape(fn, _VECTOR)
    if len(traced) != 3:
        raise unfit("`jax.make_user_context` no longer keeps two traces apart in JAX's caches")


def _prove_that_a_raw_jit_is_noticed() -> None:
    visited = [jax_names.is_jit_being_traced()]

    def note(x: object) -> Any:
        visited.append(jax_names.is_jit_being_traced())
        return x

    jax.eval_shape(jax.jit(note), _VECTOR)
    jax.eval_shape(jax.jit(jax.vmap(note)), _VECTOR)
    if visited != [False, True, True]:
        raise unfit(
            "a raw `jax.jit` is no longer noticed while it is traced (`trace_ctx`, `traced_for`)"
        )


_VECTOR = jax.ShapeDtypeStruct((2,), np.float32)
