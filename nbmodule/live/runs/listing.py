"""The list of runs kept on disk, and their comparison."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np

from nbmodule.base.format import format_count, format_number, format_seconds, plain, shown
from nbmodule.errors import ArgumentError, NbModuleError, PathError
from nbmodule.live.reporting.journal import SUFFIX, folders_of
from nbmodule.live.runs.run import RecordedRun, data_frame, text_table, when

_MOST_SHOWN = 60


class Runs(Sequence[RecordedRun]):
    """Runs, newest first. `runs[0]` is the newest, `runs["name"]` the newest of that name.

    A journal that cannot be read is not hidden: `errors` names it with its fault.
    """

    def __init__(
        self, runs: Iterable[RecordedRun], errors: Mapping[Path, str] | None = None
    ) -> None:
        self._runs = list(runs)
        self.errors = dict(errors or {})
        """For each journal that cannot be read, why."""

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[RecordedRun]:
        return iter(self._runs)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> RecordedRun: ...
    @overload
    def __getitem__(self, key: slice) -> Runs: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return Runs(self._runs[key], self.errors)
        if not isinstance(key, str):
            return self._runs[key]
        found = next(
            (run for run in self._runs if key in (run.name, run.run_id, run.path.stem)), None
        )
        if found is None:
            names = ", ".join(sorted({run.name for run in self._runs})[:8]) or "none"
            raise PathError(f"there is no run {key!r}. Names: {names}.")
        return found

    def filter(self, test: Callable[[RecordedRun], bool] | None = None, /, **settings: Any) -> Runs:
        """Return the runs for which `test(run)` holds and whose settings have these values."""

        def fits(run: RecordedRun) -> bool:
            return (test is None or test(run)) and all(
                run.settings.get(name) == value for name, value in settings.items()
            )

        return Runs(filter(fits, self._runs), self.errors)

    def sort(self, by: str) -> Runs:
        """Return the runs ordered by the best value of a series, or by a setting; best first.

        Raises:
            PathError: If no run has such a series or setting.
        """
        from nbmodule.base.series_names import is_better_when_higher

        known = [run for run in self._runs if by in run.best or by in run.settings]
        if not known:
            raise PathError(f"no run has a series or setting {by!r}.")
        sign = -1 if any(by in run.best for run in known) and is_better_when_higher(by) else 1

        def key(run: RecordedRun) -> tuple[bool, float, str]:
            value = run.best.get(by, run.settings.get(by))
            is_number = isinstance(value, (int, float))
            return value is None, sign * float(value) if is_number else 0.0, str(value)

        return Runs(sorted(self._runs, key=key), self.errors)

    def compare(self, *names: int | str) -> RunComparison:
        """Compare these runs, or all of them; see `nb.compare_runs`."""
        return compare_runs(*(self[name] for name in names) if names else self._runs)

    @property
    def varying(self) -> list[str]:
        """Settings that differ among the runs."""
        names = dict.fromkeys(name for run in self._runs for name in run.settings)
        return [n for n in names if len({repr(run.settings.get(n)) for run in self._runs}) > 1]

    @property
    def series(self) -> list[str]:
        """Names of the series, those that most runs have first."""
        counts: dict[str, int] = {}
        for run in self._runs:
            for series in run.history:
                counts[series.name] = counts.get(series.name, 0) + 1
        return sorted(counts, key=lambda name: -counts[name])

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dict per run: name, times, state, settings, best and last of each series."""
        return [
            {
                "name": run.name, "run": run.run_id, "began": run.began, "seconds": run.seconds,
                "state": run.state, "reason": run.reason, "step": run.step, "tags": list(run.tags),
                "note": run.note, "parent": run.parent, "path": str(run.path),
                **{f"setting {name}": value for name, value in run.settings.items()},
                **{f"best {name}": value for name, value in run.best.items()},
                **{f"last {name}": value for name, value in run.last.items()},
            }
            for run in self._runs
        ]  # fmt: skip

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row per run.

        Raises:
            MissingDependencyError: If pandas is missing.
        """
        return data_frame(self.to_records())

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of the list: what differs among the runs, and the best of each series."""
        settings, series = self.varying[:4], self.series[:4]
        head = ["run", "began", "ran", "ended", "step", *settings, *(f"best {s}" for s in series)]
        rows = []
        for run in self._runs:
            best = run.best
            rows.append(
                [
                    plain(run.name, 32),
                    when(run.began),
                    format_seconds(run.seconds),
                    run.state,
                    format_count(run.step),
                    *(plain(str(run.settings.get(name, "")), 16) for name in settings),
                    *(format_number(best[name], 4) if name in best else "" for name in series),
                ]
            )
        return head, rows

    @shown
    def __repr__(self) -> str:
        head, rows = self.table()
        if not rows and not self.errors:
            return "no runs"
        lines = [text_table(head, rows[:_MOST_SHOWN])]
        if len(rows) > _MOST_SHOWN:
            lines.append(f"... {len(rows) - _MOST_SHOWN} more: runs[{_MOST_SHOWN}:]")
        lines += [f"{path.name}: {plain(error, 120)}" for path, error in self.errors.items()]
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from nbmodule.live.runs import display  # noqa: F401 registers the record
        from nbmodule.views import mimebundle

        return mimebundle(self)


