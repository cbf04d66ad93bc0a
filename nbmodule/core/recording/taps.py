"""Gradients by what submodules return.

A return `x` is passed on as `tap(x, d)`, which is `x`, and whose tangent adds `d`. The nearest
`nb.grad` holds `d`, a zero for each return, and differentiates by it as well: that is the gradient
by the return. To know how many zeros and of which shapes it first traces the function once for its
shapes (*asking*), then differentiates it with the zeros *given*. `nb.vmap` and `nb.scan` do the
same one level further in, and hand the zeros on by rows; all other transforms let them through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from nbmodule.core.variables.frame import during, now


@jax.custom_jvp
def tap(x: object, d: object) -> Any:
    """Return `x`, with a derivative of one by `d`."""
    return x


@tap.defjvp
def _tap_jvp(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[0] + tangents[1]


class Taps:
    """The zeros of one function that is being traced: counted while `given` is None, else given in
    the same order.
    """

    def __init__(self, provided: list[Any] | None = None) -> None:
        self.given, self.count = provided, 0
        self.asked: list[jax.ShapeDtypeStruct] = []

    def ask(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Return the zero for the next return; None while asking."""
        if self.given is None:
            self.asked.append(jax.ShapeDtypeStruct(shape, dtype))
            return None
        self.count += 1
        return self.given[self.count - 1] if self.count <= len(self.given) else None

    def mark(self) -> tuple[int, int]:
        """Return the current position, for `rewind`."""
        return self.count, len(self.asked)

    def rewind(self, mark: tuple[int, int]) -> None:
        """Begin again from there: what was traced since is traced once more."""
        self.count = mark[0]
        del self.asked[mark[1] :]


@jax.tree_util.register_static
@dataclass(frozen=True)
class PendingGradient:
    """A placeholder without leaves for a gradient that is known once `nb.grad` has ended."""

    tree: Any
    """Structure of the return."""
    mask: tuple[bool, ...]
    """For each leaf, True if it has a gradient."""

    def filled(self, gradients: Iterator[Any]) -> Any:
        """Return the gradient, in the structure of the return; None where a leaf has none."""
        return jax.tree.unflatten(
            self.tree, [next(gradients, None) if has else None for has in self.mask]
        )


def serving(taps: Taps | None) -> AbstractContextManager[None]:
    """Use `taps` from now on, or none."""
    return during(taps=taps)


def tapped(outputs: object) -> tuple[Any, PendingGradient]:
    """Return outputs of a submodule passed through taps, and the placeholder of the gradient."""
    leaves, tree = jax.tree.flatten(outputs)
    # Integers and keys have no gradient.
    mask = tuple(
        isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves
    )
    if now.taps is not None:
        for i, leaf in enumerate(leaves):
            zero = now.taps.ask(leaf.shape, leaf.dtype) if mask[i] else None
            if zero is not None:
                leaves[i] = tap(leaf, zero)
        outputs = jax.tree.unflatten(tree, leaves)
    return outputs, PendingGradient(tree, mask)


def asked_by(trial: Callable[[], Any]) -> list[jax.ShapeDtypeStruct]:
    """Return the zeros that a function would ask for, found by tracing it for its shapes alone."""
    # Traced for shapes only: nothing is computed.
    taps = Taps()
    with serving(taps):
        trial()
    return taps.asked


def are_watched() -> bool:
    """Return True if gradients by returns are to be recorded."""
    return now.tracker is not None and now.tracker.keep_gradient is not None


def lifted(trial: Callable[[], Any], count: int) -> list[Any] | None:
    """Return the zeros for a function that runs `count` times, each with a leading axis; None if
    there are none.

    Args:
        trial: Traces the function for its shapes; each run of it asks, see `handing_on`.
        count: Length of the axis.
    """
    outside = now.taps
    if outside is None or not are_watched():
        return None
    zeros = [outside.ask((count, *zero.shape), zero.dtype) for zero in asked_by(trial)]
    return zeros if zeros and all(zero is not None for zero in zeros) else None


def handing_on(zeros: list[Any] | None) -> Any:
    """Use the zeros of one run of a function that runs many times; in a trial, count from zero."""
    if zeros is not None:
        return serving(Taps(zeros))
    if now.taps is not None:  # JAX may trace the body of a scan twice
        now.taps.rewind((0, 0))
    return serving(now.taps)


def fill_in(infos: tuple[Any, ...], records: list[Any], gradients: list[Any]) -> list[Any]:
    """Return the records with their gradients, which come in the order in which calls returned."""
    source = iter(gradients)
    waiting = [
        i for i, record in enumerate(records) if isinstance(record.get("gradient"), PendingGradient)
    ]
    for i in sorted(waiting, key=lambda i: infos[i].returned):
        later = records[i]["gradient"]
        records[i] = {**records[i], **now.tracker.gradient_kept(later.filled(source))}
    return records
