"""The list of runs on disk and in memory, and their comparison."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, overload

from nbmodule.base.format import (
    format_count,
    format_number,
    format_seconds,
    is_better_when_higher,
    plain,
    printable_repr,
)
from nbmodule.base.kinds import is_real, is_whole
from nbmodule.errors import NbModuleError, PathError
from nbmodule.live.reporting.journal import folders_of, journals_in
from nbmodule.live.run_data.epochs import text_table, when
from nbmodule.live.run_data.history import load_extra
from nbmodule.live.run_data.in_memory import kept_runs
from nbmodule.live.runs.run import (
    RecordedRun,
    RunInMemory,
    series_names,
    varying_settings,
    write_parquet,
)
from nbmodule.live.runs.run_comparison import RunComparison, compare_runs

_MOST_SHOWN = 60
MOST_JUDGED = 100
"""Runs whose findings stand in the list; beyond, `runs[k].diagnosis` has them."""


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
        match = next((run for run in self._runs if key in (run.name, run.run_id)), None)
        if match is None:
            names = ", ".join(sorted({run.name for run in self._runs})[:8]) or "none"
            raise PathError(f"there is no run {key!r}. Names: {names}.")
        return match

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
        is_series = any(by in run.best for run in self._runs)
        if not is_series and not any(by in run.settings for run in self._runs):
            raise PathError(f"no run has a series or setting {by!r}.")
        sign = -1 if is_series and is_better_when_higher(by) else 1

        def key(run: RecordedRun) -> tuple[bool, float, str]:
            value = run.best.get(by, run.settings.get(by))
            return value is None, sign * value if is_real(value) else 0.0, str(value)

        return Runs(sorted(self._runs, key=key), self.errors)

    def compare(self, *names: int | str) -> RunComparison:
        """Compare these runs, or all of them; see `nb.compare_runs`."""
        return compare_runs(*(self[name] for name in names) if names else self._runs)

    @property
    def varying(self) -> list[str]:
        """Settings that differ among the runs."""
        return varying_settings(self._runs)

    @property
    def series(self) -> list[str]:
        """Names of the series, those that most runs have first."""
        return series_names(self._runs)

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

    def parent_of(self, run: RecordedRun) -> str:
        """Return the name and number of the run that one continues or branches off; '' if none."""
        number = next((k for k, other in enumerate(self) if other.run_id == run.parent), None)
        return run.parent if number is None else f"{self._runs[number].name} [{number}]"

    def columns(self, most: int) -> dict[str, list[Any]]:
        """Return the list as columns with a value per run, with at most so many settings that
        differ, and series. Findings are of the first `MOST_JUDGED` runs.
        """
        runs, settings, series = self._runs, self.varying[:most], self.series[:most]
        findings = [", ".join(run.diagnosis.names) for run in runs[:MOST_JUDGED]]
        return {
            "began": [when(run.began) for run in runs],
            "ran": [format_seconds(run.seconds) for run in runs],
            "ended": [run.state for run in runs],
            "steps": [run.step for run in runs],
            **{name: [run.settings.get(name) for run in runs] for name in settings},
            **{f"best {name}": [run.best.get(name) for run in runs] for name in series},
            "findings": findings + ["not judged"] * len(runs[MOST_JUDGED:]),
        }

    @printable_repr
    def __repr__(self) -> str:
        if not self._runs and not self.errors:
            return "no runs"
        shown = self[:_MOST_SHOWN]
        columns = {"run": [run.name for run in shown], **shown.columns(4)}
        lines = [
            text_table(list(columns), [list(map(_text, row)) for row in zip(*columns.values())])
        ]
        if len(self) > _MOST_SHOWN:
            lines.append(f"... {len(self) - _MOST_SHOWN} more: runs[{_MOST_SHOWN}:]")
        lines += [f"{path.name}: {plain(error, 120)}" for path, error in self.errors.items()]
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from nbmodule.live.runs import display  # noqa: F401 registers the record
        from nbmodule.views import mimebundle

        return mimebundle(self)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return format_number(value, 4)
    return format_count(value) if is_whole(value) else plain(str(value), 32)


def runs(folder: str | os.PathLike[str] | None = None) -> Runs:
    """Return all runs on disk and those of this process without a journal, newest first.

    What a rewind left behind and the branches of `live.what_if` are runs with a `parent`.

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
    recorded: list[RecordedRun] = []
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
            recorded.append(RunInMemory(kept))
    return Runs(sorted(recorded, key=lambda run: (run.began, run.run_id), reverse=True), errors)