def runs(folder: str | os.PathLike[str] | None = None) -> Runs:
    """Return all runs kept on disk, newest first.

    Args:
        folder: Where the journals are, as given to `nb.Live(journal=...)`; the folder beside the
            notebook if not given.

    Example:
        >>> import nbmodule as nb, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for lr in (0.1, 0.01):
        ...     with nb.Live(display=False, journal=folder, name="demo", config={"lr": lr}) as live:
        ...         for i in live.steps(range(3)):
        ...             live.log(loss=lr * i)
        >>> found = nb.runs(folder)
        >>> found.varying, [run.settings["lr"] for run in found.sort("lr")]
        (['lr'], [0.01, 0.1])
    """
    given = None if folder is None else os.fspath(folder)
    found: list[RecordedRun] = []
    errors: dict[Path, str] = {}
    for place in folders_of(given):
        for path in place.glob(f"*{SUFFIX}"):
            try:
                found.append(RecordedRun(path))
            except (NbModuleError, OSError, ValueError, KeyError, TypeError) as error:
                errors[path] = f"{type(error).__name__}: {error}"
    return Runs(sorted(found, key=lambda run: (run.began, run.path.name), reverse=True), errors)


# -- comparison ------------------------------------------------------------------------------------
class RunComparison:
    """Several runs beside each other: settings that differ, results, curves over one another.

    Attributes:
        runs: The runs that are compared.
        names: A name for each, made distinct by the settings that differ.
    """

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self.runs = tuple(runs)
        self.names = _distinct_names(self.runs)

    @property
    def settings(self) -> dict[str, list[Any]]:
        """For each setting that differs its value in each run."""
        return {
            name: [run.settings.get(name) for run in self.runs] for name in Runs(self.runs).varying
        }

    @property
    def common(self) -> dict[str, Any]:
        """Settings that all runs share."""
        differing = set(self.settings)
        return {n: v for n, v in self.runs[0].settings.items() if n not in differing}

    @property
    def best(self) -> dict[str, list[float | None]]:
        """For each series its best value in each run."""
        return {name: [run.best.get(name) for run in self.runs] for name in Runs(self.runs).series}

    @property
    def findings(self) -> dict[str, list[str]]:
        """For each run what the rules for curves say."""
        return {name: list(run.diagnosis.names) for name, run in zip(self.names, self.runs)}

    def curves(
        self, series: str, *, by: str = "step", smooth: int = 1
    ) -> dict[str, tuple[Any, Any]]:
        """Return one series of each run as `(x, y)`.

        Args:
            series: Name of the series.
            by: `step`, `share` (of the run's steps) or `time` (seconds, evenly over the run).
            smooth: Points of a running mean.

        Raises:
            PathError: If no run has the series.
            ArgumentError: If `by` or `smooth` has no meaning.
        """
        if by not in ("step", "share", "time"):
            raise ArgumentError(f"by must be 'step', 'share' or 'time', got {by!r}.")
        if isinstance(smooth, bool) or not isinstance(smooth, int) or smooth < 1:
            raise ArgumentError(f"smooth must be a number of points from 1, got {smooth!r}.")
        found = {}
        for name, run in zip(self.names, self.runs):
            if series not in run.history:
                continue
            curve = run.history[series]
            x, y = curve.steps.astype(np.float64), curve.values.astype(np.float64)
            if by != "step":
                x = x / max(run.step, 1) * (run.seconds if by == "time" else 1.0)
            found[name] = (x, _running_mean(y, smooth))
        if not found:
            raise PathError(
                f"no run has logged {series!r}; logged: {', '.join(Runs(self.runs).series)}."
            )
        return found

    def plot(self, series: str, *, by: str = "step", smooth: int = 1, log: bool = False) -> Any:
        """Draw one series of all runs with matplotlib and return the figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for name, (x, y) in self.curves(series, by=by, smooth=smooth).items():
            axes.plot(x, y, label=name)
        axes.set(xlabel=by, ylabel=series, **({"yscale": "log"} if log else {}))
        axes.legend()
        return figure

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows: settings that differ first, then results; a column for each run."""
        rows = [
            [name, *(plain(str(value), 24) for value in values)]
            for name, values in self.settings.items()
        ]
        for name, values in self.best.items():
            rows.append(
                [f"best {name}", *("" if v is None else format_number(v, 4) for v in values)]
            )
        rows.append(["steps", *(format_count(run.step) for run in self.runs)])
        rows.append(["ran", *(format_seconds(run.seconds) for run in self.runs)])
        rows.append(["ended", *(run.state for run in self.runs)])
        if any(self.findings.values()):
            rows.append(["findings", *(", ".join(names) for names in self.findings.values())])
        return ["", *self.names], rows

    @shown
    def __repr__(self) -> str:
        return text_table(*self.table())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from nbmodule.live.runs.display import comparison_html

        return {"text/plain": repr(self), "text/html": comparison_html(self)}


