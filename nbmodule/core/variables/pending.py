"""Values that are known by shape and dtype, and drawn when they are first read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from nbmodule.base.kinds import DeviceLike

draw_lock = threading.RLock()
"""Held while values are drawn, so that threads that read one box at once see one draw."""


class Pending:
    """A value that is still to be drawn, by a function without side effects."""

    __slots__ = ("device", "draw", "dtype", "follows", "shape")

    def __init__(
        self,
        draw: Callable[[], Any] | None,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        device: DeviceLike | None = None,
        follows: bool = False,
    ) -> None:
        self.draw, self.shape, self.dtype, self.device = (
            draw,
            tuple(shape),
            jnp.dtype(dtype),
            device,
        )
        self.follows = follows  # whether it looks at another variable, which may change

    @property
    def sharding(self) -> Any:
        """Where the value will lie."""
        location = self.device
        if isinstance(location, jax.sharding.Sharding):
            return location
        if location is None:
            default: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
            location = default or jax.local_devices()[0]
            location = jax.devices(location)[0] if isinstance(location, str) else location
        return jax.sharding.SingleDeviceSharding(location)
