"""Runs kept on disk: listed, compared, reported, exported."""

from __future__ import annotations

import csv
import gc
import importlib.util
import re
import weakref

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.__main__ import main
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.reporting import journal
from nbmodule.live.runs.cell_comparison import CellComparison
from tests.live.loops import Loop, run


def train(folder, lr, *, steps=40, name="demo", tags=(), **config):
    options = {"journal": folder, "name": name, "config": {"lr": lr, **config}, "tags": tags}
    with nb.Live(display=False, **options) as live:
        for i in live.steps(range(steps)):
            loss = float(np.exp(-lr * i))
            live.log(loss=loss)
            if i % 10 == 9:
                live.log(val_loss=loss + 0.1, val_accuracy=1 - loss)
    return live


@pytest.fixture
def folder(tmp_path):
    for lr in (0.3, 0.1, 0.01):
        train(tmp_path, lr, tags=["sweep"], data={"size": 8})
    return tmp_path


def test_all_runs_are_listed_with_their_settings_and_results(folder):
    found = nb.runs(folder)
    assert len(found) == 3
    assert {run.settings["lr"] for run in found} == {0.3, 0.1, 0.01}
    assert found[0].settings["data.size"] == 8 and found[0].tags == ("sweep",)
    assert [run.state for run in found] == ["done"] * 3
    best = {run.settings["lr"]: run.best["val_loss"] for run in found}
    assert best == {lr: pytest.approx(np.exp(-lr * 39) + 0.1) for lr in best}
    assert found.varying == ["lr"]


def test_runs_are_sorted_filtered_and_found_by_name(folder):
    train(folder, 1.0, name="other")
    found = nb.runs(folder)
    for series in ("val_loss", "val_accuracy"):  # whether less or more is better
        assert found.sort(series)[0].settings["lr"] == 1.0
    assert [run.settings["lr"] for run in found.sort("lr")] == [0.01, 0.1, 0.3, 1.0]
    assert found["other"].settings["lr"] == 1.0
    assert len(found.filter(lr=0.1)) == 1 and len(found[1:]) == 3
    assert len(found.filter(lambda run: run.best["loss"] < 0.5)) == 3


