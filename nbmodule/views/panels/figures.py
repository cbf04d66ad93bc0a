"""Views as matplotlib figures, for papers: `nb.plot(x)`, `calls.plot()`, `curve.plot("loss.svg")`.

matplotlib is imported at the first figure, and never its `pyplot`, so that no backend is touched.
The colors are those of the page on a light background, and the same record gives the same bytes.
"""

from __future__ import annotations

import functools
import io
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.base.format import count_noun, cut_middle, format_seconds, plain
from nbmodule.base.statistics import Statistics
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.views.arrays.scales import FIRST, LAST
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.panels.inspection import Panel
from nbmodule.views.records.outline import numbered
from nbmodule.views.records.records import (
    ArrayCard,
    CallRow,
    CallTable,
    ComparisonTable,
    HistoryRecord,
    PairRow,
    Picture,
    ReturnTable,
    SeriesRecord,
    VariableTree,
)
from nbmodule.views.renderers.drawing import CLASSES, LINES, palette, tile_picture
from nbmodule.views.renderers.plain_text import best_of, number_badges, spread, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")
MOST_PANELS = 24
BLUE, ORANGE, QUIET, WRONG, MAGENTA = "#1158a8", "#c74e08", "#5f6670", "#b3261e", "#d614be"
FILL, EDGE = "#9db7d5", "#d8dce1"
STYLE: Any = {
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": EDGE,
    "ytick.color": EDGE,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "legend.frameon": False,
}


def plot(
    value: object, file: str | os.PathLike[str] | None = None, *, dpi: int = 150, **options: object
) -> Any:
    """Draw what `nb.show` shows as a matplotlib figure.

    Args:
        value: Variables, calls, an array, a comparison, a curve, any PyTree of arrays, or a
            picture.
        file: Where it is written too: `.svg`, `.png` or `.pdf`.
        dpi: Pixels per inch of a PNG file.
        options: For curves `log=True`: a logarithmic axis.

    Returns:
        A `matplotlib.figure.Figure`; a notebook shows it.

    Raises:
        ArgumentError: the file's ending names no format, or there is nothing to draw.
        ArgumentTypeError: for what has no picture.

    Example:
        >>> import numpy as np
        >>> figure = plot({"w": np.arange(6.0), "b": np.zeros(2)})
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['b', 'w']
    """
    if file is not None and Path(file).suffix.lower() not in FORMATS:
        raise ArgumentError(
            f"a figure must be saved as {', '.join(FORMATS)}, got {os.fspath(file)!r}."
        )
    record = value if isinstance(value, Picture) else record_for(value)
    record = record.calls if isinstance(record, Panel) else record
    if draw_record.dispatch(type(record)) is draw_record.dispatch(object):
        raise ArgumentTypeError(
            f"there is no figure of {type(value).__name__}; nb.show(x) shows it, and a graph has "
            "save()."
        )
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure: Any = Figure(layout="constrained", dpi=100)
    # With no backend chosen, a notebook would show the text of the figure.
    figure._repr_png_ = functools.partial(bytes_of, figure, "png")
    with mpl.rc_context(STYLE):
        draw_record(record, figure, **options)
    if file is not None:
        with whole_file(file) as target:
            target.write(bytes_of(figure, Path(file).suffix.lower()[1:], dpi))
    return figure


