# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Runs compared
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/21_runs_compared.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F21_runs_compared.ipynb)
#
# Every run keeps a journal on disk. `nb.runs()` lists them, compares them and writes a report, without a server or an account.
#
# *Goal:* find the best of several settings, say how sure you are, and hand the result on. About 45 minutes.

# %% tags=["hide-cell"]
import importlib.util
import os
import re
from importlib.metadata import distributions

# On Colab and similar services the package is not installed yet. An installed JAX is kept.
if importlib.util.find_spec("nbmodule") is None:
    source = ".." if os.path.isdir("../nbmodule") else "git+https://github.com/nbmodule/nbmodule"
    versions = {found.name: found.version for found in distributions()}
    jax_packages = [name for name in versions if re.match(r"jax(lib|-.*)?$", name)]
    pinned = [f"{name}=={versions[name]}" for name in jax_packages]
    get_ipython().run_line_magic("pip", " ".join(["install -q", source, *pinned]))

# %%
import tempfile

import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

pixels, labels = load_digits(return_X_y=True)
x, y = (pixels[:600] / 16).astype("float32"), labels[:600]
held_x, held_y = (pixels[600:1200] / 16).astype("float32"), labels[600:1200]
journals = tempfile.mkdtemp()  # beside the notebook if no folder is named

# %% [markdown]
# ## A sweep is a loop
#
# `config=` takes any dict. The class of the model, its number of parameters, the optimizer, its rate, the batch size and the seed are added.


# %%
def train(rate, width, name="sweep"):
    nb.seed(0)
    model = nb.Sequential(nb.Linear(64, width), nb.ReLU(), nb.Linear(width, 10))
    optimizer = nb.SGD(rate)

    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
        optimizer.update(model, grads)
        return loss

    settings = {"lr": rate, "width": width}
    with nb.Live(
        model, optimizer, display=False, journal=journals, name=name, config=settings
    ) as live:
        live.keep_best("val_loss")
        live.stop_when(nb.no_improvement("val_loss", patience=5))
        for bx, by in live.steps(nb.batches((x, y), 50, shuffle=True, key=0), epochs=8):
            live.log(loss=step(bx, by))
            if live.step % 12 == 0:
                scores = model(held_x)
                live.log(
                    val_loss=nb.cross_entropy(scores, held_y),
                    val_accuracy=(scores.argmax(-1) == held_y).mean(),
                )
        live.log(confusion=nb.confusion(scores, held_y, x=held_x.reshape(-1, 8, 8)))
    return live


for width in (8, 64):
    for rate in (0.01, 0.1, 0.5, 2.0):
        train(rate, width)

# %% [markdown]
# ## The list
#
# Settings that differ, the best value of each series, and what the rules say. A click on a head sorts; `sort` puts the best first.

# %%
runs = nb.runs(journals).sort("val_loss")
runs

# %% [markdown]
# ## The comparison
#
# Settings that differ come first. With more than five runs, each is a line across the settings to its result. Then each series of all runs in one
# plot. `compare(0, 3)` takes two of them.

# %%
runs.compare()

# %% [markdown]
# ## One run
#
# A row per validation, the best of each column marked:

# %%
best = runs[0]
best.epochs()

# %% [markdown]
# What was logged beside numbers is kept too. A click on a count shows samples of that cell.

# %%
best.history.media["confusion"][-1].value

# %% [markdown]
# A page to hand on, readable offline and on a phone. `best.to_csv`, `to_parquet` and `to_tensorboard` write for other tools, and
# `python -m nbmodule runs` does the same in a terminal.

# %%
best.tags, best.note = ["lesson"], "the best of eight"
best.report(f"{journals}/report.html")

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one. The solutions are folded below.
#
# **1. The best rate.** Of the runs with 8 units, return the rate of the one with the lowest validation loss.
#
# <details><summary>A hint</summary>
#
# `runs.filter(width=8)`, then `sort`. A run has `settings`.
#
# </details>


# %%
def best_rate(runs):
    return None  # your answer: a number


# %%
nb.check(
    best_rate(nb.runs(journals)),
    min(
        (run for run in runs if run.settings["width"] == 8), key=lambda run: run.best["val_loss"]
    ).settings["lr"],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def best_rate_solved(runs):
    return runs.filter(width=8).sort("val_loss")[0].settings["lr"]


nb.check(
    best_rate_solved(nb.runs(journals)),
    min(
        (run for run in runs if run.settings["width"] == 8), key=lambda run: run.best["val_loss"]
    ).settings["lr"],
)

# %% [markdown]
# **2. Patience.** After which point does a run end that waits for `patience` points without a new lowest value? Count points from 1.
#
# <details><summary>A hint</summary>
#
# The point with the lowest value so far, and `patience` more. A later lower value begins the wait anew.
#
# </details>


# %%
def stops_after(values, patience):
    return None  # your answer: a whole number


# %%
losses = np.array([5, 4, 3, 3.5, 3.2, 2.9, 3.1, 3.0, 2.95, 1.0])
nb.check(
    stops_after(losses, 3),
    next(k for k in range(4, 11) if losses[k - 3 : k].min() > losses[: k - 3].min()),
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def stops_after_solved(values, patience):
    best, waited = np.inf, 0
    for count, value in enumerate(values, 1):
        best, waited = (value, 0) if value < best else (best, waited + 1)
        if waited == patience:
            return count
    return len(values)


nb.check(
    stops_after_solved(losses, 3),
    next(k for k in range(4, 11) if losses[k - 3 : k].min() > losses[: k - 3].min()),
)

# %% [markdown]
# **3. Smooth a curve.** Return at each point the mean of it and the four points before it, fewer at the beginning.
#
# <details><summary>A hint</summary>
#
# `values[max(0, k - 4) : k + 1]` in a loop over `k`.
#
# </details>


# %%
def smooth(values):
    return None  # your answer: an array of the same length


# %%
loss = best.history.loss.values
nb.check(smooth(loss), [loss[max(0, k - 4) : k + 1].mean() for k in range(len(loss))])


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
def smooth_solved(values):
    return np.array([values[max(0, k - 4) : k + 1].mean() for k in range(len(values))])


nb.check(smooth_solved(loss), [loss[max(0, k - 4) : k + 1].mean() for k in range(len(loss))])
