"""`python -m nbmodule mark FOLDER`: run every notebook of a class, with limits, and mark it.

An exercise is a cell that calls `nb.check`. It is right when each check in it says so and the cell
ends without an error; it is not marked when something else kept it from being checked.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentError, NbModuleError
from nbmodule.marking.confine import can_confine
from nbmodule.marking.notebook import read_cells
from nbmodule.marking.pages import as_csv, first_mistake, student_page, summary_page, table
from nbmodule.marking.results import Limits, Marks, Task, from_json, not_run
from nbmodule.marking.submissions import find_submissions
from nbmodule.marking.supervise import NOBODY, shown_environment

_PATIENCE = 120  # seconds beyond its limit that a notebook's supervisor has to end it
_ANYWHERE = (
    "This system cannot keep a notebook from writing elsewhere: run the marking in a container, "
    "or trust the notebooks."
)
_AS_ROOT = (
    "This runs as root, and no other user can run what is installed here, so notebooks run as "
    "root: mark as another user."
)
# Below the home of the teacher; of these, and of the folder of the class, nothing is read.
_AT_HOME = (
    ".ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .password-store .mozilla "
    ".netrc .git-credentials .pypirc .npmrc .pgpass"
).split()


def mark(
    folder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    against: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    on_marks: Callable[[Marks], None] = lambda marks: None,
    *,
    jobs: int = 1,
) -> list[Marks]:
    """Run each notebook of a class in processes of its own and mark its exercises.

    Each runs in a fresh folder, with copies of the student's data, may write there alone, and
    leaves nothing behind. A notebook that cannot be read, crashes or attacks ends itself alone.

    Args:
        folder: One or several with notebooks (`.ipynb`) or folders of students; see `submissions`.
        against: The notebook that was handed out, or one with hidden checks. Cells that check are
            taken from it, so that changing or deleting them does not help.
        limits: Of each notebook.
        on_marks: Called with the marks of each, as soon as they are known.
        jobs: How many run at the same time.

    Returns:
        Marks in the order of the folders and of the names in them.

    Raises:
        ArgumentError: There is no notebook to be marked, or none that checks anything.
        FileFormatError: `against` is no notebook.
    """
    is_one = isinstance(folder, (str, os.PathLike))
    folders = [Path(path) for path in ([folder] if is_one else folder)]
    for path in folders:
        if not path.is_dir():
            raise ArgumentError(f"mark: {str(path)!r} is no folder.")
    original = None if against is None else Path(against).resolve()
    cells = None
    if original is not None:
        if not original.is_file():
            raise ArgumentError(f"mark: {str(against)!r} is no file.")
        cells = read_cells(original)
        if not any(cell.checks for cell in cells):
            raise ArgumentError(
                f"mark: no cell of {str(against)!r} calls nb.check, so there is nothing to mark. "
            )
    submissions = find_submissions(folders, original)
    if not submissions:
        raise ArgumentError(
            f"mark: there is no notebook (.ipynb) in {', '.join(map(str, folders))} or below. "
        )
    hidden = [*(path.resolve() for path in folders), *(Path.home() / name for name in _AT_HOME)]
    hidden.append(Path(f"/proc/{os.getpid()}"))  # its environment, where notebooks run as root
    hidden += [] if original is None else [original]
    given = cells, limits or Limits(), hidden, NOBODY if can_drop_root() else None
    supervisors: set[subprocess.Popen[bytes]] = set()
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        pending = [
            pool.submit(_supervise, Task(submission, *given), supervisors)
            for submission in submissions
        ]
        try:
            for future in as_completed(pending):
                on_marks(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(supervisors):
                process.terminate()
            raise
    return [future.result() for future in pending]


def _supervise(task: Task, supervisors: set[subprocess.Popen[bytes]]) -> Marks:
    """Mark one notebook in a process of its own; whatever happens there becomes its marks."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "nbmodule.marking.supervise"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    )
    supervisors.add(process)
    try:
        timeout = task.limits.seconds + _PATIENCE
        answer, report = process.communicate(pickle.dumps(task), timeout=timeout)
        if process.returncode == 0:
            return from_json(json.loads(answer))  # no pickle: it ran hostile code
        lines = report.decode(errors="replace").strip().splitlines()
        reason = lines[-1][:300] if lines else f"it ended with {process.returncode}"
    except (subprocess.TimeoutExpired, OSError, ValueError, KeyError, TypeError) as error:
        reason = type(error).__name__
    finally:
        process.kill()
        process.wait()
        supervisors.discard(process)
    return not_run(task, f"the process that marks it failed ({reason})")


