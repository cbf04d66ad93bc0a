"""Logged values as data: arrays, tables, files, a figure."""

from __future__ import annotations

import csv
import io
import json
import math
import sys

import numpy as np
import pytest

from nbmodule.errors import MissingDependencyError, PathError
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
    assert "val_loss" in dir(history) and not hasattr(history, "accuracy_")
    message = "nothing was logged as 'val_los'; the closest name is \"val_loss\""
    for unknown in (lambda: history["val_los"], lambda: history.plot("val_los")):
        with pytest.raises(PathError, match=message):
            unknown()


def test_tables_and_containers_hold_the_last_value_of_each_step(history):
    history.extend("loss", [3, 3], [5.0, 6.0])
    steps, columns = history.to_table()
    frame, container = history.to_pandas(), history.to_container()
    assert steps.tolist() == [1, 2, 3] and frame.index.name == "step"
    for table in (columns, frame):
        assert table["loss"].tolist() == [1.0, 0.5, 6.0]
        np.testing.assert_array_equal(table["val_loss"], [math.nan, 0.75, math.nan])
    assert container["train/accuracy/steps"].tolist() == [2]
    assert container.loss["values"].tolist() == [1.0, 0.5, 1 / 3, 5.0, 6.0]


def test_csv_reads_back_exactly_and_distinguishes_nan_from_no_value(history, tmp_path):
    history.to_csv(tmp_path / "below" / "run.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "below" / "run.csv").read_text())))
    assert [float(row["loss"]) for row in rows] == [1.0, 0.5, 1 / 3]
    assert [row["val_loss"] for row in rows] == ["", "0.75", ""]
    assert [row["train/accuracy"] for row in rows] == ["", "nan", ""]


def test_text_is_strict_json_has_the_digits_of_float32_and_may_be_empty():
    history = History()
    assert (history.to_numpy(), history.to_csv(), history.to_json_lines()) == ({}, "step\n", "")
    history.extend("loss", [1, 2, 3], np.array([0.1, math.nan, -math.inf], np.float32))
    assert history.to_csv().startswith("step,loss\n1,0.1\n")
    lines = history.to_json_lines().splitlines()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [row["loss"] for row in rows] == [0.1, "NaN", "-Infinity"]


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
def test_without_a_package_the_error_names_it(history, monkeypatch, module, call):
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
    figure = history.plot("val_loss", log=True)
    assert [line.get_label() for axis in figure.axes for line in axis.lines] == ["val_loss"]
    assert figure.axes[0].get_yscale() == "log"


def test_media_above_their_budget_keep_an_even_selection_and_the_newest():
    media = MediaStore(budget=10_000)
    for step in range(100):
        media.put("a", step, np.zeros(100))
    steps = [entry.step for entry in media["a"]]
    assert media.nbytes <= 10_000
    assert steps[-1] == 99
    assert steps[0] < 40
