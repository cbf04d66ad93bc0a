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
# # What is wrong with this training?
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/20_what_is_wrong.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F20_what_is_wrong.ipynb)
#
# Rules read the data, the model and the curves of a training and say what looks wrong, where, since when, and what to try.
#
# *Goal:* get a verdict before and during a training, check its evidence, and try the fix. About 45 minutes.

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

pixels, labels = load_digits(return_X_y=True)
x, y = (pixels[:1000] / 16).astype("float32"), labels[:1000]
held_x, held_y = (pixels[1000:] / 16).astype("float32"), labels[1000:]


def network(*last):
    nb.seed(0)
    return nb.Sequential(nb.Linear(64, 64), nb.ReLU(), nb.Linear(64, 10), *last)


# %% [markdown]
# ## Before the first step
#
# `nb.check_setup` runs and differentiates the model once with one batch. It changes nothing. Here nothing is wrong.

# %%
nb.check_setup(network(), x[:100], y[:100], nb.cross_entropy)

# %% [markdown]
# Four mistakes. Each verdict has a sign (▲ the result cannot be used, ● probably a fault, ○ worth knowing), its evidence as a small picture, an
# explanation, and something to try. *The loss already applies softmax:*

# %%
nb.check_setup(network(nb.Softmax()), x[:100], y[:100], nb.cross_entropy)

# %% [markdown]
# *Images as bytes; labels that count from 1; and two linear layers in a row:*

# %%
nb.check_setup(network(), np.round(255 * x[:100]), y[:100], nb.cross_entropy)

# %%
nb.check_setup(network(), x[:100], y[:100] + 1, nb.cross_entropy)

# %%
linear = nb.Sequential(nb.Linear(64, 64), nb.Linear(64, 10))
nb.check_setup(linear, x[:100], y[:100], nb.cross_entropy)

# %% [markdown]
# ## During a training
#
# `nb.Live` asks the same rules and those for curves, and observes a few steps beside the training. The learning rate below is far too large.


# %%
def make_step(model, optimizer):
    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return step


model, optimizer = network(), nb.SGD(4.0)
step = make_step(model, optimizer)
with nb.Live(model, optimizer, name="rate 4", journal=False) as live:
    for bx, by in live.steps(nb.batches((x, y), 50, shuffle=True, key=0), epochs=3):
        live.log(loss=step(bx, by))
        if live.step == 40:
            futures = live.what_if(20, rates=[0.01, 0.1, 1])

live.diagnosis

# %% [markdown]
# At step 40 the loop tried three futures of 20 steps, without touching the run: the rate a hundredth, a tenth, and as it is. While a run goes
# on, the button beside a finding does that, and `live.try_fix("diverges")` is the same as code.

# %%
for future in futures:
    print(future)

# %% [markdown]
# ## Overfitting, and a rule of your own
#
# A tenth of the data and a third of its labels wrong: the network learns them by heart. The verdict names the step to go back to.

# %%
few, wrong = x[:100], y[:100].copy()
wrong[::3] = np.random.default_rng(0).integers(0, 10, len(wrong[::3]))
model, optimizer = network(), nb.Adam(3e-3)
step = make_step(model, optimizer)
with nb.Live(model, optimizer, name="too few", journal=False) as live:
    for bx, by in live.steps(nb.batches((few, wrong), 25, shuffle=True, key=0), epochs=60):
        live.log(loss=step(bx, by))
        if live.step % 8 == 0:
            live.log(val_loss=nb.cross_entropy(model(held_x), held_y))

live.diagnosis


# %% [markdown]
# A rule is a function of the evidence that yields verdicts. `nb.mute_rule` silences one.


# %%
@nb.rule("validated-rarely")
def validated_rarely(evidence):
    """The validation series has few points, so its best point is a matter of chance."""
    series = evidence.validation
    if series is not None and len(series.values) < 100:
        text = f"{series.name} has only {len(series.values)} points"
        yield nb.RuleVerdict("validated-rarely", text, "note")


print(live.diagnosis)
nb.mute_rule("validated-rarely")

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one. The solutions are folded below.
#
# **1. Name it.** Which rule speaks about this setup? Give its name.
#
# <details><summary>A hint</summary>
#
# A diagnosis has `names`.
#
# </details>


# %%
def odd_setup():
    targets = held_y[:100].astype("float32")
    nb.seed(1)
    model = nb.Sequential(nb.Linear(64, 8), nb.ReLU(), nb.Linear(8, 1))
    return nb.check_setup(model, held_x[:100], targets, lambda p, y: jnp.mean((p - y) ** 2))


# %%
rule_name = None  # your answer: a name with hyphens


# %%
nb.check(rule_name, odd_setup().names[0])


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
diagnosis = odd_setup()
print(diagnosis)
nb.check(diagnosis.names[0], "loss-broadcasts")

# %% [markdown]
# **2. The noise of a curve.** A rule must not call one odd step a fault, so it compares with the noise of the curve itself. Write the median of the
# sizes of the differences between neighboring values.
#
# <details><summary>A hint</summary>
#
# `np.diff`, then sizes without a sign, then `np.median`.
#
# </details>


# %%
def noise_of(values):
    return None  # your answer: one number


# %%
curve = np.exp(-np.arange(60) / 20) + np.random.default_rng(3).normal(size=60) * 0.05
nb.check(noise_of(curve), np.median(np.abs(curve[1:] - curve[:-1])))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def noise_of_solved(values):
    return np.median(np.abs(np.diff(values)))


nb.check(noise_of_solved(curve), np.median(np.abs(curve[1:] - curve[:-1])))

# %% [markdown]
# **3. Mend the scale.** Bring each column to mean 0 and deviation 1, with the statistics of *these* rows.
#
# <details><summary>A hint</summary>
#
# `.mean(0)` and `.std(0)` are one number for each column.
#
# </details>


# %%
def standardize(table):
    return None  # your answer: a table of the same shape


# %%
table = np.random.default_rng(4).normal(size=(40, 3)) * [1, 50, 4000] + [0, 300, 9]
nb.check(standardize(table), (table - table.mean(axis=0)) / table.std(axis=0))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
def standardize_solved(table):
    return (table - table.mean(0)) / table.std(0)


nb.check(standardize_solved(table), (table - table.mean(axis=0)) / table.std(axis=0))
