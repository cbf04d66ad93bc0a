"""The records that views draw. A record does not depend on how it will be shown.

A record holds text, numbers and bytes only: no array, no module, no tracer, so that it can be
stored, compared and drawn later. Rows are named tuples, which are created four times faster than
dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from nbmodule.base.sockets import socket
from nbmodule.views.records.outline import Outline


class ShownStatistics(NamedTuple):
    """One array in numbers; `mean` to `high` are over the finite elements, NaN
    where there are none.
    """

    size: int
    mean: float
    std: float
    low: float
    high: float
    nan: int = 0
    inf: int = 0
    zero: int = 0
    bins: tuple[int, ...] = ()
    """Counts of equal intervals from `low` to `high`; with `nan` and `inf` they add up to `size`.
    """
    low_at: tuple[int, ...] | None = None
    high_at: tuple[int, ...] | None = None
    sampled: int = 0
    """Of how many elements `mean`, `low`, `high`, `zero` and `bins` are, where not of all."""


class Picture(NamedTuple):
    """An array made small enough to draw.

    `kind` is 'heatmap' (one tile), 'channels' or 'heads' (many tiles), 'bars' or 'text'. For tiles
    `data` holds one byte per cell in the order (tile, row, column): 0 NaN, 1 +Inf, 2 -Inf, 3 to 255
    the values between the limits. For bars it holds little-endian float32. `scale` is 'signed',
    'positive', 'classes', 'range' (from the lowest to the highest), 'log' (3 is zero, then equal
    factors between the limits), 'logsigned' (the same on either side of 129), 'phase' (of complex
    values: 3 + 7 * hue + size, the hue from 0 to 35 for -180° to 180°, the size from 0 to 6 up to
    the limit) or 'none'.
    """

    kind: str
    shape: tuple[int, ...] = ()
    """(tiles, rows, columns) of `data`, or (count,) for bars."""
    data: bytes = b""
    scale: str = "none"
    limits: tuple[float, float] = (0.0, 0.0)
    classes: tuple[str, ...] = ()
    """Names of the separate colors, for the scale 'classes'."""
    labels: tuple[str, ...] = ()
    """Names of bars, or tokens along both axes of heads."""
    of: str = ""
    """The array, as `float32[4, 64, 64]`."""
    about: str = ""
    """One sentence for readers who do not see the picture."""
    notes: tuple[str, ...] = ()
    """All that it does not show: blocks that were averaged, tiles left out, values clipped."""
    extremes: Mapping[int, float] = MappingProxyType({})
    """Cells that show an element that stands out of its block, in place of the mean, with its
    value.
    """
    window: tuple[int, int, int, int] = (0, 0, 0, 0)
    """First row and column of the array that is drawn, and how many of each: a cell may stand for a
    block of them.
    """
    axes: tuple[int, ...] = ()
    """Which axes of the array the rows, the columns and the tiles are; more than one of tiles,
    which lie in rows of the last.
    """
    lengths: tuple[int, ...] = ()
    """The lengths of these axes."""
    exact: bytes = b""
    """The values of the cells, where they are few and each is one element."""
    exact_type: str = "f4"
    """How they are written, little-endian: 'f4', 'f8', 'i8', 'u8', or 'c8' and 'c16' as pairs."""
    ends: tuple[float, ...] = ()
    """The end of the scale of each tile, where each has its own."""

    @property
    def size(self) -> int:
        """Bytes of the cells and of their values."""
        return len(self.data) + len(self.exact)

    def plot(self, file: object = None) -> Any:
        """Draw a matplotlib figure, and write it to a file if one is named; see `nb.plot`."""
        return socket("plot")(self, file)


class Finding(NamedTuple):
    """One thing that is wrong with what a view shows, or worth a word.

    `kind` is 'wrong' (it is), 'doubt' (it may be) or 'note' (it may be meant so).
    `views/records/findings.py` makes them.
    """

    text: str
    """A sentence of what and where, as `NaN first in blocks.3.mlp`."""
    path: str = ""
    """The place, as an attribute path below the root."""
    kind: str = "doubt"
    weight: float = 0.0
    """Ranks findings of one kind."""
    row: int | None = None
    """Which row of the record shows it."""
    part: str = ""
    """Of a panel: the part whose row it is."""


@dataclass(frozen=True, kw_only=True)
class ViewRecord:
    """The fields of every record."""

    title: tuple[str, ...] = ()
    """The facts of the title line, the name first. Empty: worked out from the rows."""
    notes: tuple[str, ...] = ()
    """The foot line: what was left out, what is stale, what failed, what it costs."""
    findings: tuple[Finding, ...] | None = None
    """The faults, the worst first. None: worked out from the rows."""

    def plot(self, file: object = None, **options: object) -> Any:
        """Draw a matplotlib figure, and write it to a file if one is named; see `nb.plot`."""
        return socket("plot")(self, file, **options)


class ModuleRow(NamedTuple):
    """One module (or list of modules, or own variable) below the root, in order of definition,
    depth 0 first.
    """

    path: str
    name: str
    class_name: str
    summary: str = ""
    parameters: int = 0
    bytes: int = 0
    buffers: int = 0
    depth: int = 0
    kind: str = "module"
    """'module', 'list', 'parameter' or 'buffer' (own variables of a module that also has
    submodules), or 'group'.
    """
    shared_with: str | None = None
    input_shapes: str | None = None
    output_shapes: str | None = None
    training: bool | None = None
    built: bool = True
    doc: str | None = None
    source: str | None = None
    variables: tuple[str, ...] = ()
    """Own variables as text, `weight float32[16, 3]`."""
    error: str | None = None
    arguments: str = ""
    """All that it was made with, as `1, 4, kernel_size=3, stride=2`."""
    statistics: ShownStatistics | None = None
    """Of what it returned when it was last tracked."""


@dataclass(frozen=True)
class ModuleTree(ViewRecord):
    """The parts of a model. `rows` leaves out the root, which is the title."""

    name: str
    rows: Sequence[ModuleRow]
    parameters: int = 0
    bytes: int = 0
    buffers: int = 0
    device: str = ""
    mode: str = ""
    """'train', 'eval' or 'mixed train/eval'."""
    variables: tuple[str, ...] = ()
    root: str = "model"
    """The name that stands for the root in copied code."""
    color: Mapping[str, float] = field(default_factory=dict)
    """A number for paths, by which rows are tinted."""


class CallRow(NamedTuple):
    """One call of one module; rows are in the order in which the calls began."""

    path: str
    index: int = 0  # pyright: ignore[reportIncompatibleMethodOverride]
    """Counts repeats within one parent call, from 0."""
    parent: int | None = None
    """`order` of the call around this one."""
    order: int = 0
    depth: int = 0
    class_name: str = ""
    inputs: str = ""
    outputs: str = ""
    seconds: float | None = None
    start: float | None = None
    """Seconds after the first call began."""
    statistics: ShownStatistics | None = None
    error: str | None = None
    pictures: tuple[Picture, ...] = ()
    source: str | None = None
    compiling: float | None = None
    """How many of the seconds went into compiling, as a first call does."""
    own: float | None = None
    """The seconds less those of the calls within it, and without compiling."""


class StepSnapshot(NamedTuple):
    """The returns of the calls of a table at an earlier step, in numbers."""

    step: int
    statistics: tuple[ShownStatistics | None, ...]
    """One for each row of the table; None where that call was not made, or was not measured."""
    pictures: Mapping[int, Picture] = MappingProxyType({})
    """By row: small pictures of what came out, of the steps for which there is room."""


@dataclass(frozen=True)
class CallTable(ViewRecord):
    """The calls that ran, in their order, with their results."""

    name: str
    rows: Sequence[CallRow]
    not_called: tuple[str, ...] = ()
    timing: str = "measured"
    """Where the times come from: 'measured', 'each module measured alone, compiled', or that there
    are none.
    """
    root: str = "calls"
    snapshots: tuple[StepSnapshot, ...] = ()
    """The same calls at the steps that were recorded, in their order; the last one is what the rows
    show.
    """
    input_fault: str = ""
    """Names the first element of the model's input that is not finite."""


