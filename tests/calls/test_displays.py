"""Displays of calls, comparisons and recorders: records, then text and HTML."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import Recorder, check, compare, diff, first_nonfinite, memory, track
from nbmodule.views import html_of, record_for
from nbmodule.views.renderers.plain_text import text_of

from jax_settings import FLOAT


@pytest.fixture
def calls(net, x):
    with track(net) as calls:
        net(x)
    return calls


def test_the_table_of_calls_holds_what_ran(calls, net):
    table = record_for(calls)
    assert [row.path for row in table.rows] == [call.path for call in calls]
    assert [row.depth for row in table.rows] == [0, 1, 1, 2, 2, 2, 1, 2, 2, 2, 1]
    assert (table.rows[3].parent, table.rows[0].start) == (2, 0)
    np.testing.assert_allclose(
        table.rows[1].statistics.mean, np.mean(calls["stem"].returns), rtol=1e-5
    )
    assert table.rows[1].pictures[0].of == f"{FLOAT}[5, 4]"
    text = text_of(table, width=120)
    assert text.splitlines()[0].startswith("1 call of Net  10 submodule calls")
    assert "not called: spare" in text


def test_submod_rets_and_call_order_have_displays_of_their_own(net, x):
    net(x, track_submod_rets=True, track_submod_call_order=True)
    returns, order = record_for(net.submod_rets), record_for(net.submod_call_order)
    assert [row.path for row in returns.rows][:3] == ["stem", "blocks.0.lin", "blocks.0.act"]
    assert returns.rows[0].pictures
    found = [(row.path, row.depth) for row in order.rows]
    assert found[:3] == [("", 0), ("stem", 1), ("blocks.0", 1)]
    copy = net.submod_call_order.cont_map(lambda leaf, _: leaf)
    assert type(record_for(copy)).__name__ == "VariableTree"


def test_everything_draws(calls, net, x, tmp_path):
    recorder = Recorder(net, True, every=1)
    with recorder:
        net(x)
    bad = first_nonfinite(nb.Sequential(nb.Lambda(lambda x: jnp.log(x * 0))), x)
    for value in (
        calls,
        recorder,
        Recorder(net),
        compare(calls, calls),
        diff(net, net),
        bad,
        memory(),
        check(1.0, 2.0),
        calls["blocks.*"],
    ):
        assert "<" in html_of(value)
        assert value._repr_mimebundle_()["text/plain"]


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_nan_in_the_data_is_named_and_no_layer_is_blamed():
    model, x = nb.Sequential(nb.Linear(10, 8), nb.ReLU()), np.ones((64, 10), np.float32)
    x[3, 4] = np.nan
    expected = "NaN in the input: x[3, 4] (row 3 of 64)"
    with nb.track(model, inputs=True) as calls:
        model(x)
    inspected = nb.inspect(model, x)
    assert expected in str(calls) and "first in" not in str(calls)
    assert [finding.text for finding in inspected.findings] == [expected]
    assert str(nb.first_nonfinite(model, x)).startswith(expected)
