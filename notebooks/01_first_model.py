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
# # A first model
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/01_first_model.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F01_first_model.ipynb)
#
# In this lesson you train a small network to read handwritten digits and inspect each of its parts: its structure, how it
# learns, and what happens to one digit on its way through. It takes less than a minute on a laptop.
#
# Run a cell with Shift+Enter. The last expression of a cell is displayed below it.
#
# *Goal:* build, train and inspect a small network, and know where to find each of its numbers. About 45 minutes.

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
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

# %% [markdown]
# ## The data
#
# scikit-learn includes 1797 scanned digits of eight by eight pixels, with values from 0 (paper) to 16 (ink). One fifth of
# them is held out: the model never trains on these images, so they show whether it has learned digits or only memorized
# pictures.
#
# Images are channels-last: `(batch, height, width, channels)`. These have one channel, the ink.

# %%
digits = load_digits()
images = (digits.images / 16).astype(np.float32)[..., None]
labels = digits.target.astype(np.int32)

order = np.random.default_rng(0).permutation(len(images))
train, test = order[360:], order[:360]

figure, axes = plt.subplots(1, 10, figsize=(10, 1.4))
for digit, axis in enumerate(axes):
    axis.imshow(images[digit, ..., 0], cmap="gray_r")
    axis.set(title=f"{labels[digit]}", xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## The model
#
# A model is a class that holds layers and combines them in `forward`. Two *convolutions* detect strokes and then
# arrangements of strokes, each at half the resolution of the one before. A linear layer combines the features into ten
# scores, one for each digit.
#
# Two layers behave differently during training: `BatchNorm2d` updates running statistics of its inputs, and `Dropout`
# sets a quarter of the features to zero at random, so that the model does not depend on a single one.


# %%
class DigitReader(nb.Module):
    def __init__(self):
        super().__init__()
        self.strokes = nb.Sequential(
            nb.Conv2d(1, 16, 3, padding="SAME"), nb.BatchNorm2d(16), nb.ReLU(), nb.MaxPool2d(2)
        )
        self.shapes = nb.Sequential(
            nb.Conv2d(16, 32, 3, padding="SAME"), nb.BatchNorm2d(32), nb.ReLU(), nb.MaxPool2d(2)
        )
        self.flatten = nb.Flatten()
        self.dropout = nb.Dropout(0.25)
        self.scores = nb.Linear(2 * 2 * 32, 10)

    def forward(self, x):
        x = self.shapes(self.strokes(x))
        return self.scores(self.dropout(self.flatten(x)))


model = DigitReader()
model

# %% [markdown]
# These are the *modules* with the number of parameters of each. The values are in `model.v`, a tree with the same
# branches: `w` is a weight, `b` a bias. Click on a branch to fold or unfold it.

# %%
model.v

# %% [markdown]
# Every part of the tree can be read by name. Its leaves are ordinary JAX arrays:

# %%
model.v.scores.w.shape, model.v.scores.w.mean()

# %% [markdown]
# ## One step
#
# A training step answers two questions: how wrong is the model on these images, and in which direction must each parameter
# move to reduce the error? `nb.value_and_grad` computes both, and the optimizer updates the parameters.
#
# `nb.jit` compiles the whole step. The model and the optimizer are simply used inside: their changes (weights, running
# statistics, optimizer state) become outputs of the compiled function automatically.

# %%
optimizer = nb.Adam(lr=3e-3)


def loss_of(model, images, labels):
    return nb.cross_entropy(model(images), labels)


@nb.jit
def train_step(images, labels):
    loss, gradients = nb.value_and_grad(loss_of)(model, images, labels)
    optimizer.update(model, gradients)
    return loss


@nb.jit
def predict(images):
    return jnp.argmax(model(images), axis=-1)


def accuracy_on(part):
    model.eval()  # running statistics instead of the batch's own, and nothing is dropped
    right = predict(images[part]) == labels[part]
    model.train()
    return float(right.mean())


print(
    f"before any training, {accuracy_on(test):.0%} of the test digits are read rightly: a guess gives 10 %"
)

# %% [markdown]
# ## Training
#
# Twelve epochs over all training digits, in batches of 64. The curve below the cell updates while the loop runs.

# %%
curve = nb.LossCurve()  # is drawn below this cell and grows with each `log`
step = 0
for _epoch in range(12):
    for batch_images, batch_labels in nb.batches(
        (images[train], labels[train]), 64, drop_last=True
    ):
        loss = train_step(batch_images, batch_labels)
        curve.log(step, loss=loss)
        step += 1

# %%
accuracy = accuracy_on(test)
print(f"{accuracy:.1%} of the {len(test)} digits that it has never seen are read rightly")

# %% [markdown]
# ## What happens to one digit
#
# Now the model records a call: which modules ran, in which order, and what each of them returned.

# %%
model.eval()
one = images[test[:1]]
answer = model(one, track_submod_rets=True, track_submod_call_order=True)
print(f"the label says {labels[test[0]]}, the model says {int(answer.argmax())}")

# %% [markdown]
# The order of the calls. The number after a name is the index of this call of the module by its parent.

# %%
model.submod_call_order

# %% [markdown]
# The returns: each module has a list with one entry per call.

# %%
model.submod_rets

# %% [markdown]
# The returns of the two convolution blocks as pictures, one per channel. Each channel of `strokes` responds to another kind
# of stroke and shows where in the digit it occurs; `shapes` does the same for arrangements of strokes.


# %%
def show_channels(title, values, columns=16):
    rows = -(-values.shape[-1] // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * 0.7, rows * 0.7 + 0.4), squeeze=False
    )
    limit = float(np.abs(values).max())
    for channel, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if channel < values.shape[-1]:
            axis.imshow(values[0, ..., channel], cmap="PuOr", vmin=-limit, vmax=limit)
    figure.suptitle(
        f"{title}: {values.shape[-1]} channels of {values.shape[1]} x {values.shape[2]}",
        fontsize=10,
    )
    plt.show()


show_channels("the digit", one)
for name in ("strokes__0", "strokes", "shapes__0", "shapes"):
    show_channels(name, np.asarray(model.submod_rets[name][0]))

# %% [markdown]
# The final scores. The highest one is the prediction, and its distance to the second shows how certain the model is.

# %%
figure, axis = plt.subplots(figsize=(5, 2))
axis.bar(range(10), np.asarray(answer[0]))
axis.set(xticks=range(10), xlabel="digit", ylabel="score")
plt.show()

# %% [markdown]
# ## Wrong predictions
#
# The held-out digits that were misclassified. Some of them are hard for people, too.

# %%
read = np.asarray(predict(images[test]))
wrong = [(place, digit) for place, digit in zip(test, read, strict=True) if labels[place] != digit][
    :10
]
figure, axes = plt.subplots(
    1, max(len(wrong), 1), figsize=(max(len(wrong), 1) * 1.3, 1.6), squeeze=False
)
for axis in axes.flat:
    axis.set_axis_off()
for axis, (place, digit) in zip(axes.flat, wrong, strict=False):
    axis.imshow(images[place, ..., 0], cmap="gray_r")
    axis.set_title(f"{labels[place]}, read as {digit}", fontsize=9)
plt.show()

# %% [markdown]
# ## Try it
#
# - Change `forward` (leave out the dropout, say) and run the cell of the class again, then those below it.
# - Give the second convolution 64 channels. What else has to change? What does the model say if you forget it?
# - Write the step by hand: `model.v = model.v - gradients * 0.1` instead of `optimizer.update(model, gradients)`.

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. Count parameters.** How many numbers does the second block, `model.shapes`, learn? Compute it by hand; the tables above can confirm it.
#
# <details><summary>A hint</summary>
#
# The kernel of a convolution has a weight for each pixel of its window, each input channel and each output channel; there is
# a bias for each output channel. The normalization learns two numbers for each channel; its running statistics are not learned.
#
# </details>

# %%
learned = None  # your answer


# %%
nb.check(learned, sum(parameter.value.size for parameter in model.shapes.parameters()))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
learned_solved = 3 * 3 * 16 * 32 + 32 + 2 * 32
nb.check(learned_solved, sum(parameter.value.size for parameter in model.shapes.parameters()))

# %% [markdown]
# **2. The loss by hand.** `nb.cross_entropy` turns scores into probabilities by *softmax* and takes minus the natural logarithm of the probability of
# the right class. Compute it for each image with NumPy.
#
# <details><summary>A hint</summary>
#
# The probability of class `k` is `exp(score k)` over the sum of all `exp(score)` of that image. `shares[np.arange(len(labels)), labels]`
# takes one entry from each row, if `shares` are the probabilities.
#
# </details>


# %%
def losses_of(scores, labels):
    return None  # your answer: one loss for each image


# %%
scores = model(images[test])
nb.check(losses_of(scores, labels[test]), nb.cross_entropy(scores, labels[test], reduction="none"))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def losses_of_solved(scores, labels):
    powers = np.exp(np.asarray(scores, np.float64))
    shares = powers / powers.sum(axis=1, keepdims=True)
    return -np.log(shares[np.arange(len(labels)), labels])


nb.check(
    losses_of_solved(scores, labels[test]), nb.cross_entropy(scores, labels[test], reduction="none")
)

# %% [markdown]
# **3. Confusion matrix.** Make a table of ten rows and ten columns that counts how often the digit of the row was predicted as the digit of the column.
#
# <details><summary>A hint</summary>
#
# Begin with `np.zeros((10, 10), int)` and go through the pairs of label and prediction. `np.add.at(table, (rows, columns), 1)` counts all of them at
# once.
#
# </details>


# %%
def confusion(read, labels):
    return None  # your answer: a 10 x 10 table


# %%
from sklearn.metrics import confusion_matrix

read = np.asarray(predict(images[test]))
nb.check(confusion(read, labels[test]), confusion_matrix(labels[test], read))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
def confusion_solved(read, labels):
    table = np.zeros((10, 10), int)
    np.add.at(table, (labels, read), 1)
    return table


nb.check(confusion_solved(read, labels[test]), confusion_matrix(labels[test], read))
