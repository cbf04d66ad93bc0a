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
# # Find a loss spike with one click
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/14_loss_spike.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F14_loss_spike.ipynb)
#
# During training the loss jumps once and then continues as if nothing had happened. Which batch was it, which part of the
# model did it affect, and why? Usually the step is gone by the time you ask. `nb.Live` stores what is needed to replay its
# latest steps, bit for bit: a click on the spike opens that step with its batch, every return and every gradient, compared
# with the step before.
#
# *Goal:* get from a jump of the loss to the rows that caused it. About 45 minutes.

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
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

nb.seed(0)
digits = load_digits()
labels = digits.target.astype(np.int32)

# %% [markdown]
# ## The data
#
# The pixels range from 0 to 16 and are divided by 16. Some pictures come from another source with 12-bit pixels, 0 to 4095.
# One of them was not converted.

# %%
images = digits.images.astype(np.float32).reshape(-1, 64)
images[1234] *= 4095 / 16


def prepare(images):
    return images / 16


# %%
model = nb.Sequential(nb.Linear(64, 64), nb.ReLU(), nb.Dropout(0.1), nb.Linear(64, 10))
optimizer = nb.Adam(1e-3)


@nb.jit
def step(x, y):
    loss, gradients = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
    optimizer.update(model, gradients)
    return loss


with nb.Live(model, optimizer, name="digits") as live:
    for x, y in live.steps(nb.batches((prepare(images), labels), 64), epochs=12):
        live.log(loss=step(x, y))

# %% [markdown]
# There is a spike near the start. While the cell runs, a click on it opens that step below the curve. In code, the run lists
# the steps with an exceptional loss, worst first:

# %%
for outlier in live.outliers:
    print(outlier)

# %% [markdown]
# ## Replay the step
#
# `live.at` replays that step: from the nearest copy of all variables, through the steps since, with the same dropout keys.
# On a CPU the loss is equal to the last bit. The run itself does not change.

# %%
spike = live.outliers[0].step
moment = live.at(spike)
print(moment.comparison)
moment

# %% [markdown]
# What grew since the step before, largest first: the change enters at the first layer.

# %%
print(*moment.changes[:4], sep="\n")

# %% [markdown]
# So the batch is the cause. It is stored:

# %%
x, y = moment.batch
brightest = x.max(axis=1)
worst = int(brightest.argmax())
print(
    f"example {worst} of the batch goes up to {brightest[worst]:.1f}, the others up to {np.delete(brightest, worst).max():.1f}"
)
found = int(np.flatnonzero((prepare(images) == x[worst]).all(axis=1))[0])
print(f"it is picture {found}; the line that lets it through is the one in prepare")

# %% [markdown]
# ## What if
#
# Would a smaller learning rate have helped? A run can try the next steps from its current state, without changing:

# %%
images[found] /= 4095 / 16
with nb.Live(model, optimizer, name="with the picture mended") as live:
    for x, y in live.steps(nb.batches((prepare(images), labels), 64), epochs=4):
        live.log(loss=step(x, y))
        if live.step == 60:
            futures = live.what_if(20)

for future in futures:
    print(future)
print(live.outliers)

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. Outliers.** A loss falls and fluctuates, so no fixed limit finds a spike. Take the median of the `window` losses before, and the median of their distances from
# it: a loss more than ten such distances above the median is an outlier. Give the steps, beginning with the first that has a whole window before it.
#
# <details><summary>A hint</summary>
#
# `before = losses[step - window : step]`; the median of `np.abs(before - np.median(before))` is their median distance. The loss itself does not belong to
# its own window.
#
# </details>


# %%
def spikes(losses, window=20):
    return None  # your answer: a list of steps


# %%
def with_spikes(*steps):
    losses = 2 * np.exp(-np.arange(300) / 60) + np.random.default_rng(0).normal(0, 0.02, 300)
    losses[list(steps)] += 1.0
    return losses


nb.check(
    [spikes(with_spikes(70, 200)), spikes(with_spikes(100, 150, 260))], [[70, 200], [100, 150, 260]]
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def spikes_solved(losses, window=20):
    found = []
    for step in range(window, len(losses)):
        before = losses[step - window : step]
        middle = np.median(before)
        if losses[step] > middle + 10 * np.median(np.abs(before - middle)):
            found.append(step)
    return found


nb.check(
    [spikes_solved(with_spikes(70, 200)), spikes_solved(with_spikes(100, 150, 260))],
    [[70, 200], [100, 150, 260]],
)

# %% [markdown]
# **2. Scale both sources.** Write a `prepare` that scales pictures of both sources to 0 ... 1. A 12-bit picture has values up to 4095; those of the other source are at most 16.
#
# <details><summary>A hint</summary>
#
# Each picture has its own range: `images.max(axis=1, keepdims=True) > 16` marks the 12-bit pictures, and `np.where` chooses one of two
# scales for each.
#
# </details>


# %%
def prepare_both(images):
    return None  # your answer: an array of the shape of images


# %%
mixed = digits.images[::-1].astype(np.float32).reshape(-1, 64)
mixed[[3, 500]] *= 4095 / 16
nb.check(prepare_both(mixed), digits.images[::-1].reshape(-1, 64) / 16)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def prepare_both_solved(images):
    return images / np.where(images.max(axis=1, keepdims=True) > 16, 4095, 16)


nb.check(prepare_both_solved(mixed), digits.images[::-1].reshape(-1, 64) / 16)
