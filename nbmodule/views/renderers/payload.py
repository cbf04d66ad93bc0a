"""Records as what the page reads: columns by name, repeated values behind codes, nothing that is
empty.

`views/frontend/base.js` reads a column with `reader`: a list, `{u: values, i: codes}`, or a map
from row to value where few rows have one. Every text goes through `plain`, so that no control or
direction mark reaches a page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nbmodule.base.format import format_array, plain
from nbmodule.views.arrays.flattening import LeafRows
from nbmodule.views.records.findings import findings_of, worst_of
from nbmodule.views.records.outline import Outline, open_at_first
from nbmodule.views.records.records import (
    ArrayCard,
    CallRow,
    CallTable,
    DifferenceTree,
    Finding,
    HistoryRecord,
    ModuleRow,
    ModuleTree,
    Note,
    Picture,
    Record,
    RecordedMoment,
    ReturnTable,
    SeriesRecord,
    VariableTree,
)
from nbmodule.views.renderers.axis import axis_of
from nbmodule.views.renderers.outlines import (
    call_kinds,
    call_outline,
    difference_outline,
    folded_paths,
    group_lines,
    module_outline,
    shown_rows,
    variable_outline,
)
from nbmodule.views.renderers.payload_values import (
    filled,
    moment_payload,
    number,
    numbers,
    picture_payload,
    statistics_payload,
)
from nbmodule.views.renderers.titles import title_of
from nbmodule.views.renderers.union import union_of

_CODE = {
    "modules": "nb.show({root})",
    "variables": "nb.show({root})",
    "calls": "with nb.track(model) as calls:\n    model(x)\nnb.show(calls)",
    "recorded": "recorder = nb.Recorder(model)\nwith recorder:\n    model(x)\nnb.show(recorder)",
    "returns": "model(x, track_submod_rets=True)\nnb.show({root})",
    "difference": "nb.diff(a, b)",
    "comparison": "nb.compare(calls, reference)",
    "array": "nb.show({root})",
    "facts": "nb.show({root})",
}
"""The call that makes a view, as it is copied."""
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


def common(record: Any, view: str, lines: Sequence[int] = ()) -> dict[str, Any]:
    """Write what every view has: title, notes, the call that makes it, what is wrong and the line
    where each stands.

    Args:
        record: The record.
        view: The name of its view.
        lines: For each line of the view the row of the record that it stands for.
    """
    notes = [plain(note, LONG_TEXT) for note in getattr(record, "notes", ())]
    head = {"view": view, "title": title_of(record)}
    if view in _CODE:
        head["code"] = _CODE[view].format(root=getattr(record, "root", ""))
    return (
        head
        | ({"notes": notes} if notes else {})
        | ({"root": plain(record.root)} if hasattr(record, "root") else {})
        | _findings(findings_of(record), lines)
    )


def _findings(findings: Sequence[Finding], lines: Sequence[int]) -> dict[str, Any]:
    """The bug bar, and the line at which the view opens: `kind, text, line, part`."""
    if not findings:
        return {}
    wanted = {finding.row for finding in findings} - {None}
    at: dict[int | None, int] = (
        {row: line for line, row in enumerate(lines) if row in wanted} if wanted else {}
    )
    bar = [
        [f.kind, plain(f.text, 300), at.get(f.row), f.part or None, plain(f.path)] for f in findings
    ]
    worst = worst_of(findings)
    first = at.get(worst.row) if worst is not None else None
    return {"findings": bar} | ({"first": first} if first is not None else {})


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


def texts(values: Iterable[Any], longest: int = 200) -> Any:
    """Write a column of texts."""
    return column([v or None for v in values], lambda v: None if v is None else plain(v, longest))


def sparse(pairs: Iterable[tuple[int, Any]]) -> dict[int, Any] | None:
    """Write a column of which few lines have a value."""
    return {i: v for i, v in pairs if v is not None and v != ()} or None


@payload_of.register
def _(tree: ModuleTree) -> dict[str, Any]:
    outline = module_outline(tree)
    group = ModuleRow("", "", "", kind="group")
    rows = [tree.rows[r] if r >= 0 else group for r in outline.row]
    ends = outline.ends()
    classes, parameters = [r.class_name for r in rows], [r.parameters for r in rows]
    for i in outline.members:
        classes[i] = outline.kinds(i, [rows[j].class_name for j in outline.pattern(i)])
        if rows[i].kind == "group":
            members = [j for j in range(i + 1, ends[i]) if outline.depth[j] == outline.depth[i] + 1]
            parameters[i] = sum(rows[j].parameters for j in members)
        if not rows[i].input_shapes:
            ends_of = group_lines(outline, i)
            first, last = rows[ends_of[0]], rows[ends_of[-1]]
            rows[i] = rows[i]._replace(
                input_shapes=first.input_shapes, output_shapes=last.output_shapes
            )
        if rows[i].statistics is None:
            returned = [rows[j].statistics for j in group_lines(outline, i)]
            rows[i] = rows[i]._replace(
                statistics=union_of([one for one in returned if one is not None])
            )
    few = _rarer(r.training for r in rows) if tree.mode.startswith("mixed") else None
    shown = [
        ("train" if few else "eval") if few is not None and r.training is few else None
        for r in rows
    ]
    return common(tree, "modules", outline.row) | filled(
        {
            "total": tree.parameters,
            "empty": f"no submodules; {', '.join(map(plain, tree.variables))}"
            if tree.variables and not rows
            else None,
            "depth": outline.depth,
            "open": open_at_first(outline),
            "label": [plain(outline.display(i)) for i in range(len(rows))],
            "path": texts(r.path for r in rows),
            "cls": texts(classes),
            "sum": texts(r.summary for r in rows),
            "p": column(parameters),
            "buf": column([r.buffers for r in rows]),
            "in": texts(r.input_shapes for r in rows),
            "out": texts(r.output_shapes for r in rows),
            "kind": texts(r.kind for r in rows),
            "shared": texts(r.shared_with for r in rows),
            "color": _colors(tree.color, [(r.path,) for r in rows]) if tree.color else None,
            "at": None if _in_order(outline.row) else outline.row,
            "late": column([not r.built for r in rows]),
            "training": column(shown),
            "doc": texts((r.doc for r in rows), 300),
            "src": texts(r.source for r in rows),
            "st": sparse((i, statistics_payload(r.statistics)) for i, r in enumerate(rows)),
            "args": texts([r.arguments for r in rows], 400),
            "vars": sparse(
                (i, [plain(v) for v in r.variables]) for i, r in enumerate(rows) if r.variables
            ),
            "err": texts((r.error for r in rows), LONG_TEXT),
        }
    )


@payload_of.register
def _(tree: VariableTree) -> dict[str, Any]:
    outline = variable_outline(tree)
    if isinstance(tree.rows, LeafRows):
        return common(tree, "variables", outline.row) | filled(
            _leaf_columns(tree, tree.rows, outline)
        )
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
    spread = functools.partial(at_lines, outline.row)
    types = list(zip(by_name["shape"], by_name["dtype"], strict=True))
    statistics = sparse((i, statistics_payload(s)) for i, s in enumerate(spread(by_name["st"])))
    values = spread(by_name["val"])
    return common(tree, "variables", outline.row) | filled(
        {
            "depth": outline.depth,
            "open": open_at_first(outline),
            "step": column(outline.label, plain),
            "more": _joined(outline),
            "ranges": {i: plain(text) for i, (_, text) in outline.members.items()} or None,
            "members": {i: n for i, (n, _) in outline.members.items()} or None,
            "type": column(spread(types), lambda t: None if t is None else plain(format_array(*t))),
            "bytes": column(spread(by_name["bytes"])),
            "kind": texts(spread(by_name["kind"])),
            "dev": texts(spread(by_name["device"])),
            "split": texts(spread(by_name["sharding"])),
            "frozen": column(spread(by_name["frozen"])),
            "color": _colors(
                tree.color,
                spread([(r.path, r.chain, r.chain.replace("/", ".")) for r in tree.rows]),
            )
            if tree.color
            else None,
            "at": None if _in_order(outline.row) else outline.row,
            "shared": texts(spread(by_name["shared"])),
            "err": texts(spread(by_name["err"]), LONG_TEXT),
            "spelled": dict(tree.spelled) or None,
            "st": statistics,
            "val": sparse((i, plain(v)) for i, v in enumerate(values) if isinstance(v, str)),
            "pic": sparse(
                (i, picture_payload(v)) for i, v in enumerate(values) if isinstance(v, Picture)
            ),
        }
    )


def _rarer(modes: Iterable[bool | None]) -> bool:
    """The mode that fewer rows are in; eval where as many are in either."""
    known = [mode for mode in modes if mode is not None]
    return 2 * sum(known) < len(known)


def _joined(outline: Outline) -> dict[int, list[str]] | None:
    return {i: [plain(name) for name in names] for i, names in outline.joined.items()} or None


def _leaf_columns(tree: VariableTree, rows: LeafRows, outline: Outline) -> dict[str, Any]:
    """The same columns of a tree whose leaves share their facts: one column of numbers stands
    behind most of them.
    """
    count = len(rows.facts)
    facts = [rows.codes[r] if r >= 0 else count for r in outline.row]
    wanted = {*rows.statistics, *rows.values, *rows.shared}
    line = {r: i for i, r in enumerate(outline.row) if r in wanted} if wanted else {}

    def shared(values: list[Any]) -> dict[str, Any] | None:
        return {"u": [*values, None], "of": "facts"} if any(values) else None

    def texts(values: Iterable[str | None], longest: int = 200) -> dict[str, Any] | None:
        return shared([plain(v, longest) if v else None for v in values])

    return {
        "depth": outline.depth,
        "open": open_at_first(outline),
        "step": column(outline.label),
        "more": _joined(outline),
        "ranges": {i: plain(text) for i, (_, text) in outline.members.items()} or None,
        "members": {i: n for i, (n, _) in outline.members.items()} or None,
        "facts": facts,
        "type": texts(f.text for f in rows.facts),
        "bytes": shared([f.bytes for f in rows.facts]),
        "kind": texts(f.kind for f in rows.facts),
        "dev": texts(f.device for f in rows.facts),
        "split": texts(f.sharding for f in rows.facts),
        "color": _colors(tree.color, at_lines(outline.row, [(row.path,) for row in rows]))
        if tree.color
        else None,
        "shared": {line[i]: plain(rows[i].shared_with) for i in rows.shared} or None,
        "err": texts([f.unreadable if f.is_lost else None for f in rows.facts], LONG_TEXT),
        "spelled": dict(tree.spelled) or None,
        "st": sparse((line[i], statistics_payload(s)) for i, s in rows.statistics.items()),
        "val": sparse((line[i], plain(v)) for i, v in rows.values.items() if isinstance(v, str)),
        "pic": sparse(
            (line[i], picture_payload(v)) for i, v in rows.values.items() if isinstance(v, Picture)
        ),
    }


def _colors(
    color: Mapping[str, float], names: Sequence[tuple[str, ...] | None]
) -> dict[int, Any] | None:
    """The number of each row that has one under any of its names."""
    return sparse(
        (i, next((number(color[name]) for name in known or () if name in color), None))
        for i, known in enumerate(names)
    )


def _in_order(rows: Sequence[int]) -> bool:
    """Whether lines that stand for a row count them from 0."""
    return [r for r in rows if r >= 0] == list(range(sum(r >= 0 for r in rows)))


def at_lines(lines: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Put the values of rows at their lines; None at the levels between."""
    padded = (*values, None)
    return [padded[r] for r in lines]


