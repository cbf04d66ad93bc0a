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
# # Porting from PyTorch
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/08_porting_from_torch.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F08_porting_from_torch.ipynb)
#
# A port seldom fails with an error. It loads, it runs, and its answers are wrong. Which of its twenty layers is to blame?
#
# The way out is to compare *returns*: let the original say what each of its modules returned, let the port say the same,
# and look for the first module that was given the right input and returned the wrong output. In this notebook a port
# has six mistakes that people really make. We find them one by one, until all returns agree.
#
# This notebook needs PyTorch, which nbmodule does not install: `pip install torch` in a terminal. (Its site names a
# smaller version without GPU code. `pip install 'nbmodule[test]'` brings it too.)
#
# *Goal:* to find the first layer of a port that is wrong, by its returns. About 60 minutes.

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
import copy
import os
import tempfile

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

try:
    import torch
except ImportError as error:
    raise ImportError(
        "this notebook needs PyTorch: run `pip install torch` in a terminal"
    ) from error

torch.manual_seed(0)  # the same numbers in each run
torch.set_num_threads(1)  # quicker for a network this small

# %% [markdown]
# ## The original
#
# A reader of digits, in PyTorch. It has its peculiarities, as found code does: an `eps` that is not the usual one, a
# faster form of GELU, a linear layer that keeps its weight the other way around (as GPT-2 does), and a factor in a
# `forward`.


# %%
class Conv1D(torch.nn.Module):  # as in GPT-2: a linear layer with a weight of (in, out)
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(n_in, n_out) / n_in**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class TorchBlock(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.inner = Conv1D(width, width)
        self.activation = torch.nn.GELU(approximate="tanh")
        self.outer = torch.nn.Linear(width, width)

    def forward(self, x):
        return x + 0.5 * self.outer(self.activation(self.inner(self.norm(x))))


class TorchReader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.strokes = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8, eps=1e-3)
        self.pool = torch.nn.AvgPool2d(2)
        self.flatten = torch.nn.Flatten()
        self.project = torch.nn.Linear(8 * 4 * 4, 32)
        self.blocks = torch.nn.ModuleList(TorchBlock(32) for _ in range(3))
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = self.project(self.flatten(self.pool(torch.relu(self.norm(self.strokes(x))))))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# %% [markdown]
# It is trained as such models are. PyTorch wants channels first: `(batch, channel, height, width)`.

# %%
digits = load_digits()
images = (digits.images / 16).astype(np.float32)  # (1797, 8, 8)
labels = digits.target.astype(np.int64)
order = np.random.default_rng(0).permutation(len(images))
train, test = order[360:], order[:360]

original = TorchReader()
adam = torch.optim.Adam(original.parameters(), lr=3e-3)
for _epoch in range(8):
    for rows in np.array_split(np.random.default_rng(_epoch).permutation(train), 22):
        scores = original(torch.from_numpy(images[rows][:, None]))
        adam.zero_grad()
        torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels[rows])).backward()
        adam.step()

original.eval()
with torch.no_grad():
    expected = original(torch.from_numpy(images[test][:, None])).numpy()
print(
    f"the original reads {(expected.argmax(axis=1) == labels[test]).mean():.1%} of the unseen digits rightly"
)

# %% [markdown]
# ## Record its returns
#
# `nb.track` takes the PyTorch model unconverted: each call of a module is recorded with its inputs and returns. The record
# is saved to a file, so that the port can be debugged on a machine without PyTorch.

# %%
batch = images[test[:16]]
with nb.track(original) as calls:
    original(torch.from_numpy(batch[:, None]))

file = os.path.join(tempfile.mkdtemp(), "original.h5")
calls.save(file)
reference = nb.load_calls(file)
reference

# %% [markdown]
# ## The port
#
# The same names, layer by layer. Names that agree make everything below easy.


