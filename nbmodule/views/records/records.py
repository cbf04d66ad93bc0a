"""The records that views draw. A record does not depend on how it will be shown.

A record holds text, numbers and bytes only: no array, no module, no tracer, so that it can be
stored, compared and drawn later. Rows are named tuples, which are created four times faster than
dataclasses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from nbmodule.base.format import format_array
from nbmodule.base.statistics import Statistics
from nbmodule.calls.profile import ProfileRow
from nbmodule.views.records.outline import MOST_GROUPED, Outline, group_neighbors, outline_of_keys


class Picture(NamedTuple):
    """An array made small enough to draw.

    `kind` is 'heatmap' (one tile), 'channels' or 'heads' (many tiles), 'bars' or 'text'. For tiles
    `data` holds one byte per cell in the order (tile, row, column): 0 NaN, 1 +Inf, 2 -Inf, 3 to 255
    the values between the limits. For bars it holds little-endian float32. `scale` is 'signed',
    'positive', 'classes', 'range' (from the lowest to the highest), 'log' (3 is zero, then equal
    factors between the limits), 'logsigned' (the same on either side of 129), 'phase' (of complex
    values: 3 + 7 * hue + size, the hue from 0 to 35 for -180° to 180°, the size from 0 to 6 up to
    the limit) or 'none'.

    Attributes:
        shape: (tiles, rows, columns) of `data`, or (count,) for bars.
        classes: Names of the separate colors, for the scale 'classes'.
        labels: Names of bars, or tokens along both axes of heads.
        of: The array, as `float32[4, 64, 64]`.
        about: One sentence for readers who do not see the picture.
        notes: All that it does not show: blocks that were averaged, tiles left out, values clipped.
        extremes: Cells that show an element that stands out of its block, in place of the mean,
            with its value.
        window: First row and column of the array that is drawn, and how many of each: a cell may
            stand for a block of them.
        axes: Which axes of the array the rows, the columns and the tiles are; more than one of
            tiles, in rows of the last.
        lengths: The lengths of these axes.
        exact: The values of the cells, where they are few and each is one element.
        exact_type: How they are written, little-endian: 'f4', 'f8', 'i8', 'u8', or 'c8' and 'c16'
            as pairs.
        ends: The end of the scale of each tile, where each has its own.
    """

    kind: str
    shape: tuple[int, ...] = ()
    data: bytes = b""
    scale: str = "none"
    limits: tuple[float, float] = (0.0, 0.0)
    classes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    of: str = ""
    about: str = ""
    notes: tuple[str, ...] = ()
    extremes: Mapping[int, float] = MappingProxyType({})
    window: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    exact: bytes = b""
    exact_type: str = ""
    ends: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the cells and of their values."""
        return len(self.data) + len(self.exact)


class Finding(NamedTuple):
    """One fault in what a view shows, or a remark on it.

    `kind` is 'wrong' (it is), 'doubt' (it may be) or 'note' (it may be meant so).
    `views/records/findings.py` makes them.

    Attributes:
        text: A sentence of what and where, as `NaN first in blocks.3.mlp`.
        path: The place, as an attribute path below the root.
        weight: Ranks findings of one kind.
        row: Which row of the record shows it.
        part: Of a panel: the part whose row it is.
    """

    text: str
    path: str = ""
    kind: str = "doubt"
    weight: float = 0.0
    row: int | None = None
    part: str = ""


@dataclass(frozen=True, kw_only=True)
class ViewRecord:
    """The fields of every record.

    Attributes:
        title: The facts of the title line, the name first. Empty: computed from the rows.
        notes: The foot line: what was left out, what is stale, what failed, what it costs.
        findings: The faults, the worst first. None: worked out from the rows.
    """

    title: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] | None = None


class VariableRow(NamedTuple):
    """One variable, or one leaf of any PyTree.

    Attributes:
        kind: 'parameter', 'buffer', 'array', or the type name of a leaf that is no array.
        value: The text of a leaf that is no array, or why values cannot be shown: a random key, a
            shape, a tracer.
        error: Why values that existed are gone: a buffer that was deleted.
        keys: The steps from the root. Empty: `path` split at `.`
    """

    path: str
    kind: str = "parameter"
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    bytes: int = 0
    device: str = ""
    sharding: str | None = None
    frozen: bool = False
    shared_with: str | None = None
    statistics: Statistics | None = None
    value: str | None = None
    pictures: tuple[Picture, ...] = ()
    error: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The type, as `float32[64, 3]`."""
        return format_array(self.shape, self.dtype)

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps from the root."""
        return self.keys or tuple(self.path.split("."))

    @property
    def spellings(self) -> tuple[str, ...]:
        """The names by which a reader may refer to the row."""
        return self.path, "/".join(self.steps), ".".join(self.steps)

    @property
    def is_readable(self) -> bool:
        """Return True for an array whose values can be read."""
        return self.shape is not None and not self.error and self.value is None


