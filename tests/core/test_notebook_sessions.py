"""Random notebook sessions, run compiled and without compilation, and compared after each call.

A session is a list of cells: some define the model, the optimizer or the step, some change them, some
call the step. The same cells run in two namespaces, in one of which `jit` is `nb.jit` and in the other
returns its function. Outputs and all variables of the model must agree after each call, or the compiled
run must raise an error that names the fix.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.compiled.key import cells
from tests.core.test_compiled_places import PLACES

pytestmark = pytest.mark.not_under("eager", reason="nothing is traced")

SETUP = """
import collections, dataclasses, functools, types, jax, jax.numpy as jnp, nbmodule as nb
X = jnp.sin(jnp.arange(15.0) * 1.7).reshape(5, 3)
gain, flag, act = 1.0, True, jnp.tanh
nb.seed(0)
"""
NET = """
class Net(nb.Module):
    def __init__(self, key):
        self.a, self.b = nb.Linear(3, 4, key=key), nb.Linear(4, 3, key=key + 50)
        self.norm = nb.BatchNorm1d(3)
    def forward(self, x):
        return self.b(act(self.a(self.norm(x)))) * {factor}
    def error(self, x):
        return (self(x) ** 2).mean() * gain
"""
BODIES = [
    "return helper({m}(x)) * gain",
    "return (({m}(x) if flag else -{m}(x)) ** 2).sum()",
    "loss, g = nb.value_and_grad(lambda m: (m(x) ** 2).mean() * gain)({m}); opt.update({m}, g); return loss",
    "loss, g = nb.value_and_grad(lambda m: m.error(x))({m}); opt.update({m}, g); return loss",
    "return nb.vmap(lambda row: row * 2)({m}(x))",
    "return sum((p ** 2).sum() for p in {m}.parameters())",
    "return nb.scan(lambda c, row: (c + row, c), jnp.zeros(3), {m}(x))[0]",
    "return inner(x) + 1",
    "return x @ {m}.a.weight.value.T",
]
CHANGES = [
    "{m}.eval()",
    "{m}.train()",
    "{m}.a = nb.Linear(3, 4, key={n})",
    "{m}.b.register_forward_hook(lambda module, args, out: out * 1.5)",
    "{m}.b.weight.requires_grad_(False)",
    "{m}.v = {m}.v * 0.9",
    "{m}.a.bias = jnp.ones(4)",
    "opt.rate = 0.05" if hasattr(nb.Adam(0.1), "rate") else "opt.lr = 0.05",
    "opt = nb.Adam(0.02)",
    "opt = nb.SGD(0.1)",
    "gain = {n} / 7",
    "flag = not flag",
    "act = jax.nn.relu",
    "def helper(y):\n    return y * {n}",
    "NET",
    "MODEL",
    "STEP",
    "SAME_STEP",
    "SAME_MODEL",
]
RETURNED = "\n    "


def session(seed: int) -> list[str]:
    """Make the cells of one session; a cell that calls the step is `CALL`."""
    draw = random.Random(seed)
    made, m, _ = draw.choice(list(PLACES.values()))
    donate = draw.random() < 0.3

    def model() -> str:
        return made.replace("Net(0)", f"Net({draw.randrange(40)})")

    def step() -> str:
        body = RETURNED.join(draw.choice(BODIES).format(m=m).split("; "))
        return f"@jit(donate={donate})\ndef step(x):\n    {body}"

    makes, steps = model(), step()
    cells = [
        SETUP,
        NET.format(factor=1.0),
        makes,
        "opt = nb.Adam(0.01)\ndef helper(y):\n    return y + 1",
        f"@jit\ndef inner(x):\n    return {m}(x).sum()",
        steps,
        "CALL",
    ]
    for _ in range(draw.randint(4, 9)):
        change = draw.choice(CHANGES)
        if change == "NET":
            cells += [NET.format(factor=draw.randint(1, 4)), makes]
        elif change in ("MODEL", "SAME_MODEL"):
            makes = model() if change == "MODEL" else makes
            cells.append(makes)
        elif change in ("STEP", "SAME_STEP"):
            steps = step() if change == "STEP" else steps
            cells.append(steps)
        else:
            cells.append(change.format(m=m, n=draw.randint(1, 20)))
        cells += ["CALL"] * draw.randint(1, 2)
    return [*cells, f"FOUND = {m}"]


def state_of(names: dict) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in names["FOUND"].state_dict().items()}


def compare(seed: int) -> None:
    made = session(seed)
    found = made.pop()
    runs: list[dict] = [{"__name__": "__main__"}, {"__name__": "__main__"}]
    runs[0]["jit"] = nb.jit

    def plain(fn=None, **options):
        return fn if fn is not None else lambda fn: fn

    runs[1]["jit"] = plain
    for number, cell in enumerate(made):
        outputs = []
        for names in runs:
            cells.advance()
            code = "OUT = step(X)" if cell == "CALL" else cell
            try:
                exec(compile(code, f"<cell {number}>", "exec"), names)
                outputs.append(names.get("OUT"))
            except nb.TraceError as error:
                if "Pass it as an argument" not in str(error):
                    raise
                return
        if cell == "CALL":
            note = f"seed {seed}, cell {number}\n" + "\n---\n".join(made[: number + 1])
            np.testing.assert_allclose(*outputs, rtol=2e-3, atol=2e-4, err_msg=note)
            for names in runs:
                exec(found, names)
            some, others = map(state_of, runs)
            assert some.keys() == others.keys()
            for name, value in some.items():
                np.testing.assert_allclose(
                    value, others[name], rtol=2e-3, atol=2e-4, err_msg=name + note
                )


@pytest.mark.parametrize("seed", range(24))
def test_a_session_computes_what_it_computes_without_compilation(seed):
    compare(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_many_sessions_compute_what_they_compute_without_compilation(seed):
    compare(seed)
