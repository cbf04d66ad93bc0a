"""Copies to the device that a user asked for, also under `jax.transfer_guard("disallow")`.

That guard lets `jax.device_put` copy, since the caller says so, and refuses what JAX copies by
itself: a NumPy array in a compiled call, a number beside an array. An array that is given to a
model to be kept is copied because the user says so as well.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax


def asked_for() -> AbstractContextManager[object]:
    """The context in which numbers and NumPy arrays go to the device as if by `jax.device_put`.

    Example:
        >>> with jax.transfer_guard("disallow"), asked_for():
        ...     jnp.ones(2)
        Array([1., 1.], dtype=float32)
    """
    guard = jax.config.jax_transfer_guard_host_to_device  # pyright: ignore
    return jax.transfer_guard_host_to_device("allow") if guard == "disallow" else nullcontext()
