"""A graph as text: one line of facts, and an indented outline in which equal neighbors stand
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nbmodule.base.format import count_noun, printable
from nbmodule.graphs.layout.forms import ENDS, Child, Form, Forms, fold
from nbmodule.graphs.layout.labels import amount, words_of
from nbmodule.graphs.layout.scene import Place, child_path
from nbmodule.graphs.model import WRITTEN, Computation, Node
from nbmodule.graphs.writing.look import return_of
from nbmodule.graphs.writing.options import Options, places_of, ways_to_failure


def headline(graph: Computation) -> str:
    """One sentence of facts.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> headline(trace_graph(lambda x: jnp.sin(x) * 2, jnp.ones(3)))
    'lambda · 2 operations · 6 FLOP · float32[3] → float32[3]'
    """
    words = [graph.root.name or "graph", count_noun(graph.operations, "operation")]
    if graph.flops:
        words.append(amount(graph.flops, "FLOP"))
    if graph.failure is not None:
        location = f" at {graph.failure.source.place}" if graph.failure.source else ""
        return printable(" · ".join([*words, f"failed: {graph.failure.error}{location}"]))
    inputs = [graph.nodes[i] for i in graph.inputs]
    ends = [graph.nodes[i] for i in graph.outputs]
    results = [node for node in ends if node.operation != WRITTEN]
    words.append(f"{_some([n for n in inputs if n.kind == 'input'])} → {_some(results)}")
    if len(results) < len(ends):
        words.append(f"writes {count_noun(len(ends) - len(results), 'variable')}")
    return printable(" · ".join(words))


def _some(nodes: list[Node]) -> str:
    values = [str(node.outputs[0]) for node in nodes]
    if len(values) > 3:
        return f"{', '.join(values[:2])}, … {len(values)} in all"
    return ", ".join(values) or "nothing"


def outline(graph: Computation, *, lines: int | None = None, options: Options | None = None) -> str:
    """Groups and operations, indented; of equal neighbors the first stands for all.

    Args:
        graph: The graph to print.
        lines: Longest text; what is cut is counted in a last line.
        options: How: what to leave out, highlight or open, and what is known of the returns.

    >>> import jax, jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> print(outline(trace_graph(jax.named_scope("head")(jnp.sin), jnp.ones(3))))
    sin · 1 operation · 3 FLOP · float32[3] → float32[3]
    ├─ x  input  float32[3]
    ├─ head  1 op · 3 FLOP
    │  └─ sin  → float32[3]
    └─ output  float32[3]
    """
    options = options or Options()
    forms = fold(graph, connected_only=options.output_connected_only)
    focus, marked = places_of(graph, forms, options)
    form, path = forms.root, ""
    for position in focus:
        path = child_path(path, form.children[position], forms.aliases)
        form = form.children[position].form
    ways = marked.union(ways_to_failure(graph, forms))
    shown = {path_to[:i] for path_to in ways for i in range(1, len(path_to) + 1)}
    writer = _Outline(options, forms, marked, shown)
    rows = [headline(graph), *writer.rows(form, focus, path, "", options.depth)]
    if lines is not None and len(rows) > lines:
        rows = [*rows[: lines - 1], f"… {len(rows) - lines + 1:,} more rows: print(graph)"]
    return "\n".join(map(printable, rows))


@dataclass(frozen=True)
class _Outline:
    options: Options
    forms: Forms
    marked: frozenset[Place]
    ways: set[Place]  # to what is highlighted or has failed, each place on them

    def rows(
        self, form: Form, location: Place, path: str, indent: str, depth: int | None
    ) -> Iterator[str]:
        """The rows below a form, whose place and path are given; of equal neighbors the first has
        one, and what is highlighted among them.
        """
        is_run = form.kind == "run" and len(form.children) == form.count
        shown = [
            i
            for i in range(len(form.children))
            if not is_run or i == 0 or (*location, i) in self.ways
        ]
        for i in shown:
            child, inner_place, is_last = form.children[i], (*location, i), i == shown[-1]
            inner = child_path(path, child, self.forms.aliases)
            yield f"{indent}{'└─' if is_last else '├─'} {self.row(child, inner_place, inner)}"
            leads_on = any(way[:-1] == inner_place for way in self.ways)
            is_open = depth is None or depth > 0 or leads_on
            if isinstance(child.content, Form) and is_open:
                indented = indent + ("   " if is_last else "│  ")
                less = None if depth is None else max(depth - 1, 0)
                yield from self.rows(child.content, inner_place, inner, indented, less)

    def row(self, child: Child, location: Place, path: str) -> str:
        """Write one row."""
        value = child.content
        mark = "<- highlighted" if location in self.marked else ""
        if isinstance(value, Form):
            returned = return_of(path, child, self.options.returns)
            return "  ".join(filter(None, [*words_of(child), returned, mark]))
        values = ", ".join(map(str, value.outputs))
        if value.kind in ENDS:
            is_plain = value.operation in (child.name, WRITTEN)
            return f"{child.name}  {'' if is_plain else value.kind + '  '}{values}"
        shape = f"→ {values}" if values and self.options.with_edge_labels else ""
        marks = "<- dead" if value.dead else "<- failed" if value.kind == "failure" else ""
        return "  ".join(filter(None, [child.name, value.parameters, shape, marks]))
