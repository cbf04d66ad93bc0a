"""A graph as text: one line of facts, and an indented outline in which equal neighbors stand once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbmodule.base.format import printable
from nbmodule.flow.model import WRITTEN, Computation
from nbmodule.flow.placing.fold import fold
from nbmodule.flow.placing.forms import Child, Form
from nbmodule.flow.placing.labels import amount, group_facts, group_note, group_title
from nbmodule.flow.placing.scene import Place, child_path
from nbmodule.flow.reading.returns import return_of

if TYPE_CHECKING:
    from nbmodule.flow.writing.options import Options


def headline(graph: Computation) -> str:
    """One sentence of facts.

    >>> import jax.numpy as jnp
    >>> from nbmodule.flow import trace_graph
    >>> headline(trace_graph(lambda x: jnp.sin(x) * 2, jnp.ones(3)))
    'lambda · 2 operations · 6 FLOP · float32[3] → float32[3]'
    """
    words = [graph.root.name or "graph", "1 operation" if graph.operations == 1 else f"{graph.operations:,} operations"]
    if graph.flops:
        words.append(amount(graph.flops, "FLOP"))
    given = [str(graph.nodes[i].outputs[0]) for i in graph.inputs if graph.nodes[i].kind == "input"]
    if graph.failure is not None:
        place = f" at {graph.failure.source.place}" if graph.failure.source else ""
        words.append(f"failed: {graph.failure.error}{place}")
    else:
        ends = [graph.nodes[i] for i in graph.outputs]
        made = [str(node.outputs[0]) for node in ends if node.operation != WRITTEN]
        words.append(f"{_some(given)} → {_some(made)}")
        if writes := len(ends) - len(made):
            words.append("writes 1 variable" if writes == 1 else f"writes {writes:,} variables")
    return printable(" · ".join(words))


def outline(graph: Computation, *, lines: int | None = None, options: Options | None = None) -> str:
    """Groups and operations, indented; of equal neighbors the first stands for all.

    Args:
        graph: What to print.
        lines: Longest text; what is cut is counted in a last line.
        options: How: what to leave out, highlight or open, and what is known of the returns.

    >>> import jax, jax.numpy as jnp
    >>> from nbmodule.flow import trace_graph
    >>> print(outline(trace_graph(jax.named_scope("head")(jnp.sin), jnp.ones(3))))
    sin · 1 operation · 3 FLOP · float32[3] → float32[3]
    ├─ x  input  float32[3]
    ├─ head  1 op · 3 FLOP
    │  └─ sin  → float32[3]
    └─ output  float32[3]
    """
    from nbmodule.flow.writing.options import Options, places_of, ways_to_failure

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

    def rows(self, form: Form, place: Place, path: str, indent: str, depth: int | None) -> Iterator[str]:
        """The rows below a form, whose place and path are given."""
        shown = self.shown(form, place)
        for i in shown:
            child, last = form.children[i], i == shown[-1]
            here, below = (*place, i), child_path(path, child, self.aliases)
            yield f"{indent}{'└─' if last else '├─'} {self.row(child, here, below)}"
            opens = depth is None or depth > 0 or any(len(m) > len(here) and m[: len(here)] == here for m in self.ways)
            if isinstance(child.thing, Form) and opens:
                less = None if depth is None else max(depth - 1, 0)
                yield from self.rows(child.thing, here, below, indent + ("   " if last else "│  "), less)

    def shown(self, form: Form, place: Place) -> list[int]:
        """Which children have a row: of equal neighbors the first, and what is highlighted among them."""
        if form.kind != "run" or len(form.children) != form.count:
            return list(range(len(form.children)))
        end = len(place)
        return sorted({0} | {mark[end] for mark in self.ways if len(mark) > end and mark[:end] == place})

    def row(self, child: Child, place: Place, path: str) -> str:
        """What stands on one row."""
        thing = child.thing
        mark = "<- highlighted" if place in self.marked else ""
        if isinstance(thing, Form):
            known = return_of(path, child, self.options.returns)
            return "  ".join(filter(None, [group_title(child), group_note(thing), group_facts(thing), known, mark]))
        values = ", ".join(map(str, thing.outputs))
        if thing.kind in ("input", "variable", "constant", "output"):
            return f"{child.name}  {thing.kind + '  ' if thing.operation not in (child.name, WRITTEN) else ''}{values}"
        shape = f"→ {values}" if values and self.options.with_edge_labels else ""
        marks = "<- dead" if thing.dead else "<- failed" if thing.kind == "failure" else ""
        return "  ".join(filter(None, [child.name, thing.parameters, shape, marks]))
