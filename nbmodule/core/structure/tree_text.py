"""`nb.tree_repr`: a model with all of its attributes, arrays by dtype and shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import describe_shape, printable_lines
from nbmodule.base.interpreter import allow
from nbmodule.core.structure.holders import attributes, is_branch
from nbmodule.core.structure.walk import is_module
from nbmodule.core.variables.variable import Variable


def tree_repr(tree: object) -> str:
    """Write a model, or any nested data, with all attributes; arrays as `float32[3, 4]`, and none
    of them is copied.

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


def _text(obj: Any, ancestors: tuple[int, ...]) -> str:
    if isinstance(obj, Variable):
        frozen = ", frozen" if obj._frozen else ""
        return f"{type(obj).__name__} {describe_shape(obj)}{frozen}"
    if isinstance(obj, (jax.Array, np.ndarray)):
        return describe_shape(obj)
    if id(obj) in ancestors:
        return f"{type(obj).__name__}(...)"
    inside = (*ancestors, id(obj))
    allow(len(inside))
    if isinstance(obj, Mapping):
        return _block("{", [f"{key!r}: {_text(value, inside)}" for key, value in obj.items()], "}")
    if isinstance(obj, (list, tuple)):
        opening, closing = ("(", ")") if isinstance(obj, tuple) else ("[", "]")
        lines = [_text(value, inside) for value in obj]
        return (
            f"{opening}{', '.join(lines)}{closing}"
            if all(map(_is_short, lines))
            else _block(opening, lines, closing)
        )
    if is_module(obj) or is_branch(obj):
        attrs = vars(obj) | obj._nbm.variables if is_module(obj) else attributes(obj)
        lines = [
            f"{name} = {_text(value, inside)}" for name, value in attrs.items() if name != "_nbm"
        ]
        return _block(f"{type(obj).__name__}(", lines, ")")
    name = getattr(obj, "__qualname__", None)
    return name if name is not None else repr(obj)


def _is_short(text: str) -> bool:
    return len(text) < 20 and "\n" not in text and "[" not in text


def _block(opening: str, lines: list[str], closing: str) -> str:
    if not lines:
        return opening + closing
    return "\n".join([opening, *("  " + line.replace("\n", "\n  ") for line in lines), closing])
