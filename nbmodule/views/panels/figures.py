"""Views as matplotlib figures, for papers: `nb.plot(x)`, `calls.plot()`, `curve.plot("loss.svg")`.

matplotlib is imported when a figure is asked for, and never its `pyplot`: no window, no state, no
backend is touched. The colors are those of the page on a light ground, and the same record gives
the same bytes.
"""

from __future__ import annotations

import functools
import io
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbmodule.base.format import count_noun, cut_middle, plain
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentError, ArgumentTypeError, MissingDependencyError
from nbmodule.views.builders.registry import record_for
from nbmodule.views.panels.figure_parts import (
    call_names,
    draw_calls,
    draw_changes,
    draw_curves,
    draw_histogram,
    draw_picture,
    draw_shares,
)
from nbmodule.views.panels.inspection_view import Panel
from nbmodule.views.records.records import (
    ArrayCard,
    CallTable,
    ComparisonTable,
    DifferenceTree,
    HistoryRecord,
    ModuleTree,
    Picture,
    ReturnTable,
)
from nbmodule.views.records.variables import VariableTree
from nbmodule.views.renderers.plain_text import best_of
from nbmodule.views.renderers.titles import title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")
MOST_PANELS = 24
_DRAWERS: dict[type, Callable[..., None]] = {}


def plot(
    value: Any, file: str | os.PathLike[str] | None = None, *, dpi: int = 150, **options: object
) -> Any:
    """Draw what `nb.show` shows as a matplotlib figure.

    Args:
        value: A model, variables, calls, an array, a comparison, a curve, any PyTree of arrays, or
            a picture.
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
            f"figures are written as {', '.join(FORMATS)}; found {os.fspath(file)!r}."
        )
    record = value if isinstance(value, Picture) else record_for(value)
    record = record.calls if isinstance(record, Panel) else record
    drawer = _DRAWERS.get(type(record))
    if drawer is None:
        raise ArgumentTypeError(
            f"there is no figure of {type(value).__name__}; nb.show(x) shows it, and a graph has "
            "save()."
        )
    figure = figure_class()(layout="constrained", dpi=100)
    drawer(figure, record, **options)
    if file is not None:
        with whole_file(file) as target:
            target.write(bytes_of(figure, Path(file).suffix.lower()[1:], dpi))
    return figure


@functools.cache
def figure_class() -> Any:
    """The class of our figures: one that a notebook shows although no backend was chosen."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            "plot() draws with matplotlib, which is not installed: `pip install matplotlib`"
        ) from None

    class ShownFigure(Figure):
        """A figure that displays itself as PNG."""

        def _repr_mimebundle_(
            self, include: object = None, exclude: object = None
        ) -> dict[str, Any]:
            return {"text/plain": repr(self), "image/png": bytes_of(self, "png", 150)}

    return ShownFigure


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


