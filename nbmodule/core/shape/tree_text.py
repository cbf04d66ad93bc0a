"""`nb.tree_repr`: a model with all of its attributes, arrays by dtype and shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from nbmodule.base.depth import allow
from nbmodule.base.format import describe_shape, printable_lines
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.holders import attributes, is_branch
from nbmodule.core.shape.walk import is_module


def tree_repr(tree: object) -> str:
    """Write a model, or any nested data, with all attributes; arrays as `float32[3, 4]`, and none of them is copied.

    Example:
        >>> import nbmodule as nb
        >>> print(nb.tree_repr(nb.Linear(3, 2)))
        Linear(
          in_features = 3
          out_features = 2
          with_bias = True
          weight = Parameter float32[2, 3]
          bias = Parameter float32[2]
        )
    """
    return printable_lines(_text(tree, ()))


def _text(thing: Any, above: tuple[int, ...]) -> str:
    if isinstance(thing, Variable):
        frozen = ", frozen" if thing._frozen else ""
        return f"{type(thing).__name__} {describe_shape(thing)}{frozen}"
    if isinstance(thing, (jax.Array, np.ndarray)):
        return describe_shape(thing)
    if id(thing) in above:
        return f"{type(thing).__name__}(...)"
    inside = (*above, id(thing))
    allow(len(inside))
    if isinstance(thing, Mapping):
        return _block("{", [f"{key!r}: {_text(value, inside)}" for key, value in thing.items()], "}")
    if isinstance(thing, (list, tuple, deque)):
        opening, closing = ("(", ")") if isinstance(thing, tuple) else ("[", "]")
        lines = [_text(value, inside) for value in thing]
        return (
            f"{opening}{', '.join(lines)}{closing}" if all(map(_is_short, lines)) else _block(opening, lines, closing)
        )
    if is_module(thing) or is_branch(thing):
        own = vars(thing) | thing._nbm.variables if is_module(thing) else attributes(thing)
        lines = [f"{name} = {_text(value, inside)}" for name, value in own.items() if name != "_nbm"]
        return _block(f"{type(thing).__name__}(", lines, ")")
    name = getattr(thing, "__qualname__", None)
    return name if name is not None else repr(thing)


def _is_short(text: str) -> bool:
    return len(text) < 20 and "\n" not in text and "[" not in text


def _block(opening: str, lines: list[str], closing: str) -> str:
    if not lines:
        return opening + closing
    return "\n".join([opening, *("  " + line.replace("\n", "\n  ") for line in lines), closing])
