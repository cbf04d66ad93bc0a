"""The list of runs on disk and in memory, and runs compared: settings that differ, results, code,
models, and curves over one another.
"""

from __future__ import annotations

import argparse
import difflib
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np

from nbmodule.base.format import format_number, is_better_when_higher, plain, printable_repr
from nbmodule.base.kinds import is_real, is_whole
from nbmodule.errors import ArgumentError, NbModuleError, PathError
from nbmodule.live.reporting.journal import folders_of, journals_in
from nbmodule.live.run_data.history import load_extra
from nbmodule.live.runs.record import RecordedRun, RunRecord, kept_runs, write_parquet
from nbmodule.live.runs.run_views import comparison_html, comparison_table, runs_table
from nbmodule.views import mimebundle, register_record
from nbmodule.views.renderers.plain_text import text_of


class RunComparison:
    """Several runs compared: settings that differ, results, curves over one another.

    Attributes:
        runs: The runs that are compared.
        names: A name for each, made distinct by the settings that differ.
    """

    def __init__(self, runs: Sequence[RunRecord]) -> None:
        self.runs = Runs(runs)
        self.names = _distinct_names(self.runs)

    @property
    def settings(self) -> dict[str, list[Any]]:
        """For each setting that differs its value in each run."""
        return {n: [run.settings.get(n) for run in self.runs] for n in self.runs.varying}

    @property
    def best(self) -> dict[str, list[float | None]]:
        """For each series its best value in each run."""
        return {name: [run.best.get(name) for run in self.runs] for name in self.runs.series}

    @property
    def findings(self) -> dict[str, list[str]]:
        """The findings of the rules for curves in each run."""
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
        from nbmodule.calls.differences import diff

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
            if series in run.history and len(run.history[series]):
                curve = run.history[series]
                values = _running_mean(curve.values.astype(np.float64), smooth)
                curves[name] = _axis(run, curve.steps, by), values
        if not curves:
            raise PathError(f"no run has logged {series!r}; logged: {', '.join(self.runs.series)}.")
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
            is_within = ~(np.abs(y) > limit)
            label = name if is_within.all() else f"{name}, then beyond {format_number(limit)}"
            drawn[label] = x[is_within], y[is_within]
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

    @printable_repr
    def __repr__(self) -> str:
        return text_of(comparison_table(self), color=False)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": comparison_html(self)}


def compare_runs(*runs: RunRecord) -> RunComparison:
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
    wrong = [run for run in runs if not isinstance(run, RunRecord)]
    if wrong or len(runs) < 2:
        what = f"got {type(wrong[0]).__name__}" if wrong else f"got {len(runs)}"
        raise ArgumentError(f"compare_runs takes two runs of nb.runs() or more, {what}.")
    return RunComparison(runs)


