"""Hooks by which a lower package calls a function of a higher one without importing it.

The higher package registers a function under a name (`plug`). If nobody has, the module in `_HOMES`
is imported on first use and registers itself.

    display(value)                      a MIME bundle
    show(value)                         displays the value
    show_in_place(value)                displays the value in an output that can be updated
    text(value)                         the text that `show` prints
    plot(value, file, **options)        a matplotlib figure, also written to `file` if given
    page(value)                         a self-contained HTML page
    save_hdf5(path, tree)               writes a nested dict of arrays
    load_hdf5(path)                     reads a nested dict of arrays
    save_safetensors(path, tree, metadata)
    load_with_metadata(path)            a nested dict of arrays, and the metadata of the file
    watched(model)                      a context manager that tracks a foreign model
    as_it_stands(verb, model, args, kwargs, **options)
                                        the result of a tool such as `summary` for a foreign model
    to_framework(module, framework)     the module as a model of that framework
    between()                           layers that `nb.what_if` offers for insertion
    torch_state(module, state, **options)
                                        the values of a PyTorch state, with a report; None otherwise
    named(variable, modules)            the name of a variable in messages
    kernels()                           a context manager in which shared kernels are called
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
        fix = (
            f'import a module that calls plug("{name}", ...)'
            if home is None
            else f"{home} was expected to give it"
        )
        raise MissingDependencyError(f'no function is registered for the socket "{name}"; {fix}.')
    return function


class Displayed:
    """A mixin with a rich display in notebooks, through the socket."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return socket("display")(self)


class Shown(Displayed):
    """A mixin for results that can be shown and drawn."""

    def show(self, form: str | None = None) -> None:
        """Put it on the screen, also outside of notebooks; see `nb.show`."""
        socket("show")(self, form)

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
