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
# # Watch and steer a training run
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/05_live.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F05_live.ipynb)
#
# A training cell is usually a black box: while it runs, nothing can be inspected or changed. `nb.Live` opens it. While the
# cell is busy you see whether the model learns and which part of it does, and you can pause, advance step by step, change
# the learning rate, and stop without losing anything.
#
# In this lesson a learning rate is far too large. You see it, pause, correct it, and continue with the same model.
#
# *Goal:* stop, correct and continue a running training. About 45 minutes.

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
import threading
import time

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

nb.seed(0)

digits = load_digits()
images = (digits.images / 16).astype(np.float32).reshape(-1, 64)
labels = digits.target.astype(np.int32)
order = np.random.default_rng(0).permutation(len(images))
train, test = order[360:], order[:360]

# %% [markdown]
# ## A run
#
# The loop stays an ordinary loop. `live.steps` yields the batches and handles clicks between steps. `live.log` takes numbers,
# also ones that the device is still computing: it never waits for them. `loss` and `val_loss` share a plot, because they
# measure the same quantity.


# %%
def make_model():
    return nb.Sequential(
        nb.Sequential(nb.Linear(64, 64), nb.ReLU(), nb.Dropout(0.2)),
        nb.Sequential(nb.Linear(64, 64), nb.ReLU()),
        nb.Linear(64, 10),
    )


def loss_of(model, images, labels):
    return nb.cross_entropy(model(images), labels)


def make_step(model, optimizer):
    @nb.jit
    def train_step(images, labels):
        loss, gradients = nb.value_and_grad(loss_of)(model, images, labels)
        optimizer.update(model, gradients)
        return loss

    return train_step


@nb.jit
def test_loss(model):
    return loss_of(model, images[test], labels[test])


def validate(model):
    model.eval()
    loss = test_loss(model)
    model.train()
    return loss


# %%
model, optimizer = make_model(), nb.SGD(lr=0.1)
step = make_step(model, optimizer)
model

# %%
with nb.Live(model, optimizer, name="a good learning rate") as live:
    # This model learns in a second; the loop goes on until gradients were seen too, see below.
    live.stop_when(lambda: live.step >= 700 and "gradient" in live.watched)
    for x, y in live.steps(nb.batches((images[train], labels[train]), 64), epochs=1000):
        loss = step(x, y)
        live.log(loss=loss)
        if live.step % 50 == 0:
            live.log(val_loss=validate(model))

# %% [markdown]
# The last picture stays in the notebook, and its slider over the steps still works. The numbers are data:

# %%
live.history

# %%
live.history.val_loss.best, live.history.to_numpy()["loss"].values[-3:]

# %% [markdown]
# Below the curves there is one row for each submodule: its weights, their gradients, its returns, and the relative size of
# the last update. Gradients and returns come from a second program of the step, which now and then runs beside the step
# itself. `watching costs` shows the share of time that this takes; it stays below two percent, because few steps are watched.
#
# The same numbers are in `live.watched`, by quantity:

# %%
for quantity, strips in live.watched.items():
    newest = dict(zip(strips.paths, strips.newest, strict=True))
    if quantity == "update":
        print(
            "one update over the weights:",
            *(f"layer {path} {row[0]:.1e}" for path, row in newest.items()),
            sep="\n  ",
        )
    else:
        print(
            f"deviation of each {quantity}:",
            *(f"layer {path} {row[1]:.2g}" for path, row in newest.items()),
            sep="\n  ",
        )

# %% [markdown]
# ## A learning rate that is too large
#
# Now the learning rate is ten times as large. Run the cell and watch: the loss jumps and does not fall, and the last column
# reports that each update moves the weights too far.
#
# At a screen you would press Pause, move the slider *learning rate* to the left, and press Resume. Here a thread does the
# same, so that the notebook also runs unattended: `live.pause`, `live.set` and `live.resume` are what the buttons and the
# slider call. They only send a request, which the loop handles between two steps, so no step is interrupted.

# %%
model, optimizer = make_model(), nb.SGD(lr=1.0)
step = make_step(model, optimizer)
messages = []


def wait_until(condition):
    while not condition() and not live.has_ended:
        time.sleep(0.01)


