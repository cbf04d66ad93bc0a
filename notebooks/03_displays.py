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
# # Displays
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/03_displays.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F03_displays.ipynb)
#
# The last expression of a cell displays itself: a model, its variables, its calls, the difference of two models. Each display
# answers one question at a glance, and the next one after a click. This lesson goes through them with a small network that
# reads handwritten digits.
#
# Displays never change anything: no weight, no running statistic, no random key. They are saved with the notebook, so they
# also work tomorrow, on a web page, or for a colleague without Python. While the kernel runs, they can request more data.
#
# *Goal:* know which display answers which question. About 30 minutes.

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
# ## The model: structure
#
# The title shows the size of the model, its device, and whether it is in training mode: a forgotten `model.eval()` is a very
# common mistake. Below are the modules in the order of definition, each with its share of the parameters. The three equal
# blocks are one row, which opens.
#
# - Click on a row, or press Enter on it, to see its arguments and variables.
# - Press `/` and type to search; use the arrow keys to move and the space bar to fold.
# - `copy` in the detail copies the path as code, such as `model.blocks[1].conv`.


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
# ## Variables
#
# Each row shows the distribution of a variable: a small histogram, mean and deviation, and a word for anything unusual
# (`zeros`, `frozen`, `NaN 12`). Sort by size or deviation to find an outlier among thousands. The detail of a row shows the
# weight as a picture, blue below zero and orange above.
#
# While the kernel runs, the tools above the picture open any slice: drag a rectangle to zoom, choose the axes for rows and
# columns, move along the others, choose another scale. Each zoom is computed from all elements, so it shows more detail.

# %%
model.v

# %% [markdown]
# Rows can be colored by any number you provide. Here it is the size of each gradient: which variables would a training step
# change the most?


# %%
def loss_of(model, images, labels):
    return nb.cross_entropy(model(images), labels)


_, gradients = nb.value_and_grad(loss_of)(model, images[:64], labels[:64])
sizes = {chain: jnp.linalg.norm(gradient) for chain, gradient in gradients.cont_to_iterator()}
nb.show(model.v, color=sizes)

# %% [markdown]
# ## Training with a recorder
#
# A recorder stores what the modules returned at every n-th step. A copy of the initial weights is kept for later.

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
# The recorder displays the calls of one step: their order, inputs, outputs, and the distribution of each return. With a kernel
# the title has a slider over the steps, and `[` and `]` move one step back or forward: watch the spread of the final scores
# grow during training. If a return became `nan`, a red rule would start at the module that produced it.

# %%
recorder

# %% [markdown]
# ## One digit on its way through
#
# `nb.track` records one complete call. The detail of a row shows the return of that module: feature maps as a grid of tiles,
# one for each channel.

# %%
model.eval()
with nb.track(model) as calls:
    scores = model(images[:1])
calls

# %% [markdown]
# Any array can be displayed by itself, with names for its classes. These are the ten scores; the highest is the prediction.

# %%
nb.show(scores[0], labels=[f"a {digit}" for digit in range(10)])

# %% [markdown]
# ## Differences: what training has changed
#
# The difference of two trees lists what exists in only one of them, what has another shape, and the relative change of the
# rest. Sort by change to see which variables moved most.

# %%
nb.diff(before, model.v)

# %% [markdown]
# Two runs are compared in the same way. Suppose somebody rewrote the model and one constant is wrong. The shapes are right,
# the scores are not, and the title names the module at fault. Its detail shows expected, actual and difference.

# %%
other = DigitReader()
other.load_state_dict(model.state_dict())
other.blocks[1].norm.eps = 0.1  # the slip
other.eval()
with nb.track(other) as theirs:
    other(images[:1])
nb.compare(theirs, calls)

# %% [markdown]
# ## Everything together
#
# `nb.inspect` runs the model once without side effects and shows modules, calls, returns and the graph of operations in one
# panel. Select a module in one of them, and the others follow. The next cell can use the data it holds.

# %%
view = nb.inspect(model, images[:2])
view

# %%
view.selected = "blocks.1"
view.selected.returns.shape, view.graph.flops

# %% [markdown]
# ## Your own picture
#
# You know best how to draw your values. `nb.view_for` takes a path or a class, and a function that returns an array to draw,
# or text. Here the return of the stem is drawn as its strongest channel instead of all channels.

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
# - Change a weight, `model.stem.weight.value *= 2`, and view the variables above: they report the change.
# - Display a large array: `nb.show(np.random.randn(4096, 4096))`. Every one of its 17 million elements is counted.
# - Restart the kernel, or close the notebook and open it again: every display is still there.
# - In a terminal the same objects print as aligned text: `print(model)`, or `nb.show(model, "text")`.

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. Relative change.** A difference shows the change of a variable relative to its size. Compute it for one array: the norm of the change over the norm of
# the old value.
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
# **2. The strongest channel.** A grid of feature maps shows all channels; which one is the strongest? For each image, give the number of the channel whose values have
# the largest sum of absolute values.
#
# <details><summary>A hint</summary>
#
# The maps have the shape (images, height, width, channels). Sum over the two axes of the pixels, then look for the
# largest along the remaining axis.
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
