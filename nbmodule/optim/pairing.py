"""Pair variables with their gradients by key chain, and read and write them together."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import is_of_no_numbers, received
from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import Shaped
from nbmodule.base.paths import entry_of, link
from nbmodule.base.trees import flat, nest, structure_difference
from nbmodule.core.structure.linked import variable_behind
from nbmodule.core.structure.walk import Plan, is_module, plan_of
from nbmodule.core.variables.commit import Call
from nbmodule.core.variables.frame import calling, now
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentTypeError, DtypeError, ShapeStructureError, StructureError
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

Chain = tuple[str, ...]
Writes = tuple[dict[Variable, Any], list[Call]]
Parameters = tuple[tuple[Variable, ...], tuple[Chain, ...], frozenset[Chain]]


@dataclass
class Pairs:
    """The variables of one step, and a gradient for each that is to change.

    Args:
        chains: Key chains of the variables.
        weights: Their values.
        grads: Their gradients; None where a variable is left alone.
        model: The module they belong to, if any.
        extra: Keyword arguments for the transformation.
    """

    chains: tuple[Chain, ...]
    weights: list[Any]
    grads: list[Any] = field(default_factory=list)
    model: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def active(self) -> list[int]:
        """Return the numbers of the variables that have a gradient."""
        return [i for i, grad in enumerate(self.grads) if grad is not None]


def text(chain: Chain) -> str:
    """Write a chain as `layers/v0/w`."""
    return "/".join(chain)


def flatten_arrays(tree: object, title: str) -> tuple[list[Any], Any, tuple[Chain, ...]]:
    """Return the arrays of a Container, a dict or another PyTree, its structure, and their chains.

    Args:
        tree: The argument of the user.
        title: Its description for messages.
    """
    if isinstance(tree, Variable) or not isinstance(tree, (Mapping, list, tuple)):
        hint = " For a module use `update(model, grads)`." if is_module(tree) else ""
        raise ArgumentTypeError(
            f"{title} must be a Container or a dict of arrays, got {type(tree).__name__}.{hint}"
        )
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_variable)
    chains = chains_of(treedef)
    return [_as_array(leaf, chain) for leaf, chain in zip(leaves, chains)], treedef, chains


def is_variable(leaf: object) -> bool:
    return isinstance(leaf, Variable)


def _as_array(leaf: object, chain: Chain) -> Any:
    if isinstance(leaf, Variable):
        return leaf.value
    if isinstance(leaf, np.ndarray):  # arrays of no numbers are left alone, as integers are
        if leaf.dtype.kind not in "fc" and is_of_no_numbers(leaf):
            return leaf
        return received(leaf, f'"{text(chain)}"')
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return leaf
    try:
        return jnp.asarray(leaf)
    except TypeError:
        raise ArgumentTypeError(
            f"variables and gradients must be arrays, got {type(leaf).__name__} for "
            f'"{text(chain)}".'
        ) from None


@functools.lru_cache(maxsize=64)
def chains_of(treedef: Any) -> tuple[Chain, ...]:
    """Return the key chain of each leaf of a PyTree."""
    numbered = jax.tree.unflatten(treedef, range(treedef.num_leaves))
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(numbered)[0]]
    return tuple(tuple(map(link, path)) for path in paths)


def match(
    title: str,
    chains: tuple[Chain, ...],
    weights: list[Any],
    idle: frozenset[Chain],
    grads: object,
    ignore_missing: bool,
    *,
    noun: str = "gradients",
) -> list[Any]:
    """Return the gradient of each variable, None for those that are left alone.

    Args:
        title: The beginning of messages.
        chains: Chains of the variables.
        weights: Their values, or anything with their shapes and dtypes.
        idle: Chains of variables that are left alone, with or without a gradient.
        grads: A Container or a dict.
        ignore_missing: Whether variables without a gradient are left alone.
        noun: The name of `grads` in messages.

    Raises:
        StructureError: gradients are missing, or belong to unknown variables.
        ShapeError: a gradient has another shape than its variable.
    """
    if isinstance(grads, tuple) and len(grads) == 2 and isinstance(grads[1], Mapping):
        raise ArgumentTypeError(
            f"{title}: {noun} is a pair, as nb.value_and_grad(f)(model) returns it. "
            "Write value, grads = nb.value_and_grad(f)(model) and pass grads."
        )
    leaves, _, present = flatten_arrays(grads, f"{title}: {noun}")
    by_chain = dict(zip(present, leaves))
    if chains != present:
        optional = frozenset(chains) if ignore_missing else idle
        expected = [chain for chain in chains if chain in by_chain or chain not in optional]
        difference = structure_difference(
            dict.fromkeys(map(text, expected)), dict.fromkeys(map(text, present))
        )
        if difference is not None:
            fix = "\n`ignore_missing=True` leaves variables without a gradient as they are."
            fix = fix if by_chain.keys() <= set(chains) else ""
            raise StructureError(f"{title}: variables and {noun} differ.\n{difference}{fix}")
    matched = [None if chain in idle else by_chain.get(chain) for chain in chains]
    for chain, grad, weight in zip(chains, matched, weights):
        if grad is None:
            continue
        if grad.shape != weight.shape:
            raise ShapeStructureError(
                f'{title}: the variable "{text(chain)}" is {describe_shape(weight)}, in {noun} it '
                f"is {describe_shape(grad)}. Do they belong to another model?"
            )
        loses_parts = np.iscomplexobj(grad) and not np.iscomplexobj(weight)
        if loses_parts or not is_number(grad.dtype):
            raise DtypeError(
                f'{title}: the gradient of "{text(chain)}" is {grad.dtype}, the variable is '
                f"{weight.dtype}."
            )
    return matched


def has_floats(array: Shaped) -> bool:
    """Return whether an optimizer may act on the array; integers and flags are left alone."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def is_number(dtype: Any) -> bool:
    """Return whether arrays of a dtype hold numbers or flags, no text, objects or times."""
    is_numeric = jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_)
    return dtype.kind not in "mM" and is_numeric


