"""Records as what the page reads: columns by name, repeated values behind codes, nothing that is empty.

`frontend/base.js` reads a column with `reader`: a list, `{u: values, i: codes}`, or a map from row to value where few rows
have one. Every text goes through `plain`, so that no control or direction mark reaches a page.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nbmodule.views.format import format_array, plain
from nbmodule.views.outline import open_at_first
from nbmodule.views.records import (
    ArrayCard,
    CallRow,
    CallTable,
    DifferenceTree,
    History,
    ModuleRow,
    ModuleTree,
    Note,
    Picture,
    Record,
    ReturnTable,
    Series,
    Statistics,
    VariableTree,
)
from nbmodule.views.titles import title_of
from nbmodule.views.trees import call_outline, difference_outline, module_outline, variable_outline

MOST_POINTS = 2000
LONG_TEXT = 2000


@functools.singledispatch
def payload_of(record: Record) -> dict[str, Any]:
    """Turn a record into what the page reads.

    Example:
        >>> data = payload_of(Note('grad', 'nothing was called'))
        >>> data['view'], data['title'], data['text']
        ('note', ['grad'], 'nothing was called')
    """
    raise TypeError(f"no view is known for {type(record).__name__}")


def _common(record: Any, view: str) -> dict[str, Any]:
    notes = [plain(note, LONG_TEXT) for note in getattr(record, "notes", ())]
    head = {"view": view, "title": title_of(record)}
    return (
        head | ({"notes": notes} if notes else {}) | ({"root": plain(record.root)} if hasattr(record, "root") else {})
    )


def column(values: Sequence[Any], clean: Callable[[Any], Any] = lambda v: v) -> Any:
    """Shorten a column; None when it says nothing. `clean` is applied once to each distinct value.

    Example:
        >>> column(['a', 'a', 'b', 'a', 'a', 'b', 'a', 'a', 'a']), column([None, None]), column([1, None])
        ({'u': ['a', 'b'], 'i': [0, 0, 1, 0, 0, 1, 0, 0, 0]}, None, [1, None])
    """
    codes: dict[Any, int] = {}
    places = [codes.setdefault(v, len(codes)) for v in values]
    if all(not v and v != "" for v in codes):
        return None
    cleaned = [clean(v) for v in codes]
    if len(codes) * 2 < len(places) and len(places) > 8:
        return {"u": cleaned, "i": places}
    return [cleaned[k] for k in places]


def _texts(values: Iterable[Any], longest: int = 200) -> Any:
    return column([v or None for v in values], lambda v: None if v is None else plain(v, longest))


def _sparse(pairs: Iterable[tuple[int, Any]]) -> dict[int, Any] | None:
    return {i: v for i, v in pairs if v is not None and v != ()} or None


def _filled(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None}


@payload_of.register
def _(tree: ModuleTree) -> dict[str, Any]:
    outline = module_outline(tree)
    group = ModuleRow("", "", "", kind="group")
    rows = [tree.rows[r] if r >= 0 else group for r in outline.row]
    ends = outline.ends()
    classes, parameters = [r.class_name for r in rows], [r.parameters for r in rows]
    for i, (n, _) in outline.members.items():
        classes[i] = f"{n} × {rows[i + 1].class_name}"
        if rows[i].kind == "group":
            members = [j for j in range(i + 1, ends[i]) if outline.depth[j] == outline.depth[i] + 1]
            parameters[i] = sum(rows[j].parameters for j in members)
    modes = [None if r.training is None else "train" if r.training else "eval" for r in rows]
    shown = modes if tree.mode.startswith("mixed") else []
    return _common(tree, "modules") | _filled({
        "total": tree.parameters,
        "empty": f"no submodules; {', '.join(map(plain, tree.variables))}" if tree.variables and not rows else None,
        "depth": outline.depth,
        "open": open_at_first(outline),
        "label": [plain(outline.display(i)) for i in range(len(rows))],
        "path": _texts(r.path for r in rows),
        "cls": _texts(classes),
        "sum": _texts(r.summary for r in rows),
        "p": column(parameters),
        "buf": column([r.buffers for r in rows]),
        "in": _texts(r.input_shapes for r in rows),
        "out": _texts(r.output_shapes for r in rows),
        "kind": _texts(r.kind for r in rows),
        "shared": _texts(r.shared_with for r in rows),
        "late": column([not r.built for r in rows]),
        "training": column(shown) if shown else None,
        "doc": _texts((r.doc for r in rows), 300),
        "src": _texts(r.source for r in rows),
        "vars": _sparse((i, [plain(v) for v in r.variables]) for i, r in enumerate(rows) if r.variables),
        "err": _texts((r.error for r in rows), LONG_TEXT),
    })  # fmt: skip


@payload_of.register
def _(tree: VariableTree) -> dict[str, Any]:
    outline = variable_outline(tree)
    columns = list(zip(*tree.rows, strict=True)) or [()] * 14
    names = (
        "path",
        "chain",
        "kind",
        "shape",
        "dtype",
        "bytes",
        "device",
        "sharding",
        "frozen",
        "shared",
        "st",
        "val",
        "err",
    )
    by_name = dict(zip((*names, "keys"), columns, strict=True))
    spread = functools.partial(_at_lines, outline.row)
    types = list(zip(by_name["shape"], by_name["dtype"], strict=True))
    statistics = _sparse((i, _statistics(s)) for i, s in enumerate(spread(by_name["st"])))
    values = spread(by_name["val"])
    return _common(tree, "variables") | _filled({
        "depth": outline.depth,
        "open": open_at_first(outline),
        "step": column(outline.label, plain),
        "ranges": {i: plain(text) for i, (_, text) in outline.members.items()} or None,
        "members": {i: n for i, (n, _) in outline.members.items()} or None,
        "type": column(spread(types), lambda t: None if t is None else plain(format_array(*t))),
        "bytes": column(spread(by_name["bytes"])),
        "kind": _texts(spread(by_name["kind"])),
        "dev": _texts(spread(by_name["device"])),
        "split": _texts(spread(by_name["sharding"])),
        "frozen": column(spread(by_name["frozen"])),
        "shared": _texts(spread(by_name["shared"])),
        "err": _texts(spread(by_name["err"]), LONG_TEXT),
        "spelled": dict(tree.spelled) or None,
        "st": statistics,
        "val": _sparse((i, plain(v)) for i, v in enumerate(values) if isinstance(v, str)),
        "pic": _sparse((i, picture_payload(v)) for i, v in enumerate(values) if isinstance(v, Picture)),
    })  # fmt: skip


def _at_lines(lines: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Put the values of rows at their lines; None at the levels between."""
    padded = (*values, None)
    return [padded[r] for r in lines]


