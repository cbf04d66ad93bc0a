"""Tracebacks show lines of the user and the note, in a program and in IPython."""

import json
import os
import subprocess
import sys

import pytest

from jax_settings import FLOAT

SETTING = """
import jax, jax.numpy as jnp, nbmodule as nb

class Net(nb.Module):
    def __init__(self):
        self.layers = nb.Sequential(nb.Linear(3, 4), nb.ReLU())

    def forward(self, x):
        return self.layers(x) @ jnp.ones((5, 2))

def loss(model, x):
    return model(x).sum()

model, x, narrow = Net(), jnp.ones((2, 3)), nb.Sequential(nb.Linear(3, 4), nb.Linear(5, 2))
optimizer = nb.Adam(1e-3)

@nb.jit
def step(x):
    value, grads = nb.value_and_grad(loss)(model, x)
    optimizer.update(model, grads)
    return value
"""
CALLS = {
    "a compiled step": "step(x)",
    "a compiled model": "nb.jit(model)(x)",
    "compile()": "nb.Module.compile(Net())(x)",
    "a plain call": "model(x)",
    "a call with v": "model(x, v=model.v)",
    "a tracked call": "model(x, track_submod_rets=True)",
    "grad": "nb.grad(loss)(model, x)",
    "vmap": "nb.vmap(lambda x: model(x))(x)",
    "scan": "nb.scan(lambda c, x: (c, model(x)), 0, x)",
    "cond": "nb.cond(x[0, 0] > 0, lambda: model(x), lambda: x)",
    "while_loop": "nb.while_loop(lambda c: c.sum() > 0, model, x)",
    "checkpoint": "nb.checkpoint(lambda x: model(x))(x)",
    "eval_shape": "nb.eval_shape(model, x)",
    "make_jaxpr": "nb.make_jaxpr(model)(x)",
    "lower": "nb.jit(model).lower(x)",
}
OURS = {
    "a layer of ours": "narrow(x)",
    "one in a compiled function": "nb.jit(lambda x: narrow(x))(x)",
}
IN_IPYTHON = """
import contextlib, io, json, re, sys
from IPython.core.interactiveshell import InteractiveShell
setting, calls = json.loads(sys.stdin.read())
shell, found = InteractiveShell.instance(), {}
shell.run_cell(setting)
for name, call in calls.items():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        shell.run_cell(call)
    found[name] = re.sub(r"\\x1b\\[[0-9;]*m", "", printed.getvalue())
print(json.dumps(found))
"""
IN_A_PROGRAM = """
import json, sys, traceback
setting, calls = json.loads(sys.stdin.read())
space, found = {}, {}
with open("setting.py", "w") as file:
    file.write(setting)
exec(compile(setting, "setting.py", "exec"), space)
for name, call in calls.items():
    try:
        exec(compile(call, "call.py", "exec"), space)
    except Exception as error:
        found[name] = "".join(traceback.format_exception(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=["IPython", "a program"])
def tracebacks(request, tmp_path_factory):
    program = IN_IPYTHON if request.param == "IPython" else IN_A_PROGRAM
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([SETTING, CALLS | OURS]),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=tmp_path_factory.mktemp("tracebacks"),
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("call", CALLS | OURS)
def test_a_traceback_shows_the_lines_of_the_reader_and_the_note(tracebacks, call):
    shown, note = tracebacks[call], f"in the called module (Net), called with {FLOAT}["
    line, most = "self.layers(x) @ jnp.ones((5, 2))", 25
    if call in OURS:
        line, most = "linear: x must have 5 features", 15
        note = f"in 1 (Linear), called with {FLOAT}[2, 4]"
    assert len(shown.splitlines()) < most, shown
    assert line in shown and note in shown, shown
    assert "nbmodule/" not in shown, shown
    assert call in OURS or "jax/_src" not in shown, shown


def test_the_setting_of_jax_keeps_all_frames():
    program = f"{SETTING}\nmodel(x)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "JAX_TRACEBACK_FILTERING": "off"},
    )
    assert "core/call/entry.py" in done.stderr and "jax/_src" in done.stderr
