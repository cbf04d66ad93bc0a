"""The view of a profile: the same rows as text, as HTML that needs no script, and for the page."""

import pytest

from nbmodule.calls.profile import Profile, ProfileRow
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.renderers.payload import fitted, payload_of
from nbmodule.views.renderers.plain_text import text_of

ROWS = [
    ProfileRow("", "all", "module", 0, 5e-3, 9e-3, 1e-3, 1e-3, 1.0, 1e9, 1e7),
    ProfileRow("blocks.0", "0", "module", 1, 4e-3, 8e-3, 0, 0, 0.75, 9e8, 1e7),
    ProfileRow("blocks.0", "dot_general", "operation", 2, 4e-3, 8e-3, 0, 0, 0.75, 9e8, 1e7),
    ProfileRow("adam", "adam", "optimizer", 1, 0, 0, 1e-3, 0, 0.0625, 1e6, 1e6),
    ProfileRow("", "no instruction", "waiting", 1, 1e-3, 1e-3, 0, 1e-3, 0.1875, 0, 0),
]


@pytest.fixture
def made():
    return profile_of(ROWS)


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


def test_the_text_has_a_row_for_each_part_with_its_passes(made):
    lines = text_of(record_for(made), width=120).splitlines()
    assert lines[0] == "step  16 ms (10 runs, ±3 %)  0.31 of the device's best FLOP/s  cpu:0"
    assert lines[2].split() == ["0", "75", "%", "4", "ms", "8", "ms", "7.5e10"]
    assert lines[3].split()[0] == "dot_general"
    assert lines[4].split() == ["adam", "6.25", "%", "1", "ms", "1e9"]
    assert "a step took 4 % less" in lines[-2]


def test_the_page_gets_the_rows_below_all_together(made):
    data = payload_of(record_for(made))
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


def test_of_very_many_rows_a_page_has_the_first_and_says_so():
    record = fitted(record_for(profile_of([ROWS[0], *ROWS[1:2] * 4100])))
    assert len(record.rows) == 4000 and "100 rows left out" in record.notes[-1]


def test_the_title_says_where_the_rows_do_not_add_up_to_it():
    slowed = profile_of(ROWS, seconds=2e-3, overhead=7.0)
    title = text_of(record_for(slowed), width=200).splitlines()[0]
    assert "rows not reliable: they add up to 16 ms" in title
    assert "rows not reliable: they add up to 16 ms" in payload_of(record_for(slowed))["title"]
