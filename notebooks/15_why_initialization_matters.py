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
# # Why initialization matters
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/15_why_initialization_matters.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F15_why_initialization_matters.ipynb)
#
# Before a network has learned anything it is a product of random matrices. Whether a signal comes through fifty of them, and a
# gradient back, is decided by one number: the spread of the first weights. We see it in the returns of the layers, find the
# right number by hand, and see what residual connections and normalization change about it.
#
# *Goal:* to be able to say, from one picture of the returns, whether a deep network can learn at all. About 45 minutes.

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
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

nb.seed(0)

images, labels = load_digits(return_X_y=True)
x, y = jnp.asarray(images / 8 - 1, jnp.float32), jnp.asarray(labels)  # about zero, spread about one

# %% [markdown]
# ## Thirty layers
#
# Each layer is a matrix and a `tanh`. The weights are normal with standard deviation `gain / sqrt(width)`. With a gain of one, a
# sum of `width` independent inputs keeps their spread.

# %%
WIDTH, DEPTH = 64, 30


def spread(gain):
    """An initializer is a function of key, shape and dtype."""
    return lambda key, shape, dtype: (
        gain / jnp.sqrt(shape[-1]) * jax.random.normal(key, shape, dtype)
    )


class Deep(nb.Module):
    def __init__(self, gain, activation=nb.tanh, residual=False, norm=False):
        make = {"weight_initializer": spread(gain), "bias_initializer": nb.Zeros()}
        self.layers = [nb.Linear(WIDTH, WIDTH, **make) for _ in range(DEPTH)]
        self.norms = [nb.LayerNorm(WIDTH) if norm else nb.Identity() for _ in range(DEPTH)]
        self.head = nb.Linear(WIDTH, 10)
        self.activation, self.residual = activation, residual

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            y = self.activation(layer(norm(x)))
            x = x + y if self.residual else y
        return self.head(x)


def loss_of(model, x, y):
    return nb.cross_entropy(model(x), y)


models = {gain: Deep(gain) for gain in (0.5, 1.0, 1.5, 3.0)}

# %% [markdown]
# ## The return of each layer
#
# `nb.track` records the return of each submodule, and with `gradients=True` the gradient of the loss by it. Nothing has been
# trained yet.


# %%
def looked_at(model):
    with nb.track(model, gradients=True) as calls:
        nb.grad(loss_of)(model, x[:200], y[:200])
    of_layers = [calls[f"layers.{number}"] for number in range(DEPTH)]
    returns = [float(np.std(np.tanh(call.returns))) for call in of_layers]
    gradients = [float(np.std(call.gradient)) for call in of_layers]
    return returns, gradients


figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
seen = {gain: looked_at(model) for gain, model in models.items()}
for gain, (returns, gradients) in seen.items():
    left.semilogy(returns, label=f"gain {gain}")
    right.semilogy(gradients)
left.set(title="deviation of the returns", xlabel="layer")
right.set(title="deviation of the gradients by them", xlabel="layer")
left.legend()
plt.show()
for gain, (_, gradients) in seen.items():
    print(
        f"gain {gain}: gradient of the first layer {gradients[0] / gradients[-1]:.1e} times that of the last"
    )

# %% [markdown]
# Four cases. With a gain of 0.5 the signal halves in each layer: after thirty layers it is a billionth, and all images give the
# same return. With a gain of 3 the returns keep their size, but each layer multiplies the gradients on the way back, and the
# first layers get thousands of times the gradients of the last ones. Only a narrow range between them works.
#
# So a return near one is not enough. How many units of a `tanh` are *saturated*, beyond 0.97, where the derivative is below 0.06?

# %%
for gain, model in models.items():
    with nb.track(model) as calls:
        model(x[:200])
    last = np.tanh(calls[f"layers.{DEPTH - 1}"].returns)
    print(f"gain {gain}: deviation {last.std():.2g}, saturated {np.mean(np.abs(last) > 0.97):.0%}")

# %% [markdown]
# The same in one view: one row per layer, with the statistics of its return. A slanted column shows a signal that explodes or
# vanishes with depth.

# %%
with nb.track(models[0.5], returns="stats") as calls:
    models[0.5](x[:200])
calls

# %% [markdown]
# ## Does it learn?


# %%
def trained(model, steps=60, lr=3e-3):
    optimizer = nb.Adam(lr)

    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(loss_of)(model, x, y)
        optimizer.update(model, grads)
        return loss

    return [float(step(x[:1000], y[:1000])) for _ in range(steps)]


curves = {f"gain {gain}": trained(model) for gain, model in models.items()}
curves["gain 3, residual and norm"] = trained(Deep(3.0, residual=True, norm=True))
for name, losses in curves.items():
    plt.plot(losses, label=name)
plt.axhline(np.log(10), color="gray", lw=0.5)  # guessing
plt.xlabel("step")
plt.ylabel("loss")
plt.legend()
plt.show()
assert curves["gain 1.5"][-1] < 0.5 * np.log(10) < curves["gain 0.5"][-1]
assert curves["gain 3, residual and norm"][-1] < curves["gain 3.0"][-1]

# %% [markdown]
# The statistics before the first step predicted which network learns. With shortcuts and normalization even the bad gain
# learns: each layer adds to its input, and the input is normalized first.
#
# ## Exercises
#
# **1. The gain of ReLU.** A ReLU sets half of its inputs to zero, and so halves their energy (the mean of the squares). Which gain keeps the mean of
# the squares from layer to layer? (He et al., 2015)
#
# <details><summary>A hint</summary>
#
# If half of the energy is lost, the energy of the weights has to be doubled. The gain is a factor of the standard deviation, and
# energy is its square.
#
# </details>

# %%
gain_of_relu = None  # your answer


# %%
energies = jax.random.normal(jax.random.key(0), (10_000, WIDTH))
kept = jnp.mean(energies**2) / jnp.mean(nb.relu(energies) ** 2)
nb.check(gain_of_relu, np.sqrt(np.round(float(kept), 1)), rtol=0.02)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
gain_of_relu_solved = np.sqrt(2)
nb.check(gain_of_relu_solved, np.sqrt(np.round(float(kept), 1)), rtol=0.02)

# %% [markdown]
# **2. The half-way layer.** From the returns of a network, give the number of the first layer whose deviation is below half of that of
# layer 0; None if there is none.
#
# <details><summary>A hint</summary>
#
# `np.flatnonzero(np.asarray(returns) < returns[0] / 2)` are the numbers of all such layers; there may be none.
#
# </details>


# %%
def first_half(returns):
    return ...  # your answer; returns is a list of deviations


# %%
networks = [*(returns for returns, _ in seen.values()), [1.0, 0.7, 0.4, 0.6, 0.3]]
nb.check(
    [first_half(returns) or -1 for returns in networks],
    [next((n for n, s in enumerate(r) if s < r[0] / 2), -1) for r in networks],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def first_half_solved(returns):
    below = np.flatnonzero(np.asarray(returns) < returns[0] / 2)
    return int(below[0]) if len(below) else None


nb.check(
    [first_half_solved(returns) or -1 for returns in networks],
    [next((n for n, s in enumerate(r) if s < r[0] / 2), -1) for r in networks],
)