@dataclass(frozen=True)
class VariableTree(ViewRecord):
    """The numbers of a model, of a Container, of any PyTree.

    Attributes:
        spelled: How a step is written in Python where that is not `.name` or `[0]`, as `{"a":
            "['a']"}`.
        color: A number for paths, by which rows are tinted.
    """

    name: str
    rows: Sequence[VariableRow]
    root: str = "v"
    noun: str = "variable"
    spelled: Mapping[str, str] = field(default_factory=dict)
    color: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def bytes(self) -> int:
        """Bytes of all arrays, each counted once."""
        shared = any(row.shared_with for row in self.rows)
        listed = {name for row in self.rows for name in row.spellings} if shared else ()
        return sum(row.bytes for row in self.rows if row.shared_with not in listed)

    @functools.cached_property
    def lines(self) -> Outline:
        """The lines with single-child levels joined, and neighbors of one structure grouped."""
        rows = self.rows
        outline = outline_of_keys([row.steps for row in rows])
        if len(rows) > MOST_GROUPED:
            return outline
        alike = [(row.kind, row.shape, row.dtype, row.error, row.frozen) for row in rows]
        signatures = [None if row < 0 else alike[row] for row in outline.row]
        return group_neighbors(outline, signatures, leaves=False, longest=1)


class ModuleRow(NamedTuple):
    """One module or list of modules below the root, in order of definition, each after the one that
    holds it.

    Attributes:
        kind: 'module', 'list' or 'group'.
        variables: Own variables as text, `weight float32[16, 3]`.
        arguments: All that it was made with, as `1, 4, kernel_size=3, stride=2`.
        statistics: Of what it returned when it was last tracked.
    """

    path: str
    class_name: str
    summary: str = ""
    parameters: int = 0
    buffers: int = 0
    kind: str = "module"
    shared_with: str | None = None
    input_shapes: str | None = None
    output_shapes: str | None = None
    training: bool | None = None
    built: bool = True
    doc: str | None = None
    source: str | None = None
    variables: tuple[str, ...] = ()
    error: str | None = None
    arguments: str = ""
    statistics: Statistics | None = None


@dataclass(frozen=True)
class ModuleTree(ViewRecord):
    """The parts of a model. `rows` leaves out the root, which is the title.

    Attributes:
        mode: 'train', 'eval' or 'mixed train/eval'.
        root: The name that stands for the root in copied code.
        color: A number for paths, by which rows are tinted.
    """

    name: str
    rows: Sequence[ModuleRow]
    parameters: int = 0
    bytes: int = 0
    buffers: int = 0
    device: str = ""
    mode: str = ""
    variables: tuple[str, ...] = ()
    root: str = "model"
    color: Mapping[str, float] = field(default_factory=dict)

    @property
    def rarer_mode(self) -> bool | None:
        """The value of `training` that fewer rows have, False where as many have either; None where
        all have one.
        """
        modes = [row.training for row in self.rows if row.training is not None]
        return 2 * sum(modes) < len(modes) if self.mode.startswith("mixed") else None


class CallRow(NamedTuple):
    """One call of one module; rows are in the order in which the calls began.

    Attributes:
        parent: `order` of the call around this one.
        start: Seconds after the first call began.
        compiling: How many of the seconds went into compiling, as a first call does.
        own: The seconds less those of the calls within it, and without compiling.
    """

    path: str
    parent: int | None = None
    order: int = 0
    depth: int = 0
    class_name: str = ""
    inputs: str = ""
    outputs: str = ""
    seconds: float | None = None
    start: float | None = None
    statistics: Statistics | None = None
    error: str | None = None
    pictures: tuple[Picture, ...] = ()
    source: str | None = None
    compiling: float | None = None
    own: float | None = None

    @property
    def name(self) -> str:
        """The path; the class of the model itself."""
        return self.path or self.class_name or "(root)"


class StepSnapshot(NamedTuple):
    """The returns of the calls of a table at an earlier step, in numbers.

    Attributes:
        statistics: One for each row of the table; None where that call was not made, or was not
            measured.
        pictures: By row: small pictures of the returns, of the steps for which there is room.
    """

    step: int
    statistics: tuple[Statistics | None, ...]
    pictures: Mapping[int, Picture] = MappingProxyType({})


@dataclass(frozen=True)
class CallTable(ViewRecord):
    """The calls that ran, in their order, with their results.

    Attributes:
        snapshots: The same calls at the steps that were recorded, in their order; the last one is
            what the rows show.
        input_fault: Names the first element of the model's input that is not finite.
    """

    name: str
    rows: Sequence[CallRow]
    not_called: tuple[str, ...] = ()
    root: str = "calls"
    snapshots: tuple[StepSnapshot, ...] = ()
    input_fault: str = ""


@dataclass(frozen=True)
class ReturnTable(CallTable):
    """The returns of submodules as pictures; the same rows as the table of calls."""

    root: str = "submod_rets"


class DifferenceRow(NamedTuple):
    """One leaf of two trees.

    Attributes:
        path: The steps from the root, apart by `/`.
        status: 'same', 'changed', 'shape', 'dtype', 'missing' (in a only), 'unexpected' (in b
            only).
        change: Norm of b - a over the norm of a.
        largest: Largest |b - a|.
        where: Index of the largest difference.
    """

    path: str
    status: str = "same"
    a: str = ""
    b: str = ""
    change: float | None = None
    largest: float | None = None
    where: tuple[int, ...] | None = None