@dataclass(frozen=True)
class ReturnTable(ViewRecord):
    """The returns of submodules as pictures; the same rows as the table of calls."""

    name: str
    rows: Sequence[CallRow]
    root: str = "submod_rets"


class DifferenceRow(NamedTuple):
    """One leaf of two trees."""

    path: str
    chain: str = ""
    status: str = "same"
    """'same', 'changed', 'shape', 'dtype', 'missing' (in a only), 'unexpected' (in b only)."""
    a: str = ""
    b: str = ""
    change: float | None = None
    """Norm of b - a over the norm of a."""
    largest: float | None = None
    """Largest |b - a|."""
    where: tuple[int, ...] | None = None
    """Index of the largest difference."""
    pictures: tuple[Picture, ...] = ()
    error: str | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class DifferenceTree(ViewRecord):
    """How two trees differ."""

    a: str
    b: str
    rows: Sequence[DifferenceRow]
    root: str = ""
    """Code that gives the difference, looked up by path; empty where nothing does."""


class PairRow(NamedTuple):
    """One call beside the same call of a reference; rows are in the order in which the calls
    returned.
    """

    path: str
    order: int = 0
    """Position in the order in which the calls began."""
    index: int = 0  # pyright: ignore[reportIncompatibleMethodOverride]
    """Counts repeats within one parent call, from 0."""
    class_name: str = ""
    status: str = "same"
    """'same', 'changed' or 'shape'."""
    fault: str = ""
    """'module' (it is at fault), 'inside', 'input', 'tap', or empty: it agrees."""
    inputs: str = ""
    given: str = ""
    """A remark about its input: `agrees to 1e-06`."""
    a: str = ""
    b: str = ""
    change: float | None = None
    """Norm of b - a over the norm of a; None where they have no one shape."""
    largest: float | None = None
    where: tuple[int, ...] | None = None
    values: tuple[float, float] | None = None
    """The expected array and the found one."""
    pictures: tuple[Picture, ...] = ()
    """Expected, actual, difference."""
    source: str | None = None
    remark: str = ""
    """Its part in what is wrong, in words."""
    place: str = ""
    """The path by which it is looked up: empty for the model itself."""


