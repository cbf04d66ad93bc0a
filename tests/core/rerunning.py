"""Cells of a notebook that run again, and a small model for them."""

import jax
import jax.numpy as jnp

import nbmodule as nb

X, Y = jnp.ones((4, 3)), jnp.zeros((4, 2))


class Net(nb.Module):
    def __init__(self, width=5):
        self.a, self.b = nb.Linear(3, width), nb.Linear(width, 2)

    def forward(self, x):
        return self.b(jax.nn.relu(self.a(x)))


def loss(model):
    return ((model(X) - Y) ** 2).mean()


def notebook(cells, names=None):
    """Run cells in a namespace of their own, as a notebook does; gives it."""
    names = {
        "nb": nb,
        "jnp": jnp,
        "jax": jax,
        "Net": Net,
        "loss": loss,
        "X": X,
        "traces": [],
        **(names or {}),
    }
    names["__name__"] = "__main__"
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), names)
    return names