@dataclass(frozen=True)
class DifferenceTree(ViewRecord):
    """The differences of two trees.

    Attributes:
        root: Code that gives the difference, looked up by path; empty where nothing does.
    """

    a: str
    b: str
    rows: Sequence[DifferenceRow]
    root: str = ""


class PairRow(NamedTuple):
    """One call and the same call of a reference; rows are in the order in which the calls
    returned.

    Attributes:
        path: Empty for the model itself.
        order: Position in the order in which the calls began.
        fault: 'module' (it is at fault), 'inside', 'input', 'tap', or empty: it agrees.
        given: A remark about its input: `agrees to 1e-06`.
        change: Norm of b - a over the norm of a; None where they have no one shape.
        largest: Largest |b - a|; None where they have no one shape.
        values: The expected array and the found one.
        pictures: Expected, actual, difference.
        remark: Its part in what is wrong, in words.
    """

    path: str
    order: int = 0
    class_name: str = ""
    fault: str = ""
    inputs: str = ""
    given: str = ""
    a: str = ""
    b: str = ""
    change: float | None = None
    largest: float | None = None
    where: tuple[int, ...] | None = None
    values: tuple[float, float] | None = None
    pictures: tuple[Picture, ...] = ()
    source: str | None = None
    remark: str = ""

    @property
    def name(self) -> str:
        """The path; the class of the model itself."""
        return self.path or self.class_name or "(root)"


@dataclass(frozen=True)
class ComparisonTable(ViewRecord):
    """Two runs side by side.

    Attributes:
        first: The row that is at fault first.
    """

    a: str
    b: str
    rows: Sequence[PairRow]
    first: int | None = None
    root: str = "nb.compare(calls, reference)"


class SeriesRecord(NamedTuple):
    """One number over the steps.

    Attributes:
        unit: Series of one unit share a plot and its scale; empty: what the name says (`val_loss`,
            `loss`).
    """

    name: str
    steps: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    unit: str = ""


@dataclass(frozen=True)
class HistoryRecord(ViewRecord):
    """Numbers over steps: loss, accuracy, learning rate.

    Attributes:
        state: 'running', 'done', 'stopped at 1,240', 'failed: ...'.
    """

    name: str
    series: tuple[SeriesRecord, ...] = ()
    state: str = ""
    axis: str = "step"


@dataclass(frozen=True)
class ArrayCard(ViewRecord):
    """One array: picture, histogram, extremes, a corner of its values; or the picture that a user
    has given for a value of another kind, which has no shape.

    Attributes:
        corner: At most 6 x 6 values as text, from index 0 of every other axis.
    """

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    bytes: int = 0
    device: str = ""
    sharding: str | None = None
    statistics: Statistics | None = None
    picture: Picture | None = None
    corner: tuple[tuple[str, ...], ...] = ()
    error: str | None = None
    root: str = "x"


class Column(NamedTuple):
    """One column of a data table: a value for each line, None where a line has none.

    Attributes:
        kind: 'text', 'count', 'bytes' or 'number'.
        has_bar: True where each number has a bar of its share of the largest.
        leaves: Which of the columns goes first where there is no room for all, from 1; 0 stays.
            Those of 1 are not in a text.
    """

    title: str
    values: Sequence[str | float | None]
    kind: str = "text"
    has_bar: bool = False
    leaves: int = 0


@dataclass(frozen=True)
class DataTable(ViewRecord):
    """Lines with columns that a reader can sort by.

    Attributes:
        places: For each line what follows `root` in copied code, as `["layers.0"]`.
        wrong: Lines in red.
        label: The title of the first column.
    """

    name: str
    lines: Outline
    columns: tuple[Column, ...]
    places: Sequence[str] = ()
    wrong: frozenset[int] = frozenset()
    root: str = "x"
    label: str = ""
    empty: str = "nothing here"


@dataclass(frozen=True)
class ProfileTree(ViewRecord):
    """The time of a step by module: rows in the order of the tree, the dearest first.

    Attributes:
        best: FLOP/s that the device has been seen to do.
    """

    rows: Sequence[ProfileRow]
    best: float
    root: str = "profile"


@dataclass(frozen=True)
class Note(ViewRecord):
    """A display of one text: the form that a part takes which cannot be drawn."""

    name: str
    text: str
    is_error: bool = False


def mapped_pictures(record: Any, fn: Callable[[Picture], Picture | None]) -> Any:
    """Return a record with other pictures: `fn(picture)`, or none where that is None."""
    if isinstance(getattr(record, "picture", None), Picture):
        return replace(record, picture=fn(record.picture))
    rows = list(getattr(record, "rows", ()))
    for i, row in enumerate(rows):
        if old := getattr(row, "pictures", ()):
            rows[i] = row._replace(pictures=tuple(filter(None, map(fn, old))))
    return replace(record, rows=rows) if rows else record
