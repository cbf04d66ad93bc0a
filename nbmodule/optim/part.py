"""Variables and their gradients, put side by side by key chain, however they were given."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import is_of_no_numbers, received
from nbmodule.base.kinds import Shaped
from nbmodule.base.nesting import flat, nest
from nbmodule.base.paths import link
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.walk import is_module
from nbmodule.errors import ArgumentTypeError, DtypeError, ShapeStructureError, StructureError
from nbmodule.tree.compare import describe, structure_difference
from nbmodule.tree.container import Container

Chain = tuple[str, ...]


@dataclass(slots=True)
class Pairs:
    """What one step acts on: floating variables, and a gradient for each that is to change.

    Args:
        chains: Key chains of the variables.
        weights: Their values.
        grads: Their gradients; None where a variable is left alone.
        model: The module they belong to, where there is one.
        extra: What the user handed to the step beside, for transformations that want it.
    """

    chains: tuple[Chain, ...]
    weights: list[Any]
    grads: list[Any]
    model: Any = None
    extra: Mapping[str, Any] | None = None
    _later: dict[Any, Any] = field(default_factory=dict)  # boxes, and what the step gives them

    def write(self, boxes: Sequence[Any], values: Sequence[Any]) -> None:
        """Give boxes new values at the end of the step, all at the same moment."""
        self._later.update(zip(boxes, values, strict=True))

    def written(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The boxes that the step writes, and their new values."""
        return tuple(self._later), tuple(self._later.values())

    def active(self) -> Pairs:
        """Only what is to change."""
        if all(grad is not None for grad in self.grads):
            return self
        kept = [i for i, grad in enumerate(self.grads) if grad is not None]
        return Pairs(
            tuple(self.chains[i] for i in kept),
            [self.weights[i] for i in kept],
            [self.grads[i] for i in kept],
            self.model,
            self.extra,
        )

    def merged(self, new: list[Any]) -> list[Any]:
        """Values for all variables, from those of the active ones."""
        if len(new) == len(self.weights):
            return new
        values = iter(new)
        return [weight if grad is None else next(values) for weight, grad in zip(self.weights, self.grads)]


def text(chain: Chain) -> str:
    """`layers/v0/w`."""
    return "/".join(chain)


def flatten(tree: object, what: str) -> tuple[list[Any], Any, tuple[Chain, ...]]:
    """The arrays of a Container, a dict or another PyTree, its structure, and the chain of each array.

    Args:
        tree: What the user gave.
        what: What it is, for messages.
    """
    if is_module(tree) or isinstance(tree, Variable) or not isinstance(tree, (Mapping, list, tuple)):
        found = type(tree).__name__
        advice = " For a module use `update(model, grads)`." if is_module(tree) else ""
        raise ArgumentTypeError(
            f"{what} must be a Container or a dict of arrays; found {found}. Nothing was changed.{advice}"
        )
    leaves, treedef = jax.tree.flatten(tree, is_leaf=_is_box)
    chains = chains_of(treedef)
    return [_array(leaf, chain) for leaf, chain in zip(leaves, chains)], treedef, chains


def _is_box(x: object) -> bool:
    return isinstance(x, Variable)


def _array(leaf: object, chain: Chain) -> Any:
    if isinstance(leaf, Variable):
        return leaf.value
    if isinstance(leaf, np.ndarray):
        is_number = leaf.dtype.kind in "fc" or not is_of_no_numbers(leaf)  # others are left alone, as integers are
        return received(leaf, f'"{text(chain)}"', "Nothing was changed.") if is_number else leaf
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return leaf
    try:
        return jnp.asarray(leaf)
    except TypeError:
        raise ArgumentTypeError(
            f"variables and gradients are arrays; found {type(leaf).__name__}. Nothing was changed."
        ) from None


@functools.lru_cache(maxsize=64)
def chains_of(treedef: Any) -> tuple[Chain, ...]:
    """The key chain of each leaf of a PyTree."""
    numbered = jax.tree.unflatten(treedef, range(treedef.num_leaves))
    chains = tuple(tuple(map(link, path)) for path, _ in jax.tree_util.tree_flatten_with_path(numbered)[0])
    if len(set(chains)) != len(chains):
        twice = next(chain for chain in chains if chains.count(chain) > 1)
        raise StructureError(
            f'two variables would both be called "{text(twice)}". Nothing was changed. Rename one of them.'
        )
    return chains


