"""Where the time of a step goes: do the rows of `nb.profile` add up, and is each pass what it takes
when it is timed alone?

The step, its forward pass and forward with backward are timed by themselves, interleaved; beside
them stands what the profile of the step says. The ratio of a row is to the step. What stands alone
is another program: the compiler fuses a forward pass whose values are kept for the backward pass in
another way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.cases.compute import Convolutions
from benchmarks.models import Encoder
from benchmarks.timing import Row, Table, interleave

TEXT = {"width": 256, "heads": 8, "vocabulary": 256, "context": 128}


class Residual(nb.Module):
    """Two convolutions and what went in."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        self.conv1 = nb.Conv2d(inputs, outputs, 3, stride, padding="SAME", with_bias=False)
        self.conv2 = nb.Conv2d(outputs, outputs, 3, padding="SAME", with_bias=False)
        self.norm1, self.norm2 = nb.BatchNorm2d(outputs), nb.BatchNorm2d(outputs)
        self.shortcut = (
            None if (inputs, stride) == (outputs, 1) else nb.Conv2d(inputs, outputs, 1, stride)
        )

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.conv2(nb.relu(self.norm1(self.conv1(x)))))
        return nb.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet18(nb.Module):
    """Eight residual blocks, for images of 32 x 32."""

    def __init__(self) -> None:
        widths = (64, 64, 128, 256, 512)
        self.stem = nb.Conv2d(3, 64, 3, padding="SAME", with_bias=False)
        self.norm = nb.BatchNorm2d(64)
        pairs = [(a, b, i) for a, b in zip(widths, widths[1:], strict=False) for i in range(2)]
        self.blocks = [
            Residual(b if i else a, b, 2 if i == 0 and b > 64 else 1) for a, b, i in pairs
        ]
        self.head = nb.Linear(512, 10)

    def forward(self, x: Any) -> Any:
        x = nb.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2)))


def run(quick: bool = False) -> list[Table]:
    draw = np.random.default_rng(0)
    images = jnp.asarray(draw.normal(size=(64, 28, 28, 1)), jnp.float32)
    small = jnp.asarray(draw.normal(size=(2 if quick else 8, 32, 32, 3)), jnp.float32)
    layers = 2 if quick else 6
    text = jnp.asarray(draw.integers(0, 256, (4, 128)))

    def of_images(y: Any, x: Any) -> Any:
        return nb.cross_entropy(y, jnp.arange(len(x)) % 10)

    def of_text(y: Any, x: Any) -> Any:
        return nb.cross_entropy(y.reshape(-1, 256), x.reshape(-1))

    encoder = Encoder(layers=layers, **TEXT)
    return [
        _table("two convolutions, batch 64 of 28 x 28", Convolutions(), of_images, images, quick),
        _table(f"ResNet-18, batch {len(small)} of 32 x 32", ResNet18(), of_images, small, quick),
        _table(
            f"transformer of {layers} layers, width 256, 4 x 128 tokens",
            encoder,
            of_text,
            text,
            quick,
        ),
    ]


def _table(
    title: str, model: Any, loss_of: Callable[[Any, Any], Any], x: Any, quick: bool
) -> Table:
    optimizer = nb.Adam(1e-4)

    @nb.jit
    def step(x: Any) -> Any:
        loss, gradients = nb.value_and_grad(lambda m: loss_of(m(x), x))(model)
        optimizer.update(model, gradients)
        return loss

    forward = nb.jit(lambda x: loss_of(model(x), x))
    both = nb.jit(lambda x: nb.value_and_grad(lambda m: loss_of(m(x), x))(model))
    variants = {
        "step": lambda: step(x),
        "forward alone": lambda: forward(x),
        "forward and backward alone": lambda: both(x),
    }
    table = interleave(
        f"Profile, {title}", variants, "step", rounds=5 if quick else 11, seconds=0.2
    )
    found = nb.profile(step, x, runs=5 if quick else 20)
    sums = {
        "profile: all rows": found.total.seconds,
        "profile: forward": found.total.forward,
        "profile: backward": found.total.backward,
        "profile: optimizer": found.total.optimizer,
        "profile: rest": found.total.rest,
    }
    for name, seconds in sums.items():
        table.rows.append(
            Row(
                name,
                1e6 * seconds,
                0.0,
                seconds / found.seconds,
                target=1.1 if "all" in name else None,
            )
        )
    table.note = (
        f"Ratios of the profile are to its own runs without the profiler, which made a step take {100 * found.overhead:+.0f} %; "
        f"backward over forward {found.total.backward / found.total.forward:.2f}, alone "
        f"{(table.rows[2].us - table.rows[1].us) / table.rows[1].us:.2f}."
    )
    return table
