"""What was logged, as data: arrays, tables, files, a figure."""

from __future__ import annotations

import csv
import io
import json
import math
import sys

import numpy as np
import pytest

from nbmodule.errors import ArgumentTypeError, MissingDependencyError, PathError
from nbmodule.live.run_data.history import History, MediaStore


@pytest.fixture
def history() -> History:
    made = History()
    for step in (1, 2, 3):
        made.add(step, {"loss": 1 / step})
    made.add(2, {"val_loss": 0.75, "train/accuracy": math.nan})
    return made


def test_a_series_is_reached_by_name_and_by_attribute(history):
    assert history["loss"] is history.loss
    assert history.loss.values.tolist() == [1.0, 0.5, 1 / 3]
    assert "val_loss" in dir(history)


def test_an_unknown_name_is_answered_with_the_closest(history):
    with pytest.raises(
        PathError, match="nothing was logged as 'val_los'; the closest name is \"val_loss\""
    ):
        history["val_los"]
    assert not hasattr(history, "accuracy_")


def test_a_container_has_a_level_for_each_slash(history):
    container = history.to_container()
    assert container["train/accuracy/steps"].tolist() == [2]
    assert container.loss["values"].tolist() == [1.0, 0.5, 1 / 3]


def test_of_two_values_at_one_step_the_last_counts():
    history = History()
    history.extend("loss", [1, 1], [5.0, 6.0])
    assert history.to_table()[1]["loss"].tolist() == [6.0]


def test_csv_reads_back_exactly_and_tells_nan_from_nothing(history, tmp_path):
    history.to_csv(tmp_path / "below" / "run.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "below" / "run.csv").read_text())))
    assert [float(row["loss"]) for row in rows] == [1.0, 0.5, 1 / 3]
    assert [row["val_loss"] for row in rows] == ["", "0.75", ""]
    assert [row["train/accuracy"] for row in rows] == ["", "nan", ""]


def test_float32_is_written_with_its_own_digits():
    history = History()
    history.extend("loss", [1], np.array([0.1], np.float32))
    assert history.to_csv() == "step,loss\n1,0.1\n"


def test_a_file_that_cannot_be_written_leaves_the_old_one(history, tmp_path, monkeypatch):
    path = tmp_path / "run.csv"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        history.to_csv(path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.csv"]
    assert path.read_text() == "old"


def test_json_lines_are_json_also_for_what_is_not_finite():
    history = History()
    history.extend("loss", [1, 2, 3], [0.5, math.nan, -math.inf])
    lines = [
        json.loads(line, parse_constant=pytest.fail)
        for line in history.to_json_lines().splitlines()
    ]
    assert lines == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": "NaN"},
        {"step": 3, "loss": "-Infinity"},
    ]


def test_pandas_gives_a_frame_by_step(history):
    import pandas

    frame = history.to_pandas()
    assert frame.index.name == "step"
    assert frame.loc[2, "val_loss"] == 0.75
    assert pandas.isna(frame.loc[1, "val_loss"])


def test_tensorboard_reads_the_event_files(history, tmp_path):
    import struct

    from tensorboardX.proto.event_pb2 import Event

    history.to_tensorboard(tmp_path / "run")
    (file,) = (tmp_path / "run").iterdir()
    data, found = file.read_bytes(), []
    while data:  # a record is its length, a checksum, the event, a checksum
        (size,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + size])
        found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
        data = data[16 + size :]
    losses = [(step, value) for tag, step, value in found if tag == "loss"]
    assert [step for step, _ in losses] == history["loss"].steps.tolist()
    np.testing.assert_array_equal(
        np.float32([v for _, v in losses]), history["loss"].values.astype(np.float32)
    )


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("pandas", lambda h: h.to_pandas()),
        ("tensorboardX", lambda h: h.to_tensorboard("nowhere")),
        ("matplotlib.figure", lambda h: h.plot()),
    ],
)
def test_without_a_package_the_error_says_what_to_install(history, monkeypatch, module, call):
    monkeypatch.setitem(sys.modules, module, None)
    package = module.partition(".")[0]
    with pytest.raises(MissingDependencyError, match=f"needs {package}.*pip install {package}"):
        call(history)


def test_the_figure_has_one_axis_for_each_unit_and_the_full_extremes(history):
    n = 50_000
    values = np.zeros(n)
    values[31_234] = 9
    history.extend("noise", np.arange(n), values)
    figure = history.plot()
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["loss", "accuracy", "noise"]
    assert [line.get_label() for line in figure.axes[0].lines] == ["loss", "val_loss"]
    assert figure.axes[2].lines[0].get_ydata().max() == 9


def test_the_figure_can_be_of_some_series_on_a_logarithmic_axis(history):
    figure = history.plot("val_loss", log=True)
    assert [line.get_label() for axis in figure.axes for line in axis.lines] == ["val_loss"]
    assert figure.axes[0].get_yscale() == "log"
    with pytest.raises(PathError, match="nothing was logged as 'lss'"):
        history.plot("lss")


def test_an_empty_history_has_every_form():
    history = History()
    assert history.to_numpy() == {}
    assert history.to_csv() == "step\n"
    assert history.to_json_lines() == ""
    assert repr(history) == "History of 0 series"


def test_a_full_shelf_keeps_an_even_selection_and_the_newest():
    media = MediaStore(budget=10_000)
    for step in range(100):
        media.put("a", step, np.zeros(100))
    steps = [entry.step for entry in media["a"]]
    assert media.nbytes <= 10_000
    assert steps[-1] == 99
    assert steps[0] < 40


def test_pictures_are_told_from_arrays():
    media = MediaStore()
    media.put("rgb", 1, np.zeros((4, 5, 3), np.uint8))
    media.put("heat", 1, np.zeros((4, 5)))
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1), dpi=50)
    media.put("figure", 1, figure)
    assert [media[name][0].kind for name in media] == ["picture", "array", "picture"]
    assert media["figure"][0].value.shape == (50, 50, 3)


def test_what_is_no_value_is_refused():
    with pytest.raises(
        ArgumentTypeError, match="cannot log 'x': expected a number, an array, a text or a picture"
    ):
        MediaStore().put("x", 1, object())
