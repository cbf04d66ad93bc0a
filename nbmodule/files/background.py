"""Save in the background: a snapshot of the values is taken at once, a thread writes the file, and
`wait_for_saving` waits for it.

Files are written in the order of the requests. The interpreter waits for them before it exits. An
error is raised by whoever waits, else by the next request.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.whole_file import file_name
from nbmodule.files.chains import flatten_levels, nest
from nbmodule.files.stored_leaf import as_array, to_host

_pending: list[Saving] = []


class Saving:
    """A file that is being written.

    Attributes:
        what: The path, for errors.
    """

    def __init__(self, what: str, future: Future[Any]) -> None:
        self.what, self._future = what, future

    def __repr__(self) -> str:
        state = "done" if self.is_done else "being written"
        if self.is_done and self._future.exception():
            state = "failed"
        return f"Saving({self.what!r}, {state})"

    @property
    def is_done(self) -> bool:
        """True once the file is written, or writing has failed."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the file is written and synced; return the result of the function.

        Args:
            timeout: In seconds; None waits without limit.

        Raises:
            FileWriteError: or another error of the function.
            TimeoutError: if it takes longer; writing goes on.
        """
        try:
            return self._future.result(timeout)
        finally:
            if self.is_done:
                with contextlib.suppress(ValueError):  # another caller has waited, too
                    _pending.remove(self)


def in_background(
    function: Callable[..., Any], path: object, *trees: Any, **options: object
) -> Saving:
    """Call `function(path, *trees, **options)` in a thread, with the values that trees and options
    have now.

    Args:
        function: `save`, `save_checkpoint` or `save_safetensors`.
        path: The first argument of the function.
        trees: Nested mappings of arrays. Arrays on a device are copied to the host before this
            returns, NumPy arrays are copied; JAX arrays on the CPU are only held.
        options: Its keyword arguments; mappings among them are treated in the same way.

    Raises:
        FileWriteError: if an earlier request has failed and nobody has waited for it; this one is
            then not begun.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import in_background, read, save, wait_for_saving
        >>> path, w = os.path.join(tempfile.mkdtemp(), "w.h5"), np.zeros(2)
        >>> saving = in_background(save, path, {"w": w})
        >>> w += 1
        >>> wait_for_saving()
        >>> read(path).variables["w"]
        array([0., 0.])
    """
    name = file_name(path, "save")
    absolute = os.path.abspath(name)  # the working directory may change before the thread runs
    for saving in [saving for saving in _pending if saving.is_done]:
        saving.wait()  # raises the error of a request that nobody has waited for
    trees = tuple(snapshot(tree) for tree in trees)
    options = {
        name: snapshot(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }
    saving = Saving(name, _thread().submit(function, absolute, *trees, **options))
    _pending.append(saving)
    return saving


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="nbmodule-saving")


def snapshot(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a tree on the host that no later step can change.

    Example:
        >>> from nbmodule.files.background import snapshot
        >>> w = np.zeros(2)
        >>> kept = snapshot({"a": {"w": w}})
        >>> w += 1
        >>> kept
        {'a': {'w': array([0., 0.])}}
    """
    rows = list(flatten_levels(tree, what="the tree"))
    copies = {id(leaf): _held(leaf, path) for path, leaf in rows}
    return nest(((path, copies[id(leaf)]) for path, leaf in rows), where="the tree")


def _held(leaf: Any, name: str) -> Any:
    """Return the value of a leaf as a copy or a reference; a NumPy view keeps JAX from donating the
    memory of an array.
    """
    leaf = as_array(leaf, name)
    if not isinstance(leaf, jax.Array):
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    if isinstance(leaf.dtype, np.dtype):
        return to_host(leaf)
    data = np.array(jax.random.key_data(leaf))
    return jax.random.wrap_key_data(jnp.asarray(data), impl=str(jax.random.key_impl(leaf)))


def wait_for_saving() -> None:
    """Wait until all files are written.

    Raises:
        FileWriteError: or the first error, after all other files are written too.
    """
    waiting = list(_pending)
    futures.wait([saving._future for saving in waiting])
    for saving in waiting:
        saving.wait()


def _report_at_exit() -> None:
    for saving in _pending:
        if saving.is_done and (error := saving._future.exception()):
            print(f"nbmodule: {saving.what} was not saved: {error}", file=sys.stderr)


def _forget_after_fork() -> None:
    """Forget the thread of the parent process, which writes the files."""
    _thread.cache_clear()
    _pending.clear()


atexit.register(_report_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
