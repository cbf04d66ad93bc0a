"""Which leaves of a call's arguments are arrays, what they are called, and how to put arrays back
in their places.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from nbmodule.base.paths import entry_text
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.graphs.model import Value


def is_array(leaf: object) -> bool:
    """Whether a leaf is data: an array, or a stand-in with shape and dtype. Python's own values are
    fixed.

    >>> is_array(np.ones(3)), is_array(3), is_array("sum")
    (True, False, False)
    """
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


@dataclass(frozen=True)
class Signature:
    """The structure of one call: arrays are inputs, everything else is fixed.

    >>> s = Signature.of((np.ones(2), "mean"), {})
    >>> s.fill([np.zeros(2)])
    ((array([0., 0.]), 'mean'), {})
    """

    structure: Any
    fixed: tuple[Any, ...]
    places: tuple[int, ...]
    values: tuple[Value, ...]
    result: Any = None

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: dict[str, Any]) -> Signature:
        """Read the structure of a call's arguments."""
        leaves, structure = jax.tree.flatten((tuple(args), dict(kwargs)))
        places = tuple(i for i, leaf in enumerate(leaves) if is_array(leaf))
        fixed = tuple(None if is_array(leaf) else leaf for leaf in leaves)
        values = tuple(Value(tuple(leaves[i].shape), str(leaves[i].dtype)) for i in places)
        return cls(structure, fixed, places, values)

    def arrays(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The arrays of a call that has this structure.

        Raises:
            ArgumentError: if structure or fixed values differ.
            ShapeError: if an array has another shape.
        """
        leaves, structure = jax.tree.flatten((tuple(args), dict(kwargs)))
        if structure != self.structure:
            raise ArgumentError(
                f"the arguments have another structure than those the graph was made with: "
                f"expected {self.structure}, "
                f"found {structure}. Trace the function again with the new arguments."
            )
        for position, (leaf, was) in enumerate(zip(leaves, self.fixed, strict=True)):
            if position not in self.places and (type(leaf) is not type(was) or leaf != was):
                raise ArgumentError(
                    f"the graph was made with the fixed argument {was!r}, not {leaf!r}. Trace "
                    f"it again."
                )
        arrays = [leaves[i] for i in self.places]
        for number, (array, value) in enumerate(zip(arrays, self.values, strict=True)):
            if tuple(np.shape(array)) != value.shape:
                raise ShapeError(
                    f"input {number} of the graph is {value}, the array given has shape "
                    f"{list(np.shape(array))}. "
                    f"Trace the function again for other shapes."
                )
        return arrays

    def fill(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these arrays in their places."""
        leaves = list(self.fixed)
        for location, array in zip(self.places, arrays, strict=True):
            leaves[location] = array
        return jax.tree.unflatten(self.structure, leaves)

    def call(self, fn: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Call a function with arrays put where its arguments hold them."""
        args, kwargs = self.fill(arrays)
        return fn(*args, **kwargs)


def input_names(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """A name for each array of a call: the parameter's own name, then the way to the leaf
    (`params.w`, `x`).

    >>> input_names(lambda params, x: 0, ({"w": np.ones(2)}, np.ones(3)), {})
    ['params.w', 'x']
    """
    names = _positional_names(fn, len(args))
    named = [(names[i], arg) for i, arg in enumerate(args)] + sorted(kwargs.items())
    results = []
    for name, tree in named:
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            if is_array(leaf):
                results.append(".".join([name, *map(entry_text, path)]))
    return results


def output_names(structure: Any) -> list[str]:
    """A name for each result: `output`, `output.0`, `output.loss`."""
    paths = jax.tree_util.tree_flatten_with_path(
        jax.tree.unflatten(structure, range(structure.num_leaves))
    )[0]
    return [".".join(["output", *map(entry_text, path)]) for path, _ in paths]


def _positional_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return [f"argument {i}" for i in range(count)]
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}.{i}" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names + [f"argument {i}" for i in range(len(names), count)]
