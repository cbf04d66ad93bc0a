"""From the start of the process to the first trained step of a small convolutional network, and to
the second start of it.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec

from benchmarks.timing import Row, Table

DATA = """
import numpy as np
x = np.random.default_rng(0).normal(size=(64, 28, 28, 1)).astype("float32")
labels = np.arange(64) % 10
"""
NBMODULE = """
import nbmodule as nb

class Net(nb.Module):
    def __init__(self):
        self.conv0, self.conv1 = nb.Conv2d(1, 16, 3, padding="SAME"), nb.Conv2d(16, 32, 3, padding="SAME")
        self.pool, self.head = nb.MaxPool2d(2), nb.Linear(7 * 7 * 32, 10)

    def forward(self, x):
        x = self.pool(nb.relu(self.conv0(x)))
        x = self.pool(nb.relu(self.conv1(x)))
        return self.head(x.reshape(len(x), -1))

{cache}
model, optimizer = Net(), nb.Adam(1e-3)

@nb.jit
def step(x, labels):
    loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), labels))(model)
    optimizer.update(model, grads)
    return loss

print(float(step(x, labels)))
"""
RAW = """
import jax, jax.numpy as jnp, optax

def conv(key, inputs, outputs):
    return {"w": jax.nn.initializers.lecun_normal()(key, (3, 3, inputs, outputs)), "b": jnp.zeros(outputs)}

keys = jax.random.split(jax.random.key(0), 3)
p = {"conv0": conv(keys[0], 1, 16), "conv1": conv(keys[1], 16, 32),
     "head": {"w": jax.nn.initializers.lecun_normal()(keys[2], (7 * 7 * 32, 10)), "b": jnp.zeros(10)}}

def forward(p, x):
    for name in ("conv0", "conv1"):
        x = jax.lax.conv_general_dilated(x, p[name]["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + p[name]["b"]
        x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ p["head"]["w"] + p["head"]["b"]

optimizer = optax.adam(1e-3)
state = optimizer.init(p)

@jax.jit
def step(p, state, x, labels):
    loss = lambda p: optax.softmax_cross_entropy_with_integer_labels(forward(p, x), labels).mean()
    value, grads = jax.value_and_grad(loss)(p)
    updates, state = optimizer.update(grads, state, p)
    return optax.apply_updates(p, updates), state, value

p, state, value = step(p, state, x, labels)
print(float(value))
"""
NNX = """
import jax, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv0, self.conv1 = nnx.Conv(1, 16, (3, 3), rngs=rngs), nnx.Conv(16, 32, (3, 3), rngs=rngs)
        self.head = nnx.Linear(7 * 7 * 32, 10, rngs=rngs)

    def __call__(self, x):
        for conv in (self.conv0, self.conv1):
            x = nnx.max_pool(nnx.relu(conv(x)), (2, 2), strides=(2, 2))
        return self.head(x.reshape(len(x), -1))

model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

@nnx.jit
def step(model, optimizer, x, labels):
    loss = lambda model: optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()
    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value

print(float(step(model, optimizer, x, labels)))
"""

NET = "from nbmodule.views import mimebundle\n" + NBMODULE.partition("{cache}")[0]
STEP = "from nbmodule.views import mimebundle\n" + NBMODULE.format(cache="")
LOOKS = {
    "the model": NET + "\nmodel = Net()\nmodel(x)\n",
    "its tree as HTML": NET + "\nmodel = Net()\nmodel(x)\nassert mimebundle(model)['text/html']\n",
    "a step": STEP,
    "a tracked step, after a plain one": STEP
    + "\nwith nb.track(model, returns='stats') as calls:\n    step(x, labels)\nassert mimebundle(calls)['text/html']\n",
    "a tracked step": STEP.replace("print(float(step(x, labels)))", "")
    + "\nwith nb.track(model, returns='stats') as calls:\n    step(x, labels)\nassert mimebundle(calls)['text/html']\n",
    "a curve of ten steps": STEP.replace("print(float(step(x, labels)))", "")
    + "\nwith nb.Live(model, optimizer) as live:\n    for _ in live.steps(range(10)):\n        live.log(loss=step(x, labels))\n"
    + "assert mimebundle(live)['text/html']\n",
}


def run(quick: bool = False) -> list[Table]:
    folder = tempfile.mkdtemp()
    try:
        return [_table(folder, 3 if quick else 7), _looks(3 if quick else 7)]
    finally:
        shutil.rmtree(folder)


def _looks(rounds: int) -> Table:
    samples = _rounds(LOOKS, rounds)
    return Table(
        "Start of the process to the first looks, the same network",
        [_row(name, samples, "a step") for name in LOOKS],
        "a step",
        "wall",
        "A fresh Python each time, to the end of it; cpu is that of the whole process.",
    )


def _table(folder: str, rounds: int) -> Table:
    kept = f"nb.cache_compiles({folder!r}, min_seconds=0)"
    codes = {
        "raw JAX": RAW,
        "nbmodule": NBMODULE.format(cache=""),
        "nbmodule, second start": NBMODULE.format(cache=kept),
    }
    if find_spec("flax"):
        codes["nnx"] = NNX
    samples = _rounds(codes, rounds)
    rows = [_row(name, samples, "raw JAX", 0.4 if name == "nbmodule" else None) for name in codes]
    return Table(
        "Start of the process to the first trained step, two convolutions, batch 64 of 28 x 28",
        rows,
        "raw JAX",
        "wall",
        "A fresh Python each time; cpu is that of the whole process.",
    )


def _rounds(codes: dict[str, str], rounds: int) -> dict[str, list[tuple[float, float]]]:
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in codes}
    order = list(codes)
    for name in order:
        _started(
            codes[name]
        )  # which leaves the bytecode of all packages, as their installation does
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            samples[name].append(_started(codes[name]))
    return samples


def _row(
    name: str,
    samples: dict[str, list[tuple[float, float]]],
    floor: str,
    target: float | None = None,
) -> Row:
    found = samples[name]
    wall, cpu = (
        statistics.median(a[i] / b[i] for a, b in zip(found, samples[floor], strict=True))
        for i in (0, 1)
    )
    times = (1e6 * statistics.median(column) for column in zip(*found, strict=True))
    return Row(name, *times, wall, cpu, target)


def _started(code: str) -> tuple[float, float]:
    """Seconds of the whole process, by wall and of all its threads."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", DATA + code], env=env, capture_output=True, check=True)
    wall, after = time.perf_counter() - start, os.times()
    return (
        wall,
        after.children_user + after.children_system - before.children_user - before.children_system,
    )
