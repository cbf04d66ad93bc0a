"""A model as a PyTree, against lists and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import peers
from benchmarks.models import Affine, Chain, raw_affine
from benchmarks.timing import Table, interleave


def _unflatten(tree: Any, read: Callable[[Any], Any] = id) -> Callable[[], int]:
    leaves, structure = jax.tree.flatten(tree)
    return lambda: (read(jax.tree.unflatten(structure, leaves)), 0)[1]


class Bare:
    """The least that a registered node can do: hand out a tuple that is there.

    What it costs is JAX's own.
    """

    def __init__(self, leaves: Any) -> None:
        self.parts = tuple(leaves), None


jax.tree_util.register_pytree_node(Bare, lambda bare: bare.parts, lambda _, leaves: Bare(leaves))


def run(quick: bool = False) -> list[Table]:
    tree = raw_affine(100)
    flat = jax.tree.leaves(tree)
    model = Chain([Affine(jnp.ones(4), jnp.ones(4)) for _ in range(100)])
    bare = Bare(flat)
    unread = jax.tree.map(lambda leaf: leaf, model)
    variants = {
        "flat list": lambda: (jax.tree.flatten(flat), 0)[1],
        "nested dicts": lambda: (jax.tree.flatten(tree), 0)[1],
        "nb.Module": lambda: (jax.tree.flatten(model), 0)[1],
        "one that JAX has unflattened": lambda: (jax.tree.flatten(unread), 0)[1],
        "a registered node that does nothing": lambda: (jax.tree.flatten(bare), 0)[1],
        **{name: lambda t=t: (jax.tree.flatten(t), 0)[1] for name, t in peers.trees(100).items()},
    }
    table = interleave(
        "Flatten, 200 leaves",
        variants,
        "flat list",
        targets={"nb.Module": 1.1},
        rounds=9 if quick else 21,
        by="cpu",
        note="A part of what a module costs above a flat list is JAX's own, as the node that does nothing shows.",
    )
    back = {
        name: _unflatten(t)
        for name, t in {
            "flat list": flat,
            "nested dicts": tree,
            "nb.Module": model,
            **peers.trees(100),
        }.items()
    }
    back["nb.Module, one attribute read"] = _unflatten(model, lambda made: made.layers)
    unflatten = interleave(
        "Unflatten, 200 leaves",
        back,
        "flat list",
        targets={"nb.Module": 12},
        rounds=9 if quick else 21,
        by="cpu",
        note="The modules and variables below are made when an attribute is first read, if any is.",
    )
    return [table, unflatten]
