"""The logged values of a run by name: numbers over steps, and texts, arrays and pictures in bounded
memory. They are exported as arrays, tables, files, a figure.
"""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import group_of, printable_repr
from nbmodule.base.paths import hint
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentTypeError, AttributePathError, MissingDependencyError, PathError
from nbmodule.live.run_data.media import Media
from nbmodule.live.run_data.series import Series
from nbmodule.tree.nested import is_of_class

T = TypeVar("T")
_ROLE_STYLE = {"train": "-", "val": "--", "test": ":"}
MOST_SERIES = 200
"""Series that are drawn and written as text; the history holds all."""
BUDGET = 64 * 2**20
"""Bytes of texts, arrays and pictures that are kept in all."""
MOST_ENTRIES = 1000
"""Texts, arrays or pictures that are kept of one name."""


class History:
    """Numbers over steps, and texts, arrays and pictures.

    `history['loss']` or `history.loss` is a series with `.steps`, `.values`, `.last` and `.best`;
    `history.media` holds texts, arrays and pictures.

    Example:
        >>> history = History()
        >>> for step in (1, 2, 3):
        ...     history.add(step, {"loss": 1 / step, "val_loss": 2 / step})
        >>> history.loss.last, history["val_loss"].best
        (0.3333333333333333, (3, 0.6666666666666666))
    """

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self.media = MediaStore()

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
        self.media.cut(step)

    @property
    def names(self) -> list[str]:
        """The names of the series, in the order in which they first came."""
        return list(self._series)

    @property
    def nbytes(self) -> int:
        """Host memory held, in bytes."""
        return sum(series.nbytes for series in list(self._series.values())) + self.media.nbytes

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
        nothing = f"the history has no series {name!r} yet."
        raise AttributePathError(self._unknown(name) if series else nothing)

    def _unknown(self, name: str) -> str:
        logged = ", ".join(self._series) or "nothing"
        about = f"nothing was logged as {name!r}{hint(name, self._series)}"
        return f"{about} Logged so far: {logged}."

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
            f"  {name:<{width}}  {len(self.media[name]):>9,} entries" for name in self.media
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
        pandas = load_extra("pandas", "history.to_pandas()")
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
        text = io.StringIO()
        writer = csv.DictWriter(text, ["step", *self.names], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows())
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
        lines = [json.dumps({n: json_number(v) for n, v in row.items()}) for row in self._rows()]
        return _deliver("".join(f"{line}\n" for line in lines), path)

    def to_tensorboard(self, folder: str | Path) -> None:
        """Write the series as TensorBoard event files.

        Raises:
            MissingDependencyError: If tensorboardX is not installed.
        """
        tensorboard = load_extra("tensorboardX", "history.to_tensorboard()")
        with tensorboard.SummaryWriter(str(folder)) as writer:
            for name, curve in self.to_numpy().items():
                for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
                    writer.add_scalar(name, value, step)

    def plot(self, *names: str, log: bool = False, columns: int = 1000) -> Any:
        """Draw the series with matplotlib, those with one unit together; return the figure.

        Args:
            names: Series or groups to draw; all if not given.
            log: True to draw the values on a logarithmic axis.
            columns: Horizontal detail; longer series are reduced without losing an extreme.
        """
        figures = load_extra("matplotlib.figure", "history.plot()")
        for name in names:
            if name not in self and name not in self.groups():
                raise PathError(self._unknown(name))
        groups = {
            group: {n: s for n, s in members.items() if not names or {group, n} & set(names)}
            for group, members in self.groups().items()
        }
        groups = {group: members for group, members in groups.items() if members}
        count = max(len(groups), 1)
        figure = figures.Figure(figsize=(min(4.5 * count, 13), 3), layout="constrained")
        axes = figure.subplots(1, count, squeeze=False)[0]
        for axis, (group, members) in zip(axes, groups.items(), strict=False):
            for name, series in members.items():
                curve = reduce_curve(series.since(0), columns)
                style = _ROLE_STYLE[group_of(name)[1]]
                axis.plot(curve.steps, curve.values, style, label=name, linewidth=1.2)
            axis.set(title=group, xlabel="step", yscale="log" if log else "linear")
            if len(members) > 1:
                axis.legend(frameon=False)
        return figure

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield the values of each step by name; a value may be NaN."""
        rows: dict[int, dict[str, Any]] = {}
        for name, (steps, values) in self.to_numpy().items():
            # as text, float32 has its own digits and not those of the next float64
            written = values.tolist() if values.dtype == np.float64 else values.astype(str).tolist()
            for step, value in zip(steps.tolist(), written, strict=True):
                rows.setdefault(step, {"step": step})[name] = float(value)
        return (rows[step] for step in sorted(rows))


def json_number(value: float | None) -> float | str | None:
    """Return a number as JSON knows it, or as a text that `Number()` of JavaScript reads.

    Example:
        >>> json_number(0.5), json_number(float("nan")), json_number(float("-inf"))
        (0.5, 'NaN', '-Infinity')
    """
    return value if value is None or math.isfinite(value) else json.dumps(value)


def load_extra(module: str, needed_by: str) -> Any:
    """Return a module that is not installed with the package.

    Raises:
        MissingDependencyError: If it is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingDependencyError(
            f"{needed_by} needs {package}, which is not installed: `pip install {package}`."
        ) from None


