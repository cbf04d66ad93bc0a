"""Several hosts: each runs the same program on its own devices, joined by `jax.distributed`."""

from __future__ import annotations

from typing import Any

import jax

from nbmodule.errors import ArgumentError, DeviceError

LOST_AFTER = 30  # seconds without a sign of life after which a host counts as lost


def join_hosts(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    lost_after: int = LOST_AFTER,
    **options: Any,
) -> None:
    """Join this process to the others of a run; call it first, before any array is made.

    On a cluster that JAX knows (SLURM, a cloud's accelerators) no argument is needed. When a
    process is lost, the others are ended by JAX with a message that names it, within about
    `lost_after` seconds: start all again and restore the last checkpoint.

    Args:
        coordinator: `host:port` of process 0, the same for all.
        processes: How many there are.
        process: Number of this one, from 0.
        lost_after: Seconds without a sign of life after which a process counts as lost.
        **options: Further options of `jax.distributed.initialize`.

    Raises:
        ArgumentError: the numbers make no sense.
        DeviceError: devices are in use already, so that it is too late to join.

    Example:
        >>> nb.join_hosts("localhost:1234", processes=2, process=2)
        Traceback (most recent call last):
        nbmodule.errors.ArgumentError: process must be from 0 to 1, got 2.
    """
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ArgumentError(f"process must be from 0 to {processes - 1}, got {process}.")
    if processes is not None and coordinator is None:
        raise ArgumentError("processes= needs coordinator= too: 'host:port' of process 0.")
    if lost_after < 1:
        raise ArgumentError(f"lost_after must be at least 1 (second), got {lost_after}.")
    try:
        # The CPU backend cannot talk to other hosts by itself.
        if "cpu" in str(getattr(jax.config, "jax_platforms", None) or ""):
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator, processes, process, heartbeat_timeout_seconds=lost_after, **options
        )
    except RuntimeError as error:
        if "before" not in str(error):
            raise
        raise DeviceError(
            f"cannot join the other hosts: devices are in use already ({error}). "
            "Call nb.join_hosts first, before any array or model is made."
        ) from error


def has_other_hosts() -> bool:
    """Return whether this process has joined others, without starting a device."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first_host() -> bool:
    """Return whether this process prints, draws and keeps history: process 0, or the only one.

    Example:
        >>> nb.is_first_host()
        True
    """
    return not has_other_hosts() or jax.process_index() == 0
