"""Work that other threads share in, also while the interpreter is about to end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def submit(pool: ThreadPoolExecutor, function: Callable[..., Any], *args: object, **options: object) -> Future[Any]:
    """Call a function in a pool of threads; at the end of the interpreter, when pools take nothing more, at once.

    A file that is written in the background is finished even then, see `background`.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from nbmodule.files.threads import submit
        >>> with ThreadPoolExecutor(1) as pool:
        ...     submit(pool, max, 3, 4).result()
        4
    """
    try:
        return pool.submit(function, *args, **options)
    except RuntimeError:
        done: Future[Any] = Future()
        done.set_result(function(*args, **options))
        return done