def compare_runs(*runs: RecordedRun) -> RunComparison:
    """Compare runs: settings that differ first, results, findings, and curves over one another.

    Args:
        runs: Runs of `nb.runs()`.

    Raises:
        ArgumentError: If fewer than two runs are given, or something else than runs.

    Example:
        >>> import nbmodule as nb, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for lr in (0.1, 0.01):
        ...     with nb.Live(display=False, journal=folder, name="demo", config={"lr": lr}) as live:
        ...         for i in live.steps(range(3)):
        ...             live.log(loss=lr * i)
        >>> comparison = nb.compare_runs(*nb.runs(folder).sort("lr"))
        >>> comparison.settings, comparison.names
        ({'lr': [0.01, 0.1]}, ('demo lr=0.01', 'demo lr=0.1'))
    """
    if len(runs) == 1 and isinstance(runs[0], Runs):
        runs = tuple(runs[0])
    wrong = [run for run in runs if not isinstance(run, RecordedRun)]
    if wrong or len(runs) < 2:
        what = f"got {type(wrong[0]).__name__}" if wrong else f"got {len(runs)}"
        raise ArgumentError(f"compare_runs takes two runs of nb.runs() or more, {what}.")
    return RunComparison(runs)


def _distinct_names(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    names = [run.name or "run" for run in runs]
    for setting in Runs(runs).varying:
        if len(set(names)) == len(names):
            break
        values = [run.settings.get(setting) for run in runs]
        names = [f"{name} {setting}={plain(str(v), 16)}" for name, v in zip(names, values)]
    if len(set(names)) < len(names):
        names = [
            f"{name} {time.strftime('%H:%M:%S', time.localtime(run.began))}"
            for name, run in zip(names, runs)
        ]
    seen: dict[str, int] = {}
    for k, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        names[k] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return tuple(names)


def _running_mean(values: Any, width: int) -> Any:
    if width == 1 or not len(values):
        return values
    sums = np.cumsum(np.insert(values, 0, 0.0))
    begin = np.maximum(np.arange(1, len(values) + 1) - width, 0)
    ends = np.arange(1, len(values) + 1)
    return (sums[ends] - sums[begin]) / (ends - begin)