def frozen_chains(v: Mapping[str, Any]) -> frozenset[Chain]:
    """Return the chains of frozen parameters, where `v` is the container of a module."""
    owner = getattr(v, "_link", None)
    if owner is None or owner.module() is None:
        return frozenset()
    return frozenset(chain for chain, x in flat(owner.level) if not x.requires_grad)


def as_container(chains: Sequence[Chain], leaves: Sequence[Any]) -> Container:
    """Return arrays as a Container, by chain."""
    return Container._from_dict(nest(dict(zip(chains, leaves))))


# -- variables of models and optimizers --
def values_of(owner: object, variables: Sequence[Variable]) -> list[Any]:
    """Return the values of variables of `owner`.

    One that is not yet an input of a compiled function makes all of `owner` one.
    """
    with nullcontext() if now.frame is None else calling(owner):
        return [variable.value for variable in variables]


_known_parameters: weakref.WeakKeyDictionary[Plan, Parameters] = weakref.WeakKeyDictionary()


def parameters_by_chain(model: CoreModule) -> Parameters:
    """Return the parameters of a module, their chains, and the chains that are left alone."""
    plan = plan_of(model)
    parameters = _known_parameters.get(plan)
    if parameters is None:
        variables = tuple([x for x in plan.places if isinstance(x, Parameter)])
        chains = tuple([plan.places[x].chain for x in variables])
        pairs = zip(variables, chains)
        idle = frozenset(chain for x, chain in pairs if x._frozen or not has_floats(x))
        parameters = _known_parameters[plan] = variables, chains, idle
    return parameters


# -- steps in place --
def writes_in_place(tree: Any, before: Iterable[Any], new: Iterable[Any]) -> Writes:
    """Return how to set the leaves of the tree that a step was given.

    Args:
        tree: Containers, dicts and lists.
        before: The values of its leaves.
        new: Their new values.

    Returns:
        New values of variables, those behind the container of a model too, and calls into C that
        set items of dicts and lists.

    Raises:
        ArgumentTypeError: a leaf that changes is in a tuple.
    """
    values: dict[Variable, Any] = {}
    calls: list[Call] = []
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_variable)
    for (path, leaf), old, value in zip(leaves, before, new):
        if value is old:
            continue
        *outer, key = map(entry_of, path)
        level: Any = functools.reduce(operator.getitem, outer, tree)
        if isinstance(level, tuple):
            raise ArgumentTypeError(
                "inplace=True cannot write into a tuple. Keep variables in Containers, dicts or "
                "lists."
            )
        is_container = isinstance(level, Container)
        variable = variable_behind(level, key) if is_container else leaf
        if isinstance(variable, Variable):
            value = values[variable] = variable.admitted(value)
        if not isinstance(leaf, Variable):
            # a container's own `__setitem__` would set the variable
            setter = dict.__setitem__ if is_container else operator.setitem
            calls.append((setter, level, key, value))
    return values, calls
