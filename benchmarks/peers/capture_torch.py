"""PyTorch on one core, forward pass alone: forward hooks that keep each return, and TorchLens where
it is installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.peers.capture import Variants

torch.set_num_threads(1)  # its waiting threads spin, and would disturb what is timed beside it


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1 = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.proj = torch.nn.Linear(width, width)
        self.ln2 = torch.nn.LayerNorm(width)
        self.fc = torch.nn.Linear(width, 4 * width)
        self.out = torch.nn.Linear(4 * width, width)
        self.gelu = torch.nn.GELU(approximate="tanh")

    def forward(self, x: Any) -> Any:
        tokens, width = x.shape
        q, k, v = (
            a.view(tokens, self.heads, -1).transpose(0, 1)
            for a in self.qkv(self.ln1(x)).chunk(3, -1)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
        x = x + self.proj(mixed.transpose(0, 1).reshape(tokens, width))
        return x + self.out(self.gelu(self.fc(self.ln2(x))))


class Transformer(torch.nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tok = torch.nn.Embedding(vocabulary, width)
        self.pos = torch.nn.Embedding(context, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.lnf = torch.nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        h = self.tok(x) + self.pos(torch.arange(x.shape[0]))
        return self.lnf(self.blocks(h)) @ self.tok.weight.T


def transformer(size: dict[str, int], tokens: Any) -> Variants:
    return _forwards(Transformer(**size), torch.tensor(np.asarray(tokens), dtype=torch.long))


def mlp(depth: int, width: int, x: Any) -> Variants:
    layers = [
        layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())
    ]
    return _forwards(torch.nn.Sequential(*layers), torch.tensor(np.asarray(x)))


def _forwards(net: Any, x: Any) -> Variants:
    def hooked() -> Any:
        kept: list[Any] = []
        handles = [
            m.register_forward_hook(lambda module, given, out: kept.append(out))
            for m in net.modules()
        ]
        with torch.no_grad():
            net(x)
        for handle in handles:
            handle.remove()
        return len(kept)

    return {
        "PyTorch, forward alone": _plainly(net, x),
        "PyTorch, forward hooks": hooked,
        **_torchlens(net, x),
    }


def _plainly(net: Any, x: Any) -> Callable[[], Any]:
    def call() -> float:
        with torch.no_grad():
            return float(net(x).sum())

    return call


def _torchlens(net: Any, x: Any) -> Variants:
    try:
        torchlens = importlib.import_module("torchlens")
    except ImportError:
        return {}
    return {
        "PyTorch, TorchLens": lambda: len(torchlens.log_forward_pass(net, x, layers_to_save="all"))
    }
