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
# # Optimizers compared during training
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/18_optimizers_compared.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F18_optimizers_compared.ipynb)
#
# Gradient descent, momentum, Adam: which one is better *from here on*? Two runs that start differently cannot answer. A run with
# branches can: the same weights and the same next batches, and only the rule differs. First you compare the three in a valley with
# two parameters, then a real run branches and continues with the best of them.
#
# *Goal:* explain what each rule does with a gradient, and choose between rules by trying them from the same state. About 45 minutes.

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

nb.seed(0)

# %% [markdown]
# ## A valley
#
# The ground rises thirty times as steeply to the north as to the east. A step that is small enough for the one is far too small for the
# other.

# %%
steepness = jnp.array([1.0, 30.0])


class Valley(nb.Module):
    def __init__(self):
        self.at = nb.Parameter([-3.0, 1.0])

    def forward(self):
        return 0.5 * (steepness * self.at**2).sum()


def path_of(rule, steps=40):
    """All places that a rule comes to."""
    valley, places = Valley(), []
    for _ in range(steps):
        places.append(np.asarray(valley.at))
        rule.update(valley, nb.grad(lambda valley: valley())(valley))
    return np.array([*places, np.asarray(valley.at)])


paths = {
    "SGD": path_of(nb.SGD(0.06)),
    "momentum": path_of(nb.SGD(0.06, momentum=0.8)),
    "Adam": path_of(nb.Adam(0.3)),
}
figure, axes = plt.subplots(1, 3, figsize=(10, 2.6), layout="constrained", sharey=True)
east, north = np.meshgrid(np.linspace(-3.5, 1.5, 80), np.linspace(-1.3, 1.3, 80))
for axis, (name, path) in zip(axes, paths.items()):
    axis.contour(
        east, north, 0.5 * (east**2 + 30 * north**2), levels=12, colors="gray", linewidths=0.4
    )
    axis.plot(*path.T, "o-", markersize=2, linewidth=0.8)
    axis.set_title(name)
plt.show()

# %% [markdown]
# Gradient descent jumps between the walls and moves slowly along the valley. Momentum accumulates the components that keep their
# direction and cancels those that change sign. Adam divides each component by its usual size, so both steps have about the same length.
#
# ## A run that branches
#
# The rule of a step must be a *value*, so that it can change while the step stays compiled: `nb.switch` contains all three rules, and a
# buffer selects one.

# %%
images, labels = load_digits(return_X_y=True)
x, y = (images / 16).astype("float32"), labels.astype("int32")
model = nb.Sequential(nb.Linear(64, 32), nb.Tanh(), nb.Linear(32, 10))
rules = {"SGD": nb.SGD(0.05), "momentum": nb.SGD(0.05, momentum=0.9), "Adam": nb.Adam(1e-2)}
which = nb.Buffer(jnp.array(0))


def moved_by(rule, grads):
    def move():
        rule.update(model, grads)

    return move


@nb.jit
def step(x, y):
    loss, grads = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
    nb.switch(which.value, [moved_by(rule, grads) for rule in rules.values()])
    return loss


# %% [markdown]
# The run starts with gradient descent. At step 40 it tries the next forty steps, on the batches that will come, once with each rule.
# This does not change the run. Then it takes the best branch and continues. (With a kernel the branches are pale curves, and a click
# takes one.)


# %%
def use(name):
    which.value = list(rules).index(name)


batches = [batch for _ in range(8) for batch in nb.batches((x[:1440], y[:1440]), 96)]
with nb.Live(model) as live:
    for bx, by in live.steps(batches):
        live.log(loss=step(bx, by))
        if live.step == 40:
            futures = live.what_if(
                40, changes={name: (lambda name=name: use(name)) for name in rules}
            )
            ends = {
                future.label: float(np.mean(future.curves["loss"].values[-10:]))
                for future in futures
            }
            best = min(ends, key=ends.get)
            live.take(list(ends).index(best))

# %%
for future in futures:
    plt.plot(
        40 + np.arange(len(future.curves["loss"].values)),
        future.curves["loss"].values,
        label=future.label,
    )
plt.xlabel("step")
plt.ylabel("loss")
plt.legend()
plt.show()
right = float((model(x[1440:]).argmax(-1) == y[1440:]).mean())
print({name: round(end, 3) for name, end in ends.items()}, "taken:", best)
print(f"{right:.0%} of the held-out digits are right")
assert ends["SGD"] > 2 * ends[best]
assert right > 0.85

# %% [markdown]
# The three branches start with the same loss, to the last bit, because weights and batch are the same. All later differences are caused
# by the rule. They show which rule is better *here*, at this rate and step; from another step the answer may differ.
#
# The optimizer state of each rule can be inspected, too: momentum stores one number per weight, Adam two.

# %%
nb.show(rules["Adam"].state)

# %% [markdown]
# ## Exercises
#
# **1. Momentum by hand.** Give all positions that momentum visits in the valley, from `(-3, 1)` on: the velocity is 0.8 of the last one plus the
# gradient, and a step is minus the rate times the velocity.
#
# <details><summary>A hint</summary>
#
# The gradient at a position is `np.array([1.0, 30.0]) * place`. Two variables are carried through the loop: the position and the velocity, which starts
# as zeros.
#
# </details>


# %%
def momentum_by_hand(rate, steps=40):
    return None  # your answer: an array of 41 places


# %%
nb.check(momentum_by_hand(0.04), path_of(nb.SGD(0.04, momentum=0.8)), atol=1e-4)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def momentum_by_hand_solved(rate, steps=40):
    place, velocity = np.array([-3.0, 1.0]), np.zeros(2)
    places = [place]
    for _ in range(steps):
        velocity = 0.8 * velocity + np.array([1.0, 30.0]) * place
        place = place - rate * velocity
        places.append(place)
    return np.array(places)


nb.check(momentum_by_hand_solved(0.04), path_of(nb.SGD(0.04, momentum=0.8)), atol=1e-4)

# %% [markdown]
# **2. Adam's first step.** How far does Adam with a rate of 0.3 move in each of the two directions in its first step, whatever the gradients are? Give
# the two distances.
#
# <details><summary>A hint</summary>
#
# After one step the mean of the gradients is the gradient, and the mean of their squares its square, once both are corrected for
# having begun at zero. Divide the one by the root of the other.
#
# </details>

# %%
first_move = None  # your answer: two numbers


# %%
nb.check(first_move, np.abs(paths["Adam"][1] - paths["Adam"][0]), rtol=1e-3)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2: g / sqrt(g²) is 1, in each direction
first_move_solved = [0.3, 0.3]
nb.check(first_move_solved, np.abs(paths["Adam"][1] - paths["Adam"][0]), rtol=1e-3)

# %% [markdown]
# **3. The largest rate.** Beyond which rate does plain gradient descent leave the valley for good? Give the number, from the steepness alone.
#
# <details><summary>A hint</summary>
#
# In one direction a step multiplies the position by `1 - rate * steepness`. When does the absolute value of that exceed one?
#
# </details>

# %%
largest_rate = None  # your answer


# %%
nb.check(
    largest_rate,
    next(rate for rate in np.linspace(0.05, 0.08, 301) if abs(1 - rate * 30) > 1),
    rtol=0.01,
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
nb.check(
    2 / 30, next(rate for rate in np.linspace(0.05, 0.08, 301) if abs(1 - rate * 30) > 1), rtol=0.01
)
