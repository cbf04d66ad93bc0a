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
# # State under transforms
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/07_state_under_transforms.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F07_state_under_transforms.ipynb)
#
# Most numbers of a network are trained. Some are *state*: numbers that change by use. Batch normalization keeps the mean of
# its inputs. Dropout draws random numbers, and must draw others at the next step.
#
# JAX transforms expect pure functions, and state is not pure. In this lesson you take state through each transform: `jit`,
# `grad`, `vmap`, `scan` and `cond`. You see which changes leave the transform, which are refused, and what to do then. Each
# error below is real.
#
# *Goal:* know for each transform what it returns and what it refuses. About 60 minutes.

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
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer

import nbmodule as nb

nb.seed(0)  # the same numbers in each run


def refused(fn, *args):
    """Run what should be refused, and print the error."""
    try:
        fn(*args)
    except nb.NbModuleError as error:
        print(
            f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])[:2], sep="\n    "
        )
    else:
        raise AssertionError("this was not refused")


# %% [markdown]
# ## The data and the model
#
# 569 cell samples, 30 measurements each, benign or malignant. The measurements are on very different scales, from 0.001
# to 4,000. We do not rescale them: `BatchNorm1d` at the entrance does that.

# %%
data = load_breast_cancer()
rows = np.random.default_rng(0).permutation(569)[:512]
x, y = data.data[rows].astype(np.float32), data.target[rows].astype(np.int32)


class Diagnosis(nb.Module):
    def __init__(self):
        super().__init__()
        self.norm = nb.BatchNorm1d(30)
        self.hidden = nb.Linear(30, 16)
        self.dropout = nb.Dropout(0.2)
        self.scores = nb.Linear(16, 2)

    def forward(self, x):
        return self.scores(self.dropout(nb.relu(self.hidden(self.norm(x)))))


model = Diagnosis()
model

# %% [markdown]
# What is state here? The two *buffers* of `norm`: a running mean and a running variance. Random numbers come from one
# stream, which `nb.seed` sets.
#
# A call in training mode updates them. A call after `eval()` only reads them.


# %%
def seen():
    return float(model.norm.running_mean[0])


before, _, trained, _ = seen(), model(x), seen(), model.eval()(x)
print("at first", before, "after a training call", trained, "after a call in eval", seen())
_ = model.train()

# %% [markdown]
# ## jit
#
# `jax.jit` compiles a pure function of its arguments. A model that it finds in the surrounding code is not an argument, so its
# values become constants, and later changes have no effect. nbmodule warns about this.

# %%
model.eval()
frozen = jax.jit(lambda x: model(x))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    frozen(x)
print(caught[0].message)

compiled = nb.jit(lambda x: model(x))
saved = model.v
model.v = model.v * 0
print("\nall weights are zero, and jax.jit says", frozen(x)[0], "while nb.jit says", compiled(x)[0])
model.v = saved
_ = model.train()

# %% [markdown]
# Training is stricter: the update of `norm` cannot leave a pure function. All raw transforms refuse the write before it
# happens, and the error names the variable.

# %%
refused(jax.jit(lambda x: model(x)), x)
refused(jax.grad(lambda x: model(x).sum()), x)
refused(jax.lax.scan, lambda carry, x: (carry, model(x)), None, x[None])

# %% [markdown]
# There are two solutions. The first is `nb.jit`: it finds the variables that a function uses, and makes them inputs and
# outputs of the compiled function. Nothing else changes.

# %% tags=["example"]
plain, jitted = Diagnosis(), Diagnosis()
plain(x)
nb.jit(lambda x: jitted(x))(x)
nb.check(jitted.norm.running_mean.value, plain.norm.running_mean.value)

# %% [markdown]
# The second is JAX's own: a model is a PyTree, so it can be an argument and a result. The result is another model; the
# argument stays as it was. (This layer draws no random numbers. Dropout needs its own stream for this style,
# `nb.Dropout(0.2, key=1)`, which then travels with the model.)

# %%
norm = nb.BatchNorm1d(30)
_, moved = jax.jit(lambda norm, x: (norm(x), norm))(norm, x)
print("went in", norm.running_mean[0], "and came out", moved.running_mean[0])

# %% [markdown]
# ## grad
#
# The loss of a training step is computed once, and that call moves the buffers. `nb.value_and_grad` carries them out
# beside the gradients.

# %%
before = seen()
loss, gradients = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
print(f"loss {float(loss):.3f}, running mean {before:.3f} -> {seen():.3f}")
gradients

