"""The inputs of a recorded step: their names, and the first number in them that is not finite."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import jax

from nbmodule.base.paths import entry_text
from nbmodule.calls.nonfinite import InputFault
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.live.replay.turns import KeptCall, Output, Turn


def find_input_fault(turn: Turn) -> InputFault | None:
    """Return the first number that is not finite among the inputs of a step; None if there is none.

    The inputs are the arguments of its calls, or the item of the loop where no call is kept.
    """
    for name, value in named_inputs(turn):
        fault = InputFault.of(name, value)
        if fault is not None:
            return fault
    return None


def named_inputs(turn: Turn) -> Iterator[tuple[str, Any]]:
    """Yield the arrays that a step is given, each once, with the names of the parameters."""
    seen: set[int] = set()
    for call in turn.calls:
        for name, leaf in _named_arguments(call):
            if type(leaf) is not Output and hasattr(leaf, "dtype") and id(leaf) not in seen:
                seen.add(id(leaf))
                yield name, leaf
    if not turn.calls:
        for path, leaf in jax.tree_util.tree_flatten_with_path(turn.item)[0]:
            if hasattr(leaf, "dtype"):
                yield _spelled("item", path), leaf


def _named_arguments(call: KeptCall) -> Iterator[tuple[str, Any]]:
    leaves = call.leaves
    args, kwargs = (
        (leaves, {})
        if call.tree is None
        else jax.tree.unflatten(call.tree, [_Held(leaf) for leaf in leaves])
    )
    names = parameter_names(call.function)
    for number, value in enumerate(args):
        name = names[number] if number < len(names) else f"argument {number}"
        yield from _leaves_below(name, value)
    for name, value in kwargs.items():
        yield from _leaves_below(name, value)


class _Held:
    """Stands for a leaf, so that nothing looks into it."""

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf


def _leaves_below(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    found, _ = jax.tree_util.tree_flatten_with_path(
        value, is_leaf=lambda x: isinstance(x, (_Held, Output)) or is_stateful(x)
    )
    for path, leaf in found:
        yield _spelled(name, path), leaf.leaf if isinstance(leaf, _Held) else leaf


def _spelled(name: str, path: Any) -> str:
    return name + "".join(f"[{entry_text(key)}]" for key in path)


def parameter_names(function: Any) -> list[str]:
    """Return the names of the parameters of a function; none where they are not known."""
    try:
        parameters = inspect.signature(getattr(function, "__wrapped__", function)).parameters
    except (TypeError, ValueError):
        return []
    return list(parameters)
