"""`Graph`, a computation that can be searched, drawn and saved."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from nbmodule.base.sockets import Displayed
from nbmodule.errors import ArgumentTypeError
from nbmodule.graphs.model import Computation
from nbmodule.graphs.writing import export
from nbmodule.graphs.writing.comparing import GraphComparison, compare_graphs
from nbmodule.graphs.writing.options import chosen, prepare
from nbmodule.graphs.writing.outline import outline

_LINES = 1_000  # of what an interpreter shows by itself; `print` shows all


@dataclass(eq=False, repr=False)
class Graph(Displayed, Computation):
    """The computation of a function: `nodes` in order of evaluation, `edges`, and nested `groups`.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> graph = trace_graph(lambda x: jnp.sin(x) * 2, jnp.ones(3))
    >>> [node.operation for node in graph.nodes]
    ['input', 'sin', 'mul', 'output']
    >>> graph.edges[0]
    Edge(source=0, output=0, target=1, position=0, shape=(3,), dtype='float32')
    """

    def drawn(self, **options: Any) -> Graph:
        """The same graph, displayed in another way.

        Args:
            options: `color` (`flops`, `bytes`, `time`, `non-finite` or numbers by path), `values`
                (tracked calls, whose shapes, statistics and pictures stand at the edges), `focus`
                (the path of the submodule that fills the picture), `depth` (levels of groups to
                open), `highlight_subgraph` and whatever else `show_graph` takes.

        Raises:
            ArgumentError: if an option has a value that makes no sense.
            PathError: if a path is unknown; the message names the closest.

        Example:
            >>> import jax, jax.numpy as jnp
            >>> from nbmodule.graphs import trace_graph
            >>> graph = trace_graph(jax.named_scope("head")(lambda x: jnp.sin(x) + 1), jnp.ones(3))
            >>> print(graph.drawn(depth=0))
            lambda · 2 operations · 6 FLOP · float32[3] → float32[3]
            ├─ x  input  float32[3]
            ├─ head  2 ops · 6 FLOP
            └─ output  float32[3]
        """
        drawn = replace(self, options=chosen(replace(self, options=None), options))
        prepare(drawn, drawn.options)
        return drawn

    def compare(self, other: Graph) -> GraphComparison:
        """Return the differences between this graph and another; displayed side by side.

        Args:
            other: The graph to compare; operations that only it has are `unexpected`, those that
                it lacks are `missing`.

        Raises:
            ArgumentTypeError: if `other` is no graph.

        Example:
            >>> import jax.numpy as jnp
            >>> from nbmodule.graphs import trace_graph
            >>> before = trace_graph(lambda x: jnp.tanh(x) * 2, jnp.ones(3))
            >>> after = trace_graph(lambda x: jnp.tanh(jnp.sin(x)) * 2, jnp.ones(3))
            >>> [(change.status, change.b) for change in before.compare(after)]
            [('unexpected', 'sin')]
        """
        if not isinstance(other, Computation):
            raise ArgumentTypeError(
                f"Graph.compare takes a graph from nb.graph(model, x), got {type(other).__name__}."
            )
        return compare_graphs(self, other)

    def save(self, path: str | os.PathLike[str], **options: object) -> Any:
        """Write the graph to a file: `.html` (one page, no request), `.svg`, `.dot`, `.txt`, or
        with Graphviz `.png`, `.pdf`.

        Args:
            path: Its ending chooses the format. Missing folders are made; the file appears whole or
                not at all.
            options: As in `drawn`; by default those the graph is drawn with.

        Returns:
            The path.

        Raises:
            ArgumentError: if the ending is unknown.
            OSError: if nothing can be written there.
            MissingDependencyError: if Graphviz is needed and not there.
        """
        return export.write_graph(self, path, **options)

    def __str__(self) -> str:
        return outline(self, options=self.options)

    def __repr__(self) -> str:
        return outline(self, lines=_LINES, options=self.options)
