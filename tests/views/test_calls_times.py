"""What the table of calls says of times: compiling apart, own time, and where a figure comes from."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.builders.tracked import call_table, with_own_times
from nbmodule.views.records.records import CallRow, CallTable
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.plain_text import text_of, title_of

ROWS = [
    CallRow("", None, 0, 0, "Net", seconds=1.67, start=0.0, compiling=1.61),
    CallRow("a", 0, 1, 1, "Norm", seconds=0.803, start=0.0, compiling=0.8),
    CallRow("b", 0, 2, 1, "Norm", seconds=0.000122, start=0.9),
]


@pytest.fixture
def table() -> CallTable:
    return CallTable("Net", with_own_times(ROWS))


def test_the_title_says_how_much_of_a_first_call_was_compiling(table):
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


def test_calls_inside_a_compiled_function_say_that_there_are_no_times():
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
