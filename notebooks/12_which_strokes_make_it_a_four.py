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
# # Which strokes make it a 4
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/12_which_strokes_make_it_a_four.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F12_which_strokes_make_it_a_four.ipynb)
#
# A small convolutional network reads handwritten digits. Why does it classify this image as a 4? Three methods answer: where
# its score comes from, which channels it needs, and how the prediction changes when a stroke is erased.
#
# *Goal:* distinguish three kinds of explanation. About 45 minutes.

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
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

# %%
digits = load_digits()
images = (digits.images / 16).astype(np.float32)[..., None]
labels = digits.target.astype(np.int32)

features = nb.Sequential(
    nb.Conv2d(1, 12, 3, padding="SAME"),
    nb.ReLU(),
    nb.Conv2d(12, 12, 3, padding="SAME"),
    nb.ReLU(),
    nb.MaxPool2d(2),
    nb.Flatten(),
)
model = nb.Sequential({"features": features, "head": nb.Linear(4 * 4 * 12, 10)})
model

# %%
optimizer = nb.Adam(lr=3e-3)


@nb.jit
def train_step(x, y):
    loss, gradients = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
    optimizer.update(model, gradients)
    return loss


train, test = np.arange(1437), np.arange(1437, 1797)
draw = np.random.default_rng(0)
for _ in range(6):
    order = draw.permutation(train)[:1408].reshape(-1, 64)
    for rows in order:
        train_step(images[rows], labels[rows])
model.eval()
accuracy = float((model(images[test]).argmax(-1) == labels[test]).mean())
print(f"{accuracy:.0%} of the digits that it has never seen are read rightly")
assert accuracy > 0.85

# %% [markdown]
# ## Which pixels contribute to the score of class 4
#
# Integrated gradients: follow the straight line from an empty page to this digit, and add up how much each pixel contributes to
# the score of class 4. Orange pixels increase the score, blue pixels decrease it. All contributions add up to the difference of
# the score between the digit and the empty page.

# %%
four = next(int(i) for i in test if labels[i] == 4 and int(model(images[i : i + 1]).argmax()) == 4)
x = images[four : four + 1]
strokes = nb.attribute(model, x, 4, method="integrated")
strokes

# %%
total = float(model(x)[0, 4] - model(0 * x)[0, 4])
print(f"all pixels together {strokes.inputs.sum():.3f}, the score differs by {total:.3f}")
assert abs(strokes.inputs.sum() - total) < 0.05 * abs(total)

figure, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
left.imshow(x[0, ..., 0], cmap="Greys")
left.set_title("the digit", fontsize=9)
limit = np.abs(strokes.inputs).max()
right.imshow(strokes.inputs[0, ..., 0], cmap="PuOr_r", vmin=-limit, vmax=limit)
right.set_title("what speaks for a 4 (orange) and against it", fontsize=9)
for axis in (left, right):
    axis.set_axis_off()
plt.show()

# %% [markdown]
# ## The test: erase them
#
# An attribution map is a hypothesis. We test it: we erase the pixels with the largest contributions, and for comparison as many
# pixels with as much ink and small contributions.

# %%
order = np.argsort(-strokes.inputs[0, ..., 0], axis=None)
ink = np.flatnonzero(x[0, ..., 0] > 0.3)
most = [i for i in order if i in ink][:6]
least = [i for i in order[::-1] if i in ink][:6]


def without(pixels):
    erased = x.copy()
    erased[0].reshape(-1)[list(pixels)] = 0
    return erased


for name, pixels in (
    ("no pixel", []),
    ("the six that matter most", most),
    ("the six that matter least", least),
):
    scores = model(without(pixels))[0]
    print(f"without {name}: score of the 4 {float(scores[4]):6.2f}, read as {int(scores.argmax())}")
assert model(without(most))[0, 4] < model(without(least))[0, 4]

# %% [markdown]
# ## Which channels it needs
#
# We set each channel of both convolutions to zero, one by one; the map shows the score of class 4 without that channel.

# %%
channels = nb.sweep(model, x, "channels", metric=4)
channels

# %%
worst = channels.most(1)[0]
print(
    f"the channel that matters most: {worst.path}, {worst.setting!r}, changes the score by {worst.shown:.2f}"
)
with nb.patch(model, {worst.path: worst.setting}):
    print(f"the same by nb.patch: {float(model(x)[0, 4]) - channels.before:.2f}")
    several = float((model(images[test]).argmax(-1) == labels[test]).mean())
print(f"without it {several:.0%} of all test digits are read rightly")

# %% [markdown]
# ## Interactively
#
# This view scales that channel to one half and shows the output before and after. With a running kernel the slider changes the
# factor.

# %%
nb.what_if(model, x, {worst.path: nb.scale_by(0.5, channel=worst.setting.parts[0][1])}, metric=4)

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. Gradient times input.** The quickest answer to *why* is the gradient of the score by each pixel, times that pixel. Compute it for the score of class 4.
#
# <details><summary>A hint</summary>
#
# `nb.grad` differentiates a function of the image that returns one number: `lambda x: model(x)[0, 4]`.
#
# </details>


# %%
def gradient_times_input(x):
    return None  # your answer: an array of the shape of x


# %%
other = images[four + 1 : four + 2]
nb.check(gradient_times_input(other), nb.attribute(model, other, 4, method="gradient").inputs)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def gradient_times_input_solved(x):
    return x * nb.grad(lambda x: model(x)[0, 4])(x)


nb.check(
    gradient_times_input_solved(other), nb.attribute(model, other, 4, method="gradient").inputs
)

# %% [markdown]
# **2. Integrated gradients.** They are the mean of the gradients along the straight line from the empty page to the digit, times the digit. Compute it at the
# midpoints of 300 equal intervals.
#
# <details><summary>A hint</summary>
#
# The midpoints are `(np.arange(300) + 0.5) / 300`. All points of the line are one batch, `shares[:, None, None, None] * x`, and the gradient of the *sum* of
# their scores contains the gradient of each.
#
# </details>


# %%
def integrated(x, pieces=300):
    return None  # your answer: an array of the shape of x


# %%
nb.check(
    integrated(other),
    nb.attribute(model, other, 4, method="integrated").inputs,
    rtol=0.02,
    atol=0.02,
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def integrated_solved(x, pieces=300):
    way = ((np.arange(pieces, dtype=np.float32) + 0.5) / pieces)[:, None, None, None] * x
    return x * nb.grad(lambda way: model(way)[:, 4].sum())(way).mean(axis=0)


nb.check(
    integrated_solved(other),
    nb.attribute(model, other, 4, method="integrated").inputs,
    rtol=0.02,
    atol=0.02,
)
