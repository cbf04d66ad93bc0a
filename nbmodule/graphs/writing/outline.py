"""A graph as text: one line of facts, and an indented outline in which equal neighbors stand
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbmodule.base.format import printable
from nbmodule.graphs.layout.fold import fold
from nbmodule.graphs.layout.forms import Child, Form
from nbmodule.graphs.layout.labels import amount, group_facts, group_note, group_title
from nbmodule.graphs.layout.scene import Place, child_path
from nbmodule.graphs.model import WRITTEN, Computation
from nbmodule.graphs.reading.returns import return_of

if TYPE_CHECKING:
    from nbmodule.graphs.writing.options import Options


def headline(graph: Computation) -> str:
    """One sentence of facts.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> headline(trace_graph(lambda x: jnp.sin(x) * 2, jnp.ones(3)))
    'lambda · 2 operations · 6 FLOP · float32[3] → float32[3]'
    """
    words = [
        graph.root.name or "graph",
        "1 operation" if graph.operations == 1 else f"{graph.operations:,} operations",
    ]
    if graph.flops:
        words.append(amount(graph.flops, "FLOP"))
    supplied = [
        str(graph.nodes[i].outputs[0]) for i in graph.inputs if graph.nodes[i].kind == "input"
    ]
    if graph.failure is not None:
        location = f" at {graph.failure.source.place}" if graph.failure.source else ""
        words.append(f"failed: {graph.failure.error}{location}")
    else:
        ends = [graph.nodes[i] for i in graph.outputs]
        result = [str(node.outputs[0]) for node in ends if node.operation != WRITTEN]
        words.append(f"{_some(supplied)} → {_some(result)}")
        if writes := len(ends) - len(result):
            words.append("writes 1 variable" if writes == 1 else f"writes {writes:,} variables")
    return printable(" · ".join(words))


def outline(graph: Computation, *, lines: int | None = None, options: Options | None = None) -> str:
    """Groups and operations, indented; of equal neighbors the first stands for all.

    Args:
        graph: What to print.
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
    from nbmodule.graphs.writing.options import Options, places_of, ways_to_failure

    options = options or Options()
    forms = fold(graph, connected_only=options.output_connected_only)
    focus, marked = places_of(graph, forms, options)
    form, path = forms.root, ""
    for position in focus:
        path = child_path(path, form.children[position], forms.aliases)
        form = form.children[position].form
    rows = [
        headline(graph),
        *_Outline(options, marked, marked.union(ways_to_failure(graph, forms)), forms.aliases).rows(
            form, focus, path, "", options.depth
        ),
    ]
    if lines is not None and len(rows) > lines:
        rows = [*rows[: lines - 1], f"… {len(rows) - lines + 1:,} more rows: print(graph)"]
    return "\n".join(map(printable, rows))


def _some(values: list[str]) -> str:
    if len(values) > 3:
        return f"{', '.join(values[:2])}, … {len(values)} in all"
    return ", ".join(values) or "nothing"


@dataclass(frozen=True)
class _Outline:
    options: Options
    marked: frozenset[Place]
    ways: frozenset[Place]
    aliases: Mapping[str, str]

    def rows(
        self, form: Form, place: Place, path: str, indent: str, depth: int | None
    ) -> Iterator[str]:
        """The rows below a form, whose place and path are given."""
        shown = self.shown(form, place)
        for i in shown:
            child, last = form.children[i], i == shown[-1]
            current, inner = (*place, i), child_path(path, child, self.aliases)
            yield f"{indent}{'└─' if last else '├─'} {self.row(child, current, inner)}"
            opens = (
                depth is None
                or depth > 0
                or any(len(m) > len(current) and m[: len(current)] == current for m in self.ways)
            )
            if isinstance(child.content, Form) and opens:
                less = None if depth is None else max(depth - 1, 0)
                yield from self.rows(
                    child.content, current, inner, indent + ("   " if last else "│  "), less
                )

    def shown(self, form: Form, place: Place) -> list[int]:
        """Which children have a row: of equal neighbors the first, and what is highlighted among
        them.
        """
        if form.kind != "run" or len(form.children) != form.count:
            return list(range(len(form.children)))
        end = len(place)
        return sorted(
            {0} | {mark[end] for mark in self.ways if len(mark) > end and mark[:end] == place}
        )

    def row(self, child: Child, place: Place, path: str) -> str:
        """What stands on one row."""
        value = child.content
        mark = "<- highlighted" if place in self.marked else ""
        if isinstance(value, Form):
            existing = return_of(path, child, self.options.returns)
            return "  ".join(
                filter(
                    None,
                    [group_title(child), group_note(value), group_facts(value), existing, mark],
                )
            )
        values = ", ".join(map(str, value.outputs))
        if value.kind in ("input", "variable", "constant", "output"):
            is_plain = value.operation in (child.name, WRITTEN)
            return f"{child.name}  {'' if is_plain else value.kind + '  '}{values}"
        shape = f"→ {values}" if values and self.options.with_edge_labels else ""
        marks = "<- dead" if value.dead else "<- failed" if value.kind == "failure" else ""
        return "  ".join(filter(None, [child.name, value.parameters, shape, marks]))
