"""The drawings inside figures: each puts one thing on given axes, in the colors of the page on a
light ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.base.format import format_number, format_seconds, ordinal, plain
from nbmodule.views.arrays.scales import FIRST, LAST
from nbmodule.views.records.records import (
    CallRow,
    DifferenceRow,
    ModuleRow,
    PairRow,
    Picture,
    SeriesRecord,
    ShownStatistics,
)
from nbmodule.views.renderers.drawing import CLASSES, LINES, palette
from nbmodule.views.renderers.plain_text import number_badges, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, QUIET, WRONG, MAGENTA = "#1158a8", "#c74e08", "#5f6670", "#b3261e", "#d614be"
FILL = "#9db7d5"


def draw_picture(figure: Figure, axes: Axes, picture: Picture, title: str = "") -> None:
    """Draw tiles with their scale, bars, or the text that stands for them."""
    axes.set_title(plain(title), loc="left", fontsize=8, parse_math=False)
    if picture.kind == "text":
        axes.text(
            0.5,
            0.5,
            plain(picture.about, 200),
            ha="center",
            va="center",
            wrap=True,
            fontsize=8,
            parse_math=False,
        )
        axes.set_axis_off()
    elif picture.kind == "bars":
        draw_bars(axes, picture)
    else:
        _tiles(figure, axes, picture)
    notes = ", ".join(picture.notes)
    if notes and picture.kind != "text":
        axes.set_xlabel(plain(notes), fontsize=7, color=QUIET, parse_math=False)


def draw_bars(axes: Any, picture: Picture) -> None:
    """Draw a vector, its names below where there are some."""
    values = np.frombuffer(picture.data, "<f4").astype(float)
    finite = np.isfinite(values)
    colors = np.where(values >= 0, ORANGE if picture.limits[0] < 0 else BLUE, BLUE)
    axes.bar(np.flatnonzero(finite), values[finite], color=colors[finite], width=0.85)
    for at in np.flatnonzero(~finite):
        axes.axvline(at, color=MAGENTA, linewidth=1)
    axes.axhline(0, color=QUIET, linewidth=0.6)
    axes.tick_params(labelsize=7)
    if picture.labels and len(picture.labels) == values.size:
        labels = [plain(label, 24) for label in picture.labels]
        axes.set_xticks(
            range(values.size), labels=labels, rotation=60, ha="right", fontsize=7, parse_math=False
        )
    _quiet(axes)


def _tiles(figure: Figure, axes: Axes, picture: Picture) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = np.array(palette(picture)) / 255
    codes, marks = laid_out(picture)
    pixels = np.ones((*codes.shape, 3))
    pixels[marks] = colors[codes[marks]]
    axes.imshow(
        pixels, interpolation="nearest", aspect="equal" if picture.kind != "heatmap" else "auto"
    )
    axes.set_xticks([])
    axes.set_yticks([])
    if picture.labels and picture.shape[0] == 1:
        _name_sides(axes, picture)
    for side in axes.spines.values():
        side.set_color("#d8dce1")
        side.set_visible(picture.shape[0] == 1)
    if picture.scale == "classes":
        handles = [
            axes.scatter([], [], marker="s", color=CLASSES[k % len(CLASSES)])
            for k in range(len(picture.classes))
        ]
        axes.legend(
            handles,
            picture.classes,
            fontsize=6,
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1, 0.5),
        )
    elif picture.limits != (0.0, 0.0):
        mapped = ScalarMappable(
            Normalize(*picture.limits), ListedColormap(colors[FIRST : LAST + 1])
        )
        bar = figure.colorbar(mapped, ax=axes, shrink=0.75, pad=0.02)
        bar.ax.tick_params(labelsize=6)
        bar.outline.set_visible(False)


def _name_sides(axes: Axes, picture: Picture) -> None:
    labels = [plain(label, 16) for label in picture.labels]
    if len(labels) == picture.shape[2]:
        axes.set_xticks(
            range(len(labels)), labels=labels, rotation=90, fontsize=6, parse_math=False
        )
    if len(labels) == picture.shape[1]:
        axes.set_yticks(range(len(labels)), labels=labels, fontsize=6, parse_math=False)


def laid_out(picture: Picture) -> tuple[np.ndarray, np.ndarray]:
    """Put tiles beside each other.

    Returns:
        The code of each cell, and where there is a cell: not in the gaps between tiles.

    Example:
        >>> codes, marks = laid_out(Picture("channels", (2, 1, 2), bytes([3, 4, 5, 6]), "positive"))
        >>> codes[marks].tolist(), marks.shape
        ([3, 4, 5, 6], (1, 5))
    """
    n, height, width = picture.shape
    tiles = np.frombuffer(picture.data, np.uint8).reshape(picture.shape)
    across = min(n, 8 if n > 16 else 4)
    down, gap = -(-n // across), 0 if n == 1 else max(1, round(max(height, width) / 16))
    codes = np.zeros((down * (height + gap) - gap, across * (width + gap) - gap), np.uint8)
    marks = np.zeros(codes.shape, bool)
    for k in range(n):
        y, x = (k // across) * (height + gap), (k % across) * (width + gap)
        codes[y : y + height, x : x + width] = tiles[k]
        marks[y : y + height, x : x + width] = True
    return codes, marks


def draw_histogram(axes: Axes, stats: ShownStatistics, title: str) -> None:
    """Draw the counts of an array's values, its mean and deviation in words; what is not finite
    stands in red.
    """
    wrong = ", ".join(number_badges(stats, zeros=False))
    axes.set_title(plain(title, 40), loc="left", fontsize=8, parse_math=False)
    if stats.bins:
        edges = np.linspace(stats.low, stats.high, len(stats.bins) + 1)
        if stats.high > stats.low:
            axes.stairs(stats.bins, edges, fill=True, color=FILL)
        else:
            axes.bar([stats.low], [sum(stats.bins)], width=0.1, color=FILL)
        axes.axvline(stats.mean, color=BLUE, linewidth=0.8)
    words = ", ".join(filter(None, [spread(stats), wrong]))
    axes.set_xlabel(words, fontsize=7, color=WRONG if wrong else QUIET)
    axes.set_yticks([])
    axes.tick_params(labelsize=6)
    _quiet(axes, left=False)


def draw_shares(axes: Axes, rows: Sequence[ModuleRow]) -> None:
    """Draw how many parameters each module has."""
    names = [plain(f"{row.path}  {row.class_name}", 50) for row in rows]
    axes.barh(range(len(rows)), [row.parameters for row in rows], color=FILL)
    for y, row in enumerate(rows):
        axes.text(row.parameters, y, f" {row.parameters:,}", va="center", fontsize=7, color=QUIET)
    _down(axes, names)
    axes.set_xlabel("parameters", fontsize=8)


def draw_calls(figure: Figure, rows: Sequence[CallRow], timing: str) -> None:
    """Draw mean, deviation and range of each return beside the time of each call."""
    timed, measured = (
        any(row.seconds is not None for row in rows),
        any(row.statistics for row in rows),
    )
    axes = figure.subplots(1, timed + measured, sharey=True, squeeze=False)[0]
    names = call_names(rows)
    if timed:
        left = axes[0]
        left.barh(range(len(rows)), [row.seconds or 0 for row in rows], color=FILL)
        left.xaxis.set_major_formatter(lambda x, _: format_seconds(x) if x else "0")
        left.set_xlabel(f"time, {plain(timing)}", fontsize=8)
    if measured:
        _draw_spreads(axes[-1], rows)
    for one in axes:
        _down(one, names)
        one.tick_params(axis="x", labelsize=7)
    for row, label in zip(rows, axes[0].get_yticklabels(), strict=True):
        label.set_color(WRONG if row.error else "black")


def call_names(rows: Sequence[CallRow]) -> list[str]:
    """The names of calls, indented by depth; a repeated call has its number."""
    counts: dict[str, int] = {}
    names = []
    for row in rows:
        n = counts[row.path] = counts.get(row.path, 0) + 1
        name = plain(row.path or row.class_name, 36)
        names.append("  " * row.depth + (name if n == 1 else f"{name} ({ordinal(n)})"))
    return names


def _draw_spreads(axes: Axes, rows: Sequence[CallRow]) -> None:
    for y, row in enumerate(rows):
        stats = row.statistics
        if stats is None or not stats.bins:
            continue
        color = WRONG if stats.nan + stats.inf else BLUE
        axes.plot(
            [stats.low, stats.high], [y, y], color="#d8dce1", linewidth=2, solid_capstyle="butt"
        )
        axes.plot(
            [stats.mean - stats.std, stats.mean + stats.std],
            [y, y],
            color=FILL,
            linewidth=4,
            solid_capstyle="butt",
        )
        axes.plot([stats.mean], [y], "o", color=color, markersize=3)
        if stats.nan + stats.inf:
            axes.text(
                stats.high,
                y,
                f"  {', '.join(number_badges(stats, zeros=False))}",
                va="center",
                fontsize=7,
                color=WRONG,
            )
    axes.set_xlabel("return: mean ± deviation, from lowest to highest", fontsize=8)


def draw_changes(axes: Axes, rows: Sequence[DifferenceRow | PairRow]) -> None:
    """Draw by how much each leaf differs."""
    changes = [
        row.change if row.change is not None and np.isfinite(row.change) else 0.0 for row in rows
    ]
    axes.barh(range(len(rows)), changes, color=FILL)
    for y, row in enumerate(rows):
        axes.text(
            changes[y],
            y,
            f" {format_number(row.change or 0.0, 3)}",
            va="center",
            fontsize=7,
            color=QUIET,
        )
    _down(axes, [plain(row.path, 50) for row in rows])
    axes.set_xlabel("change, relative to the first", fontsize=8)


def draw_curves(axes: Axes, members: Sequence[SeriesRecord], step: str, log: bool) -> None:
    """Draw series of one unit; values for validation are dashed, those that are not finite are
    crosses at the top.
    """
    for k, series in enumerate(members):
        steps, values = np.array(series.steps), np.array(series.values)
        finite = np.isfinite(values)
        style = "--" if series.name.startswith("val") else "-"
        axes.plot(
            steps,
            np.where(finite, values, np.nan),
            style,
            color=LINES[k % len(LINES)],
            linewidth=1.2,
            label=plain(series.name),
        )
        if not finite.all():
            bad = steps[~finite]
            axes.plot(
                bad,
                np.ones(bad.size),
                "x",
                color=MAGENTA,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                markersize=5,
            )
    axes.set_yscale("log" if log else "linear")
    axes.set_xlabel(plain(step), fontsize=8, parse_math=False)
    axes.tick_params(labelsize=7)
    if len(members) > 1:
        for text in axes.legend(frameon=False, fontsize=7).get_texts():
            text.set_parse_math(False)
    _quiet(axes)


def _down(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(
        range(len(names)),
        labels=names,
        fontsize=7,
        family="monospace",
        ha="right",
        parse_math=False,
    )
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    _quiet(axes, left=False)


def _quiet(axes: Axes, left: bool = True) -> None:
    axes.spines[["top", "right", *([] if left else ["left"])]].set_visible(False)
    axes.tick_params(color="#d8dce1", labelcolor="black")
