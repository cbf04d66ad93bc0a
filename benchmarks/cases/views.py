"""What a look costs: the time to the MIME bundle, and how many bytes of a notebook it takes.
Treescope draws the same values.

The times are wall times; `KB` are those of `text/html`, `target ms` and `target KB` what the
project allows itself, which is marked where it is missed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.models import Transformer
from benchmarks.peers import looks as peers
from benchmarks.timing import Row, Table, interleave, once
from nbmodule.views import mimebundle

LEAVES = {1_000: (15, 30), 10_000: (60, 250), 100_000: (300, 1_000)}
OFTEN, ONCE = 1_000, 10_000
"""Leaves up to which the peer is timed in each round, and at all: it takes a second for two thousand."""


def run(quick: bool = False) -> list[Table]:
    rounds = 5 if quick else 15
    tables = [_trees(count, rounds) for count in LEAVES if not quick or count <= 10_000]
    return [*tables, _models(rounds, quick), _array(rounds, quick), _calls(rounds)]


def _html(value: Any) -> str:
    return mimebundle(value)["text/html"]


def _table(
    title: str,
    looks: dict[str, Callable[[], str]],
    rounds: int,
    targets: dict[str, tuple[float, float]],
    note: str = "",
    slow: dict[str, Callable[[], str]] | None = None,
) -> Table:
    """Times and sizes; what is in `slow` runs once, since it takes a minute."""
    sizes = {name: len(fn()) / 1e3 for name, fn in looks.items()}
    table = interleave(
        title, looks, next(iter(looks)), rounds=rounds, warm=1, seconds=0.001, note=note
    )
    for name, fn in (slow or {}).items():
        html: list[str] = []
        seconds = once(lambda fn=fn, html=html: html.append(fn()))
        sizes[name] = len(html[0]) / 1e3
        table.rows.append(Row(name, 1e6 * seconds, 1e6 * seconds, 1e6 * seconds / table.rows[0].us))
    for row in table.rows:
        row.more["KB"] = sizes[row.name]
        if row.name in targets:
            most, room = targets[row.name]
            row.more["target ms"] = f"{most:g}" + (" **missed**" if row.us > most * 1e3 else "")
            row.more["target KB"] = f"{room:g}" + (" **missed**" if sizes[row.name] > room else "")
    return table


def tree_of(count: int) -> dict[str, Any]:
    """A PyTree of `count` small arrays, ten to a level."""
    return {
        f"block_{i}": {
            f"p{j}": jnp.full((2, 3) if j % 2 else (4,), i + j, jnp.float32) for j in range(10)
        }
        for i in range(count // 10)
    }


def _trees(count: int, rounds: int) -> Table:
    tree = tree_of(count)
    looks = {"nbmodule": lambda: _html(tree)}
    peer = peers.html_of(tree)
    title, targets = f"Looking at a tree of {count:,} leaves", {"nbmodule": LEAVES[count]}
    if count <= OFTEN:
        return _table(title, looks | peer, rounds, targets)
    return _table(title, looks, rounds, targets, slow=peer if count <= ONCE else {})


def _models(rounds: int, quick: bool) -> Table:
    size = {
        "layers": 2 if quick else 12,
        "width": 768,
        "heads": 12,
        "vocabulary": 5_000,
        "context": 256,
    }
    model = Transformer(**size)
    tokens = jnp.zeros(64, jnp.int32)
    inspected = nb.inspect(model, tokens)
    looks = {
        "modules": lambda: _html(model),
        "variables with thumbnails": lambda: _html(model.v),
        "inspect, its bundle": lambda: _html(inspected),
        **peers.html_of(model.v.cont_to_dict()),
    }
    targets = dict.fromkeys(
        ("modules", "variables with thumbnails", "inspect, its bundle"), (250, 250)
    )
    return _table(f"Looking at a GPT of {size['layers']} layers, width 768", looks, rounds, targets)


def _array(rounds: int, quick: bool) -> Table:
    side = 1024 if quick else 4096
    x = jnp.asarray(np.random.default_rng(0).normal(size=(side, side)).astype("float32"))
    note = "Ours counts every element in its histogram; the peer shows the first and last items of each axis."
    looks = {"nbmodule": lambda: _html(x), **peers.whole_array(x)}
    return _table(
        f"Looking at an array of {side} x {side}", looks, rounds, {"nbmodule": (15, 60)}, note
    )


def _calls(rounds: int) -> Table:
    model = nb.Sequential(*[layer for _ in range(200) for layer in (nb.Linear(16, 16), nb.ReLU())])
    twice = nb.Sequential(model, model)
    x = jnp.ones((4, 16))

    def tracked() -> Any:
        with nb.track(twice) as calls:
            twice(x)
        return calls

    calls = tracked()
    looks = {
        "the table": lambda: _html(calls),
        "the tracked calls and the table": lambda: _html(tracked()),
    }
    targets = {"the table": (500, 250), "the tracked calls and the table": (500, 250)}
    note = (
        "The MLP is called twice, so that each layer has two calls; the peer hides the second one."
    )
    title = "Looking at the calls of an MLP of 200 layers"
    return _table(title, looks, rounds, targets, note, peers.tabulated(200, 16))
