"""The drawings inside figures, in the colors of the page on a light background."""

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
from nbmodule.views.renderers.drawing import CLASSES, LINES, palette, tile_picture
from nbmodule.views.renderers.plain_text import number_badges, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, QUIET, WRONG, MAGENTA = "#1158a8", "#c74e08", "#5f6670", "#b3261e", "#d614be"
FILL, EDGE = "#9db7d5", "#d8dce1"
_LEFT: dict[str, Any] = {"loc": "left", "fontsize": 8, "parse_math": False}


def draw_picture(figure: Figure, axes: Axes, picture: Picture, title: str = "") -> None:
    """Draw tiles with their scale, bars, or the text in place of a picture."""
    axes.set_title(plain(title), **_LEFT)
    if picture.kind == "text":
        text = plain(picture.about, 200)
        center: dict[str, Any] = {"ha": "center", "va": "center", "wrap": True, "fontsize": 8}
        axes.text(0.5, 0.5, text, parse_math=False, **center)
        axes.set_axis_off()
        return
    if picture.kind == "bars":
        draw_bars(axes, picture)
    else:
        _tiles(figure, axes, picture)
    if picture.notes:
        notes = plain(", ".join(picture.notes))
        axes.set_xlabel(notes, fontsize=7, color=QUIET, parse_math=False)


def draw_bars(axes: Any, picture: Picture) -> None:
    """Draw a vector, with its labels if it has some."""
    values = np.frombuffer(picture.data, "<f4").astype(float)
    finite = np.isfinite(values)
    colors = np.where((values >= 0) & (picture.limits[0] < 0), ORANGE, BLUE)
    axes.bar(np.flatnonzero(finite), values[finite], color=colors[finite], width=0.85)
    for at in np.flatnonzero(~finite):
        axes.axvline(at, color=MAGENTA, linewidth=1)
    axes.axhline(0, color=QUIET, linewidth=0.6)
    axes.tick_params(labelsize=7)
    if len(picture.labels) == values.size:
        _name_side(axes.set_xticks, picture.labels, 24, rotation=60, ha="right", fontsize=7)
    _quiet(axes)


def _tiles(figure: Figure, axes: Axes, picture: Picture) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = np.array(palette(picture)) / 255
    codes, is_cell = tile_picture(picture)
    pixels = np.ones((*codes.shape, 3))
    pixels[is_cell] = colors[codes[is_cell]]
    aspect = "auto" if picture.kind == "heatmap" else "equal"
    axes.imshow(pixels, interpolation="nearest", aspect=aspect)
    axes.set_xticks([])
    axes.set_yticks([])
    is_single = picture.shape[0] == 1
    if is_single and len(picture.labels) == picture.shape[2]:
        _name_side(axes.set_xticks, picture.labels, 16, rotation=90, fontsize=6)
    if is_single and len(picture.labels) == picture.shape[1]:
        _name_side(axes.set_yticks, picture.labels, 16, fontsize=6)
    for side in axes.spines.values():
        side.set_color(EDGE)
        side.set_visible(is_single)
    if picture.scale == "classes":
        patches = [
            axes.scatter([], [], marker="s", color=CLASSES[k % len(CLASSES)])
            for k in range(len(picture.classes))
        ]
        outside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
        axes.legend(patches, picture.classes, fontsize=6, frameon=False, **outside)
    elif picture.limits != (0.0, 0.0):
        scale = ListedColormap(colors[FIRST : LAST + 1])
        mapped = ScalarMappable(Normalize(*picture.limits), scale)
        bar = figure.colorbar(mapped, ax=axes, shrink=0.75, pad=0.02)
        bar.ax.tick_params(labelsize=6)
        bar.outline.set_visible(False)


def _name_side(set_ticks: Any, labels: Sequence[str], most: int, **style: Any) -> None:
    names = [plain(label, most) for label in labels]
    set_ticks(range(len(names)), labels=names, parse_math=False, **style)


def draw_histogram(axes: Axes, stats: ShownStatistics, title: str) -> None:
    """Draw the counts of an array's values, with mean and deviation, and what is not finite."""
    wrong = ", ".join(number_badges(stats, zeros=False))
    axes.set_title(plain(title, 40), **_LEFT)
    if stats.bins and stats.high > stats.low:
        edges = np.linspace(stats.low, stats.high, len(stats.bins) + 1)
        axes.stairs(stats.bins, edges, fill=True, color=FILL)
    elif stats.bins:
        axes.bar([stats.low], [sum(stats.bins)], width=0.1, color=FILL)
    if stats.bins:
        axes.axvline(stats.mean, color=BLUE, linewidth=0.8)
    words = ", ".join(filter(None, [spread(stats), wrong]))
    axes.set_xlabel(words, fontsize=7, color=WRONG if wrong else QUIET)
    axes.set_yticks([])
    axes.tick_params(labelsize=6)
    _quiet(axes, left=False)


