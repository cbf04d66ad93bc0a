"""What peers show, where they are installed: Treescope the same trees and arrays as HTML, Flax NNX
a table of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Looks = dict[str, Callable[[], str]]


def html_of(value: Any) -> Looks:
    """A value as Treescope shows it in a cell, arrays drawn as pictures."""
    found = _treescope()
    return {} if found is None else {"treescope": lambda: found.render_to_html(value)}


def whole_array(value: Any) -> Looks:
    """An array by its edge items, which is what Treescope does with a large one by default."""
    found = _treescope()
    if found is None:
        return {}
    draw = found.ArrayAutovisualizer()

    def edges() -> str:
        with found.active_autovisualizer.set_scoped(draw):
            return found.render_to_html(value)

    return {"treescope, edge items": edges}


def tabulated(depth: int, width: int) -> Looks:
    """The table of an MLP's calls, twice through its layers."""
    try:
        import jax.numpy as jnp
        from flax import nnx
    except ImportError:
        return {}
    rngs = nnx.Rngs(0)

    class Net(nnx.Module):
        def __init__(self) -> None:
            self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(depth)])

        def __call__(self, x: Any) -> Any:
            for layer in (*self.layers, *self.layers):
                x = nnx.relu(layer(x))
            return x

    net, x = Net(), jnp.ones((4, width))
    return {"nnx.tabulate": lambda: nnx.tabulate(net, x)}


def _treescope() -> Any:
    try:
        import treescope
    except ImportError:
        return None
    return treescope
