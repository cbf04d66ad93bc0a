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
# # Your own model, in your own framework
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/13_your_own_model.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F13_your_own_model.ipynb)
#
# No model has to be rewritten to be inspected. The same five lines work on models of Flax NNX, Equinox and PyTorch,
# unconverted: structure, calls, returns, gradients, and the origin of a wrong number.
#
# This notebook needs the three frameworks: `pip install 'nbmodule[interop]' torch` in a terminal.
#
# *Goal:* inspect a model written for another framework. About 30 minutes.

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
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from sklearn.datasets import load_digits

import nbmodule as nb

digits = load_digits()
images = (digits.images / 16).astype(np.float32).reshape(-1, 64)
x, labels = images[:256], digits.target[:256]


# %% [markdown]
# ## Flax NNX
#
# A digit classifier and its training step, written in Flax.


# %%
class Reader(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.norm(self.hidden(x))))


reader = Reader(nnx.Rngs(0))


@nnx.jit
def slopes(reader, x):
    def loss(reader):
        scores = jax.nn.log_softmax(reader(x))
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    return nnx.grad(loss)(reader)


# %% [markdown]
# The five lines:

# %%
with nb.track(reader, returns="stats", gradients=True) as calls:
    slopes(reader, x)
calls

# %%
nb.summary(reader, x)

# %%
nb.graph(reader, x)

# %%
assert nb.first_nonfinite(reader, x) is None
nb.inspect(reader, x)

# %% [markdown]
# ## Equinox
#
# The same tools. An Equinox model takes one example, so it is called under `jax.vmap`; recorded values have the batch axis first.

# %%
mlp = eqx.nn.MLP(64, 10, 32, 1, key=jax.random.key(0))
nb.summary(mlp, x[0])

# %%
with nb.track(mlp, gradients=True) as calls:
    eqx.filter_grad(lambda mlp: (jax.vmap(mlp)(x) ** 2).mean())(mlp)
print(calls["layers.0"].returns.shape, calls["layers.0"].gradient.shape)
calls

# %% [markdown]
# What would the model predict for another digit if its hidden layer had seen this one?

# %%
swapped = nb.patch(mlp, x[0], x[1], "layers.0")
assert jnp.allclose(swapped.patched, swapped.clean, atol=1e-5)

# %% [markdown]
# ## PyTorch
#
# The model runs in PyTorch and is not converted. Hooks record the calls inside the block and are removed afterwards.

# %%
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
)
batch, targets = torch.from_numpy(x), torch.from_numpy(labels)
nb.inspect(net, batch)

# %%
with nb.track(net, returns="stats", gradients=True) as calls:
    torch.nn.functional.cross_entropy(net(batch), targets).backward()
assert not net[0]._forward_hooks
calls

# %% [markdown]
# A non-finite number, and the line that produced it:

# %%
broken = torch.nn.Sequential(
    net[0], torch.nn.ReLU(), torch.nn.LogSigmoid(), torch.nn.Linear(32, 10)
)
with torch.no_grad():
    broken[3].weight[2, 5] = 3e38
    broken[3].weight[2, 6] = 3e38
nb.first_nonfinite(broken, batch * 10)

# %% [markdown]
# ## While it trains
#
# `nb.Live` watches the training loop of any of them and controls it: here a PyTorch loop with its learning rate.

# %%
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
with nb.Live(net, adam) as live:
    for rows in live.steps(np.array_split(np.arange(1536), 24), epochs=4):
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            net(torch.from_numpy(images[rows])), torch.from_numpy(digits.target[rows])
        )
        loss.backward()
        adam.step()
        live.log(loss=loss)
assert live.history.loss.last < 1

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. Find it.** One variable of this Flax model was changed at random. Which one?
#
# <details><summary>A hint</summary>
#
# `nb.diff(reader, other)` is a table of changes; each has a `path` and a `status`, which is `"same"` where nothing
# differs.
#
# </details>

# %%
chance = np.random.default_rng(2)
other, variable = nnx.clone(reader), str(chance.choice(["kernel", "bias"]))
changed = getattr(other.head, variable)
changed[...] = changed[...].at[-1].add(float(chance.uniform(0.1, 0.4)))


# %%
found = None  # your answer: a path, as "norm/scale"


# %%
nb.check(found, f"head/{variable}")


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
(change,) = [change for change in nb.diff(reader, other) if change.status != "same"]
nb.check(change.path, f"head/{variable}")

# %% [markdown]
# **2. Measure it.** By how much has it been changed?
#
# <details><summary>A hint</summary>
#
# A change has the attributes `largest` (the difference) and `where`.
#
# </details>

# %%
most = None  # your answer: one number


# %%
nb.check(
    most,
    np.ptp(np.asarray(changed[...]) - np.asarray(getattr(reader.head, variable)[...])),
    rtol=1e-3,
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
nb.check(
    change.largest,
    np.ptp(np.asarray(changed[...]) - np.asarray(getattr(reader.head, variable)[...])),
    rtol=1e-3,
)
