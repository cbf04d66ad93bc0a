"""What is known of a run is plain data: parts take it and know nothing of what ties them together."""

from __future__ import annotations

import json

from nbmodule.live.live import Live
from nbmodule.live.reporting.payload import record_of, text_form
from nbmodule.live.reporting.stream import Stream
from nbmodule.live.run_data.state import RunState


def test_a_run_is_told_from_what_is_known_of_it_without_any_loop():
    run = RunState("by hand")
    run.count.state, run.count.done = "running", 2
    run.controls.slider("learning rate", 0.1, low=0.01, high=1.0)
    stream = Stream(run)
    for step, loss in ((1, 2.0), (2, 1.0)):
        run.history.add(step, {"loss": loss})
    record = json.loads(json.dumps(record_of(run), allow_nan=False))
    assert record["title"] == ["by hand"] and record["progress"]["done"] == 2
    assert [s["n"] for s in record["series"]] == [2] and record["controls"][0][
        "name"
    ] == "learning rate"
    assert "by hand  running · step 2" in text_form(run)
    assert stream.tick(20_000)[0]["series"][0]["count"] == 2


def test_parts_write_what_they_find_where_all_read_it():
    with Live({"w": 1.0}, display=False, name="digits") as live:
        for k in live.steps(range(3)):
            live.log(loss=1.0 / (k + 1))
    run = live._state
    assert (run.name, run.step, run.has_ended) == ("digits", 3, True)
    assert run.history is live.history and run.controls is live.controls and run.model is None
    assert live.watched is run.watched and live.notes() == run.notes()
    assert run.kept_bytes == live.kept.nbytes
