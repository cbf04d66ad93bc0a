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
# # Looking
#
# Whatever stands last in a cell shows itself: a model, its variables, what ran, how two of them differ. Each of these
# looks answers one question at a glance, and the next one after a click. This notebook walks through them with a small
# network that reads handwritten digits.
#
# Looking never changes what is looked at: no weight, no running statistic, no random key. And a look is saved with the
# notebook, so that it is still there tomorrow, on a page, or for a colleague who has no Python at all. While the kernel
# runs, each look can be asked for more.
#
# *Goal:* to know which look answers which question. About 30 minutes.

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
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

digits = load_digits()
images = (digits.images / 16).astype(np.float32)[..., None]
labels = digits.target.astype(np.int32)

# %% [markdown]
# ## A model: what is it made of
#
# The title line says how large the model is, where it lives, and whether it is in training mode: having forgotten
# `model.eval()` is the commonest mistake of all. Below it stand the modules in the order in which they were made, each
# with its share of the parameters. The three blocks are alike, so they are one row, which opens.
#
# - Click on a row, or press Enter on it, to see its arguments and variables.
# - Press `/` and type to search; the arrows walk, the space bar folds.
# - `copy` in the detail gives the path as code that works, such as `model.blocks[1].conv`.


# %%
class Block(nb.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nb.Conv2d(channels, channels, 3, padding="SAME")
        self.norm = nb.BatchNorm2d(channels)

    def forward(self, x):
        return x + nb.relu(self.norm(self.conv(x)))


class DigitReader(nb.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.stem = nb.Conv2d(1, channels, 3, padding="SAME")
        self.blocks = [Block(channels) for _ in range(3)]
        self.drop = nb.Dropout(0.1)
        self.scores = nb.Linear(channels * 8 * 8, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.scores(self.drop(x.reshape(len(x), -1)))


model = DigitReader()
model

# %% [markdown]
# ## Variables: what are its numbers
#
# Each row says how a weight is spread: a small histogram, mean and deviation, and words for what is odd (`zeros`,
# `frozen`, `NaN 12`). Sort by size or by deviation to find the outlier among thousands. The detail of a row shows the
# weight itself as a picture, blue below zero and orange above.
#
# While the kernel runs, the tools above the picture open any slice of it: drag a rectangle to zoom, choose which axes lie
# across and down, move along the others, choose another scale. Every zoom is computed anew from all of the elements, so it shows more.

# %%
model.v

# %% [markdown]
# Rows can be tinted by any number you have for them. Here it is the size of the gradient of each weight: where would
# one step of training change the most?


# %%
def loss_of(model, images, labels):
    return nb.cross_entropy(model(images), labels)


_, gradients = nb.value_and_grad(loss_of)(model, images[:64], labels[:64])
sizes = {chain: jnp.linalg.norm(gradient) for chain, gradient in gradients.cont_to_iterator()}
nb.show(model.v, color=sizes)

# %% [markdown]
# ## Training, with a recorder
#
# A recorder keeps what the modules returned, every so many steps. We keep a copy of the weights too, for later.

# %%
before = model.v.cont_deep_copy()
optimizer = nb.Adam(lr=3e-3)


@nb.jit
def train_step(images, labels):
    loss, gradients = nb.value_and_grad(loss_of)(model, images, labels)
    optimizer.update(model, gradients)
    return loss


recorder = nb.Recorder(model, every=20)
step = 0
for _epoch in range(3):
    for batch in nb.batches((images[360:], labels[360:]), 64, drop_last=True):
        with recorder.step(step):
            loss = train_step(*batch)
        step += 1
print(f"{step} steps, loss {float(loss):.3f}")

# %% [markdown]
# The recorder shows the calls of one step: in which order they ran, what went in and came out, and how the return of
# each is spread. With a kernel there is a slider in the title line, and `[` and `]` go a step back and on: watch how
# the spread of the last scores grows while the model makes up its mind. If a number ever became `nan`, a red rule would
# begin at the module that made it.

# %%
recorder

# %% [markdown]
# ## One digit on its way through
#
# `nb.track` records one call whole. The detail of a row shows what that module returned: feature maps as a grid of
# tiles, one for each channel.

# %%
model.eval()
with nb.track(model) as calls:
    scores = model(images[:1])
calls

# %% [markdown]
# Any array can be shown by itself, with names for its classes. These are the ten scores; the highest is the answer.

# %%
nb.show(scores[0], labels=[f"a {digit}" for digit in range(10)])

# %% [markdown]
# ## Differences: what has training changed
#
# Two trees side by side: what is only in one of them, what has another shape, and how much the rest has moved, as a
# share of its size. Sort by change to see who has learned the most.

# %%
nb.diff(before, model.v)

# %% [markdown]
# Two runs are compared in the same way. Say somebody has written the model again, and one constant slipped. The shapes
# are right, the scores are not, and the title says which module is at fault. Its detail has expected, actual and
# difference side by side.

# %%
other = DigitReader()
other.load_state_dict(model.state_dict())
other.blocks[1].norm.eps = 0.1  # the slip
other.eval()
with nb.track(other) as theirs:
    other(images[:1])
nb.compare(theirs, calls)

# %% [markdown]
# ## All of it, joined
#
# `nb.inspect` runs the model once, without a trace, and shows modules, calls, returns and the graph of operations in
# one panel. Select a module in one of them, and the others follow. The next cell can go on with what it holds.

# %%
view = nb.inspect(model, images[:2])
view

# %%
view.selected = "blocks.1"
view.selected.returns.shape, view.graph.flops

# %% [markdown]
# ## Your own kind of picture
#
# What suits a value best you know better than we do. `nb.view_for` takes a path or a class and a function: it gives
# back an array to draw, or a text. Here the return of the stem is shown as its strongest channel, rather than as all.

# %%
nb.view_for(
    "stem",
    lambda maps: (
        maps[0, ..., int(jnp.abs(maps[0]).sum((0, 1)).argmax())] if maps.ndim == 4 else maps
    ),
)
with nb.track(model, only=["stem"]) as calls:
    model(images[:1])
nb.show(calls)
nb.view_for("stem", None)  # take it back

# %% [markdown]
# ## Try it
#
# - Change a weight, `model.stem.weight.value *= 2`, and look at the variables above: they say that they have changed.
# - Show a large array: `nb.show(np.random.randn(4096, 4096))`. Every one of its 17 million elements is counted.
# - Restart the kernel, or close the notebook and open it again: every look is still there.
# - In a terminal the same objects print themselves as aligned text: `print(model)`, or `nb.show(model, "text")`.

# %% [markdown]
# ## Exercises
#
# Write your answer where it says `None` and run that cell and the next: `nb.check` says whether it is right, and if not, what is wrong
# with it. The solution is folded away below.
#
# **1. How far is moved.** A difference says how much of its own size a variable has moved. Compute that for one array: the norm of what changed over the norm of
# what was.
#
# <details><summary>A hint</summary>
#
# `np.linalg.norm(np.ravel(array))` is the root of the sum of the squares, for an array with any number of axes.
#
# </details>


# %%
def share_moved(before, after):
    return None  # your answer: one number


# %%
pairs = [np.random.default_rng(n).normal(size=(2, 3, n)) for n in (1, 4)]
nb.check(
    [share_moved(a, b) for a, b in pairs],
    [change.relative for a, b in pairs for change in nb.diff({"w": a}, {"w": b})],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def share_moved_solved(before, after):
    return float(np.linalg.norm(np.ravel(after - before)) / np.linalg.norm(np.ravel(before)))


nb.check(
    [share_moved_solved(a, b) for a, b in pairs],
    [change.relative for a, b in pairs for change in nb.diff({"w": a}, {"w": b})],
)

# %% [markdown]
# **2. The strongest channel.** A grid of feature maps shows all channels; which one says the most? For each image, give the number of the channel whose values have
# the largest sum of absolute values.
#
# <details><summary>A hint</summary>
#
# The maps have the shape (images, height, width, channels). Sum over the two axes of the pixels, then look for the
# largest along the channels that are left.
#
# </details>


# %%
def strongest(maps):
    return None  # your answer: one number for each image


# %%
maps = np.asarray(model.stem(images[100:120]))
nb.check(
    strongest(maps),
    [max(range(maps.shape[-1]), key=lambda k: np.abs(each[..., k]).sum()) for each in maps],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def strongest_solved(maps):
    return np.abs(maps).sum(axis=(1, 2)).argmax(axis=-1)


nb.check(
    strongest_solved(maps),
    [max(range(maps.shape[-1]), key=lambda k: np.abs(each[..., k]).sum()) for each in maps],
)
