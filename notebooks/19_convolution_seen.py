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
# # Convolution, seen
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/19_convolution_seen.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F19_convolution_seen.ipynb)
#
# A convolution is one small picture, the *kernel*, that is laid on every place of a large one; at each place it says how much alike the two
# are. That is all. We do it by hand first, on a photograph; look at what one number can see of the picture below it; and at the end at
# kernels that nobody has written.
#
# *Goal:* to say of a convolution what it answers to, how large its result is, how far it sees, and why it does not mind where something
# stands. About 45 minutes.

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
from sklearn.datasets import load_digits, load_sample_image

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

# %% [markdown]
# ## Kernels by hand
#
# scikit-learn contains a photograph of a temple. We take every fourth pixel, in gray. We use three kernels of three by three pixels: one takes the mean, one
# subtracts the pixels on the left from those on the right, one the pixels above from those below.

# %%
photo = load_sample_image("china.jpg")[::4, ::4].mean(axis=-1).astype(np.float32) / 255
x = photo[None, ..., None]  # (batch, height, width, channels)

kernels = {
    "mean": np.full((3, 3), 1 / 9),
    "left to right": np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 4,
    "top to bottom": np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]]) / 4,
}
by_hand = nb.Conv2d(1, 3, 3, with_bias=False)
print("a kernel has the axes (out, height, width, in):", by_hand.weight.shape)
by_hand.weight = np.stack(list(kernels.values()))[..., None].astype(np.float32)
maps = np.asarray(by_hand(x))

# %%
figure, axes = plt.subplots(2, 3, figsize=(10, 5), layout="constrained", height_ratios=(1, 3))
for channel, (name, kernel) in enumerate(kernels.items()):
    axes[0, channel].imshow(kernel, cmap="PuOr_r", vmin=-0.6, vmax=0.6)
    axes[0, channel].set_title(name)
    shown = {"cmap": "gray"} if name == "mean" else {"cmap": "PuOr_r", "vmin": -0.6, "vmax": 0.6}
    axes[1, channel].imshow(maps[0, ..., channel], **shown)
for axis in axes.flat:
    axis.set_axis_off()
plt.show()

# %% [markdown]
# Orange means that the image gets brighter to the right (or downward), purple that it gets darker; constant areas give zero. The edges of columns
# appear in one map, those of roofs in the other.
#
# One number of a map, step by step: cut out the pixels below the kernel, multiply pixel by pixel, add up.

# %%
row, column = 40, 70
patch = photo[row : row + 3, column : column + 3]
print(
    patch.round(2),
    "times",
    kernels["top to bottom"],
    "is",
    (patch * kernels["top to bottom"]).sum().round(4),
    sep="\n",
)
assert np.allclose((patch * kernels["top to bottom"]).sum(), maps[0, row, column, 2], atol=1e-5)

# %% [markdown]
# The viewer shows the same maps with zoom and the value of each pixel.

# %%
nb.show(by_hand(x))

# %% [markdown]
# ## Translation equivariance
#
# If the photograph moves, the map moves with it, because the same kernel is applied at every position. A linear layer has separate weights for each
# position, and its output changes completely.

# %%
moved = np.roll(x, 20, axis=2)
difference = np.abs(np.asarray(by_hand(moved))[:, :, 20:] - maps[:, :, :-20]).max()
print(f"maps of the moved photograph, moved back, differ by {difference}")
assert difference == 0

linear = nb.Linear(photo.size, 3)
straight, aside = (np.asarray(linear(each.reshape(1, -1))) for each in (x, moved))
print("linear layer, before and after:", straight.round(2), aside.round(2))

# %% [markdown]
# ## The receptive field
#
# The gradient of *one* number of the result by the input is zero outside of its receptive field. Each further layer of three by three adds one
# pixel on each side; after a layer with stride two, each further layer adds twice as many.


# %%
def stack_of(layers):
    """Convolutions that are `(kernel, stride)`; all weights are positive, so that nothing cancels."""
    return nb.Sequential(
        *[
            nb.Conv2d(
                1,
                1,
                kernel,
                stride=stride,
                with_bias=False,
                weight_initializer=lambda key, shape, dtype: jnp.ones(shape, dtype),
            )
            for kernel, stride in layers
        ]
    )


def seen_by_one(layers, size=40):
    """What the number in the middle of the result sees: the gradient of it by the input."""
    model = stack_of(layers)
    middle = model(jnp.zeros((1, size, size, 1))).shape[1] // 2
    return np.asarray(
        nb.grad(lambda x: model(x)[0, middle, middle, 0])(jnp.zeros((1, size, size, 1)))
    )[0, ..., 0]


stacks = {
    "one layer": [(3, 1)],
    "two": [(3, 1)] * 2,
    "four": [(3, 1)] * 4,
    "four, the first with stride 2": [(3, 2), (3, 1), (3, 1), (3, 1)],
}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
for axis, (name, layers) in zip(axes, stacks.items(), strict=True):
    seen = seen_by_one(layers)
    axis.imshow(seen / seen.max(), cmap="Blues")
    axis.set(
        title=name, xticks=[], yticks=[], xlabel=f"{int((seen != 0).any(axis=0).sum())} pixels wide"
    )
plt.show()

# %% [markdown]
# The gradient is larger in the middle: many paths lead from there to the result, and few from the border.
#
# ## Learned kernels
#
# Digits on a page of 16 × 16 pixels, always in its upper left corner. Two models learn to classify them: one with convolutions, which at the end takes only
# the maximum of each channel over all positions, and a linear one. Then the digits move to other positions.

# %%
digits = load_digits()
images, labels = (digits.images / 16).astype(np.float32), digits.target.astype(np.int32)