@payload_of.register
def _(table: CallTable) -> dict[str, Any]:
    outline = call_outline(table.rows, grouped=True)
    more = {
        "not_called": [plain(p) for p in folded_paths(table.not_called)] or None,
        "timing": plain(table.timing),
    }
    view = "recorded" if len(table.moments) > 1 else "calls"
    columns = (
        _call_columns(table.rows, outline) | _groups(table.rows, outline) | _moments(table, outline)
    )
    return common(table, view, outline.row) | columns | filled(more)


def _moments(table: CallTable, outline: Outline) -> dict[str, Any]:
    """The numbers of each line at each recorded step, and the axis on which all of them stand."""
    if len(table.moments) < 2:
        return {}
    axis = axis_of(s for moment in table.moments for s in moment.statistics)
    values = [
        [
            moment_payload(row.statistics)
            for row in shown_rows(_at_moment(table.rows, moment), outline)
        ]
        for moment in table.moments
    ]
    line = {row: i for i, row in enumerate(outline.row) if row >= 0}
    small = {
        k: {line[row]: picture_payload(p) for row, p in moment.pictures.items()}
        for k, moment in enumerate(table.moments)
        if moment.pictures
    }
    return {"steps": [moment.step for moment in table.moments], "moments": values} | filled(
        {"axis": list(map(number, axis)) if axis else None, "small": small or None}
    )