def draw_shares(axes: Axes, rows: Sequence[ModuleRow]) -> None:
    """Draw how many parameters each module has."""
    names = [plain(f"{row.path}  {row.class_name}", 50) for row in rows]
    sizes = [row.parameters for row in rows]
    _bars_down(axes, names, sizes, "parameters", [f"{size:,}" for size in sizes])


def draw_changes(axes: Axes, rows: Sequence[DifferenceRow | PairRow]) -> None:
    """Draw by how much each leaf differs."""
    changes = [row.change or 0.0 for row in rows]
    lengths = [change if np.isfinite(change) else 0.0 for change in changes]
    words = [format_number(change, 3) for change in changes]
    names = [plain(row.path, 50) for row in rows]
    _bars_down(axes, names, lengths, "change, relative to the first", words)


def _bars_down(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    label: str,
    words: Sequence[str] = (),
) -> None:
    """Draw a horizontal bar for each name, with a word at its end."""
    axes.barh(range(len(values)), values, color=FILL)
    for y, (value, word) in enumerate(zip(values, words, strict=False)):
        axes.text(value, y, f" {word}", va="center", fontsize=7, color=QUIET)
    axes.set_xlabel(label, fontsize=8)
    _down(axes, names)


def draw_calls(figure: Figure, rows: Sequence[CallRow], timing: str) -> None:
    """Draw mean, deviation and range of each return beside the time of each call."""
    is_timed = any(row.seconds is not None for row in rows)
    is_measured = any(row.statistics for row in rows)
    axes = figure.subplots(1, is_timed + is_measured, sharey=True, squeeze=False)[0]
    names = call_names(rows)
    if is_timed:
        times = [row.seconds or 0 for row in rows]
        _bars_down(axes[0], names, times, f"time, {plain(timing)}")
        axes[0].xaxis.set_major_formatter(lambda x, _: format_seconds(x) if x else "0")
    if is_measured:
        _draw_spreads(axes[-1], rows)
        _down(axes[-1], names)
    for one in axes:
        one.tick_params(axis="x", labelsize=7)
    for row, label in zip(rows, axes[0].get_yticklabels(), strict=True):
        label.set_color(WRONG if row.error else "black")


def call_names(rows: Sequence[CallRow]) -> list[str]:
    """Name calls, indented by depth; a repeated call has its number."""
    counts: dict[str, int] = {}
    names = []
    for row in rows:
        n = counts[row.path] = counts.get(row.path, 0) + 1
        name = plain(row.path or row.class_name, 36)
        names.append("  " * row.depth + (name if n == 1 else f"{name} ({ordinal(n)})"))
    return names


def _draw_spreads(axes: Axes, rows: Sequence[CallRow]) -> None:
    for y, row in enumerate(rows):
        s = row.statistics
        if s is None or not s.bins:
            continue
        wrong = number_badges(s, zeros=False)
        axes.plot([s.low, s.high], [y, y], color=EDGE, linewidth=2, solid_capstyle="butt")
        ends = [s.mean - s.std, s.mean + s.std]
        axes.plot(ends, [y, y], color=FILL, linewidth=4, solid_capstyle="butt")
        axes.plot([s.mean], [y], "o", color=WRONG if wrong else BLUE, markersize=3)
        if wrong:
            text = f"  {', '.join(wrong)}"
            axes.text(s.high, y, text, va="center", fontsize=7, color=WRONG)
    axes.set_xlabel("return: mean ± deviation, from lowest to highest", fontsize=8)


def draw_curves(axes: Axes, members: Sequence[SeriesRecord], step: str, log: bool) -> None:
    """Draw series of one unit; validation is dashed, values that are not finite are crosses."""
    for k, series in enumerate(members):
        steps, values = np.array(series.steps), np.array(series.values)
        finite = np.isfinite(values)
        style: dict[str, Any] = {"color": LINES[k % len(LINES)], "label": plain(series.name)}
        style["linestyle"] = "--" if series.name.startswith("val") else "-"
        axes.plot(steps, np.where(finite, values, np.nan), linewidth=1.2, **style)
        if not finite.all():
            bad = steps[~finite]
            top: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(bad, np.ones(bad.size), "x", color=MAGENTA, markersize=5, **top)
    axes.set_yscale("log" if log else "linear")
    axes.set_xlabel(plain(step), fontsize=8, parse_math=False)
    axes.tick_params(labelsize=7)
    if len(members) > 1:
        for text in axes.legend(frameon=False, fontsize=7).get_texts():
            text.set_parse_math(False)
    _quiet(axes)


def _down(axes: Axes, names: Sequence[str]) -> None:
    style: dict[str, Any] = {"fontsize": 7, "family": "monospace", "ha": "right"}
    _name_side(axes.set_yticks, names, 60, **style)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    _quiet(axes, left=False)


def _quiet(axes: Axes, left: bool = True) -> None:
    axes.spines[["top", "right", *([] if left else ["left"])]].set_visible(False)
    axes.tick_params(color=EDGE, labelcolor="black")
