"""Clicks in a busy cell, on every kernel: driven by `jupyter_client` alone, as a front end would."""

from __future__ import annotations

import time

TRAIN = """
with Live(name='run') as live:
    lr = live.controls.slider('lr', 0.5, low=0.0, high=1.0)
    seen = []
    for i in live.steps(range(1_000_000)):
        time.sleep(0.002)
        seen.append(lr.value)
        live.log(loss=1 / (i + 1))
print(live.progress.state, '|', live.progress.reason, '|', live._state.route.kind)
"""


def ended(kernel, message):
    """The cell is over and its output is complete."""
    kernel.wait(lambda: message in kernel.replies and kernel.is_idle(message))
    assert kernel.replies[message]["status"] == "ok"
    return kernel.wait(lambda: kernel.printed(message))


def closed(kernel):
    """Return the connections that the kernel has closed."""
    return [content["comm_id"] for content in kernel.contents("comm_close")]


def test_pause_step_resume_and_stop_work_while_the_cell_is_busy(kernel, watch_run):
    message, page = watch_run(kernel, TRAIN)
    page.until(lambda: page.progress["done"] > 20)
    page.send("pause")
    page.until_state("paused")
    done = page.progress["done"]
    time.sleep(0.3)
    page.look()
    assert page.progress["done"] == done
    for k in (1, 2, 3):
        page.send("step")
        page.until(
            lambda k=k: (page.progress["state"], page.progress["done"]) == ("paused", done + k)
        )
    page.send("resume")
    page.until(lambda: page.progress["done"] > done + 20)
    page.send("stop")
    ended(kernel, message)
    assert kernel.printed(message).startswith("stopped | by button after step ")
    assert kernel.printed(message).rstrip().endswith("| pump")
    shown = kernel.wait(lambda: len(kernel.displayed(message)) >= 2 and kernel.displayed(message))
    assert {frozenset(d["data"]) for d in shown} == {frozenset({"text/plain", "text/html"})}
    assert "stopped (by button" in shown[-1]["data"]["text/plain"]
    assert "<nbm-view" in shown[-1]["data"]["text/html"]


def test_sixty_moves_of_a_slider_arrive_in_order_and_act_at_the_next_step(kernel, watch_run):
    message, page = watch_run(kernel, TRAIN)
    for k in range(60):
        page.send("set", name="lr", value=k / 100)
        time.sleep(0.01)
    page.until(lambda: 0.59 in [t["controls"][-1]["value"] for t in page.ticks if "controls" in t])
    page.send("stop")
    ended(kernel, message)
    kernel.forget()
    values = [float(v) for v in kernel.run("print(*dict.fromkeys(seen))").split()]
    moved = [v for v in values if v != 0.5]
    assert values[-1] == 0.59
    assert moved == sorted(moved)
    assert len(moved) > 5


def test_queued_cells_run_afterwards_in_their_order(kernel, watch_run):
    message, page = watch_run(kernel, TRAIN)
    queued = [kernel.start(f"print('cell', {k})") for k in range(5)]
    completion = kernel.ask("complete_request", {"code": "prin", "cursor_pos": 4})
    queued.append(kernel.start("print('cell', 5)"))
    page.until(lambda: page.progress["done"] > 50)
    assert not set(queued) & set(kernel.replies)
    page.send("stop")
    kernel.wait(lambda: set(queued) <= set(kernel.replies) and completion in kernel.replies)
    assert kernel.reply_order == [message, *queued[:5], completion, queued[5]]
    kernel.wait(lambda: all(kernel.printed(q) for q in queued))
    assert [kernel.printed(q) for q in queued] == [f"cell {k}\n" for k in range(6)]
    assert "print" in kernel.replies[completion]["matches"]


def test_a_cell_that_fails_still_aborts_the_cells_behind_it(kernel, watch_run):
    message, page = watch_run(kernel, f"{TRAIN}1 / 0")
    queued = [kernel.start("print('never')") for _ in range(3)]
    page.until(lambda: page.progress["done"] > 20)
    page.send("stop")
    kernel.wait(lambda: set(queued) <= set(kernel.replies))
    assert kernel.replies[message]["ename"] == "ZeroDivisionError"
    assert [kernel.replies[q]["status"] for q in queued] == ["aborted"] * 3
    kernel.wait(lambda: kernel.is_idle(queued[-1]))
    time.sleep(0.3)
    assert kernel.run("print('again')") == "again\n"


def test_a_page_that_is_reloaded_in_the_middle_gets_the_whole_run(kernel, watch_run):
    message, page = watch_run(kernel, TRAIN)
    page.until(lambda: page.progress["done"] > 50)
    info = kernel.ask("kernel_info_request")
    comms = kernel.ask("comm_info_request", {"target_name": "jupyter.widget"})
    kernel.wait(lambda: info in kernel.replies and comms in kernel.replies, timeout=10)
    assert kernel.replies[info]["type"] == "kernel_info_reply"
    assert page.comm in kernel.replies[comms]["comms"]
    assert message not in kernel.replies
    reloaded = type(page)(kernel, page.comm, "reloaded")
    (snapshot,) = reloaded.snapshots
    (series,) = snapshot["record"]["series"]
    assert series["name"] == "loss"
    assert series["n"] > 20
    done = reloaded.progress["done"]
    reloaded.until(lambda: reloaded.progress["done"] > done + 20)
    page.send("stop")
    ended(kernel, message)