def drawer(cls: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register how one kind of record is drawn: `fn(figure, record, **options)`."""

    def keep(fn: Callable[..., None]) -> Callable[..., None]:
        _DRAWERS[cls] = fn
        return fn

    return keep


def _titled(figure: Figure, record: Any, left_out: int = 0, noun: str = "row") -> None:
    facts = " · ".join(title_of(record))
    more = f" ({count_noun(left_out, noun)} more)" if left_out > 0 else ""
    figure.suptitle(cut_middle(facts, 120) + more, x=0.01, ha="left", fontsize=10, parse_math=False)


def _empty(record: Any, why: str) -> ArgumentError:
    return ArgumentError(
        f"there is nothing to draw of {plain(' · '.join(title_of(record)))}: {why}."
    )


def _grid(figure: Figure, count: int, width: float, height: float, most: int = 4) -> list[Any]:
    across = min(most, count)
    down = -(-count // across)
    figure.set_size_inches(across * width, down * height + 0.35)
    axes = figure.subplots(down, across, squeeze=False).reshape(-1)
    for unused in axes[count:]:
        unused.remove()
    return list(axes[:count])


@drawer(Picture)
def _picture(figure: Figure, picture: Picture) -> None:
    figure.set_size_inches(4.5, 4 if picture.kind != "bars" else 2.6)
    draw_picture(figure, figure.subplots(), picture, title=picture.of)


@drawer(ArrayCard)
def _array(figure: Figure, card: ArrayCard) -> None:
    if card.error or card.statistics is None or card.picture is None:
        raise _empty(card, card.error or "its values cannot be read")
    picture, histogram = _grid(figure, 2, 4, 3.4)
    draw_picture(figure, picture, card.picture)
    draw_histogram(histogram, card.statistics, "")
    _titled(figure, card)


@drawer(VariableTree)
def _variables(figure: Figure, tree: VariableTree) -> None:
    measured = [
        (row.path, row.statistics) for row in tree.rows if row.statistics and row.statistics.size
    ]
    if not measured:
        raise _empty(tree, "no array of it was measured")
    for axes, (path, stats) in zip(
        _grid(figure, min(len(measured), MOST_PANELS), 2.6, 1.6), measured, strict=False
    ):
        draw_histogram(axes, stats, plain(path))
    _titled(figure, tree, len(measured) - MOST_PANELS, "histogram")


@drawer(ModuleTree)
def _modules(figure: Figure, tree: ModuleTree) -> None:
    rows = [row for row in tree.rows if row.parameters and (row.depth == 0 or row.variables)][:60]
    if not rows:
        raise _empty(tree, "it has no parameters")
    figure.set_size_inches(7, 0.5 + 0.22 * len(rows))
    draw_shares(figure.subplots(), rows)
    _titled(figure, tree)


@drawer(CallTable)
def _calls(figure: Figure, table: CallTable) -> None:
    rows = [row for row in table.rows if row.statistics or row.seconds is not None]
    if not rows:
        raise _empty(table, "no call has values or a time")
    shown = rows[:80]
    figure.set_size_inches(9, 0.8 + 0.2 * len(shown))
    draw_calls(figure, shown, table.timing)
    _titled(figure, table, len(rows) - len(shown), "call")


@drawer(ReturnTable)
def _returns(figure: Figure, table: ReturnTable) -> None:
    names = [name.strip() for name in call_names(table.rows)]
    rows = zip(names, table.rows, strict=True)
    named = [
        (name, picture) for name, row in rows for picture in row.pictures if picture.kind != "text"
    ]
    if not named:
        raise _empty(table, "no return of it was drawn")
    for axes, (name, picture) in zip(
        _grid(figure, min(len(named), MOST_PANELS), 3, 2.8, 3), named, strict=False
    ):
        draw_picture(figure, axes, picture, title=name)
    _titled(figure, table, len(named) - MOST_PANELS, "picture")


@drawer(ComparisonTable)
@drawer(DifferenceTree)
def _differences(figure: Figure, tree: DifferenceTree | ComparisonTable) -> None:
    changed = [row for row in tree.rows if row.change is not None and row.status != "same"]
    pictured = next((row for row in changed if len(row.pictures) == 3), None)
    if not changed:
        raise _empty(tree, "no values of it differ")
    shown = sorted(changed, key=lambda row: -(row.change or 0))[:40]
    lower = 3.0 if pictured else 0.0
    figure.set_size_inches(9, 0.8 + 0.22 * len(shown) + lower)
    parts = figure.subfigures(
        2 if pictured else 1,
        1,
        squeeze=False,
        height_ratios=[0.6 + 0.22 * len(shown), *([lower] if pictured else [])],
    )
    draw_changes(parts[0, 0].subplots(), shown)
    if pictured:
        for axes, picture, what in zip(
            parts[1, 0].subplots(1, 3),
            pictured.pictures,
            (tree.a, tree.b, "difference"),
            strict=True,
        ):
            draw_picture(parts[1, 0], axes, picture, title=f"{plain(pictured.path)}: {plain(what)}")
    _titled(figure, tree, len(changed) - len(shown))


@drawer(HistoryRecord)
def _history(figure: Figure, history: HistoryRecord, *, log: bool = False) -> None:
    groups: dict[str, list[Any]] = {}
    for series in history.series:
        if series.values:
            groups.setdefault(series.name.removeprefix("train_").removeprefix("val_"), []).append(
                series
            )
    if not groups:
        raise _empty(history, "nothing was logged")
    for axes, (name, members) in zip(
        _grid(figure, len(groups), 4.2, 2.8, 3), groups.items(), strict=True
    ):
        draw_curves(axes, members, history.axis, log)
        bests = [
            f"best {plain(one.name)} {best_of(one):.4g}"
            for one in members
            if math.isfinite(best_of(one))
        ]
        axes.set_title(", ".join([plain(name), *bests]), loc="left", fontsize=9, parse_math=False)
    _titled(figure, history)