@dataclass(frozen=True)
class ComparisonTable(ViewRecord):
    """Two runs side by side."""

    a: str
    b: str
    rows: Sequence[PairRow]
    first: int | None = None
    """The row that is at fault first."""
    root: str = "nb.compare(calls, reference)"


class SeriesRecord(NamedTuple):
    """One number over the steps."""

    name: str
    steps: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    unit: str = ""
    """Series of one unit share a plot and its scale; empty: what the name says (`val_loss`,
    `loss`).
    """


@dataclass(frozen=True)
class HistoryRecord(ViewRecord):
    """Numbers over steps: loss, accuracy, learning rate."""

    name: str
    series: tuple[SeriesRecord, ...] = ()
    state: str = ""
    """'running', 'done', 'stopped at 1,240', 'failed: ...'."""
    axis: str = "step"


@dataclass(frozen=True)
class ArrayCard(ViewRecord):
    """One array: picture, histogram, extremes, a corner of its values."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    bytes: int = 0
    device: str = ""
    sharding: str | None = None
    statistics: ShownStatistics | None = None
    picture: Picture | None = None
    corner: tuple[tuple[str, ...], ...] = ()
    """At most 6 x 6 values as text, from index 0 of every other axis."""
    error: str | None = None
    root: str = "x"


class Column(NamedTuple):
    """One column of a data table: a value for each line, None where a line has none."""

    title: str
    values: Sequence[str | float | None]
    kind: str = "text"
    """'text', 'count', 'bytes' or 'number'."""
    has_bar: bool = False
    """True where each number has a bar of its share of the largest."""
    leaves: int = 0
    """Which of the columns goes first where there is no room for all, from 1; 0 stays."""


@dataclass(frozen=True)
class DataTable(ViewRecord):
    """Lines with columns that a reader can sort by."""

    name: str
    lines: Outline
    columns: tuple[Column, ...]
    places: Sequence[str] = ()
    """For each line what follows `root` in copied code, as `["layers.0"]`."""
    text: tuple[str, ...] = ()
    """The whole as text, a line each."""
    wrong: frozenset[int] = frozenset()
    """Lines in red."""
    root: str = "x"
    label: str = ""
    """The title of the first column."""
    empty: str = "nothing here"


@dataclass(frozen=True)
class UserPicture(ViewRecord):
    """A value for whose kind a user has given a picture."""

    name: str
    picture: Picture
    root: str = "x"


@dataclass(frozen=True)
class Note(ViewRecord):
    """A display of one text: the form that a part takes which cannot be drawn."""

    name: str
    text: str
    is_error: bool = False
