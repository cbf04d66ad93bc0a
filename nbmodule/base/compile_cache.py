"""Compiled programs kept on the disk: the second run of a notebook reads what the first one compiled."""

from __future__ import annotations

import os
from pathlib import Path

import jax

from nbmodule.base.jax_names import reset_compilation_cache
from nbmodule.errors import ArgumentError


def cache_compiles(folder: str | os.PathLike[str] | None = None, *, min_seconds: float = 0.05) -> Path:
    """Keep what is compiled from now on in a folder, so that the next start reads it there.

    This is JAX's persistent compilation cache, in one line at the head of a notebook: a program that was compiled by an earlier
    process, for the same devices and versions, is read in milliseconds. It is traced as ever. What is out of date is never
    used, and the folder may be deleted at any time.

    Args:
        folder: Where; by default `JAX_COMPILATION_CACHE_DIR`, else `nbmodule/compiled` among the user's caches.
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
        raise ArgumentError(f"min_seconds= is a time of 0 or more; found {min_seconds!r}. Nothing was changed.")
    chosen = Path(folder if folder is not None else _usual_folder()).expanduser().absolute()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"cannot keep compiled programs in {chosen}: {error.strerror or error}. Nothing was changed. Give another folder."
        ) from error
    if not os.access(chosen, os.W_OK):
        raise ArgumentError(
            f"cannot keep compiled programs in {chosen}: it may not be written to. Nothing was changed. Give another folder."
        )
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
