"""The logged values of a run by name, and their export: arrays, tables, files, a figure."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import group_of, printable_repr
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import AttributePathError, MissingDependencyError, PathError
from nbmodule.live.run.media_store import MediaStore
from nbmodule.live.run.series import Curve, Series, reduce_curve
from nbmodule.tree.nested import is_of_class

_ROLE_STYLE = {"train": "-", "val": "--", "test": ":"}


MOST_SERIES = 200
"""Series that are drawn and written as text; the history holds all."""


class History:
    """Numbers over steps, and texts, arrays and pictures beside them.

    `history['loss']` or `history.loss` is a series with `.steps`, `.values`, `.last` and `.best`;
    `history.shelf` holds texts, arrays and pictures.

    Example:
        >>> history = History()
        >>> for step in (1, 2, 3):
        ...     history.add(step, {"loss": 1 / step, "val_loss": 2 / step})
        >>> history.loss.last, history["val_loss"].best
        (0.3333333333333333, (3, 0.6666666666666666))
    """

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self.shelf = MediaStore()

    def add(self, step: int, values: dict[str, float]) -> None:
        """Add one number for each name at a step."""
        for name, value in values.items():
            self.extend(name, [step], [value])

    def extend(self, name: str, steps: Any, values: Any) -> None:
        """Add many points to one series."""
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series(name)
        series.extend(steps, values)

    def cut(self, step: int) -> None:
        """Forget the values of this step and later ones."""
        for series in self:
            series.cut(step)
        self.shelf.cut(step)

    @property
    def names(self) -> list[str]:
        """The names of the series, in the order in which they first came."""
        return list(self._series)

    @property
    def nbytes(self) -> int:
        """Host memory held, in bytes."""
        return sum(series.nbytes for series in list(self._series.values())) + self.shelf.nbytes

    def groups(self) -> dict[str, dict[str, Series]]:
        """Return the series that share a plot: `loss` and `val_loss` are one group.

        Example:
            >>> history = History()
            >>> history.add(1, {"loss": 1.0, "val_loss": 2.0, "accuracy": 0.5})
            >>> {group: list(members) for group, members in history.groups().items()}
            {'loss': ['loss', 'val_loss'], 'accuracy': ['accuracy']}
        """
        groups: dict[str, dict[str, Series]] = {}
        for name, series in list(self._series.items()):
            groups.setdefault(group_of(name)[0], {})[name] = series
        return groups

    def __getitem__(self, name: str) -> Series:
        try:
            return self._series[name]
        except KeyError:
            raise PathError(self._unknown(name)) from None

    def __getattr__(self, name: str) -> Series:
        series = self.__dict__.get("_series", {})
        if name in series:
            return series[name]
        if is_of_class(self, name):
            return object.__getattribute__(self, name)
        raise AttributePathError(
            self._unknown(name) if series else f"the history has no series {name!r} yet."
        )

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._series, 1)
        hint = f"; the closest name is {close[0]!r}" if close else ""
        logged = ", ".join(self._series) or "nothing"
        return f"nothing was logged as {name!r}{hint}. Logged so far: {logged}."

    def __contains__(self, name: object) -> bool:
        return name in self._series

    def __iter__(self) -> Iterator[Series]:
        return iter(list(self._series.values()))

    def __len__(self) -> int:
        return len(self._series)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in self._series if name.isidentifier())]

    @printable_repr
    def __repr__(self) -> str:
        lines = [f"History of {len(self)} series"]
        width = max(map(len, self._series), default=0)
        for series in list(self)[:MOST_SERIES]:
            best = series.best
            best_text = f"best {best[1]:.4g} at step {best[0]:,}" if best else "no finite value"
            points = f"{len(series):>9,} points  last {series.last:.4g}"
            lines.append(f"  {series.name:<{width}}  {points}  {best_text}")
        lines.extend(
            f"  {name:<{width}}  {len(self.shelf[name]):>9,} entries" for name in self.shelf
        )
        return "\n".join(lines)

    def to_numpy(self) -> dict[str, Curve]:
        """Return each series as `Curve(steps, values)` of NumPy arrays.

        Example:
            >>> history = History()
            >>> history.add(1, {"loss": 0.5})
            >>> history.to_numpy()["loss"].values
            array([0.5])
        """
        return {series.name: Curve(series.steps, series.values) for series in self}

    def to_container(self) -> Any:
        """Return a `Container` with `steps` and `values` below the name of each series.

        `train/loss` is two levels.
        """
        from nbmodule.tree.container import Container

        container = Container()
        for series in self:
            container[f"{series.name}/steps"] = series.steps
            container[f"{series.name}/values"] = series.values
        return container

    def to_table(self) -> tuple[NDArray[np.integer], dict[str, NDArray[np.floating]]]:
        """Return all steps in rising order, and the values of each series, NaN where it has none.

        Of several values at one step the last counts.

        Example:
            >>> history = History()
            >>> history.add(1, {"loss": 0.5})
            >>> history.add(2, {"loss": 0.25, "accuracy": 0.75})
            >>> history.to_table()[1]["accuracy"]
            array([ nan, 0.75])
        """
        curves = self.to_numpy()
        if not curves:
            return np.empty(0, np.int32), {}
        steps = np.unique(np.concatenate([curve.steps for curve in curves.values()]))
        columns = {}
        for name, curve in curves.items():
            columns[name] = np.full(len(steps), np.nan, curve.values.dtype)
            columns[name][np.searchsorted(steps, curve.steps)] = curve.values
        return steps, columns

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame: a row for each step, a column for each series.

        Raises:
            MissingDependencyError: If pandas is not installed.
        """
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingDependencyError(
                "history.to_pandas() needs pandas, which is not installed: `pip install pandas`. "
                "history.to_numpy() and history.to_csv() work without."
            ) from None
        steps, columns = self.to_table()
        return pandas.DataFrame(columns, index=pandas.Index(steps, name="step"))

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """Write a table with a row for each step to a file, or return it as text without a path.

        Example:
            >>> history = History()
            >>> history.add(1, {"loss": 0.5})
            >>> print(history.to_csv(), end="")
            step,loss
            1,0.5
        """
        steps, columns = self.to_table()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", *columns])
        has = self._presence(steps)
        for row, step in enumerate(steps.tolist()):
            writer.writerow(
                [step, *(_spell(columns[n][row]) if has[n][row] else "" for n in columns)]
            )
        return _deliver(text.getvalue(), path)

    def to_json_lines(self, path: str | Path | None = None) -> str | None:
        r"""Write one JSON object for each step to a file, or return the text without a path.

        Numbers that are not finite are written as "NaN", "Infinity" or "-Infinity", since JSON has
        no such numbers.

        Example:
            >>> history = History()
            >>> history.add(1, {"loss": 0.5})
            >>> history.to_json_lines()
            '{"step": 1, "loss": 0.5}\n'
        """
        steps, columns = self.to_table()
        has, lines = self._presence(steps), []
        for row, step in enumerate(steps.tolist()):
            values = {name: _json_number(columns[name][row]) for name in columns if has[name][row]}
            lines.append(json.dumps({"step": step, **values}) + "\n")
        return _deliver("".join(lines), path)

    def to_tensorboard(self, folder: str | Path) -> None:
        """Write the series as TensorBoard event files.

        Raises:
            MissingDependencyError: If tensorboardX is not installed.
        """
        try:
            from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingDependencyError(
                "history.to_tensorboard() needs tensorboardX, which is not installed: "
                "`pip install tensorboardX`."
            ) from None
        with SummaryWriter(str(folder)) as writer:
            for name, curve in self.to_numpy().items():
                for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
                    writer.add_scalar(name, value, step)

    def plot(self, *names: str, log: bool = False, columns: int = 1000) -> Any:
        """Draw the series with matplotlib, those with one unit together; return the figure.

        Args:
            names: Series or groups to draw; all if not given.
            log: Whether the values are drawn on a logarithmic axis.
            columns: Horizontal detail; longer series are reduced without losing an extreme.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingDependencyError(
                "plot() needs matplotlib, which is not installed: `pip install matplotlib`."
            ) from None
        groups = {
            g: m for g, m in self.groups().items() if not names or g in names or set(m) & set(names)
        }
        for name in names:
            if name not in self and name not in self.groups():
                raise PathError(self._unknown(name))
        figure = Figure(figsize=(min(4.5 * max(len(groups), 1), 13), 3), layout="constrained")
        axes = figure.subplots(1, max(len(groups), 1), squeeze=False)[0]
        for axis, (group, members) in zip(axes, groups.items(), strict=False):
            for name, series in members.items():
                if names and group not in names and name not in names:
                    continue
                curve = reduce_curve(series.since(0), columns)
                axis.plot(
                    curve.steps,
                    curve.values,
                    _ROLE_STYLE[group_of(name)[1]],
                    label=name,
                    linewidth=1.2,
                )
            axis.set(title=group, xlabel="step", yscale="log" if log else "linear")
            if len(members) > 1:
                axis.legend(frameon=False)
        return figure

    def _presence(self, steps: NDArray[np.integer]) -> dict[str, NDArray[np.bool_]]:
        """Return at which of these steps each series has a value, which may be NaN."""
        return {series.name: np.isin(steps, series.since(0).steps) for series in self}


def _spell(value: np.floating) -> str:
    return repr(value.item()) if value.dtype == np.float64 else str(value)


def _json_number(value: np.floating) -> float | str:
    number = float(_spell(value))
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _deliver(text: str, path: str | Path | None) -> str | None:
    """Return the text, or write it to a file atomically."""
    if path is None:
        return text
    with whole_file(path) as file:
        file.write(text.encode(errors="backslashreplace"))
    return None