# %% [markdown]
# Buffers have no gradient, so they are not in the container above.
#
# ## vmap
#
# `vmap` runs a function for many rows at once. Here is a conflict that no library can resolve by itself: each row
# would write *its* mean into the one buffer that all rows share. Which one counts?

# %%
groups = x.reshape(4, 128, 30)
refused(nb.vmap(lambda group: model(group)), groups)

# %% [markdown]
# The message names the solutions. *All rows are one batch*: average the statistics over the rows. Name the axis and pass the
# name to the norm. The result is that of the whole batch.

# %% tags=["example"]
shared, whole = nb.BatchNorm1d(30, axis_name="groups"), nb.BatchNorm1d(30)
nb.vmap(lambda group: shared(group), axis_name="groups")(groups)
whole(x)
nb.check(
    [shared.running_mean.value, shared.running_var.value],
    [whole.running_mean.value, whole.running_var.value],
)

# %% [markdown]
# *Each row is a separate model*: each needs its own buffer. Stack the model, map over it, and return it. Four
# norms, each of which has seen another quarter of the samples:

# %% tags=["example"]
stack = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), nb.BatchNorm1d(30))
_, stack = nb.vmap(lambda norm, group: (norm(group), norm))(stack, groups)
nb.check(stack.running_mean.value, 0.1 * groups.mean(axis=1))

# %% [markdown]
# *Nothing is learned now*: use `eval()`. This is how gradients of single samples are made: no sample can change
# the statistics for another one. Each leaf has an axis more, the samples: how large is the gradient of each?


# %%
def loss_of_one(model, row, label):
    return nb.cross_entropy(model(row[None]), label[None])


each = nb.vmap(nb.grad(loss_of_one), in_axes=(None, 0, 0))(model.eval(), x, y)
model.train()
each

# %% [markdown]
# ## Dropout draws
#
# Random numbers are state too: the stream must move on, or each step would hide the same features. The stream is a
# variable like any other, so `nb.jit` carries it: same seed, same numbers, compiled or not. Under `nb.vmap` each row gets
# numbers of its own. Rows that should hide the same features ask for it.

# %% tags=["example"]
dropout, ones = nb.Dropout(0.5), jnp.ones(12)
for split in (True, False):
    three_rows = nb.vmap(lambda row: dropout(row), split_streams=split)(jnp.ones((3, 16)))
    print(f"split_streams={split}\n", np.asarray(three_rows))

nb.seed(3)
one_after_the_other = [dropout(ones), dropout(ones)]
nb.seed(3)
compiled_dropout = nb.jit(lambda x: dropout(x))
nb.check([compiled_dropout(ones), compiled_dropout(ones)], one_after_the_other)

# %% [markdown]
# ## scan
#
# `nb.scan` is a loop that is compiled as one operation. State is carried from step to step. A whole epoch fits into it:
# model, optimizer and random stream are simply used in the body.

# %%
batches = (x.reshape(8, 64, 30), y.reshape(8, 64))


def train_step(model, optimizer, x, y):
    loss, gradients = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
    optimizer.update(model, gradients)
    return loss


scanned, optimizer = Diagnosis(), nb.Adam(lr=1e-2)
start = scanned.state_dict()


@nb.jit
def epoch(xs, ys):
    return nb.scan(
        lambda carry, batch: (carry, train_step(scanned, optimizer, *batch)), None, (xs, ys)
    )[1]


nb.seed(7)
scanned_losses = np.concatenate([epoch(*batches) for _ in range(10)])
print(f"loss {scanned_losses[0]:.3f} -> {scanned_losses[-1]:.3f}")

# %% [markdown]
# Is that the same training? The plain loop over batches must give the same losses, the same weights, and the same
# statistics: gradients in a scan in a jit change nothing.

# %% tags=["example"]
looped, loop_optimizer = Diagnosis(), nb.Adam(lr=1e-2)
looped.load_state_dict(start)
step = nb.jit(lambda x, y: train_step(looped, loop_optimizer, x, y))

nb.seed(7)
looped_losses = np.array([step(x, y) for _ in range(10) for x, y in zip(*batches, strict=True)])
nb.check(
    [scanned_losses, *scanned.state_dict().values()], [looped_losses, *looped.state_dict().values()]
)

# %% [markdown]
# ## cond
#
# `nb.cond` takes one of two branches, and variables that either branch writes are carried through both. So a training
# step can protect itself: where the gradient is not finite, nothing is updated. Here a sensor has failed in one sample.

# %%
broken = np.array(batches[0][0])
broken[5, 3] = np.inf


@nb.jit
def careful_step(x, y):
    loss, gradients = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(scanned)
    is_fine = jnp.isfinite(nb.global_norm(gradients))
    nb.cond(is_fine, lambda: optimizer.update(scanned, gradients), lambda: None)
    return loss


