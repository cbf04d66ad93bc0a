"""A training step of a wrapped model beside the same step in its own framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import optax
from flax import nnx

import nbmodule as nb
from benchmarks.models import MLP, mean_square
from benchmarks.peers.nnx_ import MLP as NnxMLP
from benchmarks.steps import module_step, raw_step
from benchmarks.timing import Table, interleave, once

RATE = 1e-3
SIZES = [("8 x 32, batch 32", 8, 32, 32), ("3 x 1024, batch 256", 3, 1024, 256)]
KEY = jax.random.key(0)


class LinenMLP(nn.Module):
    depth: int
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.width)(x))
        return x


class EquinoxMLP(eqx.Module):
    layers: list

    def __init__(self, depth: int, width: int) -> None:
        self.layers = [eqx.nn.Linear(width, width, key=key) for key in jax.random.split(KEY, depth)]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


def over_rows(model: Any, x: Any) -> Any:
    return jax.vmap(model)(x)


def equinox_step(model: Any, x: Any, target: Any) -> Callable[[], Any]:
    optimizer = optax.adam(RATE)
    model = jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, model)
    held = [model, optimizer.init(eqx.filter(model, eqx.is_inexact_array))]

    @eqx.filter_jit(donate="all-except-first")
    def step(batch: Any, model: Any, state: Any) -> Any:
        loss, grads = eqx.filter_value_and_grad(
            lambda m: mean_square(over_rows(m, batch[0]), batch[1])
        )(model)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, loss

    def call() -> Any:
        held[0], held[1], loss = step((x, target), *held)
        return loss

    return call


def nnx_step(model: Any, x: Any, target: Any) -> Callable[[], Any]:
    optimizer = nnx.Optimizer(model, optax.adam(RATE), wrt=nnx.Param)

    @nnx.jit(donate_argnums=(0, 1))
    def step(model: Any, optimizer: Any, x: Any, target: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: mean_square(m(x), target))(model)
        optimizer.update(model, grads)
        return loss

    return lambda: step(model, optimizer, x, target)


def run(quick: bool = False) -> list[Table]:
    return [
        *(_frameworks(*size, quick) for size in SIZES if not quick or size[2] < 1024),
        _torch(quick),
        _tracked(quick),
    ]


def _tracked(quick: bool) -> Table:
    """An unconverted compiled training step of NNX, tracked, beside one of ours."""
    depth, width = 8, 256
    x, target = (jax.random.normal(jax.random.key(seed), (width, width)) for seed in (1, 2))
    theirs, own = NnxMLP(depth, width), MLP(depth, width)
    steps = {
        "NNX": (theirs, nnx_step(theirs, x, target)),
        "ours": (own, module_step(own, mean_square, x, target)),
    }
    variants: dict[str, Callable[[], Any]] = {}
    for name, (model, step) in steps.items():
        variants[f"{name}, untracked"] = step
        for what, returns in (("statistics", "stats"), ("all returns", True)):
            variants[f"{name}, {what}"] = _within(nb.track(model, returns=returns, last=1), step)
    table = interleave(
        f"Tracking an unconverted compiled step of NNX, {depth} x {width}, batch {width}",
        variants,
        "ours, untracked",
        rounds=9 if quick else 21,
        seconds=0.1,
        note="A context is entered and left around each step. *of its own*: to the untracked step of the same library.",
    )
    times = {row.name: row.us for row in table.rows}
    for row in table.rows:
        row.more["of its own"] = row.us / times[f"{row.name.partition(',')[0]}, untracked"]
    return table


def _within(watching: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    def once() -> Any:
        with watching:
            return step()

    return once


def _torch(quick: bool) -> Table:
    """An unconverted training step of PyTorch, tracked, beside one with forward hooks that reduce
    each return.
    """
    import torch

    torch.set_num_threads(1)
    layers = [each for _ in range(8) for each in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    model, x = torch.nn.Sequential(*layers), torch.randn(256, 256)
    adam = torch.optim.Adam(model.parameters(), lr=RATE)

    def step() -> Any:
        adam.zero_grad()
        (model(x) ** 2).mean().backward()
        adam.step()

    def hooked() -> Any:
        found: dict[str, Any] = {}

        def note(name: str) -> Any:
            def hook(module: Any, args: Any, output: Any) -> None:
                y = output.detach()
                found[name] = [
                    f.item() for f in (y.mean(), y.std(), y.min(), y.max(), y.count_nonzero())
                ]

            return hook

        handles = [
            module.register_forward_hook(note(name)) for name, module in model.named_modules()
        ]
        step()
        for handle in handles:
            handle.remove()

    def tracked() -> Any:
        with nb.track(model, returns="stats"):
            step()

    variants = {
        "plain": step,
        "forward hooks, five figures each": hooked,
        "nb.track, returns='stats'": tracked,
    }
    return interleave(
        "Step of an unconverted PyTorch model, 8 x 256, batch 256",
        variants,
        "forward hooks, five figures each",
        targets={"nb.track, returns='stats'": 1.3},
        rounds=9 if quick else 21,
        seconds=0.05,
    )


def _frameworks(name: str, depth: int, width: int, batch: int, quick: bool) -> Any:
    x, target = (jax.random.normal(jax.random.key(seed), (batch, width)) for seed in (1, 2))
    linen, equinox = LinenMLP(depth, width), EquinoxMLP(depth, width)
    variables = linen.init(KEY, x)
    haiku = hk.transform(lambda x: hk.nets.MLP([width] * depth, activate_final=True)(x))
    params = haiku.init(KEY, x)
    pairs = {
        "linen": (
            raw_step(
                variables["params"],
                lambda p, x: linen.apply({"params": p}, x),
                mean_square,
                x,
                target,
            ),
            module_step(nb.from_flax(linen, variables), mean_square, x, target),
        ),
        "haiku": (
            raw_step(params, lambda p, x: haiku.apply(p, None, x), mean_square, x, target),
            module_step(nb.from_haiku(haiku, params), mean_square, x, target),
        ),
        "equinox": (
            equinox_step(equinox, x, target),
            module_step(nb.from_equinox(equinox, call=over_rows), mean_square, x, target),
        ),
        "nnx": (
            nnx_step(NnxMLP(depth, width), x, target),
            module_step(nb.from_flax(NnxMLP(depth, width)), mean_square, x, target),
        ),
    }
    rows = []
    for framework, (native, wrapped) in pairs.items():
        variants = {f"{framework}, native": native, f"{framework}, wrapped": wrapped}
        first = {variant: once(fn) for variant, fn in variants.items()}
        table = interleave(
            "",
            variants,
            f"{framework}, native",
            targets={f"{framework}, wrapped": 1.05},
            rounds=9 if quick else 21,
            seconds=0.02,
        )
        for row in table.rows:
            row.more["first call s"] = first[row.name]
        rows += table.rows
    return Table(
        f"Donated Adam step of a wrapped model, {name}",
        rows,
        floor="native, of each framework",
        by="wall",
        note="Ratios are to the native step of the same framework.",
    )
