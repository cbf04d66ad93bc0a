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
    value, is_small = x, x.size <= _SMALL
    if hasattr(type(x), "_is_variable"):
        value = x.value if is_small and not x.is_released else getattr(x, "_value", None)
    text = describe_shape(x)
    if isinstance(value, jax.core.Tracer):
        return f"{text}, traced"
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"{text}, no value"
    if value is not None and getattr(value, "is_deleted", bool)():
        return f"{text}, deleted"
    if is_small and value is not None and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        text = np.array2string(np.asarray(value), separator=" ", prefix="Parameter(")
        text += "" if x.dtype == np.float32 else f", dtype={x.dtype}"
    return f"{text}, device={describe_device(x)}"


def describe_device(x: Array) -> str:
    """`cpu:0`, or `cpu:0,1,2` for an array that lies on several."""
    if x.sharding is None:
        return "no value"
    devices = sorted(x.sharding.device_set, key=lambda d: d.id)
    return f"{devices[0].platform}:" + ",".join(str(d.id) for d in devices)
