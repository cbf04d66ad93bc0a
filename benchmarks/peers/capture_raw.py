"""Raw JAX, `jax.debug.callback` with each block's (each layer's) output: the host is called within
the step.
"""

from __future__ import annotations

from typing import Any

import jax

from benchmarks.models import raw_mlp, raw_transformer, raw_transformer_forward
from benchmarks.peers.capture import Variants, steps


def _told(x: Any) -> Any:
    jax.debug.callback(lambda value: None, x)
    return x


def transformer(size: dict[str, int], tokens: Any) -> Variants:
    def forward(params: Any, x: Any, tell: Any = lambda x: x) -> Any:
        return raw_transformer_forward(params, x, size["heads"], tell)

    return _steps(raw_transformer(**size), forward, tokens, None)


def mlp(depth: int, width: int, x: Any) -> Variants:
    def forward(params: Any, x: Any, tell: Any = lambda x: x) -> Any:
        for layer in params["layers"]:
            x = tell(jax.nn.relu(tell(x @ layer["w"] + layer["b"])))
        return x

    return _steps(raw_mlp(depth, width), forward, x, 1.0)


def _steps(params: Any, forward: Any, x: Any, target: Any) -> Variants:
    def capturing(params: Any, x: Any) -> Any:
        return forward(params, x, _told), ()

    return steps("raw JAX", "jax.debug.callback", params, forward, capturing, x, target)