# %%
class Block(nb.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nb.LayerNorm(width)
        self.inner = nb.Linear(width, width)
        self.activation = nb.GELU()
        self.outer = nb.Linear(width, width)

    def forward(self, x):
        return x + self.outer(self.activation(self.inner(self.norm(x))))


class Reader(nb.Module):
    def __init__(self):
        super().__init__()
        self.strokes = nb.Conv2d(1, 8, 3, padding=1)
        self.norm = nb.BatchNorm2d(8)
        self.pool = nb.AvgPool2d(2)
        self.flatten = nb.Flatten()
        self.project = nb.Linear(8 * 4 * 4, 32)
        self.blocks = [Block(32) for _ in range(3)]
        self.head = nb.Linear(32, 10)

    def forward(self, x):
        x = self.project(self.flatten(self.pool(nb.relu(self.norm(self.strokes(x))))))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


port = Reader()
port

# %% [markdown]
# ## Mistakes that speak
#
# The weights move over by name. PyTorch also counts batches in `num_batches_tracked`, which nothing here needs. The first
# attempt fails aloud and says what does not fit. Nothing is changed until all of it fits.

# %%
state = {
    name: tensor.numpy()
    for name, tensor in original.state_dict().items()
    if "num_batches" not in name
}
try:
    port.load_state_dict(state)
except ValueError as error:
    print(error)

# %% [markdown]
# That was the **first mistake**: a convolution of PyTorch keeps `(out, in, height, width)`, ours has the channels it reads
# last, like the images. Turned around, all shapes fit, and the port runs.

# %%
state["strokes.weight"] = state["strokes.weight"].transpose(0, 2, 3, 1)
port.load_state_dict(state)


def share_right(model):
    return float((model.eval()(images[test][..., None]).argmax(axis=-1) == labels[test]).mean())


print(f"the port reads {share_right(port):.1%} rightly; a guess gives 10 %")

# %% [markdown]
# ## Mistakes that are silent
#
# Now the port is run on the same images, and both runs are laid side by side. `nb.compare` knows that images of PyTorch have
# their channels first.


# %%
def compare_with_original(model):
    with nb.track(model.eval()) as calls:
        model(batch[..., None])
    return nb.compare(calls, reference)


first_look = compare_with_original(port)
first_look

# %% [markdown]
# Almost everything differs, but not everything is at fault: a wrong input makes a wrong output. `first` is the innermost
# module that had the right input and gave the wrong return.

# %%
assert first_look.first.path == "norm"

# %% [markdown]
# **Second mistake: a default.** The batch norm. Mean, variance, gain and offset came with the state. What did not come is
# `eps`: it is no tensor, so no state dict holds it. The original has 0.001, ours 0.00001.

# %%
port.norm.eps = 1e-3
print(compare_with_original(port).first)
assert compare_with_original(port).first.path == "flatten"

# %% [markdown]
# **Third mistake: an order.** `flatten` has no weights at all, and yet its return is wrong. PyTorch lays the picture out
# channel by channel, ours pixel by pixel. Both have 128 numbers, so nothing complains, and `project` weighs the wrong
# ones. Sorted, both are the same:

# %% tags=["example"]
pair = compare_with_original(port)["flatten"]
nb.check(np.sort(pair.actual.returns), np.sort(pair.expected.returns))

# %%
port.flatten = nb.Lambda(lambda x: jnp.moveaxis(x, -1, 1).reshape(len(x), -1))
print(compare_with_original(port).first)
assert compare_with_original(port).first.path == "blocks.0.inner"

# %% [markdown]
# **Fourth mistake: a transposed weight.** `inner` is the layer that keeps its weight as `(in, out)`. If it were not
# square, the shape would show it. The pair holds the common input, so we can test this guess at once:

# %% tags=["example"]
pair = compare_with_original(port)["blocks.0.inner"]
inputs, weight, bias = (
    pair.expected.inputs[0],
    state["blocks.0.inner.weight"],
    state["blocks.0.inner.bias"],
)
print("as it is:  ", nb.check(inputs @ weight.T + bias, pair.expected.returns))
print("transposed:", nb.check(inputs @ weight + bias, pair.expected.returns))

# %%
for name in state:
    if name.endswith("inner.weight"):
        state[name] = state[name].T
port.load_state_dict(state)
print(compare_with_original(port).first)
assert compare_with_original(port).first.path == "blocks.0.activation"

# %% [markdown]
# **Fifth mistake: nearly the same function.** The difference is small, but the input agrees to a millionth, so it is no
# rounding. The original uses the approximation of GELU with a `tanh`. Such a mistake costs little accuracy and is never
# found by looking at answers.

# %%
for block in port.blocks:
    block.activation = nb.GELU(approximate=True)
print(compare_with_original(port).first)
assert compare_with_original(port).first.path == "blocks.0"

# %% [markdown]
# **Sixth mistake: a line of `forward`.** Now `blocks.0` itself is named, and no layer in it. So all its layers are right
# and what stands between them is wrong. The factor 0.5 is missing.


# %%
def forward(self, x):
    return x + 0.5 * self.outer(self.activation(self.inner(self.norm(x))))


Block.forward = forward
assert compare_with_original(port).agrees
compare_with_original(port)

# %% [markdown]
# All returns agree. So do the answers to all digits.

# %% tags=["example"]
print(f"the port reads {share_right(port):.1%} rightly")
nb.check(port(images[test][..., None]), expected)

# %% [markdown]
# ## All at once
#
# One mistake hides the ones behind it, but not from this comparison: a module whose input was wrong is run once more,
# alone, on the input of the *original*. So the very first comparison has named every module at fault.

# %%
print([pair.path for pair in first_look if pair.fault == "module"])

# %% [markdown]
# The blocks themselves are not in that list: as long as something *inside* of them is wrong, they are not blamed.
#
# ## Exercises
#
# **1. Load without editing by hand.** `load_state_dict` also takes a function: it is asked `(name, tensor)` for each
# variable of the model and returns an array. Write one that takes from `source`, the state of PyTorch, and turns around
# what has to be turned.
#
# <details><summary>A hint</summary>
#
# A kernel of PyTorch has its axes as `(out, in, height, width)`, here `(out, height, width, in)`: four axes need
# `transpose`. Of the weights with two axes only `inner.weight` is turned around in this model.
#
# </details>

# %%
source = {name: tensor.numpy() for name, tensor in original.state_dict().items()}


# %%
def from_original(name, tensor):
    return tensor  # your answer; this leaves each variable as it is


# %%
others = images[test][100:120]


def outputs_of_original(images):
    with torch.no_grad():
        return original(torch.tensor(images)[:, None]).numpy()


def outputs_of(loader):
    model = copy.deepcopy(port)
    model.v = model.v * 0
    model.load_state_dict(loader)
    return model(others[..., None])


nb.check(outputs_of(from_original), outputs_of_original(others))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def from_original_solved(name, tensor):
    array = source[name]
    if array.ndim == 4:
        return array.transpose(0, 2, 3, 1)
    return array.T if name.endswith("inner.weight") else array


nb.check(outputs_of(from_original_solved), outputs_of_original(others))

# %% [markdown]
# **2. One number.** In this copy of the port a single number of a single weight has been changed. Find out where, take the
# right weight from `source`, and return the mended model.
#
# <details><summary>A hint</summary>
#
# `compare_with_original(model).first.path` names the module. Its variable in `source` is at `f"{path}.weight"`.
#
# </details>

# %%
suspect = copy.deepcopy(port)
victim = np.random.default_rng(5).choice(
    ["blocks.0.outer", "blocks.1.outer", "blocks.2.outer", "head"]
)
dict(suspect.named_modules())[victim].weight[3, 7] += 1.0


# %%
def mended(model):
    return model  # your answer


# %%
nb.check(mended(suspect)(others[..., None]), outputs_of_original(others))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def mended_solved(model):
    path = compare_with_original(model).first.path
    dict(model.named_modules())[path].weight = source[f"{path}.weight"]
    return model


nb.check(mended_solved(suspect)(others[..., None]), outputs_of_original(others))
