"""`nb.graph` and `model.show_graph`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbmodule.base.foreign import is_foreign
from nbmodule.base.kinds import as_flag
from nbmodule.base.sockets import socket
from nbmodule.core.call.stages import remembered
from nbmodule.core.transforms.options import name_of, of_forward
from nbmodule.errors import ArgumentTypeError, NotBuiltError
from nbmodule.graphs import Graph, Options, write_graph
from nbmodule.graphs.writing.options import prepare
from nbmodule.views.display.show import in_notebook, mimebundle
from nbmodule.views.panels.graph_view import GraphRecord, graph_of, running_cell, show_inline
from nbmodule.views.renderers.plain_text import text_of
from nbmodule.views.renderers.text_layout import terminal_width

if TYPE_CHECKING:
    from nbmodule.api.module import Module

MOST_LINES = 60


def graph(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Graph:
    """Give the computation graph of a module or a function, without running it; nothing changes.

    Variables of modules are nodes of their own, whether the modules are arguments or come from the
    surrounding code, and operations are grouped by the submodule that made them. What the function
    writes into variables stands among the outputs as `written: bn.running_mean`.

    Args:
        fn: A module, an unconverted model of another framework, or any function that JAX can trace:
            compiled, differentiated (`nb.grad(loss)`) or vectorized ones too.
        *args: Example arguments. Arrays, or `jax.ShapeDtypeStruct`, are inputs; other values are
            fixed.
        **kwargs: Likewise.

    Returns:
        `nodes` in order of evaluation (`operation`, `path`, `shape`, `dtype`, `source`), `edges`,
        nested `groups`. If the function fails while it is traced, the graph ends there and
        `failure` tells where and why. `graph.drawn(...)` shows it in another way,
        `graph.save(path)` writes it to a file.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> graph = nb.graph(nb.Sequential(nb.Linear(2, 3), nb.ReLU()), jnp.ones((1, 2)))
        >>> graph.find("0").operations, graph.find("0").title, graph.flops
        (3, 'Linear', 18)
    """
    if is_foreign(fn):
        return socket("native_verb")("graph", fn, args, kwargs)
    if not callable(fn):
        raise ArgumentTypeError(f"nb.graph takes a function or a module, got {type(fn).__name__}.")
    _refuse_options(fn, kwargs)
    return graph_of(fn, args, kwargs)


def _refuse_options(fn: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Refuse an option of the picture, such as `depth`, that the function does not take."""
    options = [field.name for field in fields(Options) if field.name in kwargs]
    parameters = inspect.signature(of_forward(fn)).parameters if options else {}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in options:
        if not (takes_any or name in parameters):
            raise ArgumentTypeError(
                f"nb.graph passes its arguments to {name_of(fn)}, which takes no {name!r}. Options "
                "of the picture belong to the graph: "
                f"nb.graph(...).drawn({name}={kwargs[name]!r})."
            )


def show_graph(
    module: Module, options: Options, *, save_to_disk: bool, notebook: bool, fname: object
) -> Graph:
    """Draw the graph of a module's call; see `Module.show_graph`."""
    save_to_disk, notebook = as_flag("save_to_disk", save_to_disk), as_flag("notebook", notebook)
    if fname is not None and not isinstance(fname, (str, os.PathLike)):
        raise ArgumentTypeError(f"fname must be the name of a file, got {type(fname).__name__}.")
    args, kwargs = _arguments(module)
    plain = graph(module, *args, **kwargs)
    drawn = _Shown(**vars(plain))
    drawn.options = options
    prepare(drawn, options)  # an unknown subgraph is an error before anything is drawn
    if save_to_disk or fname is not None:
        target = Path(fname) if fname is not None else Path(f"{type(module).__name__}.html")
        print(f"graph written to {write_graph(drawn, target)}")
    _display(drawn, notebook)
    return drawn


def _arguments(module: Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = remembered(module)
    if arguments is None:
        name = type(module).__name__
        why = "was called with an object that no longer exists"
        if module._nbm.first_arguments is None:
            why = "has never been called or compiled"
        raise NotBuiltError(
            f"cannot show the graph of {name}: it {why}, so the shapes of its arguments are "
            "unknown. Call it first (model(x) or model.compile(args=(x,))), or pass the "
            "arguments: nb.graph(model, x)."
        )
    return arguments


def _display(drawn: _Shown, notebook: bool) -> None:
    record = GraphRecord(drawn)
    if (in_notebook() or notebook) and show_inline(record):
        drawn.cell = running_cell()
    else:
        print(text_of(record, width=terminal_width(), limit=MOST_LINES))


@dataclass(eq=False, repr=False)
class _Shown(Graph):
    """A graph that was shown already: the cell that did so does not show it again as its last
    value.
    """

    cell: int | None = None

    def _ipython_display_(self) -> None:
        if self.cell is None or self.cell != running_cell():
            raise NotImplementedError  # IPython takes the other forms

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return mimebundle(GraphRecord(self))
