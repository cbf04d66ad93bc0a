"""A wrong shape in a compiled step: the reader's lines and the note, in a plain program."""

import subprocess
import sys

PROGRAM = """
import nbmodule as nb, jax.numpy as jnp
model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(5, 2))

@nb.jit
def step(x):
    return model(x)

step(jnp.ones((2, 3)))
"""


def test_the_traceback_of_a_wrong_shape_in_a_compiled_step_is_short(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False)
    lines = done.stderr.splitlines()
    assert len(lines) < 25, done.stderr
    assert sum("program.py" in line for line in lines) == 2
    assert any("in 2 (Linear), called with float32[2, 4]" in line for line in lines)
    assert "linear: x must have 5 features" in done.stderr
