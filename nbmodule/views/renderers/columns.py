"""The columns of each record: those that are sent to a page, and those that a reader sees.

A `ColumnField` is one column of a payload and one property of `frontend/payload.d.ts`, by which the
front end is checked: a field of a row, under its name. A page reads it with `reader` of
`views/frontend/base.js`: a list, `{u: values, i: codes}`, or a map from line to value where few
lines have one. Empty columns are left out. Every text goes through `plain`, so that no control or
direction mark reaches a page.

A `ShownColumn` is one column of the text, of the HTML without scripts and of the page, which gets
titles, alignment and the order in which columns leave from `frontend/columns.js`.
`tools/make_types.py` writes both files.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, get_args, get_type_hints

from nbmodule.base.format import (
    format_bytes,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    plain,
    spark,
)
from nbmodule.base.statistics import Statistics
from nbmodule.calls.profile import PASSES, ProfileRow
from nbmodule.views.records.records import (
    CallRow,
    DifferenceRow,
    ModuleRow,
    PairRow,
    Picture,
    VariableRow,
)

LONG_TEXT = 2000
# Of a histogram, at the step that is shown and at earlier ones.
BINS, SNAPSHOT_BINS = 32, 12


# -- single values --
def filled(data: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None."""
    return {name: value for name, value in data.items() if value is not None}


