"""What a trace learns from the world, or from what stands above classes and globals, is learnt again when its cell runs again."""

import builtins

import pytest

import nbmodule as nb
from tests.core.rerunning import notebook

DRAWS = """
import datetime, functools, os, pathlib, random, time, uuid
import numpy as np
from datetime import datetime as clock
from functools import partial
from os import environ, getenv
from random import gauss
from time import perf_counter
from numpy.random import default_rng, rand
from numpy import random as dice
from scipy.stats import norm
generator, seeded = np.random.default_rng(), random.Random()
draw = generator.normal
def helper():
    return random.random()
class Holder:
    def __init__(self):
        self.rng = np.random.default_rng()
    @property
    def now(self):
        return time.perf_counter()
holder = Holder()
"""


@pytest.mark.parametrize(
    "expression",
    [
        "np.random.rand()",
        "rand()",
        "default_rng().normal()",
        "dice.rand()",
        "generator.normal()",
        "draw()",
        "seeded.random()",
        "random.random()",
        "gauss(0, 1)",
        "helper()",
        "holder.rng.normal()",
        "holder.now % 1",
        "time.time() % 1",
        "perf_counter() % 1",
        "clock.now().timestamp() % 1",
        "datetime.datetime.now().timestamp() % 1",
        "uuid.uuid4().int / 2**128",
        "float(environ['NBMODULE_TEST_NUMBER'])",
        "float(getenv('NBMODULE_TEST_NUMBER'))",
        "float(os.environ['NBMODULE_TEST_NUMBER'])",
        "float(pathlib.Path(os.environ['NBMODULE_TEST_FILE']).read_text())",
        "float(np.loadtxt(FILE))",
        "functools.partial(random.random)()",
        "norm.rvs()",
    ],
)
def test_what_a_trace_learns_from_the_world_it_learns_again_when_the_cell_runs_again(expression, monkeypatch, tmp_path):
    file = tmp_path / "number.txt"
    cell = f"""
@nb.jit
def step():
    return model(X).sum() * 0 + ({expression}) * 1e-3
"""
    found = []
    names = notebook([DRAWS, "model = Net()"], {"FILE": str(file)})
    monkeypatch.setenv("NBMODULE_TEST_FILE", str(file))
    for number in (1, 2):
        monkeypatch.setenv("NBMODULE_TEST_NUMBER", str(number))
        file.write_text(str(number))
        exec(compile(cell, "<cell>", "exec"), names)
        found.append(float(names["step"]()))
    assert found[0] != found[1]


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_what_a_step_prints_while_it_is_traced_is_printed_again_when_its_cell_runs_again(capsys):
    cell = "@nb.jit\ndef step():\n    print('traced')\n    return model(X).sum()\nstep(), step()"
    notebook(["model = Net()", cell, cell])
    assert capsys.readouterr().out == "traced\n" * 2


@pytest.mark.parametrize(
    ("given", "expression", "changed"),
    [
        ("class Kind(type):\n    rate = 1.0\nclass C(metaclass=Kind): pass", "C.rate", "Kind.rate = 2.0"),
        ("import builtins", "put_there", "builtins.put_there = 2.0"),
        ("", "max(1.0, 0.0)", "def max(a, b): return 2.0"),
        (
            "old = nb.Linear.forward",
            "jnp.where(model.a(X).sum() != 0, 1.0, 0.0)",
            "nb.Linear.forward = lambda self, x: old(self, x) * 0",
        ),
    ],
)
def test_what_stands_above_classes_and_globals_is_compared_as_well(given, expression, changed, monkeypatch):
    monkeypatch.setattr(nb.Linear, "forward", nb.Linear.forward)
    monkeypatch.setattr(builtins, "put_there", 1.0, raising=False)
    cell = f"@nb.jit\ndef step():\n    return model(X).sum() * 0 + ({expression})\nfound = float(step())"
    names = notebook([given, "model = Net()", cell])
    first = names["found"]
    exec(compile(changed, "<cell>", "exec"), names)
    exec(compile(cell, "<cell>", "exec"), names)
    assert (first, names["found"]) in ((1.0, 2.0), (1.0, 0.0))
