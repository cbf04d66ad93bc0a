"""What is compiled beforehand, and how long a thread has spent in compiling so far, as JAX tells it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

EVENTS = frozenset({"/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration"})
"""Tracing is not among them: traces lie within each other, and would count twice."""


class _Heard(threading.local):
    seconds = 0.0


_heard = _Heard()
_lock = threading.Lock()
_listening = False


def compiled_seconds() -> float:
    """Give the seconds that this thread has spent in compiling since this was first asked; only differences mean anything.

    Example:
        >>> before = compiled_seconds()
        >>> compiled_seconds() - before
        0.0
    """
    global _listening
    if not _listening:
        with _lock:
            if not _listening:
                from jax import monitoring

                monitoring.register_event_duration_secs_listener(_hear)
                _listening = True
    return _heard.seconds


def _hear(event: str, duration_secs: float, **_: str | int) -> None:
    if event in EVENTS:
        _heard.seconds += duration_secs


def compiled_ahead(lowered: Any) -> Callable[..., Any]:
    """The program of `jax.jit(fn).lower(...)`, which can also be called where `jax_disable_jit` is on: there JAX refuses such a call.

    Example:
        >>> double = compiled_ahead(jax.jit(lambda x: 2 * x).lower(1.0))
        >>> with jax.disable_jit():
        ...     print(double(3.0))
        6.0
    """
    import jax

    program = lowered.compile()

    def call(*args: Any) -> Any:
        with jax.disable_jit(False):
            return program(*args)

    return call
