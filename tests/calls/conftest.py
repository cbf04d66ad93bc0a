"""Models whose every intermediate value can be computed by hand."""

import jax.numpy as jnp
import pytest

import nbmodule as nb


class Block(nb.Module):
    def __init__(self):
        self.lin, self.act = nb.Linear(4, 4), nb.Tanh()

    def forward(self, x):
        return x + self.act(self.act(self.lin(x)))


class Net(nb.Module):
    def __init__(self):
        self.stem, self.blocks = nb.Linear(3, 4), [Block(), Block()]
        self.head, self.spare = nb.Linear(4, 2), nb.Tanh()

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def by_hand(net, x):
    """Every return, in the order in which the calls began, from the arrays alone and with the same
    operations.
    """

    def linear(layer, x):
        return layer.functional(x) if hasattr(layer, "functional") else layer(x)

    found = []

    def put(path, value):
        found.append((path, value))
        return value

    h = put("stem", linear(net.stem, x))
    for i, block in enumerate(net.blocks):
        inner = linear(block.lin, h)
        first = jnp.tanh(inner)
        second = jnp.tanh(first)
        h = h + second
        found += [
            (f"blocks.{i}", h),
            (f"blocks.{i}.lin", inner),
            (f"blocks.{i}.act", first),
            (f"blocks.{i}.act", second),
        ]
    y = linear(net.head, h)
    return [("", y), *found, ("head", y)]


@pytest.fixture
def net():
    nb.seed(0)
    return Net()


@pytest.fixture
def x():
    return jnp.linspace(-1.0, 1.0, 15).reshape(5, 3)


@pytest.fixture
def hand():
    return by_hand
