"""A run in marimo, which takes no clicks while a cell runs: the loop goes on in the background, the
widget draws it.
"""

from __future__ import annotations

import sys
import threading
import time
import types

from nbmodule.live.live import Live
from nbmodule.live.reporting.payload import record_of


def test_in_marimo_a_run_in_the_background_is_a_widget_in_the_output(monkeypatch):
    shown = []

    class Widget:
        def __init__(self, run, hear, is_drawn):
            self.hear, self.record, self.sent, self.closed = hear, record_of(run), [], False

        def send(self, content):
            self.sent.append(content)

        def close(self):
            self.closed = True

    marimo = types.SimpleNamespace(
        running_in_notebook=lambda: True,
        Thread=threading.Thread,
        output=types.SimpleNamespace(append=shown.append),
    )
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    monkeypatch.setattr("nbmodule.live.reporting.view.run_link", Widget)
    with Live(name="run") as live:
        run = live.run(
            lambda i: (time.sleep(0.005), live.log(loss=i)), range(10**6), background=True
        )
        (widget,) = shown
    assert widget.record["run"] == live._state.run_id
    widget.hear({"kind": "hello", "page": "a"})
    widget.hear({"kind": "stop"})
    assert run.wait(30)
    assert live._state.route.kind == "thread"
    assert widget.sent[0]["kind"] == "snapshot"
    assert widget.sent[-1]["progress"]["state"] == "stopped"
    assert not widget.closed
