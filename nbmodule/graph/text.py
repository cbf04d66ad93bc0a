"""A graph as text: one line of facts, and an indented outline in which equal neighbors stand once."""

from __future__ import annotations

from collections.abc import Iterator

from nbmodule.graph.fold import fold
from nbmodule.graph.forms import Child, Form
from nbmodule.graph.labels import amount, group_facts, group_note, group_title
from nbmodule.graph.model import Graph


def headline(graph: Graph) -> str:
    """One sentence of facts.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graph import trace_graph
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
        made = [str(graph.nodes[i].outputs[0]) for i in graph.outputs]
        words.append(f"{_some(given)} → {_some(made)}")
    return " · ".join(words)


def outline(graph: Graph, *, depth: int | None = None, lines: int | None = None, connected_only: bool = True) -> str:
    """Groups and operations, indented; of equal neighbors the first stands for all.

    Args:
        graph: What to print.
        depth: Levels of groups to open; all by default.
        lines: Longest text; what is cut is counted in a last line.
        connected_only: Leave out dead operations.

    >>> import jax, jax.numpy as jnp
    >>> from nbmodule.graph import trace_graph
    >>> print(outline(trace_graph(jax.named_scope("head")(jnp.sin), jnp.ones(3))))
    sin · 1 operation · 3 FLOP · float32[3] → float32[3]
    ├─ x  input  float32[3]
    ├─ head  1 op · 3 FLOP
    │  └─ sin  → float32[3]
    └─ output  float32[3]
    """
    forms = fold(graph, connected_only=connected_only)
    rows = [headline(graph), *_rows(forms.root, "", depth)]
    if lines is not None and len(rows) > lines:
        rows = [*rows[: lines - 1], f"… {len(rows) - lines + 1:,} more rows: print(graph)"]
    return "\n".join(rows)


def _some(values: list[str]) -> str:
    if len(values) > 3:
        return f"{', '.join(values[:2])}, … {len(values)} in all"
    return ", ".join(values) or "nothing"


def _rows(form: Form, indent: str, depth: int | None) -> Iterator[str]:
    children = form.children[:1] if form.kind == "run" and _period(form) == 1 else form.children
    for i, child in enumerate(children):
        last = i == len(children) - 1
        yield f"{indent}{'└─' if last else '├─'} {_row(child)}"
        if isinstance(child.thing, Form) and (depth is None or depth > 0):
            below = None if depth is None else depth - 1
            yield from _rows(child.thing, indent + ("   " if last else "│  "), below)


def _period(form: Form) -> int:
    return len(form.children) // (form.count or 1)


def _row(child: Child) -> str:
    thing = child.thing
    if isinstance(thing, Form):
        return "  ".join(filter(None, [group_title(child), group_note(thing), group_facts(thing)]))
    values = ", ".join(map(str, thing.outputs))
    if thing.kind in ("input", "variable", "constant", "output"):
        return f"{child.name}  {thing.kind + '  ' if child.name != thing.kind else ''}{values}"
    words = [child.name, thing.parameters, f"→ {values}" if values else ""]
    marks = "  <- dead" if thing.dead else "  <- failed" if thing.kind == "failure" else ""
    return "  ".join(filter(None, words)) + marks