def test_the_connection_closes_when_nobody_holds_the_run_and_late_messages_are_ignored(
    kernel, watch_run
):
    message, page = watch_run(kernel, TRAIN)
    page.send("stop")
    ended(kernel, message)
    kernel.run("history = live.history\ndel live\nimport gc\ngc.collect()")
    kernel.wait(lambda: page.comm in closed(kernel))
    page.send("ack", n=1)  # on their way when the line was closed
    page.send("bye")
    known = kernel.ask("comm_info_request", {"target_name": "jupyter.widget"})
    kernel.wait(lambda: known in kernel.replies)
    assert page.comm not in kernel.replies[known]["comms"]
    kernel.ask("comm_close", {"comm_id": page.comm, "data": {}})
    page.send("bye")  # and once more, of a line that both sides have closed
    assert kernel.run("print(history.loss.last < 1)") == "True\n"
    assert not [c for c in kernel.contents("stream") if "No such comm" in c["text"]]


KEPT = """
import numpy as np, nbmodule as nb
nb.seed(0)
model, optimizer = nb.Linear(4, 1), nb.SGD(0.01)
@nb.jit
def step(x):
    loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.update(model, grads)
    return loss
with Live(model, optimizer, None, journal='runs') as live:
    for k in live.steps(range(10**6)):
        live.log(loss=step(np.full((8, 4), 1 / (k + 1), np.float32)))
        time.sleep(0.002)
print('over')
"""


def test_a_step_is_opened_by_a_page_while_the_cell_is_busy_and_after_it(
    kernel, watch_run, tmp_path
):
    message, page = watch_run(kernel, KEPT.replace("runs", str(tmp_path)))

    def repeated(step):
        page.send("at", step=step)
        sent = lambda: kernel.customs(page.comm)
        return page.until(
            lambda: [m for m in sent() if (m["kind"], m.get("step")) == ("replay", step)]
        )

    page.until(lambda: page.progress.get("done", 0) > 8)
    page.send("pause")
    page.until_state("paused")
    assert "repeated bit for bit" in repeated(5)[0]["html"]
    page.send("stop")
    ended(kernel, message)
    assert "repeated bit for bit" in repeated(6)[0]["html"]
    journal = f"nb.last_run({str(tmp_path)!r})"
    code = f"print(live.at(7).is_exact, len({journal}.history.loss) == live.step)"
    assert kernel.run(code) == "True True\n"
    kernel.run("del live")
    kernel.run("import gc; gc.collect()")
    kernel.wait(lambda: page.comm in closed(kernel))


def test_the_interrupt_ends_the_loop_at_a_boundary_and_the_next_cell_runs(kernel, watch_run):
    code = "state = [0, 0]\nwith Live() as live:\n    for i in live.steps(range(10**6)):\n        state[0] += 1\n        time.sleep(0.01)\n        state[1] += 1\n"
    for _ in range(3):
        kernel.forget()
        message, page = watch_run(kernel, code)
        page.until(lambda page=page: page.progress["done"] > 5)
        kernel.interrupt()
        kernel.wait(lambda m=message: m in kernel.replies)
        assert kernel.replies[message]["ename"] == "KeyboardInterrupt"
        kernel.wait(lambda m=message: kernel.is_idle(m))
        time.sleep(0.2)
        code_after = "print(state[0] == state[1] == live.step, live.progress.state)"
        assert kernel.run(code_after) == "True interrupted\n"


def test_steps_alone_handle_the_messages_of_other_widgets(kernel):
    kernel.run(
        "import ipywidgets\nheard = []\nslider = ipywidgets.IntSlider()\nslider.observe(lambda c: heard.append(c['new']), 'value')"
    )
    opened = kernel.contents("comm_open")
    names = {c["data"]["state"].get("_model_name"): c["comm_id"] for c in opened}
    message = kernel.start(
        "for i in steps(range(10**6)):\n    time.sleep(0.002)\n    if heard and heard[-1] == 59: break\nprint(heard == sorted(heard), heard[-1])"
    )
    for k in range(60):
        data = {"method": "update", "state": {"value": k}}
        kernel.ask("comm_msg", {"comm_id": names["IntSliderModel"], "data": data})
        time.sleep(0.005)
    kernel.wait(lambda: message in kernel.replies and kernel.printed(message), timeout=20)
    assert kernel.printed(message) == "True 59\n"


def test_a_cell_that_awaits_keeps_the_order_of_the_cells_behind_it(kernel):
    message = kernel.start(
        "import asyncio\nfor i in steps(range(200)):\n    await asyncio.sleep(0.005)\nprint('first')"
    )
    queued = []
    for k in range(6):
        time.sleep(0.05)
        queued.append(kernel.start(f"print({k})"))
    kernel.wait(lambda: set(queued) <= set(kernel.replies))
    assert kernel.reply_order == [message, *queued]
