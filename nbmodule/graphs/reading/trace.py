"""Trace a function once, for shapes only, and give its graph; a failure gives the graph up to where
it failed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from nbmodule.base.paths import entry_text
from nbmodule.base.trees import separated
from nbmodule.graphs.graph import Graph
from nbmodule.graphs.model import WRITTEN, Computation, Literal, Ref, Value, total_cost
from nbmodule.graphs.reading.jaxpr import Reader, shape_and_dtype, wraps_one_call


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
            by name. Writes are among the outputs, as `written: Bn.running_mean`.

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
    args, kwargs = tuple(args), dict(kwargs or {})
    arrays, joined = separated((args, kwargs), is_array)
    count = len(separated(args[:variables], is_array)[0])
    labels = [*names, *input_names(fn, args, kwargs)[len(names) :]]

    def call(*arrays: object) -> Any:
        args, kwargs = joined(arrays)
        return fn(*args, **kwargs)

    reader = Reader()
    reader.aliases, reader.root.name = aliases or {}, _name(fn)
    failure = structure = None
    try:
        closed, shape = jax.make_jaxpr(call, return_shape=True)(*arrays)
    except Exception as error:  # noqa: BLE001 - whatever it is, the graph says so
        from nbmodule.graphs.reading.failure import partial_trace

        partial = partial_trace(call, arrays, error)
        failure = partial.failure
        inputs, results = _read(reader, partial.jaxpr, labels, count)
        first = failure.message.splitlines()[:1]
        words = ": ".join([failure.error, *first])
        more = {"parameters": words, "_locate": failure.source}
        group = reader.group_for(partial.scopes)
        end = reader.add(group, "failed", "failure", results, (), **more)
        ends = [end.node]
    else:
        outputs, effects = shape if written else (shape, {})
        structure = jax.tree.structure(outputs)
        words = [*output_names(structure), *(f"{WRITTEN}: {name}" for name in sorted(effects))]
        inputs, results = _read(reader, _unwrapped(closed), labels, count)
        ends = _add_outputs(reader, words, results)
    graph = Graph(
        reader.nodes,
        reader.groups,
        reader.root,
        tuple(ref.node for ref in inputs),
        tuple(ends),
        failure,
        aliases=aliases or {},
        _constants={ref.node: value for ref, value in reader.constants.values()},
        _result=structure,
    )
    for group in (*graph.groups, graph.root):
        if group.kind in ("scope", "graph"):
            group.title = (titles or {}).get(group.path, "")
    mark_dead(graph, {*graph.outputs, *reader.effects}, keep_all=failure is not None)
    add_totals(graph)
    return graph


def is_array(leaf: object) -> bool:
    """Return True for an array, or a stand-in with shape and dtype; Python values are fixed.

    >>> is_array(np.ones(3)), is_array(3), is_array("sum")
    (True, False, False)
    """
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def input_names(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """A name for each array of a call: the parameter's own name, then the way to the leaf
    (`params.w`, `x`).

    >>> input_names(lambda params, x: 0, ({"w": np.ones(2)}, np.ones(3)), {})
    ['params.w', 'x']
    """
    try:
        named = list(inspect.signature(fn).bind_partial(*args).arguments.items())
    except (TypeError, ValueError):  # it has no signature
        named = [(f"argument {i}", arg) for i, arg in enumerate(args)]
    named += sorted(kwargs.items())
    results = []
    for name, tree in named:
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            if is_array(leaf):
                results.append(".".join([name, *map(entry_text, path)]))
    return results


def output_names(structure: Any) -> list[str]:
    """A name for each result: `output`, `output.0`, `output.loss`."""
    paths = jax.tree_util.tree_flatten_with_path(
        jax.tree.unflatten(structure, range(structure.num_leaves))
    )[0]
    return [".".join(["output", *map(entry_text, path)]) for path, _ in paths]


def _name(fn: Callable[..., Any]) -> str:
    while not hasattr(fn, "__name__") and hasattr(fn, "func"):  # functools.partial
        fn = getattr(fn, "func")  # noqa: B009 - a partial has it, a function has not
    text = getattr(fn, "__name__", type(fn).__name__)
    return "lambda" if text == "<lambda>" else text


def _read(
    reader: Reader, closed: Any, labels: list[str], variables: int
) -> tuple[list[Ref], list[Ref | Literal]]:
    """Add a node for each input, read the jaxpr, and return the inputs and the results."""
    inputs = []
    for i, (label, variable) in enumerate(zip(labels, closed.jaxpr.invars, strict=True)):
        kind = "variable" if i < variables else "input"
        outputs = (shape_and_dtype(variable.aval),)
        inputs.append(reader.add(reader.root, kind, kind, (), outputs, name=label))
    return inputs, reader.read(closed, inputs, reader.root)


def _add_outputs(reader: Reader, labels: list[str], results: Sequence[Ref | Literal]) -> list[int]:
    ends = []
    for label, operand in zip(labels, results, strict=True):
        operation = WRITTEN if label.startswith(f"{WRITTEN}: ") else "output"
        value = Value((), getattr(operand, "dtype", ""))
        if isinstance(operand, Ref):
            value = reader.nodes[operand.node].outputs[operand.output]
        end = reader.add(reader.root, operation, "output", (operand,), (value,), name=label)
        ends.append(end.node)
    return ends


def _unwrapped(closed: Any) -> Any:
    """The inside of a function that is compiled as a whole: its one group would say nothing."""
    inner = closed.jaxpr
    if wraps_one_call(closed):
        (equation,) = inner.eqns
        same = list(equation.invars) == list(inner.invars) and equation.outvars == inner.outvars
        return equation.params["jaxpr"] if same else closed
    return closed


def mark_dead(graph: Computation, alive: set[int], keep_all: bool = False) -> None:
    """Mark the nodes on which none of these depends; the end of a loop's body feeds its
    beginning.
    """
    feeds = _loop_feeds(graph)
    if keep_all:  # of a program that ends early all is alive but variables it had not come to
        alive = alive | {node.index for node in graph.nodes if node.kind != "variable"}
    stack, reached = list(alive), set(alive)
    while stack:
        node = stack.pop()
        operands = (ref.node for ref in graph.nodes[node].refs)
        new = {*operands, *feeds.get(node, ())} - reached
        reached |= new
        stack += new
    for node in graph.nodes:
        node.dead = node.index not in reached


def _loop_feeds(graph: Computation) -> dict[int, tuple[int, ...]]:
    feeds: dict[int, tuple[int, ...]] = {}
    for group in graph.groups:
        after, tests = group.ports.get("carried", ()), group.ports.get("condition", ())
        for before, end in zip(group.ports.get("carry", ()), after, strict=True):
            feeds[before] = (end,)
            feeds[end] = tests
        if group.kind == "opaque":
            for end in group.ports.get("result", ()):
                feeds[end] = group.ports.get("argument", ())
    return feeds


def add_totals(graph: Computation) -> None:
    """Sum operations, FLOPs and bytes of each group; dead nodes do not count."""
    for group in (*reversed(graph.groups), graph.root):
        children = list(graph.children(group))
        group.flops, group.bytes, group.operations = total_cost(group.kind, group.count, children)
