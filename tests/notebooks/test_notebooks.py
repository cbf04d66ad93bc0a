"""Each notebook runs from top to bottom, and its exported page works alone, as `make demo` makes
it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import jupytext
import nbformat
import pytest

from nbmodule.marking.notebook import read_cells
from tests.notebooks.mistakes import MISTAKES, Mistake
from tools.make_notebooks import WITH_OUTPUTS, notebook_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
OF_CURVES = ("20_what_is_wrong", "21_runs_compared")  # their displays have no rows to unfold
# Seen as a kernel's own CPU time, which other work on the machine does not change. Two cores for 60
# s are 120 s.
CPU_SECONDS = 120


# Answers each line of arguments with the exit code of the command and what it printed. What kernels
# print goes elsewhere.
COMMAND = """
import json, os, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from tools.make_page import main

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    code, said = 1, StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = main(json.loads(line))
        except Exception:
            traceback.print_exc()
    print(json.dumps([code, said.getvalue()]), file=answers, flush=True)
"""


class PageMaker:
    """The command that `make demo` calls, loaded once for all notebooks; each of them has a kernel
    of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.log = folder / "kernels.txt"
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))])
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONPATH": paths},
            )

    def make(self, *arguments: str | Path) -> tuple[int, str]:
        """The exit code and what was printed."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([str(each) for each in arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            pytest.fail(f"the command ended:\n{self.log.read_text()}", pytrace=False)
        code, said = json.loads(answer)
        return code, said

    def end(self) -> None:
        self.process.communicate()


class Run:
    """A notebook that has run in a kernel of its own, with its page."""

    def __init__(self, source: Path, folder: Path, maker: PageMaker) -> None:
        self.source, at = source, folder / source.stem
        self.page, self.file = at.with_suffix(".html"), at.with_suffix(".ipynb")
        # The meter is appended to a copy, so that the kernel itself says what the whole notebook
        # has cost; the wrong answers come after it.
        copy = folder / source.name
        meter = "\n# %%\nimport time\n\nprint('CPU seconds', time.process_time())\n"
        copy.write_text(source.read_text() + meter + wrong_answers(source))
        self.code, self.said = maker.make(copy, self.page, "--keep", self.file)

    @property
    def notebook(self) -> NotebookNode:
        return nbformat.read(self.file, as_version=4)

    def printed(self) -> str:
        return "".join(o["text"] for o in self.outputs() if o.output_type == "stream")

    def code_cells(self, tag: str = "") -> list[NotebookNode]:
        cells = [cell for cell in self.notebook.cells if cell.cell_type == "code"]
        return [cell for cell in cells if not tag or tag in cell.metadata.get("tags", [])]

    def outputs(self) -> list[NotebookNode]:
        return [output for cell in self.code_cells() for output in cell.outputs]

    def displays(self) -> list[dict[str, str]]:
        return [output.data for output in self.outputs() if "data" in output]


def exercises(source: Path) -> list[list[NotebookNode]]:
    """Of each exercise the cell to be filled in, the one that checks, and the solution."""
    cells = [cell for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    return [cells[n : n + 3] for n, cell in enumerate(cells) if "# your answer" in cell.source]


def wrong_answers(source: Path) -> str:
    """Each planted mistake and the check that it has to fail, as further cells."""
    checks = [check.source for _, check, _ in exercises(source)]
    planted = [(each.answer, checks[each.exercise - 1]) for each in planted_in(source)]
    cells = [f'\n# %%\n{answer}\n\n# %% tags=["mistake"]\n{check}\n' for answer, check in planted]
    return "".join(cells)


def planted_in(source: Path) -> list[Mistake]:
    return [each for each in MISTAKES if each.lesson == source.stem[:2]]


def verdicts(cell: NotebookNode) -> list[str]:
    shown = "\n".join(o.data["text/plain"] for o in cell.outputs if "data" in o)
    return [line for line in shown.splitlines() if line[:1] in ("✓", "✗")]


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Run]]:
    maker, finished = PageMaker(tmp_path_factory.mktemp("command")), dict[Path, Run]()

    def run(source: Path) -> Run:
        if source not in finished:
            finished[source] = Run(source, tmp_path_factory.mktemp("notebook"), maker)
        if finished[source].code:
            pytest.fail(finished[source].said, pytrace=False)
        return finished[source]

    yield run
    maker.end()


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def run(request: pytest.FixtureRequest, run_once: Callable[[Path], Run]) -> Run:
    return run_once(request.param)


def test_every_cell_runs_in_about_a_minute(run):
    assert float(run.printed().split("CPU seconds ")[1]) < CPU_SECONDS


def test_nothing_is_written_to_standard_error(run):
    assert [o["text"] for o in run.outputs() if o.get("name") == "stderr"] == []


def test_solutions_of_exercises_are_right_and_folded(run, open_file):
    solutions = run.code_cells("solution")
    for cell in solutions:
        assert {verdict[0] for verdict in verdicts(cell)} == {"✓"}, cell.source
    if solutions:
        folded = open_file(run.page).locator("details:has(.celltag_solution):not([open])")
        assert folded.count() == len(solutions)


def test_exercises_that_are_not_filled_in_are_not_right_and_nothing_fails(run):
    checks = {check.source for _, check, _ in exercises(run.source)}
    mistakes = run.code_cells("mistake")
    asked = [cell for cell in run.code_cells() if cell.source in checks and cell not in mistakes]
    assert len(asked) == len(checks)
    for cell in asked:
        (verdict,) = verdicts(cell)
        assert verdict.startswith("✗"), cell.source


def test_planted_mistakes_are_found_and_explained(run):
    found = map(verdicts, run.code_cells("mistake"))
    for mistake, (verdict,) in zip(planted_in(run.source), found, strict=True):
        assert verdict.startswith("✗"), mistake
        assert mistake.says in verdict, (mistake, verdict)


def test_saved_outputs_hold_text_html_and_pictures_only(run):
    kinds = {kind for display in run.displays() for kind in display}
    assert kinds <= {"text/plain", "text/html", "image/png", "image/svg+xml"}
    assert "widgets" not in run.notebook.metadata


def test_the_saved_file_stays_below_five_megabytes_and_each_output_below_one(run):
    assert run.file.stat().st_size < 5e6
    assert all(len(text) < 1e6 for display in run.displays() for text in display.values())


def test_the_exported_page_opens_offline_and_its_displays_answer(run, open_file):
    page = open_file(run.page)
    page.screenshot(f"notebook-{run.source.stem}")
    if run.source.stem in OF_CURVES:
        log = page.locator("button:visible", has_text=re.compile("^log$")).first
        assert log.get_attribute("aria-pressed") == "false"
        log.click()
        page.locator("button[aria-pressed=true]:visible", has_text=re.compile("^log$")).wait_for()
        return
    row = page.locator("[aria-expanded]:visible").first
    before = row.get_attribute("aria-expanded")
    row.locator(".nbm-fold").click()
    assert page.locator("[aria-expanded]:visible").first.get_attribute("aria-expanded") != before


def test_the_first_model_reads_more_than_97_percent_of_unseen_digits(run_once):
    percent = run_once(NOTEBOOKS[0]).printed().split("% of the 360 digits")[0].split()[-1]
    assert float(percent) > 97


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_paired_file_is_what_jupytext_would_write(source, tmp_path):
    notebook = tmp_path / f"{source.stem}.ipynb"
    jupytext.write(jupytext.read(source), notebook)
    again = tmp_path / source.name
    jupytext.write(jupytext.read(notebook), again, fmt="py:percent")
    assert again.read_text() == source.read_text()


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_checked_in_notebook_is_the_one_made_from_its_source(source):
    written = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert written == notebook_text(source), "run `make notebooks`"


def test_the_first_lesson_is_checked_in_with_its_outputs_and_the_others_without():
    for source in NOTEBOOKS:
        cells = jupytext.read(source.with_suffix(".ipynb")).cells
        outputs = sum(len(cell.outputs) for cell in cells if cell.cell_type == "code")
        assert (outputs > 5) == (source.stem == WITH_OUTPUTS)


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_installs_what_is_missing_on_a_hosted_notebook(source):
    first = next(cell for cell in jupytext.read(source).cells if cell.cell_type == "code")
    assert first.source == first_cell_of(NOTEBOOKS[0])
    assert "hide-cell" in first.metadata["tags"]


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_lesson_has_a_goal_and_each_exercise_a_hint_that_opens(source):
    cells = jupytext.read(source).cells
    assert "*Goal:*" in cells[0].source
    text = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert text.count("<details><summary>A hint</summary>\n\n") == len(exercises(source))


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_exercise_has_a_cell_to_fill_in_and_one_that_checks(source):
    """So that `mark --against` can take the check from what was handed out and the answer from the
    student.
    """
    assert exercises(source)
    for answer, check, solution in exercises(source):
        assert "check(" not in answer.source
        assert len(ast.parse(answer.source).body) == 1  # the answer alone is overwritten
        assert "nb.check(" in check.source and not check.metadata.get("tags")
        assert solution.source.startswith("# Solution") and "solution" in solution.metadata["tags"]


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_that_are_marked_are_the_exercises(source, tmp_path):
    jupytext.write(jupytext.read(source), tmp_path / "lesson.ipynb")
    asked = [cell.source for cell in read_cells(tmp_path / "lesson.ipynb") if cell.checks]
    assert asked == [check.source for _, check, _ in exercises(source)]


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_variable_and_no_function_of_a_lesson_is_the_answer_to_an_exercise(source):
    """The expected value is an expression in the check, so that `return expected` is not right."""
    for _, check, _ in exercises(source):
        calls = [node for node in ast.walk(ast.parse(check.source)) if isinstance(node, ast.Call)]
        (call,) = [call for call in calls if ast.unparse(call.func) == "nb.check"]
        expected = call.args[1]
        while isinstance(expected, (ast.Attribute, ast.Subscript, ast.Starred)):
            expected = expected.value
        assert not isinstance(expected, ast.Name), check.source


def test_each_exercise_has_a_planted_mistake():
    for source in NOTEBOOKS:
        planted = {each.exercise for each in planted_in(source)}
        assert planted == set(range(1, len(exercises(source)) + 1))


def test_the_page_for_teachers_has_a_line_for_each_lesson():
    page = (ROOT / "docs" / "teaching.md").read_text()
    lines = re.findall(r"^\| (\d\d) .* \| \d+ \| .+ \|$", page, re.M)
    assert lines == [source.stem[:2] for source in NOTEBOOKS]


def first_cell_of(source: Path) -> str:
    return next(cell.source for cell in jupytext.read(source).cells if cell.cell_type == "code")


class Shell:
    """Notes what a notebook would have pip do."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run_line_magic(self, name: str, line: str) -> None:
        self.asked.append(f"{name} {line}")


@pytest.mark.parametrize(
    ("folder", "wanted"), [("checkout/notebooks", ".."), ("alone", "git+https://")]
)
def test_a_notebook_installs_from_where_it_came_and_leaves_jax_alone(
    tmp_path, monkeypatch, folder, wanted
):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkout" / "nbmodule").mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / folder)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    there = dict.fromkeys(("jax", "jaxlib", "jax-cuda12-plugin"), "0.9.2")
    there |= {"jaxtyping": "0.3.0", "numpy": "2.1.0"}
    found = [SimpleNamespace(name=name, version=version) for name, version in there.items()]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    shell = Shell()
    exec(first_cell_of(NOTEBOOKS[0]), {"get_ipython": lambda: shell})
    (line,) = shell.asked
    assert line.startswith(f"pip install -q {wanted}")
    assert line.endswith(" jax==0.9.2 jaxlib==0.9.2 jax-cuda12-plugin==0.9.2")


def test_a_notebook_installs_nothing_where_the_package_is(monkeypatch):
    shell = Shell()
    exec(first_cell_of(NOTEBOOKS[0]), {"get_ipython": lambda: shell})
    assert shell.asked == []
