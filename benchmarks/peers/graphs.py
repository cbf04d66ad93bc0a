"""Peers that draw the graph of a model, each with its own GPT of the same size, where they are
installed and run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Variants = dict[str, Callable[[], Any]]


def gpt(layers: int, width: int, heads: int, vocabulary: int, context: int) -> Variants:
    """From the model to what the peer draws: the source of a picture, or the HTML of a cell."""
    size = (layers, width, heads, vocabulary, context)
    return {**_haiku(*size), **_torchview(*size), **_torchvista(*size)}


def _haiku(layers: int, width: int, heads: int, vocabulary: int, context: int) -> Variants:
    try:
        import haiku as hk
        import jax
        import jax.numpy as jnp
    except ImportError:
        return {}

    def forward(tokens: Any) -> Any:
        table = hk.Embed(vocabulary, width)
        x = table(tokens) + hk.Embed(context, width)(jnp.arange(tokens.shape[0]))
        for _ in range(layers):
            y = hk.LayerNorm(-1, True, True)(x)
            x = x + hk.MultiHeadAttention(
                heads, width // heads, w_init_scale=1.0, model_size=width
            )(y, y, y)
            x = x + hk.nets.MLP([4 * width, width], activation=jax.nn.gelu)(
                hk.LayerNorm(-1, True, True)(x)
            )
        return x @ table.embeddings.T

    net = hk.without_apply_rng(hk.transform(forward))
    tokens = jnp.zeros(context, jnp.int32)
    params = jax.eval_shape(net.init, jax.random.key(0), tokens)
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)
    return _if_it_runs("haiku: to_dot", lambda: hk.experimental.to_dot(net.apply)(params, tokens))


def _torch_gpt(
    layers: int, width: int, heads: int, vocabulary: int, context: int
) -> tuple[Any, Any]:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok = torch.nn.Embedding(vocabulary, width)
            self.pos = torch.nn.Embedding(context, width)
            self.blocks = torch.nn.ModuleList(
                torch.nn.TransformerEncoderLayer(
                    width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
                )
                for _ in range(layers)
            )

        def forward(self, tokens: Any) -> Any:
            x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[-1]))
            for block in self.blocks:
                x = block(x)
            return x @ self.tok.weight.T

    return Net().eval(), torch.zeros((1, context), dtype=torch.long)


def _torchview(*size: int) -> Variants:
    try:
        import torchview
    except ImportError:
        return {}
    net, tokens = _torch_gpt(*size)
    return _if_it_runs(
        "torchview: draw_graph, to DOT",
        lambda: torchview.draw_graph(net, tokens, depth=3).visual_graph.source,
    )


def _torchvista(*size: int) -> Variants:
    try:
        import torchvista
    except ImportError:
        return {}
    net, tokens = _torch_gpt(*size)
    return _if_it_runs("torchvista: trace_model", lambda: torchvista.trace_model(net, tokens))


def _if_it_runs(name: str, fn: Callable[[], Any]) -> Variants:
    """The variant, if the peer runs beside the versions that are installed; else a line that says
    why not.
    """
    try:
        fn()
    except Exception as error:  # a peer that has not kept up with JAX or torch has no row
        print(f"{name} does not run here: {type(error).__name__}: {error}")
        return {}
    return {name: fn}