def _deliver(text: str, path: str | Path | None) -> str | None:
    """Return the text, or write it to a file atomically."""
    if path is None:
        return text
    with whole_file(path) as file:
        file.write(text.encode(errors="backslashreplace"))
    return None


# -- texts, arrays and pictures --


class Downsampled(list[T]):
    """A list of every k-th item and the newest, where k doubles when there are too many.

    Example:
        >>> items = Downsampled(4)
        >>> for i in range(10):
        ...     items.append(i)
        >>> items
        [0, 4, 8, 9]
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self._numbers: list[int] = []
        self._stride = 1
        self._count = 0

    def append(self, item: T) -> None:
        """Add the newest item; drop the one before it unless it is one of the selection."""
        if self and self._numbers[-1] % self._stride:
            self._numbers.pop()
            self.pop()
        self._numbers.append(self._count)
        super().append(item)
        self._count += 1
        if len(self) > self.most:
            self.halve()

    def halve(self) -> None:
        """Leave out every other item, but not the newest."""
        self._stride *= 2
        self.keep([number % self._stride == 0 for number in self._numbers[:-1]] + [True])

    def keep(self, are_kept: Sequence[bool]) -> None:
        """Drop items; `are_kept` has a bool for each."""
        self._numbers = list(itertools.compress(self._numbers, are_kept))
        self[:] = itertools.compress(list(self), are_kept)


class MediaItem(NamedTuple):
    """A logged text, array, picture (uint8 `[height, width, 3]`) or `Media`."""

    step: int
    value: Any


class MediaStore(dict[str, Downsampled[MediaItem]]):
    """Logged texts, arrays and pictures by name.

    When the memory is full, every other entry of the largest list is dropped, so that an even
    selection over the whole run stays, always with the newest.

    Example:
        >>> media = MediaStore()
        >>> media.put("sample", 10, "the cat sat")
        >>> media["sample"][-1].value
        'the cat sat'
    """

    def __init__(self, budget: int = BUDGET) -> None:
        super().__init__()
        self.budget = budget
        self.version = 0
        """Grows with every entry."""

    def put(self, name: str, step: int, value: object) -> None:
        """Add a text, an array, or a picture (a PIL image, a matplotlib figure, bytes as `uint8[H,
        W, 3]`).
        """
        item = MediaItem(step, normalize_media(name, value))
        self.setdefault(name, Downsampled(MOST_ENTRIES)).append(item)
        self.version += 1
        while self.nbytes > self.budget:
            largest = max(self.values(), key=_bytes_of)
            if len(largest) < 2:
                break
            largest.halve()

    def cut(self, step: int) -> None:
        """Forget the entries of this step and later ones."""
        for name, entries in list(self.items()):
            entries.keep([entry.step < step for entry in entries])
            if not entries:
                del self[name]
        self.version += 1

    @property
    def nbytes(self) -> int:
        """Host memory held, in bytes."""
        return sum(map(_bytes_of, self.values()))


def _bytes_of(entries: Sequence[MediaItem]) -> int:
    values = [entry.value for entry in entries]
    return sum(len(v) if isinstance(v, str) else v.nbytes for v in values)


def normalize_media(name: str, value: Any) -> Any:
    """Return what is kept of a value, which nobody else changes.

    Raises:
        ArgumentTypeError: If it is no number, array, text or picture.
    """
    if isinstance(value, str | Media):
        return value
    if hasattr(value, "savefig") and hasattr(value, "canvas"):
        from PIL import Image  # matplotlib depends on it

        file = io.BytesIO()
        value.savefig(file, format="png")
        value = Image.open(file)
    if hasattr(value, "convert") and hasattr(value, "getbands"):
        return np.array(value.convert("RGB"))
    array = np.array(value)
    if array.dtype == object and not isinstance(value, np.ndarray) and hasattr(value, "__float__"):
        array = np.array(float(value))
    if array.dtype.kind not in "biufcV":
        fix = f" Log what it returns: {name}={name}(step)." if callable(value) else ""
        raise ArgumentTypeError(
            f"cannot log {name!r}: expected a number, an array, a text or a picture, got "
            f"{type(value).__name__}.{fix}"
        )
    has_alpha = array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] == 4
    return array[..., :3] if has_alpha else array
