"""Tables of a summary, of memory, of the first NaN, of an unexpected return, of calls and of a profile."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.statistics import Statistics
from nbmodule.calls.profile import Profile, ProfileRow
from nbmodule.views import record_for
from nbmodule.views.builders.tracked import call_table, with_own_times
from nbmodule.views.records.records import CallRow, CallTable, HistoryRecord, SeriesRecord
from nbmodule.views.renderers.payload import fitted, payload_of
from nbmodule.views.renderers.plain_text import text_of, title_of


class Block(nb.Module):
    def __init__(self):
        self.norm, self.up = nb.LayerNorm(4), nb.Linear(4, 4)

    def forward(self, x):
        return x + self.up(self.norm(x))


class Net(nb.Module):
    def __init__(self):
        self.blocks, self.head = [Block() for _ in range(4)], nb.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture(scope="module")
def summary():
    return nb.summary(Net(), jnp.ones((3, 4)))


def column(record, title):
    return next(list(each.values) for each in record.columns if each.title == title)


def unexpected():
    """The error of a model whose return is 0.5 off in one element."""
    net, x = nb.Sequential(nb.Linear(2, 3), nb.ReLU()), jnp.ones((4, 2))
    net(x, track_submod_rets=True)
    returns = jax.tree.map(lambda leaf: leaf, net.submod_rets)
    net[0].bias = net[0].bias.value.at[1].add(0.5)
    with pytest.raises(nb.SubmoduleReturnError) as caught:
        net(x, expected_submod_rets=returns)
    return caught.value


# -- a summary --
def test_a_summary_is_a_tree_in_the_order_of_definition_with_like_blocks_folded(summary):
    record = record_for(summary)
    lines = record.lines
    top = [lines.display(i) for i in range(len(lines)) if lines.depth[i] == 0]
    assert top == ["blocks 0…3", "head"]
    assert [lines.label[i] for i in range(len(lines)) if lines.depth[i] == 2][:2] == ["norm", "up"]
    folded = [column(record, title)[0] for title in ("class", "parameters", "calls")]
    assert folded == ["4 × Block", "4 × 28", "4 × 1"]
    assert column(record, "parameters")[-1] == 10
    assert text_of(record, color=False) == repr(summary)
    zero = record_for(nb.summary(nb.Sequential(nb.ReLU(), nb.Tanh())))
    assert column(zero, "parameters") == [0, 0]  # a figure: what is not known is None


def test_each_line_of_a_summary_is_copied_as_code_that_finds_it(summary):
    record = record_for(summary)
    for place, row in zip(record.places, record.lines.row, strict=True):
        if row >= 0:
            assert eval(f"table{place}", {"table": summary}) is summary[row + 1]


# -- the others --
def test_memory_is_a_table_by_size():
    model = nb.Linear(3, 2)
    with nb.track(model) as calls:
        model(jnp.ones((1, 3)))
    record = record_for(nb.memory())
    sizes = column(record, "bytes")
    assert sizes == sorted(sizes, reverse=True) and calls.nbytes in sizes
    assert record.title[0].endswith(" held")


def test_first_nonfinite_is_a_table_of_operands_and_results():
    model = nb.Sequential(nb.Linear(2, 2), nb.Lambda(jnp.log))
    model[0].weight = jnp.zeros((2, 2))
    record = record_for(nb.first_nonfinite(model, jnp.ones((1, 2))))
    assert record.lines.label == ["given", "gave"] and record.wrong == {1}
    assert column(record, "lowest") == [0.0, None] and column(record, "not finite") == [0, 2]
    assert record.title == ("first non-finite value: log in 1 (forward pass)",)


def test_an_unexpected_return_opens_as_expected_actual_and_difference_and_a_shape_in_words():
    error = unexpected()
    (row,) = record_for(error).rows
    assert (row.path, row.fault, row.largest) == ("0", "module", pytest.approx(0.5))
    assert row.where[1] == 1 and len(row.pictures) == 3
    assert "largest difference is 0.5" in error._repr_mimebundle_()["text/plain"]
    record = record_for(
        nb.SubmoduleReturnError("the return has shape [5, 2], expected was [5, 3].")
    )
    assert record.is_error and "expected was [5, 3]" in record.text


def test_the_title_of_a_verdict_is_right_or_not_right_yet():
    assert record_for(nb.check(1, 1)).title == ("right",)
    assert record_for(nb.check(1, 2)).title == ("not right yet",)


def test_a_click_on_the_title_of_a_column_sorts_by_it_and_a_second_one_takes_it_back(
    open_view, summary
):
    page = open_view(summary)
    names = page.locator(".nbm-row .nbm-name")
    names.first.wait_for()
    before = names.all_text_contents()
    title = page.locator(".nbm-sortable", has_text="parameters")
    title.click()
    found = names.all_text_contents()
    assert found[:4] == [f"blocks.{i}" for i in range(4)] and found[-1] == "blocks 0…3"
    assert page.locator("select").first.input_value() == "parameters"
    title.click()
    assert names.all_text_contents() == before


def test_counts_and_steps_beyond_a_million_are_exact():
    class Wide(nb.Module):
        def __init__(self):
            self.up, self.words = nb.Linear(1111, 1111), nb.Embedding(1_234_567, 1)

    columns = payload_of(record_for(nb.summary(Wide())))["columns"]
    values = {each["title"]: each["values"] for each in columns}
    assert values["parameters"] == [1111 * 1112, 1_234_567]
    assert values["bytes"] == [4 * 1111 * 1112, 4 * 1_234_567]
    series = SeriesRecord("loss", (1_234_566.0, 1_234_567.0), (0.5, 0.25))
    steps = payload_of(HistoryRecord("run", (series,)))["series"][0]["steps"]
    assert steps == [1_234_566, 1_234_567]


def test_an_array_without_finite_elements_has_no_range():
    text = text_of(record_for(np.array([np.inf, np.inf])))
    assert "Inf 2" in text
    assert "NaN" not in text


def test_a_sample_of_zeros_does_not_make_all_elements_zero():
    sampled = Statistics(9000, 0.0, 0.1, 0.0, 0.0, 1.0, 0, 0, (512,) + (0,) * 15, 512)
    assert sampled.zero_count == 8999
    assert sampled._replace(std=0.0).zero_count == 9000


# -- times of calls, and changes --
ROWS = [
    CallRow("", None, 0, 0, "Net", seconds=1.67, start=0.0, compiling=1.61),
    CallRow("a", 0, 1, 1, "Norm", seconds=0.803, start=0.0, compiling=0.8),
    CallRow("b", 0, 2, 1, "Norm", seconds=0.000122, start=0.9),
]


@pytest.fixture
def table() -> CallTable:
    return CallTable("Net", with_own_times(ROWS))


def test_the_title_gives_the_compile_time_of_a_first_call(table):
    assert "1.67 s (first call: compiling 1.61 s)" in title_of(table)
    warm = CallTable("Net", [ROWS[0]._replace(compiling=0.0)])
    assert not any("compiling" in fact for fact in title_of(warm))


def test_text_and_page_give_compiling_and_own_time_apart(table):
    text = text_of(table, width=120)
    assert "3 ms + compiling 800 ms" in text and "122 µs" in text
    payload = payload_of(table)
    assert payload["compiling"] == [1.61, 0.8, None]
    own = [1.67 - 1.61 - (0.803 - 0.8) - 0.000122, 0.003, 0.000122]
    assert [row.own for row in table.rows] == pytest.approx(own) and len(payload["own"]) == 3


def test_calls_inside_a_compiled_function_have_a_note_instead_of_times():
    model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
    step = nb.jit(lambda x: model(x))
    with nb.track(model) as calls:
        step(jnp.ones((2, 3)))
    table = call_table(calls)
    assert all(row.seconds is None for row in table.rows)
    assert any("no times: the calls ran inside a compiled function" in note for note in table.notes)
    with nb.track(model, profile=True) as calls:
        step(jnp.ones((2, 3)))
    assert "times: each module measured alone, compiled" in call_table(calls).notes


def test_a_change_from_zero_is_shown_by_its_size():
    before = {"bias": jnp.zeros(3), "weight": jnp.ones(3)}
    after = {"bias": jnp.full(3, 0.25), "weight": jnp.ones(3) * 1.5}
    text = text_of(record_for(nb.diff(before, after)), width=120)
    assert "from 0 by 0.25" in text
    assert "∞" not in text


# -- a profile --
PROFILED = [
    ProfileRow("", "all", "module", 0, 5e-3, 9e-3, 1e-3, 1e-3, 1.0, 1e9, 1e7),
    ProfileRow("blocks.0", "0", "module", 1, 4e-3, 8e-3, 0, 0, 0.75, 9e8, 1e7),
    ProfileRow("blocks.0", "dot_general", "operation", 2, 4e-3, 8e-3, 0, 0, 0.75, 9e8, 1e7),
    ProfileRow("adam", "adam", "optimizer", 1, 0, 0, 1e-3, 0, 0.0625, 1e6, 1e6),
    ProfileRow("", "no instruction", "waiting", 1, 1e-3, 1e-3, 0, 1e-3, 0.1875, 0, 0),
]


def profile_of(rows, **more):
    facts = {
        "seconds": 16e-3,
        "spread": 0.03,
        "runs": 10,
        "overhead": -0.04,
        "best": 2e11,
        "device": "cpu:0",
        "root": "",
        **more,
    }
    return Profile("step", rows, **facts)


def test_the_text_has_a_row_for_each_part_with_its_passes():
    lines = text_of(record_for(profile_of(PROFILED)), width=120).splitlines()
    assert lines[0] == "step  16 ms (10 runs, ±3 %)  0.31 of the device's best FLOP/s  cpu:0"
    assert lines[2].split() == ["0", "75", "%", "4", "ms", "8", "ms", "7.5e10"]
    assert lines[3].split()[0] == "dot_general"
    assert lines[4].split() == ["adam", "6.25", "%", "1", "ms", "1e9"]
    assert "a step took 4 % less" in lines[-2]


def test_the_page_gets_the_rows_below_all_together():
    data = payload_of(record_for(profile_of(PROFILED)))
    assert (data["view"], data["depth"], data["label"]) == (
        "profile",
        [0, 1, 0, 0],
        ["0", "dot_general", "adam", "no instruction"],
    )
    assert data["backward"] == [8e-3, 8e-3, 0, 1e-3]
    assert (
        sum(share for share, depth in zip(data["share"], data["depth"], strict=True) if depth == 0)
        == 1
    )


def test_a_page_has_the_first_of_very_many_rows_and_counts_the_rest():
    record = fitted(record_for(profile_of([PROFILED[0], *PROFILED[1:2] * 4100])))
    assert len(record.rows) == 4000 and "100 rows left out" in record.notes[-1]


def test_the_title_warns_if_the_rows_do_not_add_up_to_it():
    slowed = profile_of(PROFILED, seconds=2e-3, overhead=7.0)
    title = text_of(record_for(slowed), width=200).splitlines()[0]
    assert "rows not reliable: they add up to 16 ms" in title
    assert "rows not reliable: they add up to 16 ms" in payload_of(record_for(slowed))["title"]