@payload_of.register
def _(table: CallTable) -> dict[str, Any]:
    more = {"not_called": [plain(p) for p in table.not_called] or None, "timing": plain(table.timing)}
    return _common(table, "calls") | _call_columns(table.rows) | _filled(more)


@payload_of.register
def _(table: ReturnTable) -> dict[str, Any]:
    return _common(table, "returns") | _call_columns(table.rows)


def _call_columns(rows: Sequence[CallRow]) -> dict[str, Any]:
    outline = call_outline(rows)
    lowest = min(outline.depth, default=0)
    outline.depth = [d - lowest for d in outline.depth]
    return _filled({
        "depth": outline.depth,
        "open": open_at_first(outline),
        "label": [plain(outline.display(i)) for i in range(len(rows))],
        "path": [plain(r.path) for r in rows],
        "order": [r.order for r in rows],
        "index": column([r.index for r in rows]),
        "cls": _texts(r.class_name for r in rows),
        "in": _texts((r.inputs for r in rows), 400),
        "out": _texts((r.outputs for r in rows), 400),
        "sec": _numbers([r.seconds for r in rows]),
        "start": _numbers([r.start for r in rows]),
        "src": _texts(r.source for r in rows),
        "err": _texts((r.error for r in rows), LONG_TEXT),
        "st": _sparse((i, _statistics(r.statistics)) for i, r in enumerate(rows)),
        "pic": _sparse((i, [picture_payload(p) for p in r.pictures]) for i, r in enumerate(rows) if r.pictures),
    })  # fmt: skip


