"""The types by which the front end is checked are those of what Python sends."""

import re

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views import record_for
from nbmodule.views.renderers.payload import payload_of
from tools.make_types import FOLDER, files, types

NAMES = {
    "modules": "ModulesData",
    "variables": "VariablesData",
    "calls": "CallsData",
    "recorded": "CallsData",
    "difference": "DifferenceData",
    "comparison": "ComparisonData",
}


def declared(name):
    """The properties of an interface of the file, those of its bases included."""
    head, body = re.search(
        rf"interface {name}( extends \w+)? \{{(.*?)\n\}}", types(), re.S
    ).groups()
    inherited = declared(head.split()[-1]) if head else set()
    return inherited | set(re.findall(r"^  (\w+)\??:", body, re.M))


def test_types_and_titles_of_columns_are_those_that_are_generated():
    for path, text in files().items():
        assert path.read_text() == text, "run `python tools/make_types.py`"


@pytest.mark.parametrize(
    "name", ["calls", "model", "v", "compare", "difference", "recorder", "tree"]
)
def test_each_column_that_is_sent_is_declared(name):
    nb.seed(0)
    model, x = nb.Sequential(*[nb.Linear(4, 4) for _ in range(4)]), np.ones((2, 4), "float32")
    recorder = nb.Recorder(model, returns=True)
    for _ in range(3):
        with recorder:
            model(x)
    with nb.track(model) as calls:
        model(x)
    values = {
        "calls": calls,
        "model": model,
        "v": model.v,
        "compare": nb.compare(calls, calls),
        "difference": nb.diff(model.v, model.v * 2),
        "recorder": recorder,
        "tree": {"a": x, "b": [x, "text"]},
    }
    data = payload_of(record_for(values[name]))
    assert set(data) <= declared(NAMES[data["view"]])


def test_no_type_of_the_front_end_is_any():
    for path in sorted(FOLDER.glob("*.*s")):
        types = re.findall(r"@\w+ \{.*|^.*: any\b.*", path.read_text(), re.M)
        assert not [line for line in types if re.search(r"[{<|(: ]any\b[\[\]>|,})]", line)], (
            path.name
        )