def _distinct_names(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a name for each run. Those of one name have settings that differ among them, or when
    they began, behind it, as few as tell them apart.
    """
    names = [run.name or "run" for run in runs]
    for name in set(names):
        alike = [k for k, other in enumerate(names) if other == name]
        began = [time.strftime(" %H:%M:%S", time.localtime(runs[k].began)) for k in alike]
        endings = [
            [f" {setting}={plain(str(runs[k].settings.get(setting)), 16)}" for k in alike]
            for setting in Runs(runs[k] for k in alike).varying
        ]
        numbers = [f" ({number})" for number in range(1, len(alike) + 1)]
        for column in (*endings, began, numbers):
            if len({names[k] for k in alike}) < len(alike):
                for k, ending in zip(alike, column):
                    names[k] += ending
    return tuple(names)


def _axis(run: RunRecord, steps: Any, by: str) -> Any:
    """Return the position of some steps of a run along an axis."""
    if by == "time":
        return run.seconds_at(steps)
    if by == "epoch":
        ends = [0, *(row["step"] for row in run.epochs().rows)]
        return np.interp(steps, ends, np.arange(len(ends)))
    return steps / max(run.step, 1) if by == "share" else steps.astype(np.float64)


def _running_mean(values: Any, width: int) -> Any:
    counts = np.minimum(np.arange(len(values)) + 1, width)
    return np.convolve(values, np.ones(width))[: len(values)] / counts


_MOST_SHOWN = 60
"""Lines of the list as text."""


class Runs(Sequence[RunRecord]):
    """Runs, newest first. `runs[0]` is the newest, `runs["name"]` the newest of that name.

    A journal that cannot be read is not hidden: `errors` names it with its fault.
    """

    def __init__(self, runs: Iterable[RunRecord], errors: Mapping[Path, str] | None = None) -> None:
        self._runs = list(runs)
        self.errors = dict(errors or {})
        """For each journal that cannot be read, why."""

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> RunRecord: ...
    @overload
    def __getitem__(self, key: slice) -> Runs: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return Runs(self._runs[key], self.errors)
        if not isinstance(key, str):
            return self._runs[key]
        match = next((run for run in self._runs if key in (run.name, run.run_id)), None)
        if match is None:
            names = ", ".join(sorted({run.name for run in self._runs})[:8]) or "none"
            raise PathError(f"there is no run {key!r}. Names: {names}.")
        return match

    def filter(self, test: Callable[[RunRecord], bool] | None = None, /, **settings: Any) -> Runs:
        """Return the runs for which `test(run)` holds and whose settings have these values."""

        def fits(run: RunRecord) -> bool:
            return (test is None or test(run)) and all(
                run.settings.get(name) == value for name, value in settings.items()
            )

        return Runs(filter(fits, self._runs), self.errors)

    def sort(self, by: str) -> Runs:
        """Return the runs ordered by the best value of a series, or by a setting; best first.

        Raises:
            PathError: If no run has such a series or setting.
        """
        is_series = any(by in run.best for run in self._runs)
        if not is_series and not any(by in run.settings for run in self._runs):
            raise PathError(f"no run has a series or setting {by!r}.")
        sign = -1 if is_series and is_better_when_higher(by) else 1

        def key(run: RunRecord) -> tuple[bool, float, str]:
            value = run.best.get(by, run.settings.get(by))
            return value is None, sign * value if is_real(value) else 0.0, str(value)

        return Runs(sorted(self._runs, key=key), self.errors)

    def compare(self, *names: int | str) -> RunComparison:
        """Compare these runs, or all of them; see `nb.compare_runs`."""
        return compare_runs(*(self[name] for name in names) if names else self._runs)

    @property
    def varying(self) -> list[str]:
        """Settings that differ among the runs."""
        names = dict.fromkeys(name for run in self for name in run.settings)
        return [n for n in names if len({repr(run.settings.get(n)) for run in self}) > 1]

    @property
    def series(self) -> list[str]:
        """Names of the series, those that most runs have first."""
        counts = Counter(series.name for run in self for series in run.history)
        return [name for name, _ in counts.most_common()]

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dict per run: name, times, state, settings, best and last of each series."""
        return [
            {
                "name": run.name, "run": run.run_id, "began": run.began, "seconds": run.seconds,
                "state": run.state, "reason": run.reason, "step": run.step, "tags": list(run.tags),
                "note": run.note, "parent": run.parent, "path": str(run.path or ""),
                "notebook": run.notebook, "cell": run.cell, "commit": run.commit,
                "findings": list(run.diagnosis.names),
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
        return load_extra("pandas", "to_pandas").DataFrame(self.to_records())

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file with a row per run; settings of several types are written as text.

        Raises:
            MissingDependencyError: If pandas or pyarrow is missing.
        """
        records = self.to_records()
        columns = {name: [each.get(name) for each in records] for each in records for name in each}
        for name, values in columns.items():
            if len({type(value) for value in values if value is not None}) > 1:
                columns[name] = [None if value is None else str(value) for value in values]
        write_parquet(columns, path, {})

    def parent_of(self, run: RunRecord) -> str:
        """Return the name and number of the run that one continues or branches off; '' if none."""
        number = next((k for k, other in enumerate(self) if other.run_id == run.parent), None)
        return run.parent if number is None else f"{self._runs[number].name} [{number}]"

    @printable_repr
    def __repr__(self) -> str:
        errors = [f"{path.name}: {plain(error, 120)}" for path, error in self.errors.items()]
        return "\n".join([text_of(runs_table(self), limit=_MOST_SHOWN, color=False), *errors])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return mimebundle(self)


register_record(Runs, runs_table)


def runs(folder: str | os.PathLike[str] | None = None) -> Runs:
    """Return all runs on disk and those of this process without a journal, newest first.

    The parts cut off by rewinds and the branches of `live.what_if` are runs with a `parent`.

    Args:
        folder: Where the journals are, as given to `nb.Live(journal=...)`: only its runs and their
            branches are listed. The folder beside the notebook if not given.

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
    location = None if folder is None else os.fspath(folder)
    recorded: list[RunRecord] = []
    errors: dict[Path, str] = {}
    for directory in folders_of(location):
        for path in journals_in(directory):
            try:
                recorded.append(RecordedRun(path))
            except (NbModuleError, OSError, ValueError, KeyError, TypeError) as error:
                errors[path] = f"{type(error).__name__}: {error}"
    known = {run.run_id for run in recorded}
    for kept in [*(branch for run in recorded for branch in run.branches), *kept_runs()]:
        is_listed = not kept.has_journal and kept.run_id not in known
        if is_listed and (folder is None or kept.parent in known):
            recorded.append(kept)
    return Runs(sorted(recorded, key=lambda run: (run.began, run.run_id), reverse=True), errors)


# -- python -m nbmodule runs --
def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status, 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m nbmodule runs", description="List, compare and report runs kept on disk."
    )
    parser.add_argument("folder", nargs="?", help="folder of the journals (.nbmodule_runs)")
    parser.add_argument("--sort", metavar="NAME", help="order by a series or a setting, best first")
    parser.add_argument("--compare", nargs="+", metavar="RUN", help="names or numbers of the list")
    parser.add_argument("--report", nargs=2, metavar=("RUN", "PAGE"), help="write one HTML page")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        listed = runs(options.folder)
        listed = listed.sort(options.sort) if options.sort else listed
        if options.compare:
            print(listed.compare(*map(_key, options.compare)))
        elif options.report:
            name, page = options.report
            listed[_key(name)].report(page)
            print(f"wrote {page}")
        else:
            print(listed)
    except (NbModuleError, OSError, IndexError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _key(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text