@payload_of.register
def _(tree: DifferenceTree) -> dict[str, Any]:
    outline = difference_outline(tree)
    at = functools.partial(_at_lines, outline.row)
    rows = tree.rows
    ends = outline.ends()
    differs = [r >= 0 and rows[r].status != "same" for r in outline.row]
    opened = [i for i in range(len(outline)) if ends[i] > i + 1 and any(differs[i + 1 : ends[i]])]
    return _common(tree, "difference") | _filled({
        "a": plain(tree.a),
        "b": plain(tree.b),
        "depth": outline.depth,
        "open": opened if len(opened) <= 200 else open_at_first(outline),
        "step": column(outline.label, plain),
        "path": _texts(at([r.path for r in rows])),
        "status": _texts(at([r.status for r in rows])),
        "ca": _texts(at([r.a for r in rows])),
        "cb": _texts(at([r.b for r in rows])),
        "change": _numbers(at([r.change for r in rows])),
        "largest": _numbers(at([r.largest for r in rows])),
        "where": _sparse((i, r) for i, r in enumerate(at([r.where for r in rows]))),
        "pic": _sparse((i, [picture_payload(p) for p in ps]) for i, ps in enumerate(at([r.pictures for r in rows])) if ps),
        "err": _texts(at([r.error for r in rows]), LONG_TEXT),
    })  # fmt: skip


@payload_of.register
def _(history: History) -> dict[str, Any]:
    return _common(history, "curve") | {
        "axis": plain(history.axis),
        "series": [_series(s) for s in history.series],
    }


def _series(series: Series) -> dict[str, Any]:
    kept = thinned(series.values, MOST_POINTS)
    return {
        "name": plain(series.name),
        "steps": [_number(series.steps[i]) for i in kept],
        "values": [_number(series.values[i]) for i in kept],
    }


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Choose the points that keep a curve's look: of each share of the steps the lowest, the highest, and what is not finite.

    Example:
        >>> thinned([0.0, 5.0, 1.0, 2.0, -3.0, 1.0, 0.0, 1.0], 4)
        [0, 1, 4, 7]
    """
    if len(values) <= most:
        return list(range(len(values)))
    kept = {0, len(values) - 1}
    parts = max(1, (most - 2) // 2)
    for k in range(parts):
        share = range(k * len(values) // parts, (k + 1) * len(values) // parts)
        finite = [i for i in share if abs(values[i]) < float("inf")]
        if finite:
            kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
        if len(finite) < len(share):
            kept.add(next(i for i in share if not abs(values[i]) < float("inf")))
    return sorted(kept)


@payload_of.register
def _(card: ArrayCard) -> dict[str, Any]:
    size = 1
    for n in card.shape or ():
        size *= n
    return _common(card, "array") | _filled({
        "stats": _statistics(card.statistics),
        "picture": picture_payload(card.picture) if card.picture else None,
        "corner": [list(map(plain, row)) for row in card.corner] or None,
        "whole": sum(map(len, card.corner)) == size,
        "err": plain(card.error, LONG_TEXT) if card.error else None,
    })  # fmt: skip


@payload_of.register
def _(note: Note) -> dict[str, Any]:
    text = "\n".join(plain(line, LONG_TEXT) for line in note.text.splitlines()[:200])
    return _common(note, "note") | {"text": text} | ({"error": True} if note.is_error else {})


def _number(v: Any) -> Any:
    """Six significant digits; NaN and infinities as text, since JSON has no word for them."""
    if v is None:
        return None
    v = float(v)
    if v != v:
        return "NaN"
    if v in (float("inf"), float("-inf")):
        return "Infinity" if v > 0 else "-Infinity"
    short = float(f"{v:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _numbers(values: Sequence[Any]) -> list[Any] | None:
    return [_number(v) for v in values] if any(v is not None for v in values) else None


def _statistics(s: Statistics | None) -> dict[str, Any] | None:
    if s is None:
        return None
    has_values = bool(s.bins)
    return _filled({
        "n": s.size,
        "m": _number(s.mean) if has_values else None,
        "s": _number(s.std) if has_values else None,
        "lo": _number(s.low) if has_values else None,
        "hi": _number(s.high) if has_values else None,
        "nan": s.nan or None,
        "inf": s.inf or None,
        "z": s.zero or None,
        "la": list(s.low_at) if s.low_at else None,
        "ha": list(s.high_at) if s.high_at else None,
        "b": list(s.bins),
    })  # fmt: skip


def picture_payload(p: Picture) -> dict[str, Any]:
    """Turn a picture into what `frontend/picture.js` reads."""
    return _filled({
        "k": p.kind,
        "s": list(p.shape),
        "d": base64.b64encode(p.data).decode(),
        "sc": p.scale,
        "l": [_number(v) for v in p.limits],
        "c": [plain(c, 40) for c in p.classes] or None,
        "lb": [plain(t, 40) for t in p.labels] or None,
        "of": plain(p.of),
        "about": plain(p.about, 400),
        "notes": [plain(n) for n in p.notes] or None,
    })  # fmt: skip
