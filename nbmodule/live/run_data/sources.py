"""Named arrays of trained objects: modules, native models of other frameworks, training states,
functions, lists and dicts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax

from nbmodule.base.foreign import FRAMEWORKS_APART, framework_of
from nbmodule.base.sockets import socket
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import is_module

Source = Callable[[], Mapping[str, Any]]


def source_of(model: Any) -> Source | None:
    """Return a function that gives the trained arrays by dotted name; None if there are none.

    Example:
        >>> source_of({"g": {"w": 1.0}, "d": [2.0]})()
        {'d.0': 2.0, 'g.w': 1.0}
    """
    if model is None or framework_of(model) in FRAMEWORKS_APART:
        return None
    if is_function_of_state(model):
        return lambda: dict(named_arrays(model()))
    is_nested = isinstance(model, (Mapping, list, tuple)) or _is_model(model)
    has_arrays = is_nested or next(named_arrays(model), None) is not None
    return (lambda: dict(named_arrays(model))) if has_arrays else None


def trained_module(model: object) -> Any:
    """Return a module that holds all that is trained: the model itself, or several under their
    names; None where there is no module.

    Example:
        >>> import nbmodule as nb
        >>> [name for name, _ in trained_module({"G": nb.Linear(2, 1)}).named_parameters()]
        ['G.bias', 'G.weight']
    """
    if model is None or is_module(model):
        return model
    if framework_of(model) is not None or not isinstance(model, (Mapping, list, tuple)):
        return None
    parts = {str(key): trained_module(value) for key, value in _items(model)}
    modules = {name: module for name, module in parts.items() if module is not None}
    if not modules:
        return None
    holder = CoreModule()
    for name, module in modules.items():
        setattr(holder, name, module)
    return holder


def named_objects(objects: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield models or optimizers with their keys in dicts and lists; '' for a single one.

    Example:
        >>> list(named_objects({"G": 1, "D": [2, None]})), list(named_objects(3))
        ([('G', 1), ('D.0', 2)], [('', 3)])
    """
    if isinstance(objects, (Mapping, list, tuple)):
        for key, value in _items(objects):
            yield from named_objects(value, f"{prefix}.{key}" if prefix else str(key))
    elif objects is not None:
        yield prefix, objects


def is_function_of_state(model: object) -> bool:
    """Return True for a function that gives what is trained: `lambda: state.params`."""
    return callable(model) and not _is_model(model)


def title_of(model: object) -> str:
    """Return the title of a run without a name: the class of its model, if that is one object.

    Example:
        >>> title_of(None), title_of({"w": 1.0})
        ('training', 'training')
    """
    is_unnamed = model is None or is_function_of_state(model)
    is_unnamed = is_unnamed or isinstance(model, (dict, list, tuple))
    return "training" if is_unnamed else type(model).__name__


def why_not(model: object) -> str:
    """Return why a model has no named arrays, and what to pass."""
    name = type(model).__name__
    if framework_of(model) in FRAMEWORKS_APART:
        return (
            f"{name} holds no parameters: pass a function that gives them, as in "
            "nb.Live(lambda: state.params)"
        )
    return (
        f"{name} holds no named arrays, so nothing is watched: pass the model, or a function that "
        "gives its parameters"
    )


def named_arrays(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield arrays by dotted name; of a training state its `params`."""
    if framework_of(tree) is not None:
        yield from socket("native_verb")("parameters", tree).items()
    elif hasattr(tree, "named_parameters"):
        yield from tree.named_parameters()
    elif _is_state(tree):
        yield from named_arrays(tree.params)
    else:
        paths = jax.tree_util.tree_flatten_with_path(
            tree, is_leaf=lambda part: _is_model(part) or _is_state(part)
        )[0]
        for path, part in paths:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            is_array = hasattr(part, "dtype") and hasattr(part, "shape")
            if is_array or isinstance(part, (bool, int, float, complex)):
                yield name or "parameters", part
            elif part is not tree:
                yield from ((f"{name}.{each}", array) for each, array in named_arrays(part))


def _items(nested: Any) -> Iterable[tuple[Any, Any]]:
    return nested.items() if isinstance(nested, Mapping) else enumerate(nested)


def _is_state(tree: object) -> bool:
    return hasattr(tree, "params") and not isinstance(tree, Mapping)


def _is_model(obj: object) -> bool:
    return framework_of(obj) is not None or hasattr(obj, "named_parameters")
