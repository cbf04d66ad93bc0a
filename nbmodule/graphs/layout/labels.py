"""The words on boxes and edges, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nbmodule.base.format import cut_middle, format_bytes, ordinal
from nbmodule.graphs.layout.forms import PILLS, Child, Form
from nbmodule.graphs.model import Value

_NARROW = frozenset("iljtfrI.,:;'|!()[]{}/ ·-")
_WIDE = frozenset("mwMW@%…⟳ABCDEFGHKNOPQRUVXYZ")
KINDS = ("jit", "checkpoint", "custom_jvp", "custom_vjp", "call")


@lru_cache(maxsize=16384)
def text_width(text: str, size: float = 12) -> float:
    """Width of a text in the widest of the common sans-serif fonts, in pixels.

    >>> text_width("il") < text_width("mw")
    True
    """
    em = sum(0.36 if c in _NARROW else 0.8 if c in _WIDE else 0.62 for c in text)
    return round(em * size, 1)


def shape_text(value: Value) -> str:
    """Shape as written at an edge; the dtype only where it is not float32.

    >>> shape_text(Value((2, 64), "float32")), shape_text(Value((), "int32"))
    ('[2, 64]', 'int32[]')
    """
    shape = f"[{', '.join(map(str, value.shape))}]"
    return shape if value.dtype == "float32" else f"{value.dtype}{shape}"


def amount(number: float, unit: str = "") -> str:
    """Four significant digits and a prefix, that of the rounded number.

    >>> amount(1234567, "FLOP"), amount(31, "FLOP"), amount(0), amount(999_960, "FLOP")
    ('1.235 MFLOP', '31 FLOP', '0', '1 MFLOP')
    """
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(number) >= (1 if power == 3 else 0.99995) * 10**power:
            return f"{number / 10**power:.4g} {prefix}{unit}"
    return f"{number:.4g} {unit}".strip()


def group_title(child: Child) -> str:
    """Name of a group with all that tells it from others: `norm (2nd, backward)`.

    >>> from nbmodule.graphs.layout.forms import Form
    >>> group_title(Child(Form(0, (), "scan", 4, "", (), (), ()), "scan", 0, "forward"))
    'scan'
    """
    marks = [
        ordinal(child.call + 1) if child.call and child.content.kind == "scope" else "",
        child.phase if child.phase != "forward" else "",
    ]
    marks = [mark for mark in marks if mark]
    return f"{child.name} ({', '.join(marks)})" if marks else child.name


def group_note(form: Form) -> str:
    """Write the note after a group's name: its class, its kind, how often it runs."""
    words = []
    if form.kind in ("scan", "while"):
        words.append(f"⟳ {form.count}" if form.count is not None else "⟳")
    elif form.kind == "run":
        words.append(f"{form.count} ×{' ' + form.title if form.title else ''}")
    elif form.kind == "ends":
        words.append(str(form.count))
    elif form.kind in KINDS:
        words.append(form.kind)
    elif form.kind == "opaque":
        words.append("call")
    if form.title and form.kind != "run":
        words.append(form.title)
    return " ".join(words)


def group_facts(form: Form) -> str:
    """The second line of a folded group: how much is in it."""
    if form.kind == "ends":
        values = [child.record.outputs[0] for child in form.children]
        return format_bytes(sum(v.bytes for v in values))
    ops = "1 op" if form.operations == 1 else f"{form.operations:,} ops"
    return f"{ops} · {amount(form.flops, 'FLOP')}" if form.flops else ops


def node_note(child: Child) -> str:
    """Write the note after a node's name: shape for what comes in or goes out, parameters for an
    operation.
    """
    record = child.record
    if record.kind in PILLS:
        return ""
    if record.kind in ("input", "output"):
        return shape_text(record.outputs[0])
    if record.kind in ("operation", "failure"):
        return cut_middle(record.parameters, 22 if record.kind == "operation" else 60)
    return ""


class BoxText(NamedTuple):
    """The text of a box: its name, a remark after it, and a second line."""

    name: str
    note: str
    facts: str = ""


def words_of(child: Child) -> BoxText:
    """The words in the box of a folded child."""
    item = child.content
    if isinstance(item, Form):
        return BoxText(group_title(child), group_note(item), group_facts(item))
    return BoxText(child.name, node_note(child))


def exit_text(child: Child) -> str:
    """The label of the edge that leaves a box: the shape of its one value, or how many leave.

    Side roads do not count, and what only the backward pass reads is counted apart.
    """
    item = child.content
    values: Sequence[Value]
    saved = 0
    if isinstance(item, Form):
        main = [i for i, wire in enumerate(item.exits) if not wire.is_side]
        forward = [i for i in main if not item.exits[i].is_saved]
        saved = len(main) - len(forward) if forward else 0
        values = [item.exit_value(i) for i in forward or main]
    else:
        result = item.outputs if item.kind not in ("input", "output") else ()
        values = [value for i, value in enumerate(result) if i not in item.side]
    if not values:
        return ""
    text = shape_text(values[0]) if len(values) == 1 else f"{len(values)} values"
    return f"{text} + {saved} saved" if saved else text
