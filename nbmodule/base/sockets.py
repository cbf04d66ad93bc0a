"""Functions of higher packages that a lower one calls, by name: it cannot import them.

The package of a function is imported when the function is first asked for.

    display(value)                      a MIME bundle
    show(value)                         displays the value
    show_in_place(value)                displays the value in an output that can be updated
    text(value)                         the text that `show` prints
    plot(value, file, **options)        a matplotlib figure, also written to `file` if given
    page(value)                         a self-contained HTML page
    save_hdf5(path, tree)               writes a nested dict of arrays
    save_safetensors(path, tree, metadata)
    load_with_metadata(path)            a nested dict of arrays, and the metadata of the file
    watched(model)                      what tracks a foreign model, by its method `watching`
    native_verb(verb, model, args, kwargs, **options)
                                        the result of a tool such as `summary` for a foreign model
    to_framework(module, framework)     the module as a model of that framework
    insertable_layers()                 layers that `nb.what_if` offers for insertion
    torch_state(module, state, **options)
                                        the values of a PyTorch state, with a report; None otherwise
    named(variable, modules)            the name of a variable in messages
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

_HOMES = {
    "display": "nbmodule.views:mimebundle",
    "show": "nbmodule.views:show",
    "show_in_place": "nbmodule.views:show_in_place",
    "text": "nbmodule.views:printed",
    "plot": "nbmodule.views:plot",
    "page": "nbmodule.views.panels.graph_view:graph_page",
    "save_hdf5": "nbmodule.files:save",
    "save_safetensors": "nbmodule.files:save_safetensors",
    "load_with_metadata": "nbmodule.files:load_with_metadata",
    "watched": "nbmodule.interop.verbs:watched",
    "native_verb": "nbmodule.interop.verbs:run_verb",
    "to_framework": "nbmodule.interop.verbs:to_framework",
    "insertable_layers": "nbmodule.nn.activation:insertable_layers",
    "torch_state": "nbmodule.interop.torch_layers.states:torch_state",
    "named": "nbmodule.core.structure.walk:name_in_plan",
}


def socket(name: str) -> Callable[..., Any]:
    """Return the function of a higher package that has this name here.

    Example:
        >>> socket("load_with_metadata").__module__
        'nbmodule.files.weights'
    """
    return pkgutil.resolve_name(_HOMES[name])


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
