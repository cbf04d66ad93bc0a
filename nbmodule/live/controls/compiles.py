"""Hears how long JAX compiles while a loop runs, so that a view can say what a slow step was busy
with.
"""

from __future__ import annotations

import sys
import threading

_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileClock:
    """Adds up the seconds that the thread of the loop spends in compiling.

    Example:
        >>> clock = CompileClock()
        >>> clock.start(); clock.stop()
        >>> clock.take()
        0.0
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._thread = 0
        self._listening = False

    def start(self) -> None:
        """Listen, if JAX is in use at all."""
        jax = sys.modules.get("jax")
        if jax is None:
            return
        from jax import monitoring

        self._thread = threading.get_ident()
        monitoring.register_event_duration_secs_listener(self._hear)
        self._listening = True

    def follow(self) -> None:
        """Count what this thread compiles from now on."""
        self._thread = threading.get_ident()

    def stop(self) -> None:
        """Listen no longer."""
        if self._listening:
            from nbmodule.base.jax_names import stop_listening

            self._listening = False
            stop_listening(self._hear)

    def take(self) -> float:
        """Give the seconds since the last time this was asked."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _hear(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _EVENT and threading.get_ident() == self._thread:
            self._seconds += duration_secs
