"""What does this head do, what is the output from: the questions of TransformerLens and Captum in
one call, beside hooks written by hand.

Each question is asked of the same small transformer: here by the functions of this package, in
`benchmarks.peers.questions_torch` by hand in PyTorch, by the documented definitions of the two
libraries. Both give the same numbers (a test compares them). A table holds the statements that a reader
writes and the time of each.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.timing import Row, Table, interleave, once

Metric = Callable[[Any], Any]
SIZE = {"vocabulary": 50, "width": 64, "heads": 4, "layers": 2}


class Block(nb.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.norm1, self.attention = nb.LayerNorm(width), nb.MultiHeadAttention(width, heads)
        self.norm2 = nb.LayerNorm(width)
        self.mlp = nb.Sequential(
            nb.Linear(width, 2 * width), nb.ReLU(), nb.Linear(2 * width, width)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x), is_causal=True)
        return x + self.mlp(self.norm2(x))


class Reader(nb.Module):
    """A small transformer over tokens."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int) -> None:
        self.embed = nb.Embedding(vocabulary, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm, self.head = nb.LayerNorm(width), nb.Linear(width, vocabulary)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def difference(logits: Any) -> Any:
    """The difference of two logits at the last position, the mean of the rows: of either framework."""
    return (logits[:, -1, 3] - logits[:, -1, 5]).mean()


# -- questions --
def zero_ablation(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    return nb.sweep(model, clean, "heads", metric=metric).values


def mean_ablation(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    return nb.sweep(model, clean, "heads", nb.to_mean(), metric=metric).values


def patched_heads(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    return nb.sweep(model, corrupted, "heads", nb.from_example(clean), metric=metric).values


def patched_positions(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    places = [
        "embed",
        *(f"blocks.{i}" for i in range(len(model.blocks) - 1)),
    ]  # what each block is given
    return nb.trace_causes(model, clean, corrupted, metric, only=places).recovered


def direct_attribution(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    parts = ["embed", "blocks.?.attention", "blocks.?.mlp"]
    found = nb.attribute(
        model, clean, metric, method="direct", stream="norm", components=parts, heads=True
    )
    return np.asarray(
        [found.modules[name] for name in list(found.modules)[:-2]]
    )  # without what no part has written


def gradient_times_input(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    return nb.attribute(model, clean, metric).inputs


def integrated_gradients(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    return nb.attribute(model, clean, metric, method="integrated").inputs


def conductance(model: Any, clean: Any, corrupted: Any, metric: Metric) -> Any:
    found = nb.attribute(model, clean, metric, method="integrated").modules
    blocks = [f"blocks.{i}" for i in range(len(model.blocks))]
    return np.asarray(
        [found[f"{block}{part}"] for block in blocks for part in (".attention", ".mlp", "")]
    )


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


def statements_of(answer: Callable[..., Any]) -> int:
    """Statements in the body of a function, whatever the formatter's line length."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(answer))).body
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1


def run(quick: bool = False) -> list[Table]:
    """A table of all questions, both ways."""
    import torch

    from benchmarks.peers import questions_torch as by_hand

    torch.set_num_threads(1)  # its waiting threads spin, and would disturb what is timed beside it
    nb.seed(0)
    model, draw = Reader(**SIZE).eval(), np.random.default_rng(0)
    clean = draw.integers(0, SIZE["vocabulary"], (8, 16))
    corrupted = clean.copy()
    corrupted[:, 4] = (corrupted[:, 4] + 7) % SIZE["vocabulary"]
    ours = (model, jnp.asarray(clean), jnp.asarray(corrupted), difference)
    theirs = (by_hand.reader_of(model), torch.tensor(clean), torch.tensor(corrupted), difference)
    rows: list[Row] = []
    for question, answer in ANSWERS.items():
        other = by_hand.ANSWERS[question]
        first = once(lambda answer=answer: answer(*ours))
        ways = {
            f"{question}: by hand in PyTorch": lambda other=other: other(*theirs).numpy(),
            question: lambda answer=answer: answer(*ours),
        }
        found = interleave(
            "", ways, next(iter(ways)), rounds=3 if quick else 7, seconds=0.05, warm=1
        ).rows
        found[0].more = {"statements": statements_of(other)}
        found[1].more = {"statements": statements_of(answer), "first call s": first}
        rows += found
    note = "2 layers of 4 heads, width 64, 8 x 16 tokens; PyTorch on one thread; a ratio is to the same question by hand. Lines are those of the body."
    return [Table("Questions to a transformer, by one call and by hooks", rows, note=note)]