def _at_moment(rows: Sequence[CallRow], moment: RecordedMoment) -> list[CallRow]:
    return [row._replace(statistics=s) for row, s in zip(rows, moment.statistics, strict=True)]


@payload_of.register
def _(table: ReturnTable) -> dict[str, Any]:
    return common(table, "returns", range(len(table.rows))) | _call_columns(
        table.rows, call_outline(table.rows)
    )


def _call_columns(rows: Sequence[CallRow], outline: Outline) -> dict[str, Any]:
    lines = shown_rows(rows, outline)
    axis = axis_of(r.statistics for r in rows)
    return filled(
        {
            "depth": outline.depth,
            "open": open_at_first(outline, groups=True),
            "label": [plain(outline.display(i)) for i in range(len(lines))],
            "path": [
                plain(r.path) if k >= 0 else None for k, r in zip(outline.row, lines, strict=True)
            ],
            "order": [r.order for r in lines],
            "cls": texts(r.class_name for r in lines),
            "in": texts((r.inputs for r in lines), 400),
            "out": texts((r.outputs for r in lines), 400),
            "sec": numbers([r.seconds for r in lines]),
            "start": numbers([r.start for r in lines]),
            "comp": sparse((i, number(r.compiling)) for i, r in enumerate(lines) if r.compiling),
            "own": numbers([r.own for r in lines]),
            "src": texts(r.source for r in lines),
            "err": texts((r.error for r in lines), LONG_TEXT),
            "axis": list(map(number, axis)) if axis else None,
            "st": sparse((i, statistics_payload(r.statistics)) for i, r in enumerate(lines)),
            "pic": sparse(
                (i, [picture_payload(p) for p in r.pictures])
                for i, r in enumerate(lines)
                if r.pictures
            ),
        }
    )


