"""Penzai: layers are frozen dataclasses whose parameters are bound variables; compiled by `jax.jit`
once those are taken out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from penzai import pz


@pz.pytree_dataclass
class Affine(pz.nn.Layer):
    w: pz.nn.ParameterLike
    b: pz.nn.ParameterLike

    def __call__(self, x: Any, /, **_: Any) -> Any:
        return x * self.w.value + self.b.value


@pz.pytree_dataclass
class Null(pz.nn.Layer):
    def __call__(self, x: Any, /, **_: Any) -> Any:
        return x


def chain(count: int, w: Any, b: Any) -> Any:
    return pz.nn.Sequential(
        [
            Affine(pz.Parameter(value=w, label=f"w{i}"), pz.Parameter(value=b, label=f"b{i}"))
            for i in range(count)
        ]
    )


def dispatch(count: int, x: Any) -> dict[str, Any]:
    layer, values = pz.unbind_params(chain(count, jnp.ones(4), jnp.ones(4)), freeze=True)
    pure = jax.jit(lambda layer, values, x: x + 1, keep_unused=True)
    return {"penzai, unbind_params and jax.jit": lambda: pure(layer, values, x)}
