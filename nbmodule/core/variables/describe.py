"""Arrays and variables in words, without a copy of anything large from a device."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentTypeError


def as_flag(what: str, value: object) -> bool:
    """Return a flag as a bool; 0 and 1 are flags, text such as "false" is not."""
    is_number = isinstance(value, (int, np.integer)) and value in (0, 1)
    if not is_number and not isinstance(value, np.bool_):
        raise ArgumentTypeError(f"{what} must be True or False, got {value!r}.")
    return bool(value)


_SMALL = 100
"""Elements of an array whose values are written."""


def describe_array(x: Any) -> str:
    """`[1 2 3], dtype=int32, device=cpu:0`; larger arrays by dtype and shape, without a copy from
    the device.
    """
    dtype, small = x.dtype, x.size <= _SMALL
    is_variable = hasattr(type(x), "_is_variable")
    value = (None if x.is_pending else x._value) if is_variable else x
    parts = [describe_shape(x)]
    if isinstance(value, jax.core.Tracer):
        return f"{parts[0]}, traced"
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"{parts[0]}, no value"
    if value is not None and getattr(value, "is_deleted", bool)():
        return f"{parts[0]}, deleted"
    if small:
        value = x.value if is_variable and not x.is_released else value
        if isinstance(value, jax.core.Tracer):
            return f"{parts[0]}, traced"
        if value is not None and not jnp.issubdtype(dtype, jax.dtypes.prng_key):
            parts = [np.array2string(np.asarray(value), separator=" ", prefix="Parameter(")]
            if dtype != np.float32:
                parts.append(f"dtype={dtype}")
    return ", ".join([*parts, f"device={describe_device(x)}"])


def describe_device(x: Array) -> str:
    """`cpu:0`, or `cpu:0,1,2` for an array that lies on several."""
    if x.sharding is None:
        return "no value"
    devices = sorted(x.sharding.device_set, key=lambda d: d.id)
    return f"{devices[0].platform}:" + ",".join(str(d.id) for d in devices)
