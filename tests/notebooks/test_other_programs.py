"""Programs of others that run a notebook: papermill fills in its parameters, marimo runs one of its
own kind.

Both are put into a small environment beside what is here, which needs a package index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long

MODEL = """
import jax.numpy as jnp
import nbmodule as nb

model = nb.Sequential(nb.Linear(3, 4, key=0), nb.ReLU(), nb.Linear(4, 1, key=1))
optimizer = nb.SGD(rate)
x, y = jnp.ones((8, 3)), jnp.zeros((8, 1))


@nb.jit
def step(x, y):
    loss, grads = nb.value_and_grad(lambda m: nb.mse_loss(m(x), y))(model)
    optimizer.update(model, grads)
    return loss
"""
TRAIN = """
with nb.Live(model, optimizer) as live:
    for i in live.steps(range(20)):
        live.log(loss=step(x, y))
print("rate", float(optimizer.lr), "steps", live.progress.done, "loss", float(step(x, y)) < 1e-3)
"""
SHOW = "nb.inspect(model, x)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run a module of Python in an environment that has papermill and marimo, in a folder."""
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    Path(own, "zz_others.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "-q", "papermill", "marimo"], check=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

    def go(where, *arguments):
        options = {"cwd": where, "env": os.environ | {"PYTHONPATH": path}}
        command = [python, "-m", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return go


def test_papermill_runs_a_training_with_parameters_of_its_own(run, tmp_path):
    cells = [new_code_cell(text) for text in ("rate = 0.5", MODEL, TRAIN, SHOW)]
    cells[0].metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    given = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(given, tmp_path / "given.ipynb")
    options = ["-p", "rate", "0.25", "--no-progress-bar"]
    run(tmp_path, "papermill", "given.ipynb", "done.ipynb", *options)
    *_, trained, looked = nbformat.read(tmp_path / "done.ipynb", as_version=4).cells
    printed = "".join(output.text for output in trained.outputs if output.get("name") == "stdout")
    assert printed.strip() == "rate 0.25 steps 20 loss True"
    (shown,) = (o.data for o in trained.outputs if "text/html" in o.get("data", {}))
    assert "step 20/20" in shown["text/html"]
    (panel,) = looked.outputs
    assert "float32[8, 3]" in panel.data["text/html"]


def test_marimo_runs_a_training_and_shows_a_panel(run, tmp_path):
    names = "jnp, nb, model, optimizer, x, y, step"
    cells = [
        ("", f"rate = 0.25\n{MODEL}", f"return {names}"),
        ("model, nb, optimizer, step, x, y", TRAIN.replace("for i in", "for _ in"), "return"),
        ("model, nb, x", SHOW, "return"),
    ]
    app = "\n\n".join(
        f"@app.cell\ndef _({given}):\n"
        + "\n".join(f"    {line}" for line in [*body.strip().splitlines(), back])
        for given, body, back in cells
    )
    (tmp_path / "app.py").write_text(f"import marimo\n\napp = marimo.App()\n\n\n{app}\n")
    run(tmp_path, "marimo", "export", "html", "app.py", "-o", "app.html")
    page = (tmp_path / "app.html").read_text()
    assert "rate 0.25 steps 20 loss True" in page
    assert re.search(r"\\u003Cnbm-view data-nbm=.{0,400}float32\[8, 3\]", page)
    assert "Traceback" not in page