def bytes_of(figure: Figure, suffix: str, dpi: int = 150) -> bytes:
    """Write a figure; the same figure gives the same bytes."""
    import matplotlib as mpl

    out = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
    with (
        mpl.rc_context({"svg.hashsalt": "nbmodule", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # a letter that the font does not have
        figure.savefig(out, format=suffix, dpi=dpi, metadata=metadata)
    return out.getvalue()


@functools.singledispatch
def draw_record(record: object, figure: Figure) -> None:
    """Draw one kind of record into an empty figure."""
    raise NotImplementedError


# -- figures --
def _titled(figure: Figure, record: Any, left_out: int = 0, noun: str = "") -> None:
    facts = " · ".join(title_of(record))
    more = f" ({count_noun(left_out, noun)} more)" if left_out > 0 else ""
    figure.suptitle(cut_middle(facts, 120) + more, x=0.01, ha="left", fontsize=10, parse_math=False)


def _empty(record: Any, why: str) -> ArgumentError:
    facts = plain(" · ".join(title_of(record)))
    return ArgumentError(f"there is nothing to draw of {facts}: {why}.")


def _grid(figure: Figure, count: int, width: float, height: float, most: int = 4) -> list[Axes]:
    across = min(most, count)
    down = -(-count // across)
    figure.set_size_inches(across * width, down * height + 0.35)
    axes = figure.subplots(down, across, squeeze=False).reshape(-1)
    for unused in axes[count:]:
        unused.remove()
    return list(axes[:count])


def _panels(
    figure: Figure,
    record: object,
    items: Sequence[tuple[Any, str]],
    draw: Callable[[Any, Any, str], None],
    size: tuple[float, float],
    why: str,
    most: int = 3,
) -> None:
    """Draw each item with its name in axes of its own."""
    if not items:
        raise _empty(record, why)
    grid = _grid(figure, min(len(items), MOST_PANELS), *size, most)
    for axes, (item, name) in zip(grid, items, strict=False):
        draw(axes, item, name)
    _titled(figure, record, len(items) - MOST_PANELS, "panel")


@draw_record.register(Picture)
def _picture(picture: Picture, figure: Figure) -> None:
    figure.set_size_inches(4.5, 2.6 if picture.kind == "bars" else 4)
    draw_picture(figure.subplots(), picture, picture.of)


@draw_record.register(ArrayCard)
def _array(card: ArrayCard, figure: Figure) -> None:
    if card.error or card.statistics is None or card.picture is None:
        raise _empty(card, card.error or "its values cannot be read")
    picture, histogram = _grid(figure, 2, 4, 3.4)
    draw_picture(picture, card.picture, "")
    draw_histogram(histogram, card.statistics, "")
    _titled(figure, card)


@draw_record.register(VariableTree)
def _variables(tree: VariableTree, figure: Figure) -> None:
    measured = [(r.statistics, r.path) for r in tree.rows if r.statistics and r.statistics.size]
    why = "no array of it was measured"
    _panels(figure, tree, measured, draw_histogram, (2.6, 1.6), why, 4)


@draw_record.register(CallTable)
def _calls(table: CallTable, figure: Figure) -> None:
    rows = [row for row in table.rows if row.statistics or row.seconds is not None]
    if not rows:
        raise _empty(table, "no call has values or a time")
    shown = rows[:80]
    figure.set_size_inches(9, 0.8 + 0.2 * len(shown))
    is_timed = any(row.seconds is not None for row in shown)
    is_measured = any(row.statistics for row in shown)
    axes = figure.subplots(1, is_timed + is_measured, sharey=True, squeeze=False)[0]
    names = _call_names(shown)
    if is_timed:
        times = [row.seconds or 0 for row in shown]
        axes[0].barh(range(len(times)), times, color=FILL)
        axes[0].set_xlabel("time")
        _name_down(axes[0], names)
        axes[0].xaxis.set_major_formatter(lambda x, _: format_seconds(x) if x else "0")
    if is_measured:
        _draw_spreads(axes[-1], shown)
        _name_down(axes[-1], names)
    _titled(figure, table, len(rows) - len(shown), "call")


@draw_record.register(ReturnTable)
def _returns(table: ReturnTable, figure: Figure) -> None:
    rows = zip(_call_names(table.rows), table.rows, strict=True)
    named = [(p, name.strip()) for name, row in rows for p in row.pictures if p.kind != "text"]
    _panels(figure, table, named, draw_picture, (3, 2.8), "no return of it was drawn")


@draw_record.register(ComparisonTable)
def _comparison(table: ComparisonTable, figure: Figure) -> None:
    row = next((row for row in table.rows if len(row.pictures) == 3), PairRow(""))
    names = [f"{row.name}: {name}" for name in (table.a, table.b, "difference")]
    named = list(zip(row.pictures, names, strict=False))
    _panels(figure, table, named, draw_picture, (3, 2.8), "no return that differs was drawn")


@draw_record.register(HistoryRecord)
def _history(history: HistoryRecord, figure: Figure, *, log: bool = False) -> None:
    groups: dict[str, list[SeriesRecord]] = {}
    for series in history.series:
        if series.values:
            name = series.name.removeprefix("train_").removeprefix("val_")
            groups.setdefault(name, []).append(series)

    def draw(axes: Axes, members: list[SeriesRecord], name: str) -> None:
        draw_curves(axes, members)
        axes.set_yscale("log" if log else "linear")
        axes.set_xlabel(plain(history.axis), parse_math=False)
        bests = [(one.name, best) for one in members if math.isfinite(best := best_of(one))]
        title = ", ".join([plain(name), *(f"best {plain(one)} {x:.4g}" for one, x in bests)])
        axes.set_title(title, parse_math=False)

    items = [(members, name) for name, members in groups.items()]
    _panels(figure, history, items, draw, (4.2, 2.8), "nothing was logged")


# -- drawings inside figures --
def draw_picture(axes: Axes, picture: Picture, title: str) -> None:
    """Draw tiles with their scale, bars, or the text in place of a picture."""
    axes.set_title(plain(title), parse_math=False)
    if picture.kind == "text":
        text = plain(picture.about, 200)
        axes.text(0.5, 0.5, text, ha="center", va="center", wrap=True, parse_math=False)
        axes.set_axis_off()
        return
    if picture.kind == "bars":
        _draw_bars(axes, picture)
    else:
        _draw_tiles(axes, picture)
    axes.set_xlabel(plain(", ".join(picture.notes)), color=QUIET, parse_math=False)


def _draw_bars(axes: Axes, picture: Picture) -> None:
    values = np.frombuffer(picture.data, "<f4").astype(float)
    finite = np.isfinite(values)
    colors = np.where((values >= 0) & (picture.limits[0] < 0), ORANGE, BLUE)
    axes.bar(np.flatnonzero(finite), values[finite], color=colors[finite], width=0.85)
    for at in np.flatnonzero(~finite).tolist():
        axes.axvline(at, color=MAGENTA, linewidth=1)
    axes.axhline(0, color=QUIET, linewidth=0.6)
    if len(picture.labels) == values.size:
        _name_ticks(axes.set_xticks, picture.labels, 24, rotation=60, ha="right")


def _draw_tiles(axes: Axes, picture: Picture) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = np.array(palette(picture)) / 255
    codes, is_cell = tile_picture(picture)
    pixels = np.ones((*codes.shape, 3))
    pixels[is_cell] = colors[codes[is_cell]]
    aspect = "auto" if picture.kind == "heatmap" else "equal"
    axes.imshow(pixels, interpolation="nearest", aspect=aspect)
    axes.set(xticks=[], yticks=[])
    if picture.shape[0] > 1:
        axes.spines[:].set_visible(False)
    elif len(picture.labels) == picture.shape[2]:
        _name_ticks(axes.set_xticks, picture.labels, 16, rotation=90)
    if picture.shape[0] == 1 and len(picture.labels) == picture.shape[1]:
        _name_ticks(axes.set_yticks, picture.labels, 16)
    if picture.scale == "classes":
        shades = (CLASSES[k % len(CLASSES)] for k in range(len(picture.classes)))
        patches = [axes.scatter([], [], marker="s", color=color) for color in shades]
        axes.legend(patches, picture.classes, loc="center left", bbox_to_anchor=(1, 0.5))
    elif picture.limits != (0.0, 0.0):
        mapped = ScalarMappable(
            Normalize(*picture.limits), ListedColormap(colors[FIRST : LAST + 1])
        )
        colorbar: Any = axes.figure.colorbar
        colorbar(mapped, ax=axes, shrink=0.75, pad=0.02).outline.set_visible(False)


def draw_histogram(axes: Axes, stats: Statistics, title: str) -> None:
    """Draw the counts of an array's values, with mean and deviation, and what is not finite."""
    wrong = ", ".join(number_badges(stats, zeros=False))
    axes.set_title(plain(title, 40), parse_math=False)
    if stats.histogram:
        edges = np.linspace(stats.min, stats.max, len(stats.histogram) + 1)
        if stats.max > stats.min:
            axes.stairs(stats.histogram, edges, fill=True, color=FILL)
        else:
            axes.bar([stats.min], [sum(stats.histogram)], width=0.1, color=FILL)
        axes.axvline(stats.mean, color=BLUE, linewidth=0.8)
    words = ", ".join(filter(None, [spread(stats), wrong]))
    axes.set_xlabel(words, color=WRONG if wrong else QUIET)
    axes.set_yticks([])
    axes.spines.left.set_visible(False)


def _call_names(rows: Sequence[CallRow]) -> list[str]:
    """Name calls, indented by depth; a repeated call has its number."""
    names = ["  " * row.depth + plain(row.name, 36) for row in rows]
    return numbered(names, [row.path for row in rows])


def _draw_spreads(axes: Axes, rows: Sequence[CallRow]) -> None:
    for y, row in enumerate(rows):
        s = row.statistics
        if s is None or not s.histogram:
            continue
        wrong = ", ".join(number_badges(s, zeros=False))
        axes.hlines(y, s.min, s.max, color=EDGE, linewidth=2)
        axes.hlines(y, s.mean - s.std, s.mean + s.std, color=FILL, linewidth=4)
        axes.plot([s.mean], [y], "o", color=WRONG if wrong else BLUE, markersize=3)
        axes.text(s.max, y, f"  {wrong}", va="center", color=WRONG)
    axes.set_xlabel("return: mean ± deviation, from lowest to highest")


def draw_curves(axes: Axes, members: Sequence[SeriesRecord]) -> None:
    """Draw series of one unit; validation is dashed, values that are not finite are crosses."""
    for series, color in zip(members, LINES * len(members), strict=False):
        steps, values = np.array(series.steps), np.array(series.values)
        finite = np.isfinite(values)
        style = "--" if series.name.startswith("val") else "-"
        shown = np.where(finite, values, np.nan)
        axes.plot(steps, shown, style, linewidth=1.2, color=color, label=plain(series.name))
        if not finite.all():
            top: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(steps[~finite], np.ones((~finite).sum()), "x", color=MAGENTA, **top)
    if len(members) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)


def _name_ticks(set_ticks: Any, labels: Sequence[str], most: int, **style: Any) -> None:
    names = [plain(label, most) for label in labels]
    set_ticks(range(len(names)), labels=names, parse_math=False, **style)


def _name_down(axes: Axes, names: Sequence[str]) -> None:
    _name_ticks(axes.set_yticks, names, 60, family="monospace", ha="right")
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines.left.set_visible(False)