def number(v: Any) -> Any:
    """Write whole numbers exactly, others with six significant digits.

    NaN and infinities become text, since JSON has no word for them.

    Example:
        >>> number(2469999.0), number(0.12345678), number(float("nan"))
        (2469999, 0.123457, 'NaN')
    """
    if v is None:
        return None
    v = float(v)
    if v != v:
        return "NaN"
    if v in (float("inf"), float("-inf")):
        return "Infinity" if v > 0 else "-Infinity"
    short = v if v.is_integer() and abs(v) < 1e15 else float(f"{v:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def statistics_payload(s: Statistics | None, bins: int = BINS) -> dict[str, Any] | None:
    """Write statistics as `views/frontend/marks.js` reads them, with at most `bins` bins."""
    if s is None:
        return None
    step = -(-len(s.histogram) // bins) or 1
    names = ("m", "s", "lo", "hi") if s.histogram else ()
    counts = {"nan": s.nan, "inf": s.inf, "z": s.zero_count, "of": s.sampled}
    places = {name: list(at) for name, at in (("la", s.min_at), ("ha", s.max_at)) if at}
    return {
        "n": s.size,
        "b": [sum(s.histogram[i : i + step]) for i in range(0, len(s.histogram), step)],
        **dict(zip(names, map(number, s[1:5]), strict=False)),
        **{name: count for name, count in counts.items() if count},
        **places,
    }


def picture_payload(p: Picture) -> dict[str, Any]:
    """Write the fields of a picture that are not empty; `views/frontend/picture.js` reads them."""
    fields = filled({field.key: field.cell(p) for field in PICTURE})
    return fields | {"shape": list(p.shape), "of": plain(p.of), "about": plain(p.about, 400)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _numbers(values: Iterable[float]) -> list[Any]:
    return list(map(number, values))


# -- how columns are packed --
def packed(values: Sequence[Any], clean: Callable[[Any], Any] = lambda v: v) -> Any:
    """Shorten a column; None when it says nothing. `clean` is applied once to each distinct value.

    Example:
        >>> (
        ...     packed(["a", "a", "b", "a", "a", "b", "a", "a", "a"]),
        ...     packed([None, None]),
        ...     packed([1, None]),
        ... )
        ({'u': ['a', 'b'], 'i': [0, 0, 1, 0, 0, 1, 0, 0, 0]}, None, [1, None])
    """
    codes: dict[Any, int] = {}
    indices = [codes.setdefault(v, len(codes)) for v in values]
    cleaned = [None if v is None else clean(v) for v in codes]
    if all(v is None for v in cleaned):
        return None
    if len(codes) * 2 < len(indices) and len(indices) > 8:
        return {"u": cleaned, "i": indices}
    return [cleaned[k] for k in indices]


def sparse(values: Iterable[Any]) -> dict[int, Any] | None:
    """Pack a column of which few lines have a value."""
    return {i: v for i, v in enumerate(values) if v is not None} or None


class ColumnField(NamedTuple):
    """One column of a record.

    Attributes:
        type: Of one cell, in TypeScript.
        cell: The value of a row.
    """

    key: str
    type: str
    cell: Callable[[Any], Any]

    def pack(self, values: Sequence[Any]) -> Any:
        """Shorten the column; None when it says nothing."""
        if self.type == "string":
            longest = LONG_TEXT if self.key in ("error", "remark") else 400
            return packed(values, lambda text: plain(text, longest))
        if self.type == "number":
            return packed(values, number)
        return packed(values) if self.type == "boolean" else sparse(values)


def _same(x: Any) -> Any:
    return x


# By the type of a field: the type in TypeScript, and how a value is written.
_WRITTEN: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    str: ("string", _same),
    bool: ("boolean", _same),
    int: ("number", _same),
    float: ("number", _same),
    Statistics: ("Stats", statistics_payload),
    bytes: ("string", _base64),
    tuple[int, ...]: ("number[]", list),
    tuple[float, ...]: ("number[]", _numbers),
    tuple[float, float]: ("number[]", _numbers),
    Mapping[int, float]: ("[number, number][]", lambda items: list(map(_numbers, items.items()))),
    tuple[str, ...]: ("string[]", lambda texts: list(map(plain, texts))),
    tuple[Picture, ...]: ("Picture[]", lambda drawn: list(map(picture_payload, drawn))),
}


def _fields(row_class: type, *left_out: str) -> tuple[ColumnField, ...]:
    """Return a column for each field of a class of rows but these."""
    columns = []
    for name, hint in get_type_hints(row_class).items():
        if name not in left_out:
            kinds = [kind for kind in get_args(hint) if kind in _WRITTEN]
            type_, write = _WRITTEN[hint if hint in _WRITTEN else kinds[0]]
            columns.append(ColumnField(name, type_, _cell(name, write)))
    return tuple(columns)


def _cell(name: str, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that writes a field of a row, or None where the field is empty; an empty
    path is that of the model itself.
    """

    def cell(row: Any) -> Any:
        value = getattr(row, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return write(value) if value or is_number or name == "path" else None

    return cell


MODULES = (
    *_fields(ModuleRow, "training", "built"),
    ColumnField("late", "boolean", lambda row: not row.built or None),
)
CALLS = _fields(CallRow, "parent", "depth")
DIFFERENCES = _fields(DifferenceRow)
PICTURE = _fields(Picture)
PAIRS = _fields(PairRow)
PROFILE = _fields(ProfileRow, "name", "depth")
VARIABLES = (
    ColumnField("type", "string", attrgetter("text")),
    *_fields(VariableRow, "path", "shape", "dtype", "keys"),
)


def columns_of(
    fields: Sequence[ColumnField], rows: Sequence[Any], lines: Sequence[int] | None = None
) -> dict[str, Any]:
    """Pack the columns of rows.

    Args:
        fields: The columns.
        rows: The rows.
        lines: For each line the index of its row, or -1; by default each row is a line.
    """
    out = {}
    for field in fields:
        cells = [field.cell(row) for row in rows]
        if lines is not None:
            cells.append(None)
            cells = [cells[r] for r in lines]
        out[field.key] = field.pack(cells)
    return filled(out)


# -- what a reader sees --
# Of the time; less than that is not worth a word.
COMPILING_SHARE = 0.1


class ShownColumn(NamedTuple):
    """One column next to the names.

    Attributes:
        text: The words of a row; None for a drawing of the page.
        style: Classes of its cells on a page; `right` aligns the text too.
        drop: Columns with low numbers leave first where there is no room; 0 stays.
    """

    name: str
    title: str
    text: Callable[[Any], str] | None
    style: str = ""
    drop: int = 0


def spread(stats: Statistics | None, dtype: str | None = "") -> str:
    """Write mean and deviation; of complex numbers those of their sizes, which is said.

    Example:
        >>> spread(Statistics(4, -0.0031, 0.19, -1, 1))
        '-0.0031 ± 0.19'
        >>> spread(Statistics(4, 0.31, 0.19, 0, 1), "complex64")
        '|x| 0.31 ± 0.19'
    """
    if stats is None or not stats.size or stats.nonfinite == stats.size:
        return ""
    sign = "|x| " if (dtype or "").startswith("complex") else ""
    return f"{sign}{format_number(stats.mean, 2)} ± {format_number(stats.std, 2)}"


def flow(row: CallRow) -> str:
    """Write input and output of a call; `same` where nothing changed."""
    if row.error:
        return plain(f"{row.inputs} → raised")
    return plain(f"{row.inputs} → {'same' if row.inputs == row.outputs else row.outputs}")


def _module_flow(row: ModuleRow) -> str:
    inputs, returned = row.input_shapes, row.output_shapes
    if not (inputs or returned):
        return ""
    return f"{inputs or '?'} → {'same' if inputs == returned else returned or '?'}"


def _own_types(row: ModuleRow) -> str:
    return " ".join(plain(variable.partition(" ")[2]) for variable in row.variables)


def _time(row: CallRow) -> str:
    """Write the time of a call, that of compiling apart."""
    if row.seconds is None:
        return ""
    compiling = row.compiling or 0.0
    if compiling < COMPILING_SHARE * row.seconds:
        return format_seconds(row.seconds)
    return f"{format_seconds(row.seconds - compiling)} + compiling {format_seconds(compiling)}"


def _value(row: Any) -> str:
    return spread(row.statistics, row.dtype) if row.value is None else plain(row.value)


def _change(row: Any) -> str:
    if row.change is None:
        return ""
    if row.change == math.inf and row.largest is not None and math.isfinite(row.largest):
        return f"from 0 by {format_number(row.largest, 3)}"  # no share of a norm of zero
    return format_number(row.change, 3)


def _largest(row: Any) -> str:
    if row.largest is None:
        return plain(f"{row.b}, expected {row.a}") if row.fault else ""
    return format_number(row.largest, 3) + (f" at {list(row.where)}" if row.where else "")


def _spent(name: str) -> Callable[[Any], str]:
    return lambda row: format_seconds(getattr(row, name)) if getattr(row, name) else ""


def _class(row: ModuleRow) -> str:
    return plain(f"{row.class_name} {row.summary}".strip())


def _parameters(row: ModuleRow) -> str:
    return format_count(row.parameters) if row.parameters else ""


def _bytes(row: Any) -> str:
    return "" if row.shape is None else format_bytes(row.bytes)


def _returned(row: CallRow) -> str:
    return spread(row.statistics, row.outputs)


def _speed(row: Any) -> str:
    return format_number(row.flops_per_second, 3) if row.flops else ""


def _histogram(row: Any) -> str:
    return spark(row.statistics.histogram) if row.statistics else ""


# By view.
SHOWN: dict[str, tuple[ShownColumn, ...]] = {
    "modules": (
        ShownColumn("class", "", _class, "class", 6),
        ShownColumn("parameters", "", _parameters, "right", 3),
        ShownColumn("share", "", None, "drawn", 1),
        ShownColumn("flow", "", _module_flow, "mono", 2),
        ShownColumn("histogram", "", None, "drawn", 1),
        ShownColumn("variables", "", _own_types, "", 1),
    ),
    "variables": (
        ShownColumn("type", "", lambda row: plain(row.text), "mono"),
        ShownColumn("bytes", "", _bytes, "right", 2),
        ShownColumn("histogram", "", _histogram, "drawn", 1),
        ShownColumn("value", "", _value, "number", 3),
    ),
    "calls": (
        ShownColumn("flow", "in → out", flow, "mono"),
        ShownColumn("time", "time", _time, "right time", 3),
        ShownColumn("own", "own", None, "number", 1),
        ShownColumn("axis", "", None, "onaxis", 4),
        ShownColumn("spread", "mean ± std", _returned, "number", 5),
        ShownColumn("histogram", "histogram", None, "drawn", 2),
    ),
    "difference": (
        ShownColumn("a", "a", lambda row: plain(row.a), "mono"),
        ShownColumn("b", "b", lambda row: plain(row.b), "mono", 1),
        ShownColumn("change", "change", _change, "right time"),
    ),
    "comparison": (
        ShownColumn("given", "input", attrgetter("given"), "", 2),
        ShownColumn("change", "off by", _change, "right time"),
        ShownColumn("largest", "largest", _largest, "mono", 1),
    ),
    "profile": (
        ShownColumn("share", "share", lambda row: format_percent(row.share), "right number"),
        ShownColumn("time", "time", None, "drawn"),
        *(
            ShownColumn(name, name, _spent(name), "right number", 2 if k < 2 else 1)
            for k, name in enumerate(PASSES)
        ),
        ShownColumn("speed", "FLOP/s", _speed, "right number", 2),
    ),
}


def written_columns(view: str) -> list[ShownColumn]:
    """Return the columns that a text has."""
    return [column for column in SHOWN[view] if column.text is not None]


def cells_of(view: str, row: object, **given: str) -> tuple[str, ...]:
    """Write the cells of a row, those in `given` as they stand there."""
    columns = written_columns(view)
    return tuple(
        given[c.name] if c.name in given else c.text(row)  # pyright: ignore[reportOptionalCall]
        for c in columns
    )
