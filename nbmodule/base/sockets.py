"""Sockets: a low room asks for something that a higher room gives, without naming it in an import.

A higher room plugs a function in under a name (`plug`). Where nobody has, the socket's home module
is imported on first use, by its name as text, and is expected to plug itself in.

| socket | called as | gives | home |
| --- | --- | --- | --- |
| `display` | `fn(value)` | a MIME bundle, a dict | `nbmodule.views` |
| `show` | `fn(value)` | None; puts the value on the screen | `nbmodule.views` |
| `show_in_place` | `fn(value)` | None; as `show`, in a notebook's output that can be written again | `nbmodule.views` |
| `text` | `fn(value)` | the text that `show` prints | `nbmodule.views` |
| `plot` | `fn(value, file, **options)` | a matplotlib figure, also written to a file if one is given | `nbmodule.views` |
| `page` | `fn(value)` | HTML text that stands alone | `nbmodule.views` |
| `save_hdf5` | `fn(path, tree)` | None; writes a nested dict of arrays | `nbmodule.files` |
| `load_hdf5` | `fn(path)` | a nested dict of arrays | `nbmodule.files` |
| `save_safetensors` | `fn(path, tree, metadata)` | None; writes a nested dict of arrays, and text by name | `nbmodule.files` |
| `load_with_metadata` | `fn(path)` | a nested dict of arrays, and what was said of the file | `nbmodule.files` |
| `watched` | `fn(model)` | what watches a model of another framework, entered like a file | `nbmodule.interop.verbs` |
| `as_it_stands` | `fn(verb, model, args, kwargs, **options)` | what a verb such as `summary` says of such a model | `nbmodule.interop.verbs` |
| `to_framework` | `fn(module, framework)` | the module as a model of that framework | `nbmodule.interop.to_frameworks` |
| `between` | `fn()` | for each name, such as `LayerNorm`, what makes a new layer for a place between others | `nbmodule.nn.between` |
| `torch_state` | `fn(module, given, **options)` | what a state of PyTorch gives to variables, with a report; None for one of ours | `nbmodule.interop.torch_layers` |
| `named` | `fn(box, modules)` | the name of a variable for messages; `modules` are those being called | `nbmodule.core.structure.walk` |
| `kernels` | `fn()` | a context manager in which shared kernels are called | none |
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentError, ArgumentTypeError, MissingDependencyError

_HOMES: dict[str, str | None] = {
    "display": "nbmodule.views",
    "show": "nbmodule.views",
    "show_in_place": "nbmodule.views",
    "text": "nbmodule.views",
    "plot": "nbmodule.views",
    "page": "nbmodule.views",
    "save_hdf5": "nbmodule.files",
    "load_hdf5": "nbmodule.files",
    "save_safetensors": "nbmodule.files",
    "load_with_metadata": "nbmodule.files",
    "watched": "nbmodule.interop.verbs",
    "as_it_stands": "nbmodule.interop.verbs",
    "to_framework": "nbmodule.interop.to_frameworks",
    "between": "nbmodule.nn.between",
    "torch_state": "nbmodule.interop.torch_layers",
    "named": "nbmodule.core.structure.walk",
    "kernels": None,
}
_plugged: dict[str, Callable[..., Any]] = {}


def plug(name: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Put a function into a socket and give back what was there; None empties the socket.

    Raises:
        ArgumentError: if there is no such socket.

    Example:
        >>> before = plug("show", print)
        >>> socket("show") is print
        True
        >>> plug("show", before) is print
        True
    """
    _check(name)
    if function is not None and not callable(function):
        raise ArgumentTypeError(f'socket "{name}" takes a function, not {type(function).__name__}.')
    before = _plugged.pop(name, None)
    if function is not None:
        _plugged[name] = function
    return before


def plugged(name: str) -> Callable[..., Any] | None:
    """Give what is in a socket now, or None; nothing is imported.

    Example:
        >>> before = plug("show", print)
        >>> plugged("show") is print
        True
        >>> _ = plug("show", before)
    """
    return _plugged.get(name)


def socket(name: str) -> Callable[..., Any]:
    """Give the function in a socket; an empty one first imports its home, which plugs itself in.

    Raises:
        ArgumentError: if there is no such socket.
        MissingDependencyError: if the home plugged nothing in, or one of its own imports is
            missing.

    Example:
        >>> before = plug("load_hdf5", lambda path: {"path": path})
        >>> socket("load_hdf5")("weights.h5")
        {'path': 'weights.h5'}
        >>> _ = plug("load_hdf5", before)
    """
    _check(name)
    function = _plugged.get(name)
    if function is not None:
        return function
    home = _HOMES[name]
    if home is not None:
        importlib.import_module(home)
    function = _plugged.get(name)
    if function is None:
        cure = (
            f'import a module that calls plug("{name}", ...)'
            if home is None
            else f"{home} was expected to give it"
        )
        raise MissingDependencyError(f'nothing is plugged into the socket "{name}"; {cure}.')
    return function


class Displayed:
    """What has a rich display in notebooks, asked for through the socket."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return socket("display")(self)


class Shown(Displayed):
    """What can be put on the screen and drawn as well: the results of tracking, comparing,
    changing.
    """

    def show(self) -> None:
        """Put it on the screen, also outside of notebooks."""
        socket("show")(self)

    def plot(self, file: object = None) -> Any:
        """Draw it as a matplotlib figure, and write that to an `.svg`, `.png` or `.pdf` file if one
        is named; see `nb.plot`.
        """
        return socket("plot")(self, file)


def _check(name: str) -> None:
    if name not in _HOMES:
        raise ArgumentError(
            f'there is no socket "{name}"{hint(str(name), _HOMES)} They are {", ".join(_HOMES)}.'
        )