def _environment() -> dict[str, str]:
    """Return the environment of a supervisor, which imports from where this process does."""
    entries = [entry for entry in sys.path if entry and os.path.isdir(entry)]
    return shown_environment() | {"PYTHONPATH": os.pathsep.join(entries)}


@functools.cache
def can_drop_root() -> bool:
    """Return True if this is root and another user can run what is installed here."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    code = "import nbmodule.calls.differences, IPython.core.interactiveshell"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            env=_environment() | {"HOME": "/", "IPYTHONDIR": "/dev/null"},
            cwd="/",
            capture_output=True,
            check=False,
            timeout=120,
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
    return done.returncode == 0


# -- the command --
def main(arguments: Sequence[str]) -> int:
    """Mark a folder; return 0, or 2 for an error.

    Marks are written as they are known: `marks.csv`, a page for each notebook, and `summary.html`.
    """
    usual = Limits()
    parser = argparse.ArgumentParser(
        prog="python -m nbmodule mark",
        description="Run each notebook of a class in a confined process and mark the cells that "
        "call nb.check.",
    )
    add = parser.add_argument
    add("folder", nargs="+", help="the notebooks (.ipynb), or one folder for each student")
    add("--against", metavar="NOTEBOOK", help="the notebook that was handed out; its checks count")
    add("--out", metavar="FOLDER", help="where marks go; marks in the first folder by default")
    add("--jobs", type=int, default=1, help="how many notebooks run at once (%(default)s)")
    add("--seconds", type=_positive, default=usual.seconds, help="for each notebook (%(default)g)")
    add("--cpu", type=_positive, default=usual.cpu, help="processor seconds (%(default)g)")
    add("--memory", type=_positive, default=usual.memory / 2**20, help="MiB (%(default)g)")
    add("--output", type=_positive, default=usual.output, help="characters of a cell (%(default)g)")
    add("--network", action="store_true", help="let the notebooks open connections")
    options = parser.parse_args(arguments)
    memory, output = int(options.memory * 2**20), int(options.output)
    limits = Limits(options.seconds, options.cpu, memory, output, network=options.network)
    out = Path(options.out) if options.out else Path(options.folder[0]) / "marks"
    if not can_confine():
        print(_ANYWHERE, file=sys.stderr)
    if hasattr(os, "geteuid") and os.geteuid() == 0 and not can_drop_root():
        print(_AS_ROOT, file=sys.stderr)
    results: list[Marks] = []

    def write(marks: Marks) -> None:
        results.append(marks)
        out.mkdir(parents=True, exist_ok=True)
        _write(out / f"{marks.name}.html", student_page(marks))
        _write(out / "marks.csv", as_csv(sorted(results, key=lambda each: each.name)))
        points = f"{marks.name}: {marks.points} of {len(marks.exercises)}"
        print(points, first_mistake(marks), file=sys.stderr, flush=True)

    try:
        ordered = mark(options.folder, options.against, limits, write, jobs=options.jobs)
        _write(out / "marks.csv", as_csv(ordered))
        _write(out / "summary.html", summary_page(ordered, Path(options.folder[0]).resolve().name))
    except (NbModuleError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(ordered))
    print(f"Wrote {out / 'marks.csv'}, {out / 'summary.html'} and a page for each notebook.")
    return 0


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return number


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
