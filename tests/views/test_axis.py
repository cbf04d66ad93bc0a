"""One axis for all rows, statistics of several arrays as one, neighbors that are one line."""

import pytest

from nbmodule.base.statistics import Statistics
from nbmodule.views.records.records import CallRow, CallTable, ModuleRow, ModuleTree
from nbmodule.views.renderers.payload import axis_of, payload_of
from nbmodule.views.renderers.plain_text import text_of


def numbers(mean, std, size=64, **more):
    return Statistics(
        size,
        mean,
        std,
        mean - 2 * std,
        mean + 2 * std,
        histogram=(size // 2, size - size // 2),
        **more,
    )


def test_an_axis_is_linear_where_all_of_it_is_seen_and_logarithmic_where_not():
    assert axis_of([numbers(0.0, 1.0), numbers(2.0, 1.0)]) == (-1.0, 3.0, 0.0)
    assert axis_of([numbers(0.0, 10.0**k) for k in range(9)]) == (-1e8, 1e8, 1.0)


def test_zero_is_on_the_axis_and_nothing_to_see_is_no_axis():
    assert axis_of([numbers(5.0, 1.0)]) == (0.0, 6.0, 0.0)
    nan = float("nan")
    assert axis_of([None, Statistics(3, nan, nan, nan, nan, nan=3)]) is None
    assert axis_of([numbers(0.0, 0.0)]) is None


def call(path, parent, order, depth, name, stats=None, seconds=None):
    return CallRow(path, parent, order, depth, name, "[2, 4]", "[2, 4]", seconds, None, stats)


def deep(classes):
    rows = [call("", None, 0, 0, "Net")]
    for i, name in enumerate(classes):
        order, stats = len(rows), numbers(0.0, 1.5**i)
        rows.append(call(f"layers.{i}", 0, order, 1, name, stats, 1e-3))
        rows.append(call(f"layers.{i}.lin", order, order + 1, 2, "Linear", stats, 5e-4))
    return CallTable("Net", rows)


def test_calls_of_like_layers_are_one_line_that_opens_to_them():
    data = payload_of(deep(["Block"] * 24))
    at = next(i for i, label in enumerate(data["label"]) if label.endswith("0…23"))
    kinds, lines = data["groups"][at]
    assert kinds == "24 × Block"
    assert [data["path"][line] for line in lines] == [f"layers.{i}" for i in range(24)]
    assert at not in data["open"]
    assert data["axis"][2] > 0


def test_calls_that_alternate_are_one_line_with_the_numbers_of_all():
    rows = [*deep(["A", "B"] * 30).rows, call("head", 0, 121, 1, "Linear")]
    data = payload_of(CallTable("Net", rows))
    at = data["label"].index("layers.0…59")
    assert data["groups"][at][0] == "30 × (A, B)"
    assert data["at"][at] == -1 and data["path"][at] is None
    seconds = data["seconds"]["u"][data["seconds"]["i"][at]]
    assert seconds == pytest.approx(0.06) and data["statistics"][at]["n"] == 60 * 64


def test_parts_that_have_names_stay_apart():
    parts = [call(name, 0, k + 1, 1, "Linear") for k, name in enumerate(("query", "key", "value"))]
    assert "groups" not in payload_of(CallTable("Net", [call("", None, 0, 0, "Net"), *parts]))


def test_a_long_text_has_a_line_for_each_layer_and_a_very_long_one_a_line_for_all():
    some = text_of(deep(["Block"] * 24 + ["Head"] * 20), width=100, color=False)
    assert "layers.0…23 · 24 × Block" in some and "layers.7 " in some and "layers.7.lin" not in some
    many = text_of(deep(["A", "B"] * 100), width=100, color=False)
    assert "200 · " not in many and "100 × (A, B)" in many and "layers.7 " not in many


def test_a_text_that_is_cut_counts_all_layers():
    rows = [ModuleRow("blocks", "", kind="list")]
    for i in range(100):
        rows += [ModuleRow(f"blocks.{i}", "Block", "", 8)]
        rows += [ModuleRow(f"blocks.{i}.lin", "Linear", "", 8)]
    assert "100 × Block" in text_of(ModuleTree("Net", rows), width=80, limit=60, color=False)


def test_models_of_alternating_layers_say_their_pattern():
    rows = [ModuleRow(str(i), "AB"[i % 2], "", 4) for i in range(250)]
    tree = ModuleTree("Net", rows, 1000, 4000)
    assert payload_of(tree)["class_name"]["u"][0] == "125 × (A, B)"
    text = text_of(tree, width=80, color=False).split("\n")
    assert len(text) == 4 and "125 × (A, B)" in text[1] and text[1].endswith("1,000")
