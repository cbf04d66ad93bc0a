from __future__ import annotations

import gc
import threading

from nbmodule.base.interpreter import collector_paused


def test_the_collector_runs_again_after_the_last_block_of_any_thread():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with collector_paused():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        inside.wait(20)
        with collector_paused():
            assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
