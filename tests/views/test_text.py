import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.base.format import width_of
from nbmodule.live.run_data.series import Series
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.display.show import mimebundle
from nbmodule.views.records.records import (
    CallTable,
    HistoryRecord,
    ModuleRow,
    ModuleTree,
    SeriesRecord,
    VariableRow,
    VariableTree,
)
from nbmodule.views.renderers.plain_text import capped_text_of, text_of
from nbmodule.views.renderers.text_layout import Line, align


def test_a_module_tree_is_text():
    rows = [
        ModuleRow("features", "Sequential", "", 1312),
        ModuleRow("features.0", "Conv2D", "1 → 16", 160, variables=("w float32[16, 3, 3, 1]",)),
        ModuleRow("features.1", "BatchNorm2d", "16", 32, buffers=2),
        ModuleRow("head", "Linear", "16 → 10", 170, shared_with="decoder.out"),
    ]
    text = text_of(ModuleTree("Net", rows, 1482, 5928, device="cpu:0", mode="eval"), width=100)
    assert text == "\n".join(
        [
            "Net  1,482 parameters  5.79 KiB  cpu:0  eval",
            "├─ features  Sequential      1,312",
            "│  ├─ 0      Conv2D 1 → 16     160  float32[16, 3, 3, 1]",
            "│  └─ 1      BatchNorm2d 16     32  <- 2 buffers",
            "└─ head      Linear 16 → 10    170  <- shared with decoder.out",
        ]
    )


def test_variables_are_listed_with_their_marks():
    rows = [
        VariableRow("a.w", "parameter", (2, 3), "float32", 24, frozen=True),
        VariableRow("a.n", "buffer", (), "int32", 4),
        VariableRow("b", "parameter", (2, 3), "float32", 24, shared_with="a.w"),
    ]
    assert text_of(VariableTree("v", rows), width=80).splitlines() == [
        "v  3 variables  28 B",
        "○ frozen: a.w",
        "├─ a",
        "│  ├─ w  float32[2, 3]  24 B  <- frozen",
        "│  └─ n  int32[]         4 B  <- buffer",
        "└─ b     float32[2, 3]  24 B  <- shared with a.w",
    ]


def test_calls_have_their_number_and_failures_their_error_and_only_differences_are_listed(records):
    text = text_of(records["calls"](), width=100)
    assert "features.1 (2nd)" in text
    assert "[2, 10] → raised" in text
    assert "TypeError: given [2, 64, 255], wants [.., 256]" in text
    assert text.endswith("not called: blocks.3, late")
    assert text_of(CallTable("Net", [])) == "Net  no calls yet"
    text = text_of(records["difference"](), width=100)
    assert "head/w" in text and "head/b" not in text and "<- missing" in text


def test_the_text_of_a_history_tells_the_last_value_and_the_best_that_a_run_names():
    def row_of(name, steps, values):
        return text_of(HistoryRecord("run", (SeriesRecord(name, steps, values),))).splitlines()[-1]

    assert "1  best 0.5 @1" in row_of("loss", (0, 1, 2), (2.0, 0.5, 1.0))
    assert "NaN  best 0.1 @0" in row_of("acc", (0, 1), (0.1, np.nan))
    assert "best" not in row_of("loss", (1, 2), (np.nan, np.inf))
    for name in ("reward", "psnr", "accumulated_loss", "val_accuracy", "loss"):
        series = Series(name)
        series.extend([1, 2], [0.25, 0.75])
        step, value = series.best
        assert f"best {value} @{step}" in row_of(name, (1, 2), (0.25, 0.75))


def test_the_last_line_of_a_cut_text_names_the_call_that_prints_all():
    tree = VariableTree(
        "v", [VariableRow(f"w{i}", "parameter", (1,), "float32", 4) for i in range(471)]
    )
    lines = capped_text_of(tree).splitlines()
    assert len(lines) == 60
    assert lines[-1] == "… 413 more rows: print(v)"
    assert len(text_of(tree).splitlines()) == 472


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(records, width):
    for make in records.values():
        lines = text_of(make(), width=width, color=False).splitlines()
        assert max(map(width_of, lines[1:-1])) <= width


def test_color_is_never_the_only_carrier(record):
    colored = text_of(record, width=100, color=True)
    assert re.sub("\x1b\\[\\d*m", "", colored) == text_of(record, width=100, color=False)


cells = st.lists(
    st.tuples(
        *[st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z", "M"]), max_size=9)] * 3
    )
)


@given(cells, st.integers(20, 60))
def test_columns_stand_below_each_other(rows, width):
    lines = align([Line(("x", *row, "y")) for row in rows], frozenset(), 400)
    places = {width_of(line[: line.rindex("y")]) for line in lines}
    assert len(places) <= 1


def test_blocks_that_are_alike_are_written_once_with_the_numbers_of_all():
    nb.seed(0)
    model = nb.Sequential(nb.Embedding(9, 4), nb.TransformerEncoder(12, 4, 2), nb.Linear(4, 9))
    lines = mimebundle(model.v)["text/plain"].splitlines()
    assert len(lines) <= 30 and "more rows" not in lines[-1]
    assert sum("12 alike" in line for line in lines) == 1
    assert any("float32[9, 4]" in line and "×" not in line for line in lines)
    weights = np.stack([block.linear1.weight.value for block in model[1].layers])
    row = next(line for line in lines if "12 × float32[16, 4]" in line)
    assert f"{weights.mean():.2g} ± {weights.std():.2g}" in row
    wide = text_of(record_for(model.v), width=120)
    assert f"{weights.nbytes / 1024:.2f} KiB" in wide
