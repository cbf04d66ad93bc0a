"""Whatever is trained, as named arrays: modules, models of other frameworks as they stand, training
states, functions, lists and dicts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nbmodule.base.foreign import FRAMEWORKS_APART, framework_of
from nbmodule.base.format import plain
from nbmodule.base.sockets import socket
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import is_module

Source = Callable[[], Mapping[str, Any]]
MOST_LEVELS = 32


def source_of(model: Any) -> Source | None:
    """What gives the trained arrays by dotted name at any moment; None where there are none.

    Example:
        >>> source_of({'g': {'w': 1.0}, 'd': [2.0]})()
        {'g.w': 1.0, 'd.0': 2.0}
    """
    if model is None or framework_of(model) in FRAMEWORKS_APART:
        return None
    if is_given_by_a_function(model):
        return lambda: dict(named(model()))
    return (lambda: dict(named(model))) if _is_nested(model) else None


def module_of(model: Any) -> Any:
    """Return a module that holds all that is trained: the model itself, or several under their
    names; None where there is no module.

    Example:
        >>> import nbmodule as nb
        >>> [name for name, _ in module_of({"G": nb.Linear(2, 1)}).named_parameters()]
        ['G.bias', 'G.weight']
    """
    if model is None or is_module(model):
        return model
    if framework_of(model) is not None or not isinstance(model, (Mapping, list, tuple)):
        return None
    found = {
        str(key): module for key, value in _parts(model) if (module := module_of(value)) is not None
    }
    if not found:
        return None
    holder = CoreModule()
    for name, module in found.items():
        setattr(holder, name, module)
    return holder


def is_given_by_a_function(model: object) -> bool:
    """Whether something is to be asked for what is trained: `lambda: state.params`."""
    return (
        callable(model) and framework_of(model) is None and not hasattr(model, "named_parameters")
    )


def title_of(model: object) -> str:
    """What a run is called that was given no name: the class of its model, the names or the classes
    of several models.

    Example:
        >>> title_of(None), title_of({'w': 1.0})
        ('training', 'training')
    """
    if model is None or is_given_by_a_function(model):
        return "training"
    if framework_of(model) is None and isinstance(model, Mapping):
        return plain(
            ", ".join(str(name) for name, each in model.items() if _is_model(each)) or "training"
        )
    if framework_of(model) is None and isinstance(model, (list, tuple)):
        return plain(
            ", ".join(type(each).__name__ for each in model if _is_model(each)) or "training"
        )
    return type(model).__name__


def why_not(model: object) -> str:
    """What is said of a model that gives no arrays."""
    kind, name = framework_of(model), type(model).__name__
    if kind in FRAMEWORKS_APART:
        return f"{name} holds no parameters: pass a function that gives them, as in nb.Live(lambda: state.params)"
    return f"{name} holds no named arrays, so nothing is watched: pass the model, or a function that gives its parameters"


def named(tree: Any, prefix: str = "", level: int = 0) -> Iterator[tuple[str, Any]]:
    """Arrays by dotted name."""
    if framework_of(tree) is not None:
        found: Any = socket("as_it_stands")("parameters", tree).items()
    elif hasattr(tree, "named_parameters"):
        found = tree.named_parameters()
    else:
        yield from _below(tree, prefix, level)
        return
    for name, array in found:
        yield f"{prefix}{name}", array


def _below(tree: object, prefix: str, level: int) -> Iterator[tuple[str, Any]]:
    if (hasattr(tree, "dtype") and hasattr(tree, "shape")) or isinstance(
        tree, (bool, int, float, complex)
    ):
        yield prefix.removesuffix(".") or "parameters", tree
    elif level < MOST_LEVELS:
        for key, value in _parts(tree):
            yield from named(value, f"{prefix}{key}.", level + 1)


def _parts(tree: Any) -> Iterator[tuple[Any, Any]]:
    """What is nested in a value: a training state has `params`."""
    if hasattr(tree, "params") and not isinstance(tree, Mapping):
        yield from _parts(tree.params)
    elif isinstance(tree, Mapping):
        yield from tree.items()
    elif isinstance(tree, (list, tuple)):
        yield from zip(getattr(tree, "_fields", range(len(tree))), tree)
    elif not isinstance(tree, (str, bytes)) and hasattr(tree, "__dict__"):
        import jax

        for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            if leaf is not tree:
                yield (
                    ".".join(
                        str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key))))
                        for key in keys
                    ),
                    leaf,
                )


def _is_model(thing: object) -> bool:
    return framework_of(thing) is not None or hasattr(thing, "named_parameters")


def _is_nested(model: object) -> bool:
    if _is_model(model) or hasattr(model, "dtype"):
        return True
    return isinstance(model, (Mapping, list, tuple)) or next(_parts(model), None) is not None


class GivenArrays:
    """What `live.watch` was given in the loop: references, looked at when it is time."""

    def __init__(self) -> None:
        self.params: Any = None
        self.grads: Any = None

    def __bool__(self) -> bool:
        return self.params is not None or self.grads is not None

    def take(self, params: object, grads: object) -> bool:
        """Take what is there now; whether it is of a kind that was not given before."""
        is_new = (params is not None and self.params is None) or (
            grads is not None and self.grads is None
        )
        self.params = self.params if params is None else params
        self.grads = self.grads if grads is None else grads
        return is_new

    def clear(self) -> None:
        self.params = self.grads = None
