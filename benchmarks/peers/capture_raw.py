"""Raw JAX, `jax.debug.callback` with each block's (each layer's) output: the host is called within
the step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.models import attend, raw_linear, raw_mlp
from benchmarks.peers.capture import Variants, steps


def _told(x: Any) -> Any:
    jax.debug.callback(lambda value: None, x)
    return x


def _linear(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def _norm(p: Any, x: Any) -> Any:
    return jax.nn.standardize(x) * p["scale"] + p["shift"]


def _block(p: Any, x: Any, heads: int, tell: Any) -> Any:
    attention = tell(
        _linear(p["proj"], attend(tell(_linear(p["qkv"], tell(_norm(p["ln1"], x)))), heads))
    )
    x = x + attention
    inner = tell(jax.nn.gelu(tell(_linear(p["fc"], tell(_norm(p["ln2"], x))))))
    return tell(x + tell(_linear(p["out"], inner)))


def _raw_norm(width: int) -> dict[str, Any]:
    return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}


def _raw_block(key: Any, width: int) -> dict[str, Any]:
    a, b, c, d = jax.random.split(key, 4)
    return {
        "ln1": _raw_norm(width),
        "qkv": raw_linear(a, width, 3 * width),
        "proj": raw_linear(b, width, width),
        "ln2": _raw_norm(width),
        "fc": raw_linear(c, width, 4 * width),
        "out": raw_linear(d, 4 * width, width),
    }


def transformer(size: dict[str, int], tokens: Any) -> Variants:
    width = size["width"]
    keys = jax.random.split(jax.random.key(0), size["layers"])
    params = {
        "tok": jax.random.normal(jax.random.key(1), (size["vocabulary"], width)) / 16,
        "pos": jax.random.normal(jax.random.key(2), (size["context"], width)) / 16,
        "blocks": [_raw_block(key, width) for key in keys],
        "lnf": _raw_norm(width),
    }

    def forward(params: Any, x: Any, tell: Any = lambda x: x) -> Any:
        h = tell(params["tok"][x]) + tell(params["pos"][: x.shape[0]])
        for block in params["blocks"]:
            h = _block(block, h, size["heads"], tell)
        return tell(_norm(params["lnf"], h)) @ params["tok"].T

    return _steps(params, forward, tokens, None)


def mlp(depth: int, width: int, x: Any) -> Variants:
    def forward(params: Any, x: Any, tell: Any = lambda x: x) -> Any:
        for layer in params["layers"]:
            x = tell(jax.nn.relu(tell(_linear(layer, x))))
        return x

    return _steps(raw_mlp(depth, width), forward, x, 1.0)


def _steps(params: Any, forward: Any, x: Any, target: Any) -> Variants:
    def capturing(params: Any, x: Any) -> Any:
        return forward(params, x, _told), ()

    return steps("raw JAX", "jax.debug.callback", params, forward, capturing, x, target)