@functools.lru_cache(maxsize=64)
def positions(chains: tuple[Chain, ...], among: tuple[Chain, ...]) -> tuple[int, ...] | None:
    """Where each of `chains` stands `among` others, -1 if it does not; None if both are the same."""
    if chains == among:
        return None
    index = {chain: i for i, chain in enumerate(among)}
    return tuple(index.get(chain, -1) for chain in chains)


def match(
    title: str,
    chains: tuple[Chain, ...],
    weights: list[Any],
    idle: frozenset[Chain],
    grads: object,
    ignore_missing: bool,
    *,
    what: str = "gradients",
) -> list[Any]:
    """The gradient of each variable, None for those that are left alone.

    Args:
        title: The beginning of the messages: what cannot be done.
        chains: Of the variables.
        weights: Their values; only shapes and dtypes are looked at.
        idle: Chains of variables that are left alone, with or without a gradient.
        grads: What the user gave, a Container or a dict.
        ignore_missing: Whether variables without a gradient are left alone; an error otherwise.
        what: What is matched, for messages.

    Raises:
        StructureError: gradients are missing, or are there for variables that are not.
        ShapeError: a gradient has another shape than its variable.
    """
    leaves, _, found = flatten(grads, f"{title}: {what}")
    places = positions(chains, found)
    if places is None:
        matched = list(leaves)
    else:
        _check_chains(title, chains, found, idle, ignore_missing, what)
        matched = [leaves[place] if place >= 0 else None for place in places]
    if idle:
        matched = [None if chain in idle else grad for chain, grad in zip(chains, matched)]
    for i, grad in enumerate(matched):
        if grad is None:
            continue
        if grad.shape != weights[i].shape:
            raise ShapeStructureError(
                f'{title}: the variable "{text(chains[i])}" is {describe(weights[i])}, in {what} it is {describe(grad)}. '
                "Nothing was changed. Do they belong to another model?"
            )
        if grad.dtype != weights[i].dtype:
            _check_kind(f'{title}: the gradient of "{text(chains[i])}"', grad.dtype, weights[i].dtype)
    return matched


def _check_kind(what: str, found: Any, wanted: Any) -> None:
    """Gradients may be of another precision than their variable, not of another kind."""
    is_complex = [jnp.issubdtype(each, jnp.complexfloating) for each in (found, wanted)]
    if not is_number(found) or (is_complex[0] and not is_complex[1]):
        raise DtypeError(f"{what} is {found}, the variable is {wanted}. Nothing was changed.")


def _check_chains(
    title: str,
    chains: tuple[Chain, ...],
    found: tuple[Chain, ...],
    idle: frozenset[Chain],
    ignore_missing: bool,
    what: str,
) -> None:
    known = set(found)
    missing = [] if ignore_missing else [chain for chain in chains if chain not in known and chain not in idle]
    known = set(chains)
    unexpected = [chain for chain in found if chain not in known]
    if not missing and not unexpected:
        return
    shared = {text(chain): None for chain in chains if chain not in missing}
    difference = structure_difference(
        dict.fromkeys(map(text, missing)) | shared, shared | dict.fromkeys(map(text, unexpected))
    )
    advice = (
        " `ignore_missing=True` leaves variables without a gradient as they are." if missing and not unexpected else ""
    )
    raise StructureError(f"{title}: variables and {what} differ.\n{difference}\nNothing was changed.{advice}")


def is_floating(array: Shaped) -> bool:
    """Whether an optimizer may act on the array; integers and flags are left alone."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def check_numbers(leaves: list[Any], chains: tuple[Chain, ...]) -> None:
    """Raise a `DtypeError` that names the first array of something else."""
    for leaf, chain in zip(leaves, chains):
        if not is_number(leaf.dtype):
            raise DtypeError(
                f'"{text(chain)}" is an array of dtype {leaf.dtype}, and one of numbers is wanted. Nothing was changed.'
            )


def is_number(dtype: Any) -> bool:
    """Whether arrays of a dtype hold numbers or flags: no text, no objects, no times."""
    return dtype.kind not in "mM" and (jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_))


def frozen_chains(v: Mapping[str, Any]) -> frozenset[Chain]:
    """Chains of frozen parameters, where `v` is the container of a module."""
    owner = getattr(v, "_link", None)
    if owner is None or owner.module() is None:
        return frozenset()
    return frozenset(chain for chain, box in flat(owner.level) if not box.requires_grad)


def as_container(chains: tuple[Chain, ...], leaves: list[Any]) -> Container:
    """Arrays as a Container, by chain."""
    return Container._from_dict(nest(dict(zip(chains, leaves))))