def reader():
    """What somebody does who sees the curve."""
    wait_until(lambda: "loss" in live.history and len(live.history.loss) >= 150)
    live.pause()
    wait_until(lambda: live.progress.state == "paused")
    messages.append(
        f"paused at step {live.progress.done}: the loss of the last 50 is {live.history.loss.values[-50:].mean():.2f}"
    )
    weights_now = model[0][0].weight() + 0
    time.sleep(0.2)
    messages.append(
        f"nothing moves during a pause: {bool((weights_now == model[0][0].weight()).all())}"
    )
    live.set("learning rate", 0.1)
    live.resume()


# %%
with nb.Live(model, optimizer, name="too large, then corrected", nonfinite="warn") as live:
    threading.Thread(target=reader).start()
    for x, y in live.steps(nb.batches((images[train], labels[train]), 64), epochs=60):
        loss = step(x, y)
        live.log(loss=loss, learning_rate=optimizer.current_lr)
        time.sleep(0.002)  # so that one can watch: a step of this model takes less

# %%
print(*messages, sep="\n")
rates = live.history.learning_rate
print(f"learning rates that were used: {sorted({round(float(rate), 3) for rate in rates.values})}")
first, last = live.history.loss.values[:150].mean(), live.history.loss.values[-150:].mean()
print(f"mean loss of the first 150 steps {first:.2f}, of the last 150 {last:.2f}")

# %% [markdown]
# The step was not compiled again: the learning rate is an input of the compiled step, not a part of it.
#
# ## Stop automatically
#
# `live.stop_when` ends a run after the first step for which a condition holds; a non-finite loss ends it too. In both cases
# the model is consistent, and training can continue in the next cell.

# %%
model, optimizer = make_model(), nb.SGD(lr=0.1)
step = make_step(model, optimizer)

with nb.Live(model, optimizer, name="until it is good enough") as live:
    live.stop_when(lambda history: "val_loss" in history and history.val_loss.last < 0.2)
    for x, y in live.steps(nb.batches((images[train], labels[train]), 64), epochs=200):
        live.log(loss=step(x, y), val_loss=validate(model))

print(live.progress)
right = jnp.argmax(model.eval()(images[test]), axis=-1) == labels[test]
print(f"{float(right.mean()):.0%} of the test digits are read rightly")

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. A curve that can be read.** Losses of single batches jump. The pale curve behind a smooth one is what was logged; the smooth one keeps 0.9 of what it was and
# takes 0.1 of what is new, and begins with the first value. Compute it.
#
# <details><summary>A hint</summary>
#
# One variable goes through the loop, the smooth value so far. It begins as `values[0]`, not as zero.
#
# </details>


# %%
def smooth(values, keep=0.9):
    return None  # your answer: as many numbers as values


# %%
values = 3 + np.random.default_rng(1).normal(size=50).cumsum()
nb.check(
    smooth(values),
    np.array(
        [
            0.9**n * values[0] + sum(0.1 * 0.9 ** (n - k) * values[k] for k in range(1, n + 1))
            for n in range(len(values))
        ]
    ),
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def smooth_solved(values, keep=0.9):
    found, now = [], values[0]
    for value in values:
        now = keep * now + (1 - keep) * value
        found.append(now)
    return found


nb.check(
    smooth_solved(values),
    np.array(
        [
            0.9**n * values[0] + sum(0.1 * 0.9 ** (n - k) * values[k] for k in range(1, n + 1))
            for n in range(len(values))
        ]
    ),
)

# %% [markdown]
# **2. When to end.** Write the condition for `live.stop_when(lambda history: has_settled(history.loss.values))`: the last five losses lie within 0.1 of each other.
# While there are fewer than five, it has not settled.
#
# <details><summary>A hint</summary>
#
# `np.ptp(losses[-5:])` is the largest of them minus the smallest. What does it give for one loss alone?
#
# </details>


# %%
def has_settled(losses):
    return None  # your answer: True or False


# %%
falling = np.exp(-np.arange(60) / 8) + np.random.default_rng(0).normal(0, 0.03, 60)
windows = np.lib.stride_tricks.sliding_window_view(falling, 5)
nb.check(
    [has_settled(falling[: n + 1]) for n in range(60)],
    [False] * 4 + [bool(window.max() - window.min() < 0.1) for window in windows],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def has_settled_solved(losses):
    return len(losses) >= 5 and bool(np.ptp(losses[-5:]) < 0.1)


nb.check(
    [has_settled_solved(falling[: n + 1]) for n in range(60)],
    [False] * 4 + [bool(window.max() - window.min() < 0.1) for window in windows],
)
