"""Runs compared: settings that differ, results, code, models, and curves over one another."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nbmodule.base.format import format_count, format_number, format_seconds, plain, printable_repr
from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentError, PathError
from nbmodule.live.run_data.epochs import text_table
from nbmodule.live.runs.run import RecordedRun, series_names, varying_settings


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
        names = varying_settings(self.runs)
        return {name: [run.settings.get(name) for run in self.runs] for name in names}

    @property
    def best(self) -> dict[str, list[float | None]]:
        """For each series its best value in each run."""
        return {name: [run.best.get(name) for run in self.runs] for name in series_names(self.runs)}

    @property
    def findings(self) -> dict[str, list[str]]:
        """For each run what the rules for curves say."""
        return {name: list(run.diagnosis.names) for name, run in zip(self.names, self.runs)}

    @property
    def code(self) -> str:
        """The difference between the cells of the first two runs, as lines of `diff -u`; empty if
        nothing does, or the code is not known.
        """
        before, after = (run.code.splitlines() for run in self.runs[:2])
        lines = difflib.unified_diff(before, after, *self.names[:2], lineterm="", n=2)
        return "\n".join(lines)

    @property
    def models(self) -> Any:
        """The difference of the saved variables of the first two runs, as `nb.diff` gives it.

        Raises:
            ArgumentError: If a run saved no variables: give the model to `nb.Live`.
        """
        from nbmodule.calls import diff

        before, after = (run.model for run in self.runs[:2])
        for name, model in zip(self.names, (before, after)):
            if model is None:
                raise ArgumentError(f"{name!r} saved no variables: give nb.Live its model.")
        return diff(before, after)

    def curves(
        self, series: str, *, by: str = "step", smooth: int = 1
    ) -> dict[str, tuple[Any, Any]]:
        """Return one series of each run as `(x, y)`.

        Args:
            series: Name of the series.
            by: `step`, `epoch` (validations so far), `share` (of the run's steps) or `time`
                (seconds since its begin).
            smooth: Points of a running mean.

        Raises:
            PathError: If no run has the series.
            ArgumentError: If `by` or `smooth` has no meaning.
        """
        if by not in ("step", "epoch", "share", "time"):
            raise ArgumentError(f"by must be 'step', 'epoch', 'share' or 'time', got {by!r}.")
        if not is_whole(smooth) or smooth < 1:
            raise ArgumentError(f"smooth must be at least 1 (points), got {smooth!r}.")
        curves = {}
        for name, run in zip(self.names, self.runs):
            if series not in run.history:
                continue
            curve = run.history[series]
            values = curve.values.astype(np.float64)
            curves[name] = (
                _axis(run, curve.steps, by),
                values if smooth == 1 else _running_mean(values, smooth),
            )
        if not curves:
            raise PathError(
                f"no run has logged {series!r}; logged: {', '.join(series_names(self.runs))}."
            )
        return curves

    def drawn_curves(
        self, series: str, *, by: str = "step", smooth: int = 1
    ) -> dict[str, tuple[Any, Any]]:
        """Return the curves as a plot shows them: a run that diverged must not flatten the others.

        Values beyond ten times the largest of the median run (of an even number the lower one) are
        left out, and the name of the run says so.
        """
        curves = self.curves(series, by=by, smooth=smooth)
        tops = {name: np.abs(y[np.isfinite(y)]).max(initial=0) for name, (_, y) in curves.items()}
        limit = 10 * sorted(tops.values())[(len(tops) - 1) // 2] or math.inf
        drawn = {}
        for name, (x, y) in curves.items():
            if tops[name] > limit:
                is_within = ~(np.abs(y) > limit)
                name, x, y = (
                    f"{name}, then beyond {format_number(limit)}",
                    x[is_within],
                    y[is_within],
                )
            drawn[name] = (x, y)
        return drawn

    def plot(self, series: str, *, by: str = "step", smooth: int = 1, log: bool = False) -> Any:
        """Draw one series of all runs with matplotlib and return the figure.

        Without `log`, values of a run that diverged are left out, which its label says.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 3.2), layout="constrained")
        axes = figure.add_subplot(xlabel=by, ylabel=series, yscale="log" if log else "linear")
        curves = (self.curves if log else self.drawn_curves)(series, by=by, smooth=smooth)
        for name, (x, y) in curves.items():
            axes.plot(x, y, label=name)
        axes.legend()
        return figure

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows: settings that differ first, then results; a column for each run."""
        rows = [
            [name, *(plain(str(value), 24) for value in values)]
            for name, values in self.settings.items()
        ]
        for name in self.best:
            for word in ("best", "last"):
                values = (getattr(run, word).get(name) for run in self.runs)
                cells = ("" if value is None else format_number(value, 4) for value in values)
                rows.append([f"{word} {name}", *cells])
        rows.append(["steps", *(format_count(run.step) for run in self.runs)])
        rows.append(["ran", *(format_seconds(run.seconds) for run in self.runs)])
        rows.append(["ended", *(run.state for run in self.runs)])
        rows.append(["findings", *map(", ".join, self.findings.values())])
        return ["", *self.names], [row for row in rows if any(row[1:])]

    @printable_repr
    def __repr__(self) -> str:
        return text_table(*self.table())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from nbmodule.live.runs.comparison_view import comparison_html

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
    if len(runs) == 1 and isinstance(runs[0], Sequence):
        runs = tuple(runs[0])
    wrong = [run for run in runs if not isinstance(run, RecordedRun)]
    if wrong or len(runs) < 2:
        what = f"got {type(wrong[0]).__name__}" if wrong else f"got {len(runs)}"
        raise ArgumentError(f"compare_runs takes two runs of nb.runs() or more, {what}.")
    return RunComparison(runs)


def _distinct_names(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """Return a name for each run. Those of one name have settings that differ among them, or when
    they began, behind it, as few as tell them apart.
    """
    names = [run.name or "run" for run in runs]
    for name in set(names):
        alike = [k for k, other in enumerate(names) if other == name]
        began = [time.strftime(" %H:%M:%S", time.localtime(runs[k].began)) for k in alike]
        endings = [
            [f" {setting}={plain(str(runs[k].settings.get(setting)), 16)}" for k in alike]
            for setting in varying_settings([runs[k] for k in alike])
        ]
        numbers = [f" ({number})" for number in range(1, len(alike) + 1)]
        for column in (*endings, began, numbers):
            if len({names[k] for k in alike}) < len(alike):
                for k, ending in zip(alike, column):
                    names[k] += ending
    return tuple(names)


def _axis(run: RecordedRun, steps: Any, by: str) -> Any:
    """Return the position of some steps of a run along an axis."""
    if by == "time":
        return run.seconds_at(steps)
    if by == "epoch":
        ends = [0, *(row["step"] for row in run.epochs().rows)]
        return np.interp(steps, ends, np.arange(len(ends)))
    return steps / max(run.step, 1) if by == "share" else steps.astype(np.float64)


def _running_mean(values: Any, width: int) -> Any:
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    begin = np.maximum(ends - width, 0)
    return (sums[ends] - sums[begin]) / (ends - begin)