def page(images, down, right):
    pages = np.zeros((len(images), 16, 16, 1), np.float32)
    pages[:, down : down + 8, right : right + 8, 0] = images
    return pages


class Anywhere(nb.Module):
    def __init__(self):
        self.strokes = nb.Conv2d(1, 12, 5, padding="SAME")
        self.shapes = nb.Conv2d(12, 32, 5, padding="SAME")
        self.scores = nb.Linear(32, 10)

    def forward(self, x):
        x = nb.relu(self.shapes(nb.relu(self.strokes(x))))
        return self.scores(x.max(axis=(1, 2)))


def trained(model, epochs=12):
    optimizer = nb.Adam(3e-3)

    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
        optimizer.update(model, grads)
        return loss

    for epoch in range(epochs):
        for bx, by in nb.batches(
            (page(images[:1440], 0, 0), labels[:1440]), 96, shuffle=True, key=epoch
        ):
            step(bx, by)
    return model


def share_right(model, down, right):
    return float((model(page(images[1440:], down, right)).argmax(-1) == labels[1440:]).mean())


readers = {
    "convolution": trained(Anywhere()),
    "linear": trained(nb.Sequential(nb.Flatten(), nb.Linear(256, 10))),
}
told = {
    name: [share_right(model, at, at) for at in (0, 1, 2, 4, 8)] for name, model in readers.items()
}
for name, shares in told.items():
    print(
        f"{name:11}: moved by 0, 1, 2, 4, 8 pixels", ", ".join(f"{share:.0%}" for share in shares)
    )
assert min(told["convolution"][:4]) > 0.6 > 0.3 > told["linear"][3]

# %% [markdown]
# Both models classify digits at the position of the training. At other positions the linear one guesses; the convolutional one has learned strokes, not
# positions. (Its accuracy drops a little, because the training digits touched the border. Outside of the border the second layer reads zeros, and inside it
# reads the first layer's response to empty paper.)
#
# These are its twelve learned kernels, one tile each. Some detect edges, some detect spots and strokes; some are hard to name.

# %%
nb.show(readers["convolution"].strokes.weight()[..., 0])

# %% [markdown]
# And their maps of one digit, one for each kernel.

# %%
with nb.track(readers["convolution"]) as calls:
    readers["convolution"](page(images[3:4], 4, 4))
calls

# %%
nb.show(nb.relu(calls["strokes"].returns))

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. Convolve.** Write what the layer does: put the kernel on every position where it fits, multiply, add up. No padding, one channel.
#
# <details><summary>A hint</summary>
#
# The result has `height - 2` rows for a kernel of three. Two loops over the positions are enough; `image[r : r + h, c : c + w]` are the pixels below the
# kernel.
#
# </details>


# %%
def convolve(image, kernel):
    return None  # your answer: an array with two axes


# %%
small = photo[30:50, 60:90]
nb.check(
    convolve(small, kernels["left to right"]),
    np.asarray(by_hand(small[None, ..., None]))[0, ..., 1],
    atol=1e-4,
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def convolve_solved(image, kernel):
    h, w = kernel.shape
    rows, columns = image.shape[0] - h + 1, image.shape[1] - w + 1
    return np.array(
        [
            [(image[r : r + h, c : c + w] * kernel).sum() for c in range(columns)]
            for r in range(rows)
        ]
    )


nb.check(
    convolve_solved(small, kernels["left to right"]),
    np.asarray(by_hand(small[None, ..., None]))[0, ..., 1],
    atol=1e-4,
)

# %% [markdown]
# **2. How large is the result?** Return the width of the result of a convolution, from the width of its input, of its kernel, its stride, and the padding on each side.
#
# <details><summary>A hint</summary>
#
# The first position of the kernel is 0, its last is `width + 2 * padding - kernel`; every `stride`-th position counts, including the first.
#
# </details>


# %%
def width_after(width, kernel, stride=1, padding=0):
    return None  # your answer: a whole number


# %%
cases = [(28, 3, 1, 0), (28, 3, 1, 1), (28, 5, 2, 0), (27, 4, 3, 2), (8, 8, 1, 0), (10, 3, 4, 1)]
nb.check(
    [width_after(*case) for case in cases],
    [
        nb.Conv2d(1, 1, kernel, stride=stride, padding=padding)(jnp.zeros((1, n, n, 1))).shape[1]
        for n, kernel, stride, padding in cases
    ],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def width_after_solved(width, kernel, stride=1, padding=0):
    return (width + 2 * padding - kernel) // stride + 1


nb.check(
    [width_after_solved(*case) for case in cases],
    [
        nb.Conv2d(1, 1, kernel, stride=stride, padding=padding)(jnp.zeros((1, n, n, 1))).shape[1]
        for n, kernel, stride, padding in cases
    ],
)

# %% [markdown]
# **3. How large is the receptive field?** Return the width of the receptive field of one number of the result, for a list of layers `(kernel, stride)`, the first layer first.
#
# <details><summary>A hint</summary>
#
# Keep two numbers in the loop: the width of the field, one at first, and the number of input pixels between neighboring positions of the current layer,
# also one at first. A layer widens the field by `kernel - 1` such distances.
#
# </details>


# %%
def field_of(layers):
    return None  # your answer: a whole number


# %%
towers = [*stacks.values(), [(5, 1), (3, 2), (3, 1)], [(3, 2), (3, 2), (3, 1)]]
nb.check(
    [field_of(layers) for layers in towers],
    [int((seen_by_one(layers) != 0).any(axis=0).sum()) for layers in towers],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
def field_of_solved(layers):
    width, step = 1, 1
    for kernel, stride in layers:
        width, step = width + (kernel - 1) * step, step * stride
    return width


nb.check(
    [field_of_solved(layers) for layers in towers],
    [int((seen_by_one(layers) != 0).any(axis=0).sum()) for layers in towers],
)
