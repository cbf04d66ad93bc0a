"""Questions to a transformer written in PyTorch by hand, with hooks, by the documented definitions
of TransformerLens and Captum.

Neither library is needed. The places are those of TransformerLens (`hook_z`, `resid_pre`), the
formulas those that the two document. Each question is one function, as a reader would write it in a
notebook: `benchmarks.cases.questions` holds the same in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Metric = Callable[[Any], Any]


class Attention(torch.nn.Module):
    """Causal attention with a place for hooks on what each head gives: `(batch, length, heads,
    features)`.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (
            torch.nn.Linear(width, width) for _ in range(4)
        )
        self.hook_z = torch.nn.Identity()

    def forward(self, x: Any) -> Any:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        later = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
        z = (scores.softmax(-1) @ v).transpose(1, 2)
        return self.out(self.hook_z(z).flatten(-2))


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = torch.nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.ReLU(), torch.nn.Linear(2 * width, width)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Reader(torch.nn.Module):
    """A transformer whose parameters have the names of the module's that it is made from."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def reader_of(model: Any) -> Reader:
    """The same transformer in PyTorch, from a module with its variables."""
    vocabulary, width = model.embed.weight.shape
    reader = Reader(vocabulary, width, model.blocks[0].attention.num_heads, len(model.blocks))
    reader.load_state_dict(
        {name: torch.tensor(np.asarray(x)) for name, x in model.state_dict().items()}
    )
    return reader.eval()


# -- questions --
def zero_ablation(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    found = torch.zeros(len(model.blocks), model.blocks[0].attention.heads)
    for layer, block in enumerate(model.blocks):
        for head in range(block.attention.heads):

            def silence(module: Any, given: Any, z: Any, head: int = head) -> Any:
                z = z.clone()
                z[:, :, head] = 0
                return z

            with torch.no_grad(), block.attention.hook_z.register_forward_hook(silence):
                found[layer, head] = metric(model(clean))
    return found


def mean_ablation(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    found = torch.zeros(len(model.blocks), model.blocks[0].attention.heads)
    for layer, block in enumerate(model.blocks):
        for head in range(block.attention.heads):

            def average(module: Any, given: Any, z: Any, head: int = head) -> Any:
                z = z.clone()
                z[:, :, head] = z[:, :, head].mean((0, 1))
                return z

            with torch.no_grad(), block.attention.hook_z.register_forward_hook(average):
                found[layer, head] = metric(model(clean))
    return found


def patched_heads(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    kept: dict[Any, Any] = {}
    places = [block.attention.hook_z for block in model.blocks]
    handles = [
        place.register_forward_hook(lambda m, given, z: kept.update({m: z})) for place in places
    ]
    with torch.no_grad():
        model(clean)
    for handle in handles:
        handle.remove()
    found = torch.zeros(len(places), model.blocks[0].attention.heads)
    for layer, place in enumerate(places):
        for head in range(found.shape[1]):

            def patch(module: Any, given: Any, z: Any, head: int = head) -> Any:
                z = z.clone()
                z[:, :, head] = kept[module][:, :, head]
                return z

            with torch.no_grad(), place.register_forward_hook(patch):
                found[layer, head] = metric(model(corrupted))
    return found


def patched_positions(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    kept: dict[Any, Any] = {}
    handles = [
        b.register_forward_pre_hook(lambda m, given: kept.update({m: given[0]}))
        for b in model.blocks
    ]
    with torch.no_grad():
        best = metric(model(clean))
    for handle in handles:
        handle.remove()
    found = torch.zeros(len(model.blocks), clean.shape[1])
    with torch.no_grad():
        worst = metric(model(corrupted))
    for layer, block in enumerate(model.blocks):
        for position in range(clean.shape[1]):

            def patch(module: Any, given: Any, position: int = position) -> Any:
                x = given[0].clone()
                x[:, position] = kept[module][:, position]
                return (x,)

            with torch.no_grad(), block.register_forward_pre_hook(patch):
                found[layer, position] = (metric(model(corrupted)) - worst) / (best - worst)
    return found


def direct_attribution(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    kept: dict[Any, Any] = {}
    places = [
        model.embed,
        model.norm,
        *(m for b in model.blocks for m in (b.attention.hook_z, b.attention, b.mlp)),
    ]
    handles = [
        place.register_forward_hook(lambda m, given, y: kept.update({m: (given[0], y)}))
        for place in places
    ]
    model(clean)
    for handle in handles:
        handle.remove()
    stream, read = kept[model.norm]
    read = read.detach().requires_grad_(True)
    direction = torch.autograd.grad(metric(model.head(read)), read)[
        0
    ]  # the difference of two columns of the unembedding
    scale = (stream.var(-1, unbiased=False, keepdim=True) + model.norm.eps).rsqrt()

    def said(part: Any) -> Any:
        centered = part - part.mean(-1, keepdim=True)
        return (direction * centered * scale * model.norm.weight).sum()

    found = [said(kept[model.embed][1])]
    for block in model.blocks:
        z, weight = kept[block.attention.hook_z][1], block.attention.out.weight
        for head, part in enumerate(weight.split(z.shape[-1], dim=1)):
            found.append(said(z[:, :, head] @ part.T))
        found += [said(block.attention.out.bias.expand_as(stream)), said(kept[block.mlp][1])]
    return torch.stack(found).detach()


def gradient_times_input(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    kept: list[Any] = []
    with model.embed.register_forward_hook(lambda m, given, y: kept.append(y)):
        value = metric(model(clean))
    return (torch.autograd.grad(value, kept[0])[0] * kept[0]).sum(-1).detach()


def integrated_gradients(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    embedded = model.embed(clean).detach()
    nodes, weights = np.polynomial.legendre.leggauss(50)
    total = torch.zeros_like(embedded)
    for node, weight in zip((nodes + 1) / 2, weights / 2):
        point = (embedded * float(node)).requires_grad_(True)
        with model.embed.register_forward_hook(lambda m, given, y, point=point: point):
            total += float(weight) * torch.autograd.grad(metric(model(clean)), point)[0]
    return (total * embedded).sum(-1)


def conductance(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    embedded = model.embed(clean).detach()
    places = [m for b in model.blocks for m in (b.attention, b.mlp, b)]

    def returned(alpha: Any) -> Any:
        kept: dict[Any, Any] = {}
        handles = [
            place.register_forward_hook(lambda m, given, y: kept.update({m: y})) for place in places
        ]
        handles.append(model.embed.register_forward_hook(lambda m, given, y: embedded * alpha))
        value = metric(model(clean))
        for handle in handles:
            handle.remove()
        return value, *(kept[place] for place in places)

    nodes, weights = np.polynomial.legendre.leggauss(50)
    found = torch.zeros(len(places))
    for node, weight in zip((nodes + 1) / 2, weights / 2):
        alpha = torch.tensor(float(node), requires_grad=True)
        value, *returns = returned(alpha)
        gradients = torch.autograd.grad(value, returns)
        _, (_, *moved) = torch.autograd.functional.jvp(returned, alpha.detach(), torch.tensor(1.0))
        found += float(weight) * torch.stack([(g * d).sum() for g, d in zip(gradients, moved)])
    return found


ANSWERS: dict[str, Callable[..., Any]] = {
    "each head set to zero": zero_ablation,
    "each head set to its mean": mean_ablation,
    "each head patched": patched_heads,
    "each layer and position patched": patched_positions,
    "direct attribution by layer and head": direct_attribution,
    "gradient × input": gradient_times_input,
    "integrated gradients": integrated_gradients,
    "conductance of each layer": conductance,
}
