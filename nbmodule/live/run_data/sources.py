"""Named arrays of whatever is trained: modules, native models of other frameworks, training states,
functions, lists and dicts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nbmodule.base.foreign import FRAMEWORKS_APART, framework_of
from nbmodule.base.sockets import socket
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import is_module

Source = Callable[[], Mapping[str, Any]]
MOST_LEVELS = 32


def source_of(model: Any) -> Source | None:
    """Return a function that gives the trained arrays by dotted name; None if there are none.

    Example:
        >>> source_of({"g": {"w": 1.0}, "d": [2.0]})()
        {'g.w': 1.0, 'd.0': 2.0}
    """
    if model is None or framework_of(model) in FRAMEWORKS_APART:
        return None
    if is_function_of_state(model):
        return lambda: dict(named_arrays(model()))
    return (lambda: dict(named_arrays(model))) if _is_nested(model) else None


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
    parts = {str(key): trained_module(value) for key, value in _parts(model)}
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
        parts = objects.items() if isinstance(objects, Mapping) else enumerate(objects)
        for key, value in parts:
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


def named_arrays(tree: Any, prefix: str = "", level: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield arrays by dotted name."""
    if framework_of(tree) is not None:
        pairs: Any = socket("native_verb")("parameters", tree).items()
    elif hasattr(tree, "named_parameters"):
        pairs = tree.named_parameters()
    else:
        yield from _below(tree, prefix, level)
        return
    for name, array in pairs:
        yield f"{prefix}{name}", array


def _below(tree: object, prefix: str, level: int) -> Iterator[tuple[str, Any]]:
    is_array = hasattr(tree, "dtype") and hasattr(tree, "shape")
    if is_array or isinstance(tree, (bool, int, float, complex)):
        yield prefix.removesuffix(".") or "parameters", tree
    elif level < MOST_LEVELS:
        for key, value in _parts(tree):
            yield from named_arrays(value, f"{prefix}{key}.", level + 1)


def _parts(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what is nested in a value; a training state has `params`."""
    if hasattr(tree, "params") and not isinstance(tree, Mapping):
        yield from _parts(tree.params)
    elif isinstance(tree, Mapping):
        yield from tree.items()
    elif isinstance(tree, (list, tuple)):
        yield from zip(getattr(tree, "_fields", range(len(tree))), tree, strict=False)
    elif not isinstance(tree, (str, bytes)) and hasattr(tree, "__dict__"):
        import jax

        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            if leaf is not tree:
                yield jax.tree_util.keystr(path, simple=True, separator="."), leaf


def _is_model(obj: object) -> bool:
    return framework_of(obj) is not None or hasattr(obj, "named_parameters")


def _is_nested(model: object) -> bool:
    if _is_model(model) or hasattr(model, "dtype"):
        return True
    return isinstance(model, (Mapping, list, tuple)) or next(_parts(model), None) is not None
