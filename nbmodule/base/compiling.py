"""Compilation: JAX's cache on disk, and how long threads have spent compiling."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax import monitoring

from nbmodule.base.jax_names import reset_compilation_cache
from nbmodule.errors import ArgumentError


def cache_compiles(
    folder: str | os.PathLike[str] | None = None, *, min_seconds: float = 0.05
) -> Path:
    """Keep what is compiled from now on in a folder, so that the next start reads it there.

    This is JAX's persistent compilation cache, in one line at the head of a notebook: a program
    that was compiled by an earlier process, for the same devices and versions, is read in
    milliseconds. It is traced as ever. What is out of date is never used, and the folder may be
    deleted at any time.

    Args:
        folder: Where; by default `JAX_COMPILATION_CACHE_DIR`, else `nbmodule/compiled` among the
            user's caches.
        min_seconds: Programs that compile in less are not kept, in seconds.

    Returns:
        The folder.

    Raises:
        ArgumentError: `min_seconds` is negative, or the folder cannot be made or written to.

    Example:
        >>> import tempfile
        >>> before = jax.config.jax_compilation_cache_dir
        >>> cache_compiles(tempfile.mkdtemp()).is_dir()
        True
        >>> jax.config.update("jax_compilation_cache_dir", before)
    """
    if not min_seconds >= 0:
        raise ArgumentError(f"min_seconds must be at least 0, got {min_seconds!r}.")
    chosen = Path(folder if folder is not None else _usual_folder()).expanduser().absolute()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=chosen).close()
    except OSError as error:
        raise ArgumentError(
            f"cannot keep compiled programs in {chosen}: {error.strerror or error}. Give another "
            "folder."
        ) from error
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(min_seconds))
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    reset_compilation_cache()  # JAX looks for the folder once, at its first compile
    return chosen


def _usual_folder() -> Path:
    named = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if named:
        return Path(named)
    if os.name == "nt":
        caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches) / "nbmodule" / "compiled"


EVENTS = frozenset(
    {
        "/jax/core/compile/backend_compile_duration",
        "/jax/core/compile/jaxpr_to_mlir_module_duration",
    }
)
"""Tracing is not among them: traces lie within each other, and would count twice."""


class _Heard(threading.local):
    seconds = 0.0


_heard = _Heard()


def compiled_seconds() -> float:
    """Return the seconds that this thread has spent in compiling; only differences mean anything.

    Example:
        >>> before = compiled_seconds()
        >>> compiled_seconds() - before
        0.0
    """
    return _heard.seconds


def _hear(event: str, duration_secs: float, **_: str | int) -> None:
    if event in EVENTS:
        _heard.seconds += duration_secs


monitoring.register_event_duration_secs_listener(_hear)


def compiled_ahead(lowered: Any) -> Callable[..., Any]:
    """The program of `jax.jit(fn).lower(...)`, which can also be called where `jax_disable_jit` is
    on: there JAX refuses such a call.

    Example:
        >>> double = compiled_ahead(jax.jit(lambda x: 2 * x).lower(1.0))
        >>> with jax.disable_jit():
        ...     print(double(3.0))
        6.0
    """
    program = lowered.compile()

    def call(*args: Any) -> Any:
        with jax.disable_jit(False):
            return program(*args)

    return call
