"""A graph as the page receives it: columns of plain JSON, each structure stored once however often
it occurs.

Python folds, orders and measures; the page only places what is open and draws it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from nbmodule.base.format import count_noun
from nbmodule.graphs.layout.forms import Form, Record, Wire
from nbmodule.graphs.layout.labels import exit_text, group_facts, group_note, group_title, node_note
from nbmodule.graphs.layout.ranks import FormRows
from nbmodule.graphs.model import Computation, Source, Value
from nbmodule.graphs.writing.options import Drawing, chosen, prepare
from nbmodule.graphs.writing.outline import headline

BUDGET = 250_000  # bytes, deflated; beyond it the innermost groups stay closed
PER_CHILD = 60  # bytes that one child takes at most, deflated


def _numbered() -> dict[Any, int]:
    """Return a dict that gives each new key the next number."""
    table: defaultdict[Any, int] = defaultdict()
    table.default_factory = table.__len__
    return table


def data(graph: Computation, *, budget: int = BUDGET, **options: object) -> dict[str, Any]:
    """Everything the front end needs to draw a graph, as JSON.

    Args:
        graph: The graph to draw.
        budget: Bytes that the JSON may have, deflated; groups that do not fit are sent without
            their inside.
        options: See `Options`.

    Raises:
        PathError: if a path among the options is unknown.

    >>> import jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> data(trace_graph(jnp.sin, jnp.ones(3)))["title"]
    ['sin', '1 operation', '3 FLOP', 'float32[3] → float32[3]']
    """
    drawing = prepare(graph, chosen(graph, options))
    return _Writer(drawing, budget).write(graph)


class _Writer:
    def __init__(self, drawing: Drawing, budget: int) -> None:
        self.drawing = drawing
        self.records = _numbered()
        self.plans = self._plans(budget)
        self.numbers = {plan.number: i for i, plan in enumerate(self.plans)}
        self.sent = {plan.form: plan for plan in self.plans}
        self.forms = _numbered()  # those that are sent, then those that are only named
        self.forms |= {form: i for i, form in enumerate(self.sent)}

    def _plans(self, budget: int) -> list[FormRows]:
        """The plans that fit: those on the way to the focus, then from there the outer ones first;
        the rest of the picture stays closed.
        """
        way = [self.drawing.picture.plan]
        for position in self.drawing.focus:
            inner = way[-1].inner[position]
            assert inner is not None  # a focus is a group
            way.append(inner)
        chosen = {plan.number: plan for plan in way}
        spent = sum(PER_CHILD * len(plan.form.children) for plan in way)
        queue = [below for plan in reversed(way) for below in plan.inner]
        for plan in queue:
            if plan is None or plan.number in chosen:
                continue
            spent += PER_CHILD * len(plan.form.children)
            if spent > budget:
                break
            chosen[plan.number] = plan
            queue += plan.inner
        return list(chosen.values())

    def write(self, graph: Computation) -> dict[str, Any]:
        drawing, options = self.drawing, self.drawing.options
        plans = [self.plan(plan) for plan in self.plans]
        forms = [self.form(plan) for plan in self.sent.values()]
        forms += [self.facts(form) for form in self.stubs()]
        by_path = dict(options.color) if isinstance(options.color, Mapping) else None
        return {
            "view": "graph",
            "title": headline(graph).split(" · "),
            "notes": self.notes(graph),
            "forms": forms,
            "plans": plans,
            "records": self.record_columns(),
            "labels": [label.name for label in drawing.forms.labels],
            "aliases": dict(drawing.forms.aliases),
            "shared": {
                i: label.mark for i, label in enumerate(drawing.forms.labels) if label.shared
            },
            "focus": spelled(drawing.focus),
            "open": sorted(map(spelled, drawing.opened)),
            "highlight": sorted(map(spelled, drawing.highlight)),
            "color": "value" if by_path else options.color or "",
            "numbers": by_path,
            "seconds": dict(options.seconds),
            "returns": {path: list(calls) for path, calls in options.returns.items()},
            "edges": int(options.with_edge_labels),
            "ins": int(options.with_arg_labels),
            "outs": int(options.with_output_labels),
            "writes": int(options.with_writes),
            "jitter": float(options.randomness_factor),
        }

    def notes(self, graph: Computation) -> list[str]:
        notes, failure, hidden = [], graph.failure, self.drawing.forms.hidden
        if failure is not None:
            notes.append(f"could not be traced completely. {failure}")
            if failure.source and failure.source.code:
                notes.append(f"line {failure.source.line}: {failure.source.code}")
        elif hidden:
            verb = "is" if hidden == 1 else "are"
            nodes = f"{count_noun(hidden, 'node')} that no output needs"
            notes.append(f"{nodes} {verb} left out; output_connected_only=False shows them")
        if stubs := self.stubs():
            notes.append(
                f"the inside of {len(stubs):,} kinds of groups is left out here: "
                f"graph.drawn(focus=path) shows it"
            )
        return notes

    def stubs(self) -> list[Form]:
        """The forms that are sent without their inside."""
        return list(self.forms)[len(self.sent) :]

    def facts(self, form: Form) -> dict[str, Any]:
        """Return the text of a folded box."""
        exits = [form.exit_value(i) for i in range(len(form.exits))]
        sides = [i for i, wire in enumerate(form.exits) if wire.is_side]
        return {
            "k": form.kind,
            "n": form.count,
            "note": group_note(form),
            "facts": group_facts(form),
            "f": form.flops,
            "b": form.bytes,
            "v": form.variables,
            "o": _values(exits),
            **({"u": 1} if form.is_function else {}),
            **({"z": sides} if sides else {}),
        }

    def form(self, plan: FormRows) -> dict[str, Any]:
        form = plan.form
        sizes = self.drawing.picture.placer.sizes(plan)
        values, notes = [], []
        for child in form.children:
            if isinstance(child.content, Form):
                values.append(2 * self.forms[child.content] + 1)
                notes.append(group_title(child))
            else:
                values.append(2 * self.records[child.content])
                notes.append(node_note(child))
        phases = [child.phase for child in form.children]
        return {
            **self.facts(form),
            "c": values,
            "m": [child.name for child in form.children],
            "t": notes,
            "l": list(map(exit_text, form.children)),
            "q": _sparse([child.call for child in form.children]),
            "p": phases if {*phases} - {"forward"} else 0,
            "w": list(map(_ends, form.wires)),
            "x": _ends(form.exits),
            "y": _flat_pairs([[i for i, w in enumerate(ws) if w.is_side] for ws in form.wires]),
            "s": [_short(x) for size in sizes for x in (size.width, size.title, size.label)],
        }

    def plan(self, plan: FormRows) -> dict[str, Any]:
        inner = [-1 if p is None else self.numbers.get(p.number, -2) for p in plan.inner]
        trunks = [[t.source, t.first, t.lane, *t.targets] for t in plan.trunks.values()]
        return {
            "f": self.forms[plan.form],
            "b": list(plan.bundles),
            "r": plan.rows,
            "d": _flat_pairs(plan.sides),
            "t": trunks,
            "i": inner,
            "n": plan.number,
        }

    def record_columns(self) -> dict[str, Any]:
        records: Sequence[Record] = list(self.records)
        return {
            "op": [r.operation for r in records],
            "kind": [r.kind for r in records],
            "par": [r.parameters for r in records],
            "out": [_values(r.outputs) for r in records],
            "src": [_code(r.source) for r in records],
            "f": [r.flops for r in records],
            "b": [r.bytes for r in records],
            "dead": [i for i, r in enumerate(records) if r.dead],
        }


def _values(values: Sequence[Value]) -> list[list[Any]]:
    return [[str(value), value.bytes] for value in values]


def _code(source: Source | None) -> list[Any] | None:
    return source and [source.place, source.function, source.code, source.file, source.line]


def spelled(positions: Sequence[int]) -> str:
    """Return the place of a group as a page names it.

    >>> spelled((1, 0, 2))
    '1/0/2'
    """
    return "/".join(map(str, positions))


def _flat_pairs(lists: Sequence[Sequence[int]]) -> list[int]:
    """The position of each list with each of its items, one after the other."""
    return [x for i, items in enumerate(lists) for item in items for x in (i, item)]


def _ends(wires: Sequence[Wire]) -> list[int]:
    """The child and the slot at the upper end of each wire, one after the other."""
    return [x for wire in wires for x in wire[:2]]


def _sparse(column: list[int]) -> list[int] | int:
    return column if any(column) else 0


def _short(x: float) -> float | int:
    return int(x) if x == int(x) else x
