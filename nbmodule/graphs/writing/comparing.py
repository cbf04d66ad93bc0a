"""Compare two graphs: what stands in one alone, and what stands in both but differs.

Groups are matched by their structure, level by level: what is equal in both is left out as a whole,
what has the same name in both is looked into. So a layer that was put in between marks that layer,
and not all that comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from nbmodule.base.format import printable_repr
from nbmodule.base.sockets import Displayed
from nbmodule.graphs.layout.forms import OUTSIDE, Child, Form, Wire, fold
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
        """The number of differences, and the two graphs."""
        count = {0: "no difference", 1: "1 difference"}.get(len(self), f"{len(self):,} differences")
        return f"{self.a.root.name or 'graph'} and {self.b.root.name or 'graph'} · {count}"

    @printable_repr
    def __str__(self) -> str:
        return "\n".join([self.headline, *map(str, self.changes)])


def compare_graphs(a: Computation, b: Computation) -> GraphComparison:
    """See `Graph.compare`."""
    first, second = fold(a), fold(b)
    changes = _Comparer(first.aliases).level(first.root, second.root, (), (), "")
    return GraphComparison(a, b, tuple(changes))


_Located = tuple[Child, Place]


def _spans(
    left: list[_Located], right: list[_Located], key: Callable[[Child], Any]
) -> Iterator[tuple[str, list[_Located], list[_Located]]]:
    """The stretches that are equal in both by a key, and those that differ."""
    keys = [[key(child) for child, _ in side] for side in (left, right)]
    for tag, i, i_end, j, j_end in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        yield tag, left[i:i_end], right[j:j_end]


@dataclass
class _Comparer:
    aliases: Mapping[str, str]
    keys: dict[Any, int] = field(default_factory=dict)
    contents: dict[int, int] = field(default_factory=dict)  # by the identity of a form

    def key(self, child: Child) -> int:
        """One number for all children of equal name and content, in both graphs."""
        value = child.content
        if isinstance(value, Form):
            return self._number(child.name, child.call, child.phase, self._content(value))
        return self._number(child.name, *value[:4])

    def _number(self, *key: Any) -> int:
        return self.keys.setdefault(key, len(self.keys))

    def _content(self, form: Form) -> int:
        if id(form) not in self.contents:
            children = tuple(map(self.key, form.children))
            wiring = (form.wires, form.exits, form.entry_values)
            number = self._number(form.kind, form.count, form.title, children, *wiring)
            self.contents[id(form)] = number
        return self.contents[id(form)]

    def level(self, a: Form, b: Form, at_a: Place, at_b: Place, path: str) -> Iterator[GraphChange]:
        """Compare two groups: children of one name are a pair, the rest stand alone."""
        left = [(child, (*at_a, i)) for i, child in enumerate(a.children)]
        right = [(child, (*at_b, i)) for i, child in enumerate(b.children)]
        spans = list(_spans(left, right, self.key))
        if all(tag == "equal" for tag, *_ in spans):
            yield from self._rewired(a, b, at_a, at_b, path)
        for tag, mine, others in spans:
            for inner, one, right_items in _spans(mine, others, _name) if tag != "equal" else ():
                if inner == "equal" or len(one) == len(right_items):
                    for pair in zip(one, right_items, strict=True):
                        yield from self._pair(*pair, path)
                    continue
                for child, location in one:
                    yield GraphChange("missing", path, _words(child), "", location, None)
                for child, location in right_items:
                    yield GraphChange("unexpected", path, "", _words(child), None, location)

    def _pair(self, one: _Located, right_items: _Located, path: str) -> Iterator[GraphChange]:
        (a, at_a), (b, at_b) = one, right_items
        are_groups = isinstance(a.content, Form) and _name(a) == _name(b)
        if are_groups and (a.form.count, a.form.title) == (b.form.count, b.form.title):
            nested = child_path(path, a, self.aliases)
            inner = list(self.level(a.form, b.form, at_a, at_b, nested))
            if inner:
                yield from inner
                return
        yield GraphChange("changed", path, _words(a), _words(b), at_a, at_b)

    def _rewired(
        self, a: Form, b: Form, at_a: Place, at_b: Place, path: str
    ) -> Iterator[GraphChange]:
        """The same children, fed by others."""
        for i, (wires_a, wires_b) in enumerate(zip(a.wires, b.wires, strict=True)):
            if wires_a != wires_b:
                was, current = _fed(a, i, wires_a), _fed(b, i, wires_b)
                yield GraphChange("changed", path, was, current, (*at_a, i), (*at_b, i))


def _name(child: Child) -> tuple:
    value = child.content
    category = value.kind if isinstance(value, Form) else value.operation
    return (child.name, category, child.call if isinstance(value, Form) else 0, child.phase)


def _fed(form: Form, i: int, wires: Sequence[Wire]) -> str:
    """A child with the names of what feeds it."""
    feeds = (wire.child for wire in wires)
    names = (form.children[at].name if at != OUTSIDE else "outside" for at in feeds)
    return f"{_words(form.children[i])} of {', '.join(names)}"


def _words(child: Child) -> str:
    """Describe a child so that it differs from any other."""
    value = child.content
    if isinstance(value, Form):
        inside = f"({group_facts(value)}, {exit_text(child) or 'no result'})"
        words = [group_title(child), group_note(value), inside]
    else:
        is_known = value.kind == "operation" and not value.parameters
        shapes = "" if is_known else ", ".join(map(str, value.outputs))
        words = [child.name, value.parameters, shapes]
    return " ".join(filter(None, words))
