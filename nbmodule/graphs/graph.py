"""`Graph`, a computation that can be searched, drawn and saved, and the functions that trace
one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbmodule.base.sockets import Displayed
from nbmodule.errors import ArgumentTypeError
from nbmodule.graphs.model import Computation
from nbmodule.graphs.reading.trace import trace
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


def trace_graph(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Graph:
    """Give the computation graph of a function for these arguments, without running it.

    Args:
        fn: Any function that JAX can trace; compiled, differentiated or vectorized ones too.
        args: Example arguments. Arrays (or `jax.ShapeDtypeStruct`) are inputs, everything else is
            fixed.
        kwargs: Likewise.

    Returns:
        The graph. If the function fails while it is traced, `failure` tells where and why, and the
        graph ends there.

    Example:
        >>> import jax.numpy as jnp
        >>> graph = trace_graph(lambda a, b: jnp.tanh(a @ b), jnp.ones((2, 3)), jnp.ones((3, 4)))
        >>> graph.nodes[2].operation, graph.nodes[2].shape, graph.nodes[2].flops
        ('dot_general', (2, 4), 48)
    """
    return read_graph(fn, args, kwargs)


def read_graph(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    variables: int = 0,
    names: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    written: bool = False,
) -> Graph:
    """The same as `trace_graph`, for callers that know what the arguments are.

    Args:
        fn: A pure function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        variables: How many of the first positional arguments hold variables; their arrays become
            nodes of the kind `variable`, drawn beside the operation that reads them.
        names: Names of the first arrays, in the order of the leaves that are arrays; others keep
            the name that the parameter gives.
        titles: Class names by submodule path, shown beside the name (`{"blocks.0": "Block"}`).
        aliases: The one path of a submodule, for each other path that calls may take to it.
        written: The function gives a pair: its results, and a dict of what it writes into variables
            by name. What is written stands among the outputs as `written: Bn.running_mean`.

    Example:
        >>> import jax.numpy as jnp
        >>> graph = read_graph(
        ...     lambda w, x: x @ w,
        ...     [jnp.ones((3, 4)), jnp.ones((2, 3))],
        ...     variables=1,
        ...     names=["head.w"],
        ... )
        >>> [(node.kind, node.name) for node in graph.nodes[:2]]
        [('variable', 'head.w'), ('input', 'x')]
    """
    labels = names, titles or {}, aliases or {}
    return Graph(**vars(trace(fn, tuple(args), dict(kwargs or {}), variables, *labels, written)))
