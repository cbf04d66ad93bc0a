"""Sharded steps on eight virtual CPU devices, beside the same network written by hand with the same
shardings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

import nbmodule as nb
from benchmarks.models import MLP, mean_square, raw_mlp, raw_mlp_forward
from benchmarks.timing import Table, interleave, once

DEVICES = 8


def run(quick: bool = False) -> list[Table]:
    jax.config.update("jax_num_cpu_devices", DEVICES)
    width, batch = (256, 256) if quick else (1024, 512)
    plans = {
        "data parallel": (nb.make_mesh(data=8), nb.data_parallel()),
        "fsdp": (nb.make_mesh(data=8), nb.fsdp()),
        "columns and rows": (
            nb.make_mesh(data=2, model=4),
            {
                **{f"layers.{i}.*": "model" for i in (0, 2)},
                **{f"layers.{i}.weight": (None, "model") for i in (1, 3)},
            },
        ),
    }
    return [_plan(name, *plan, width, batch, quick) for name, plan in plans.items()]


def specs_of(model: MLP) -> dict[str, Any]:
    """The specs of a model's layers in the layout of the network by hand, whose weights are `(in,
    out)`.
    """
    layers = []
    for layer in model.layers:
        weight = (*layer.weight.sharding.spec, None, None)[:2]
        layers.append({"w": PartitionSpec(weight[1], weight[0]), "b": layer.bias.sharding.spec})
    return {"layers": layers}


def raw_step(
    specs: Any, mesh: Any, depth: int, width: int, x: Any, target: Any
) -> Callable[[], Any]:
    is_spec = lambda spec: isinstance(spec, PartitionSpec)  # noqa: E731 - a predicate
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=is_spec)
    p = jax.device_put(raw_mlp(depth, width), places)
    optimizer = optax.adam(1e-3)
    whole = NamedSharding(mesh, PartitionSpec())
    state = optimizer.init(p)
    state = jax.tree.map(
        lambda leaf: jax.device_put(leaf, whole) if leaf.ndim == 0 else leaf, state
    )
    shardings = jax.tree.map(lambda leaf: leaf.sharding, (p, state))

    def step(p: Any, s: Any, x: Any, target: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: mean_square(raw_mlp_forward(p, x), target))(p)
        updates, s = optimizer.update(grads, s, p)
        return optax.apply_updates(p, updates), s, loss

    compiled = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*shardings, None))
    held = [p, state]

    def call() -> Any:
        held[0], held[1], loss = compiled(*held, x, target)
        return loss

    return call


def module_step(model: MLP, x: Any, target: Any) -> Callable[[], Any]:
    optimizer = nb.Adam(1e-3)

    @nb.jit(donate=True)
    def step(x: Any, target: Any) -> Any:
        loss, grads = nb.value_and_grad(lambda m: mean_square(m(x), target))(model)
        optimizer.update(model, grads)
        return loss

    return lambda: step(x, target)


def _plan(name: str, mesh: Any, rules: Any, width: int, batch: int, quick: bool) -> Table:
    draw = np.random.default_rng(0)
    x, target = nb.shard_batch(
        tuple(jnp.asarray(draw.normal(size=(2, batch, width)), "float32")), mesh
    )
    model = nb.shard(MLP(4, width), mesh, rules)
    variants = {
        "by hand, same shardings": raw_step(specs_of(model), mesh, 4, width, x, target),
        "nb.shard, nb.jit, donate": module_step(model, x, target),
    }
    first = {variant: once(fn) for variant, fn in variants.items()}
    table = interleave(
        f"Sharded Adam step, {name}, 4 x {width}, batch {batch}, {DEVICES} virtual devices",
        variants,
        "by hand, same shardings",
        targets={"nb.shard, nb.jit, donate": 1.03},
        rounds=9 if quick else 21,
        seconds=0.05,
    )
    held = nb.layout(model)
    for row in table.rows:
        row.more["first call s"] = first[row.name]
        row.more["MB per device"] = max(held.bytes_per_device.values()) / 1e6
    return table
