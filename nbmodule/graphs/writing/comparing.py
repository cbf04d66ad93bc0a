"""Compare two graphs: what stands in one alone, and what stands in both but differs.

Groups are matched by their structure, level by level: what is equal in both is left out as a whole,
what has the same name in both is looked into. So a layer that was put in between marks that layer,
and not all that comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from nbmodule.base.format import printable_repr
from nbmodule.base.sockets import Displayed
from nbmodule.graphs.layout.fold import fold
from nbmodule.graphs.layout.forms import OUTSIDE, Child, Form, Forms
from nbmodule.graphs.layout.labels import exit_text, group_facts, group_note, group_title
from nbmodule.graphs.layout.scene import Place, child_path
from nbmodule.graphs.model import Computation

SIGNS = {"changed": "~", "missing": "-", "unexpected": "+"}


class GraphChange(NamedTuple):
    """One difference: `changed`, `missing` (in the first graph alone) or `unexpected` (in the
    second alone).

    `path` is that of the submodule it belongs to; `a` and `b` say what stands there, empty for
    nothing; `place_a` and `place_b` are the ways to it through the children of the folded graphs.
    """

    status: str
    path: str
    a: str
    b: str
    place_a: Place | None
    place_b: Place | None

    @printable_repr
    def __str__(self) -> str:
        what = f"{self.a} → {self.b}" if self.status == "changed" else self.a or self.b
        return f"{SIGNS[self.status]} {self.path + ': ' if self.path else ''}{what}"


@dataclass(frozen=True, eq=False)
class GraphComparison(Displayed, Sequence[GraphChange]):
    """The differences of two graphs, in the order of the program.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.graphs import trace_graph
        >>> a, b = (trace_graph(lambda x, f=f: f(x) + 1, jnp.ones(3)) for f in (jnp.sin, jnp.cos))
        >>> print(a.compare(b))
        lambda and lambda · 1 difference
        ~ sin → cos
    """

    a: Any = field(repr=False)
    b: Any = field(repr=False)
    changes: tuple[GraphChange, ...]

    def __len__(self) -> int:
        return len(self.changes)

    def __getitem__(self, at: Any) -> Any:
        return self.changes[at]

    @property
    def headline(self) -> str:
        """How many differences there are, and between what."""
        count = {0: "no difference", 1: "1 difference"}.get(len(self), f"{len(self):,} differences")
        return f"{self.a.root.name or 'graph'} and {self.b.root.name or 'graph'} · {count}"

    @printable_repr
    def __str__(self) -> str:
        return "\n".join([self.headline, *map(str, self.changes)])


def compare_graphs(a: Computation, b: Computation) -> GraphComparison:
    """See `Graph.compare`."""
    return GraphComparison(a, b, tuple(_Comparer(fold(a), fold(b)).changes()))


@dataclass
class _Comparer:
    first: Forms
    second: Forms
    keys: dict[tuple, int] = field(default_factory=dict)
    contents: dict[int, int] = field(
        default_factory=dict
    )  # by the identity of a form, which these forms hold

    def changes(self) -> Iterator[GraphChange]:
        yield from self._level(self.first.root, self.second.root, (), (), "")

    def _number(self, key: tuple) -> int:
        return self.keys.setdefault(key, len(self.keys))

    def key(self, child: Child) -> int:
        """One number for all children of equal name and content, in both graphs."""
        value = child.content
        if isinstance(value, Form):
            return self._number((child.name, child.call, child.phase, self._content(value)))
        return self._number(
            (child.name, value.operation, value.kind, value.parameters, value.outputs)
        )

    def _content(self, form: Form) -> int:
        if id(form) not in self.contents:
            children = tuple(map(self.key, form.children))
            self.contents[id(form)] = self._number(
                (
                    form.kind,
                    form.count,
                    form.title,
                    children,
                    form.wires,
                    form.exits,
                    form.entry_values,
                )
            )
        return self.contents[id(form)]

    def _level(
        self, a: Form, b: Form, at_a: Place, at_b: Place, path: str
    ) -> Iterator[GraphChange]:
        keys_a, keys_b = [self.key(c) for c in a.children], [self.key(c) for c in b.children]
        result = False
        for tag, i, i_end, j, j_end in SequenceMatcher(
            None, keys_a, keys_b, autojunk=False
        ).get_opcodes():
            if tag != "equal":
                result = True
                yield from self._span(a, b, range(i, i_end), range(j, j_end), at_a, at_b, path)
        if not result and a.wires != b.wires:
            yield from self._rewired(a, b, at_a, at_b, path)

    def _span(
        self, a: Form, b: Form, left: range, right: range, at_a: Place, at_b: Place, path: str
    ) -> Iterator[GraphChange]:
        """A stretch in which the two differ: what has one name in both is a pair, the rest stands
        alone.
        """
        names_a, names_b = (
            [_name(form.children[i]) for i in span] for form, span in ((a, left), (b, right))
        )
        pairs = SequenceMatcher(None, names_a, names_b, autojunk=False).get_opcodes()
        for tag, i, i_end, j, j_end in pairs:
            mine, others = list(left[i:i_end]), list(right[j:j_end])
            if tag != "equal" and len(mine) != len(others):
                yield from (self._alone("missing", a, k, at_a, path, self.first) for k in mine)
                yield from (
                    self._alone("unexpected", b, k, at_b, path, self.second) for k in others
                )
                continue
            for one, other in zip(mine, others, strict=True):
                yield from self._pair(
                    a.children[one], b.children[other], (*at_a, one), (*at_b, other), path
                )

    def _pair(
        self, a: Child, b: Child, at_a: Place, at_b: Place, path: str
    ) -> Iterator[GraphChange]:
        nested = child_path(path, a, self.first.aliases)
        if isinstance(a.content, Form) and isinstance(b.content, Form) and _is_alike(a, b):
            inner = list(self._level(a.form, b.form, at_a, at_b, nested))
            if inner and a.form.count == b.form.count:
                yield from inner
                return
        yield GraphChange("changed", path, _words(a), _words(b), at_a, at_b)

    def _alone(
        self, status: str, form: Form, i: int, at: Place, path: str, forms: Forms
    ) -> GraphChange:
        words = _words(form.children[i])
        if status == "missing":
            return GraphChange(status, path, words, "", (*at, i), None)
        return GraphChange(status, path, "", words, None, (*at, i))

    def _rewired(
        self, a: Form, b: Form, at_a: Place, at_b: Place, path: str
    ) -> Iterator[GraphChange]:
        """The same children, fed by others."""
        for i, (wires_a, wires_b) in enumerate(zip(a.wires, b.wires, strict=True)):
            if wires_a != wires_b:
                was, current = (
                    _fed(form, i, wires) for form, wires in ((a, wires_a), (b, wires_b))
                )
                yield GraphChange("changed", path, was, current, (*at_a, i), (*at_b, i))


def _name(child: Child) -> tuple:
    value = child.content
    category = value.kind if isinstance(value, Form) else value.operation
    return (child.name, category, child.call if isinstance(value, Form) else 0, child.phase)


def _is_alike(a: Child, b: Child) -> bool:
    """Whether two groups of one name hold for the most part the same, so that it is worth to look
    into them.
    """
    if _name(a) != _name(b):
        return False
    inner = ([_name(child) for child in form.children] for form in (a.form, b.form))
    return (
        a.form.title == b.form.title or SequenceMatcher(None, *inner, autojunk=False).ratio() > 0.5
    )


def _fed(form: Form, i: int, wires: Sequence[tuple[int, int]]) -> str:
    """A child with the names of what feeds it."""
    names = (form.children[child].name if child != OUTSIDE else "outside" for child, _ in wires)
    return f"{_words(form.children[i])} of {', '.join(names)}"


def _words(child: Child) -> str:
    """What stands there, with what tells it from another."""
    value = child.content
    if isinstance(value, Form):
        note = group_note(value)
        return " ".join(
            filter(
                None,
                [
                    group_title(child),
                    note,
                    f"({group_facts(value)}, {exit_text(child) or 'no result'})",
                ],
            )
        )
    shapes = ", ".join(map(str, value.outputs))
    return " ".join(
        filter(
            None,
            [
                child.name,
                value.parameters,
                shapes if value.kind != "operation" or value.parameters else "",
            ],
        )
    )