REFUSED = {
    "vall_loss": lambda runs: runs.sort("vall_loss"),
    "Names: demo": lambda runs: runs["nobody"],
    "two runs of nb.runs.. or more, got 0": lambda runs: nb.compare_runs(),
    "two runs of nb.runs.. or more, got int": lambda runs: nb.compare_runs(1, 2),
    "'step', 'epoch', 'share' or 'time'": lambda runs: runs.compare().curves("loss", by="epochs"),
    "logged: loss": lambda runs: runs.compare().curves("lost"),
    "tags must be a list of str, got 'word'": lambda runs: setattr(runs[0], "tags", "word"),
    "tags must be a list of str, got .1.": lambda runs: setattr(runs[0], "tags", [1]),
    "note must be a str, got 3": lambda runs: setattr(runs[0], "note", 3),
    "config": lambda runs: nb.Live(config=[1]),
    "tags.*'word'": lambda runs: nb.Live(tags="word"),
    "tags.*1": lambda runs: nb.Live(tags=[1]),
    "patience": lambda runs: nb.no_improvement("val_loss", patience=0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_arguments_without_meaning_are_refused(folder, message):
    with pytest.raises((nb.PathError, ArgumentError, ArgumentTypeError), match=message):
        REFUSED[message](nb.runs(folder))
    assert not list(folder.glob("*.json"))


def trained_run(**options):
    """A run that is rewound from step 8 to 5, and whose next steps are tried twice."""
    loop = Loop()
    live, _, _ = run(loop, lambda live, k: live.rewind(5) if k == 8 else None, **options)
    live.what_if(3, rates=[0.5, 1.0])
    return weakref.ref(loop.model)


def in_memory(name):
    return nb.runs().filter(lambda run: run.name == name)


def test_runs_without_a_journal_are_listed_while_they_go_on_and_after(tmp_path):
    with nb.Live(display=False, name="unkept", config={"lr": 0.5}, tags=["now"]) as live:
        for i in live.steps(range(4)):
            live.log(loss=float(4 - i))
            assert live.history.loss.last == 4 - i
            (run,) = in_memory("unkept")
            assert (run.state, run.step) == ("running", i + 1)
    (run,) = in_memory("unkept")
    assert (run.state, run.step, run.best, run.snapshot) == ("done", 4, {"loss": 1.0}, None)
    assert (run.settings["lr"], run.tags, run.path) == (0.5, ("now",), None)
    run.note = "kept in memory"
    assert in_memory("unkept")[0].note == "kept in memory"
    assert len(in_memory("unkept").to_records()) == 1 and not nb.runs(tmp_path)
    run.report(tmp_path / "page.html")
    assert "unkept" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("kept", ["memory", "journal"])
def test_branches_and_the_part_cut_off_by_a_rewind_are_runs_with_a_parent(tmp_path, kept):
    options = {"journal": tmp_path} if kept == "journal" else {}
    model = trained_run(name=f"branched {kept}", **options)
    found = nb.runs(tmp_path) if kept == "journal" else in_memory("branched memory")
    whole = next(each for each in found if not each.parent)
    branches = {r.settings["branch"]: r for r in found if r.parent == whole.run_id}
    assert set(branches) == {"x 1", "x 0.5", "rewound 8 → 5"}
    assert branches["rewound 8 → 5"].history.loss.steps.tolist() == list(range(1, 9))
    assert branches["x 1"].history.loss.steps.tolist() == [25, 26, 27]
    assert whole.history.loss.steps.tolist() == list(range(1, 25))
    comparison = found.compare()
    assert comparison.settings == {"branch": [r.settings.get("branch") for r in found]}
    assert found.parent_of(branches["x 1"]) == f"branched {kept} [{list(found).index(whole)}]"
    if kept == "memory":
        del whole, branches, comparison, found
        gc.collect()
        assert model() is None  # nothing in the list keeps it


def test_the_oldest_runs_in_memory_are_dropped(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nbmodule.live.runs.record.MOST_RUNS", 3)
    for number in range(5):
        with nb.Live(display=False, name=f"run {number}") as live:
            live.log(loss=1.0)
    assert [run.name for run in nb.runs()] == ["run 4", "run 3", "run 2"]


def test_a_run_that_diverged_does_not_flatten_the_others(tmp_path):
    for lr in (0.1, 0.2, -0.5):
        train(tmp_path, lr)
    comparison = nb.runs(tmp_path).compare()
    curves = comparison.drawn_curves("loss")
    assert max(y.max() for _, y in curves.values()) <= 10.0
    assert "demo lr=-0.5, then beyond 10" in curves and "demo lr=0.1" in curves
    assert comparison.plot("loss").axes[0].get_ylim()[1] < 11.0
    assert comparison.plot("loss", log=True).axes[0].get_ylim()[1] > 1e8
    assert "then beyond 10" in comparison._repr_mimebundle_()["text/html"]
    others = nb.runs(tmp_path).filter(lambda run: run.settings["lr"] > 0).compare()
    assert list(others.drawn_curves("loss")) == list(others.names)


SWEEP = """
for lr in (0.3, 0.1, 0.01):
    with Live(name="demo", config=dict(lr=lr), journal=False) as live:
        for i in live.steps(range(20)):
            live.log(loss=lr * i)
"""


def test_several_runs_of_one_cell_become_their_comparison(kernel):
    shown = []
    for code in (SWEEP, "with Live(name='alone', journal=False): pass"):
        message = kernel.start(code)
        kernel.wait(lambda m=message: m in kernel.replies and kernel.is_idle(m))
        contents = kernel.displayed(message)
        last = {c["transient"]["display_id"]: c["data"]["text/html"] for c in contents}
        shown.append(list(last.values()))
    sweep, alone = shown
    views = [html for html in sweep if html.startswith("<details>")]
    (comparison,) = (html for html in sweep if not html.startswith("<details>"))
    for lr, html in zip((0.3, 0.1, 0.01), views, strict=True):
        assert f"view of demo lr={lr}" in html
    assert all(word in comparison for word in ("3 runs compared", "best loss", "last loss"))
    assert len(alone) == 1 and not alone[0].startswith("<details>")


def test_the_comparison_of_a_cell_is_bounded_and_can_be_text_alone(monkeypatch):
    monkeypatch.setattr("nbmodule.live.runs.record.running_execution", lambda: "cell 3")
    for lr in range(10):
        with nb.Live(display=False, name="demo", config={"lr": lr}) as live:
            live.log(loss=1.0)
    comparison = CellComparison("cell 3")
    html = comparison._bundle()["text/html"]
    assert "the last 8 of 10 runs" in html and "lr=9" in html and "lr=1 " not in html
    monkeypatch.setenv("NBMODULE_DISPLAY", "text")
    assert set(comparison._bundle()) == {"text/plain"}


def test_settings_become_data_and_those_of_crafted_or_damaged_journals_are_ignored(tmp_path):
    nb.seed(7)
    odd = {"array": np.float32(0.5), "nested": {"a": {"b": 1}}, "list": [1, 2], "fn": len}
    with nb.Live(display=False, journal=tmp_path, config={**odd, "long": "x" * 9999}) as live:
        for x in live.steps(nb.batches(np.ones((8, 2)), 4)):
            live.log(loss=x.sum())
    settings = nb.runs(tmp_path)[0].settings
    assert settings["array"] == 0.5 and settings["nested.a.b"] == 1 and settings["list"] == [1, 2]
    assert "built-in" in settings["fn"] and len(settings["long"]) == 300
    assert (settings["batch_size"], settings["seed"]) == (4, 7)
    head = {"name": "<script>alert(1)</script>", "settings": ["lr"], "tags": "x", "run": 3}
    record = journal._MAGIC + journal._record("run", head)
    (tmp_path / "20200101-000000-odd.nbrun").write_bytes(record)
    (tmp_path / "20200101-000000-bad.nbrun").write_bytes(b"not a journal")
    found = nb.runs(tmp_path)
    assert len(found) == 2 and found[1].settings == {} and found[1].tags == ()
    found[1].report(tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text().split("<body>")[1]
    assert len(found.errors) == 1 and "20200101-000000-bad.nbrun: FileFormatError" in repr(found)
    assert "1 cannot be read" in found._repr_mimebundle_()["text/html"]


def test_a_comparison_shows_differing_settings_first_and_curves_on_one_scale(folder):
    comparison = nb.runs(folder).sort("lr").compare()
    assert comparison.settings == {"lr": [0.01, 0.1, 0.3]}
    assert comparison.names == ("demo lr=0.01", "demo lr=0.1", "demo lr=0.3")
    steps, values = comparison.curves("loss")["demo lr=0.1"]
    np.testing.assert_array_equal(steps, np.arange(1, 41))
    np.testing.assert_allclose(values, np.exp(-0.1 * np.arange(40)))
    _, smoothed = comparison.curves("loss", smooth=4)["demo lr=0.1"]
    np.testing.assert_allclose(smoothed[10], values[7:11].mean())
    share, _ = comparison.curves("loss", by="share")["demo lr=0.3"]
    assert share[-1] == 1.0
    assert "best val_loss" in repr(comparison)
    assert comparison._repr_mimebundle_()["text/html"].count("<nbm-view") == 4


def test_runs_of_one_name_and_one_setting_have_distinct_names(tmp_path):
    for _ in range(2):
        train(tmp_path, 0.1, steps=3)
    train(tmp_path, 0.2, steps=3, name="other")
    train(tmp_path, 0.2, steps=3)
    other, *alike = sorted(nb.compare_runs(*nb.runs(tmp_path)).names, reverse=True)
    assert other == "other" and len(set(alike)) == 3
    assert all(name.startswith("demo lr=0.") for name in alike)


def test_the_table_per_epoch_has_means_of_training_and_marks_the_best(folder):
    run = nb.runs(folder).filter(lr=0.1)[0]
    table = run.epochs()
    expected = np.exp(-0.1 * np.arange(40)).reshape(4, 10).mean(1)
    np.testing.assert_allclose([row["loss"] for row in table.rows], expected)
    assert [row["step"] for row in table.rows] == [10, 20, 30, 40]
    assert table.best == {"loss": 3, "val_loss": 3, "val_accuracy": 3}
    assert repr(table).splitlines()[-1].count("*") == 3
    run.beats = [(100.0, 0), (140.0, 40)]
    assert [row["seconds"] for row in run.epochs().rows] == [10.0] * 4


def test_a_report_is_one_page_without_requests(folder):
    run = nb.runs(folder)[0]
    run.note = "the best one"
    page = folder / "report.html"
    run.report(page)
    text = page.read_text()
    assert all(word in text for word in ("demo", "0.01", "the best one", "val_loss", "Epochs"))
    assert not re.findall(r'(?:src|href)="https?://', text)
    assert len(text) < 250_000


def test_series_and_lists_are_exported_for_other_tools(folder):
    frame = nb.runs(folder).to_pandas()
    assert sorted(frame["setting lr"]) == [0.01, 0.1, 0.3]
    assert frame["best val_loss"].min() == pytest.approx(np.exp(-0.3 * 39) + 0.1)
    run = nb.runs(folder)[0]
    run.to_csv(folder / "run.csv")
    rows = list(csv.DictReader((folder / "run.csv").read_text().splitlines()))
    assert len(rows) == 40 and float(rows[0]["loss"]) == 1.0
    if importlib.util.find_spec("pyarrow") is None:
        for each in (run, nb.runs(folder)):
            with pytest.raises(nb.errors.MissingDependencyError, match=r"nbmodule\[parquet\]"):
                each.to_parquet(folder / "run.parquet")
    else:
        import pandas

        run.to_parquet(folder / "run.parquet")
        frame = pandas.read_parquet(folder / "run.parquet")
        assert frame["loss"].tolist() == run.history.loss.values.tolist()
        assert frame.attrs["lr"] == run.settings["lr"]
        nb.runs(folder).to_parquet(folder / "runs.parquet")
        assert len(pandas.read_parquet(folder / "runs.parquet")) == 3
    pytest.importorskip("tensorboardX")
    run.to_tensorboard(folder / "board")
    assert list((folder / "board").glob("events.*"))


def test_the_command_line_lists_compares_and_reports(folder, capsys):
    assert main(["runs", str(folder), "--sort", "lr"]) == 0
    assert capsys.readouterr().out.count("demo") == 3
    assert main(["runs", str(folder), "--compare", "0", "1"]) == 0
    assert "best val_loss" in capsys.readouterr().out
    assert main(["runs", str(folder), "--report", "demo", str(folder / "r.html")]) == 0
    assert (folder / "r.html").exists()
    assert main(["runs", str(folder), "--sort", "nothing"]) == 2


def test_tags_and_notes_are_kept_in_files_of_their_own(folder):
    run, other = nb.runs(folder)[:2]
    written = run.path.read_bytes()
    run.tags, run.note = ["good", "kept"], "the baseline"
    other.note = "diverged"
    assert (run.tags, run.note) == (("good", "kept"), "the baseline")
    again = nb.runs(folder)
    assert [r.tags for r in again] == [("good", "kept"), ("sweep",), ("sweep",)]
    assert [r["note"] for r in again.to_records()] == ["the baseline", "diverged", ""]
    assert len(again.filter(lambda r: "kept" in r.tags)) == 1
    assert run.path.read_bytes() == written
    run.tags = []
    assert nb.runs(folder)[0].tags == () and nb.runs(folder)[0].note == "the baseline"
    for damaged in ("[1]", "{", '{"x": 1'):
        run.path.with_suffix(".notes.json").write_text(damaged)
        assert run.tags == ("sweep",) and run.note == ""
    run.note = "new"
    assert [r.note for r in nb.runs(folder)] == ["new", "diverged", ""]


def test_many_runs_are_drawn_across_their_settings_the_best_one_strongest(tmp_path):
    for lr in (0.5, 0.3, 0.2, 0.1, 0.05, 0.01):
        train(tmp_path, lr, width=int(100 * lr))
    html = nb.runs(tmp_path).compare()._repr_mimebundle_()["text/html"]
    drawing = html[html.index("settings against best") : html.index("</svg>")]
    assert drawing.count("<polyline") == 6
    assert drawing.count('stroke-width="2.5"') == 1
    assert "by rank; strongest: demo lr=0.5" in drawing


def test_code_and_models_of_two_runs_are_compared(tmp_path, monkeypatch):
    for code in ("lr = 1", "lr = 2"):
        monkeypatch.setattr(journal, "origin", lambda code=code: {"cell": 3, "code": code})
        model = nb.Linear(2, 1)
        with nb.Live(model, display=False, journal=tmp_path) as live:
            for i in live.steps(range(3)):
                model.bias.value = np.array([len(code) + i + int(code[-1])], np.float32)
                live.log(loss=1.0)
    comparison = nb.runs(tmp_path)[:2].compare()
    assert "-lr = 2\n+lr = 1" in comparison.code
    assert {c.path for c in comparison.models if c.status == "changed"} >= {"bias"}
    assert nb.runs(tmp_path)[0].cell == 3


# -- the best model, early stopping --
def test_the_best_state_is_that_of_the_step_that_logged_it():
    model = nb.Linear(2, 1)
    with nb.Live(model, display=False) as live:
        live.keep_best("val_accuracy")
        for i in live.steps(range(6)):
            model.bias.value = np.array([float(i)], np.float32)
            live.log(val_accuracy=[0.1, 0.5, float("nan"), 0.9, 0.9, 0.3][i])
    assert (live.best.step, live.best.value, live.best.state["bias"][0]) == (4, 0.9, 3.0)
    model.load_state_dict(live.best.state)
    assert model.bias.value[0] == 3.0