def _groups(rows: Sequence[CallRow], outline: Outline) -> dict[str, Any]:
    """Which lines stand for several calls, and for which row of the record each other line stands."""
    if not outline.members:
        return {}
    groups = {
        i: [plain(call_kinds(rows, outline, i)), group_lines(outline, i)] for i in outline.members
    }
    return {"at": outline.row, "groups": groups}


@payload_of.register
def _(tree: DifferenceTree) -> dict[str, Any]:
    outline = difference_outline(tree)
    at = functools.partial(at_lines, outline.row)
    rows = tree.rows
    ends = outline.ends()
    differs = [r >= 0 and rows[r].status != "same" for r in outline.row]
    opened = [i for i in range(len(outline)) if ends[i] > i + 1 and any(differs[i + 1 : ends[i]])]
    return common(tree, "difference", outline.row) | filled(
        {
            "a": plain(tree.a),
            "b": plain(tree.b),
            "depth": outline.depth,
            "open": opened if len(opened) <= 200 else open_at_first(outline),
            "step": column(outline.label, plain),
            "more": _joined(outline),
            "path": texts(at([r.path for r in rows])),
            "at": None if _in_order(outline.row) else outline.row,
            "chain": texts(at([r.chain for r in rows]))
            if any(r.chain not in ("", r.path) for r in rows)
            else None,
            "status": texts(at([r.status for r in rows])),
            "ca": texts(at([r.a for r in rows])),
            "cb": texts(at([r.b for r in rows])),
            "change": numbers(at([r.change for r in rows])),
            "largest": numbers(at([r.largest for r in rows])),
            "where": sparse((i, r) for i, r in enumerate(at([r.where for r in rows]))),
            "pic": sparse(
                (i, [picture_payload(p) for p in ps])
                for i, ps in enumerate(at([r.pictures for r in rows]))
                if ps
            ),
            "err": texts(at([r.error for r in rows]), LONG_TEXT),
        }
    )


@payload_of.register
def _(history: HistoryRecord) -> dict[str, Any]:
    return common(history, "curve") | {
        "axis": plain(history.axis),
        "series": [_series(s) for s in history.series],
    }


def _series(series: SeriesRecord) -> dict[str, Any]:
    kept = thinned(series.values, MOST_POINTS)
    return {
        "name": plain(series.name),
        "steps": [number(series.steps[i]) for i in kept],
        "values": [number(series.values[i]) for i in kept],
        **({"unit": plain(series.unit)} if series.unit else {}),
    }


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Choose the points that keep a curve's look: of each share of the steps the lowest, the
    highest, and what is not finite.

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
    return common(card, "array") | filled(
        {
            "stats": statistics_payload(card.statistics),
            "picture": picture_payload(card.picture) if card.picture else None,
            "corner": [list(map(plain, row)) for row in card.corner] or None,
            "whole": sum(map(len, card.corner)) == size,
            "of": plain(format_array(card.shape, card.dtype)),
            "err": plain(card.error, LONG_TEXT) if card.error else None,
        }
    )


@payload_of.register
def _(note: Note) -> dict[str, Any]:
    text = "\n".join(plain(line, LONG_TEXT) for line in note.text.splitlines()[:200])
    return common(note, "note") | {"text": text} | ({"error": True} if note.is_error else {})