before = scanned.state_dict()
print("loss:", careful_step(broken, batches[1][0]))
for name, value in scanned.state_dict().items():
    print(f"{name:18} {'unchanged' if np.array_equal(value, before[name]) else 'CHANGED'}")

# %% [markdown]
# The weights are safe. But look at the statistics of `norm`: the loss was computed before the condition, and that
# moved them, to infinity. A branch protects only what happens inside it. Exercise 2 is about this.
#
# ## What a transform runs only once
#
# The body of a compiled function is Python that runs while it is traced, and not again. So a plain attribute must not
# count calls. A warning says so.


# %%
class Counting(nb.Module):
    def __init__(self):
        super().__init__()
        self.plain = 0
        self.buffer = jnp.zeros((), jnp.int32)  # an array: becomes a Buffer

    def forward(self, x):
        self.plain += 1
        self.buffer += 1
        return x


counting = Counting()
count = nb.jit(lambda x: counting(x))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(5):
        count(ones)
print(caught[0].message)
print("\nafter five calls: plain =", counting.plain, "and buffer =", int(counting.buffer))
print(nb.explain_retrace(count, ones))

# %% [markdown]
# Five and five. Is `plain` right after all? Only because the attribute is part of what was compiled: it had changed each
# time, so each call was traced anew, which is slow. The buffer costs nothing.
#
# ## In one table
#
# | transform | writes, draws | not possible, and the fix |
# |---|---|---|
# | `nb.jit` | carried out when the call succeeds | new array attributes: make them outside |
# | `nb.grad`, `nb.value_and_grad` | carried out beside the gradients | |
# | `nb.vmap` | carried out if equal for all rows | one value for each row: `axis_name=`, a stacked copy, `eval()` |
# | `nb.scan`, `nb.while_loop` | carried from step to step | |
# | `nb.cond`, `nb.switch` | carried through all branches | |
# | raw `jax.*` | refused | the `nb` transform, or pass the model in and return it |
#
# ## Exercises
#
# **1. A layer with state.** Write a layer that divides by the largest absolute value it has *ever* seen. It must work in
# `nb.jit`. The buffer is made for you.
#
# <details><summary>A hint</summary>
#
# Write `self.largest = jnp.maximum(self.largest, ...)` first, and divide by what it is then. No `if`: the value is not
# known while the step is traced.
#
# </details>


# %%
class Largest(nb.Module):
    def __init__(self):
        super().__init__()
        self.largest = jnp.zeros(())

    def forward(self, x):
        return None  # your answer


# %%
rows = jnp.array([[1.0, -2.0], [8.0, 4.0], [-1.0, 1.0]])


def three_calls(layer):
    call = nb.jit(lambda x: layer(x))
    return [call(row) for row in rows]


nb.check(three_calls(Largest()), [np.divide(row, m) for row, m in zip(rows, (2, 8, 8))])


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
class LargestSolved(Largest):
    def forward(self, x):
        self.largest = jnp.maximum(self.largest, abs(x).max())
        return x / self.largest


nb.check(three_calls(LargestSolved()), [np.divide(row, m) for row, m in zip(rows, (2, 8, 8))])

# %% [markdown]
# **2. Protect everything.** Write `safe_step` so that a broken batch changes nothing at all, statistics included. What
# must be inside the branch? It returns the loss, or `nan` where the batch was left out.
#
# <details><summary>A hint</summary>
#
# What is changed before the branch is changed in any case. So the whole call of `train_step` belongs into a function
# that `nb.cond` calls, and the other function returns `jnp.nan`.
#
# </details>

# %%
scanned.load_state_dict(before)


# %%
def safe_step(x, y):
    return None  # your answer


# %%
def whole_state_after(step):
    step = nb.jit(step)
    losses = [step(broken, batches[1][0]), step(batches[0][1], batches[1][1])]
    result = [np.isfinite(np.array(losses, float)), scanned.norm.running_mean.value]
    scanned.load_state_dict(before)
    return result


nb.check(
    whole_state_after(safe_step),
    [np.array([False, True]), 0.9 * before["norm.running_mean"] + 0.1 * batches[0][1].mean(axis=0)],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def safe_step_solved(x, y):
    def take():
        return train_step(scanned, optimizer, x, y)

    return nb.cond(jnp.isfinite(x).all(), take, lambda: jnp.nan)


nb.check(
    whole_state_after(safe_step_solved),
    [np.array([False, True]), 0.9 * before["norm.running_mean"] + 0.1 * batches[0][1].mean(axis=0)],
)
