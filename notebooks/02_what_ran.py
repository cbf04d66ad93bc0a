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
# # What ran: finding three bugs
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/02_what_ran.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F02_what_ran.ipynb)
#
# A broken model rarely raises an error: it returns numbers of the right shape that are wrong. In this lesson three bugs are
# planted in a small transformer that reads handwritten digits, each of a common kind: a faulty port from another program,
# a dead layer, and a loss that becomes `nan`. You find each of them by inspecting what ran.
#
# The tool is one line: `with nb.track(model) as calls:` around any code. It works for a single call and for the thousandth
# step of a compiled training loop.
#
# *Goal:* locate a fault from recorded calls instead of from the code. About 45 minutes.

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
import os
import tempfile

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

# %% [markdown]
# ## The model
#
# Each image is a page of eight lines with eight pixels. *Attention* lets every line look at every other one, the `mlp`
# works on each line by itself, and a stack of such blocks makes sense of the page.

# %%
digits = load_digits()
images = (digits.images / 16).astype(np.float32)
labels = digits.target.astype(np.int32)


class Attention(nb.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value, self.out = [nb.Linear(width, width) for _ in range(4)]

    def forward(self, x):
        query, key, value = self.query(x), self.key(x), self.value(x)
        scores = query @ key.swapaxes(-1, -2) / jnp.sqrt(x.shape[-1])
        weights = nb.tap(jax.nn.softmax(scores, axis=-1), "weights")
        return self.out(weights @ value)


class Block(nb.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.attention = nb.LayerNorm(width), Attention(width)
        self.norm2, self.mlp = (
            nb.LayerNorm(width),
            nb.Sequential(nb.Linear(width, 64), nb.ReLU(), nb.Linear(64, width)),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PageReader(nb.Module):
    def __init__(self, blocks=6, width=32):
        super().__init__()
        self.embed = nb.Linear(8, width)
        self.place = nb.Parameter(
            np.random.default_rng(0).normal(0, 0.5, (8, width)).astype(np.float32)
        )
        self.blocks = [Block(width) for _ in range(blocks)]
        self.head = nb.Linear(width, 10)

    def forward(self, pages):
        x = self.embed(pages) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=-2))


original = PageReader()

# %% [markdown]
# ## What a call looks like
#
# Every submodule is listed in the order in which it began, with the shapes that went in and out, the time it took, and
# the numbers that came out. Unfold a block to see inside; click on a row for its return as a picture.

# %%
with nb.track(original) as calls:
    original(images[:4])
calls

# %% [markdown]
# Calls are looked up by path. Inside `forward` we gave the attention weights a name with `nb.tap`, so they are there too:
# here are those of the first block, how much each line of the page looks at each other line.

# %%
weights = calls["blocks.0.attention.weights"].returns
print(weights.shape, "and each row sums to", float(weights.sum(-1).mean()))
plt.figure(figsize=(2, 2))
plt.imshow(weights[0], cmap="Blues")
plt.gca().set(xlabel="line looked at", ylabel="line")
plt.show()

# %% [markdown]
# ## Bug 1: the port that is almost right
#
# Somebody has written the model anew. It has the very weights of the original, it runs, and its scores are wrong. The
# run of the original is kept in a file; such a reference may come from any framework, for instance recorded by forward
# hooks of PyTorch as rows `(path, inputs, returns)`.

# %%
reference = os.path.join(tempfile.mkdtemp(), "original.h5")
calls.save(reference)


class PortedAttention(Attention):
    def forward(self, x):
        query, key, value = self.query(x), self.key(x), self.value(x)
        weights = nb.tap(jax.nn.softmax(query @ key.swapaxes(-1, -2), axis=-1), "weights")
        return self.out(weights @ value)


ported = PageReader()
ported.blocks[4].attention = PortedAttention(32)
ported.v = original.v
print(
    "largest difference of the scores:", float(abs(ported(images[:4]) - original(images[:4])).max())
)

# %% [markdown]
# `nb.compare` puts both runs side by side. Everything after the bug differs, so the first difference is not enough: for each
# module it asks whether its *input* was already different. The innermost module whose input agrees and whose return
# does not is at fault.

# %%
with nb.track(ported) as found:
    ported(images[:4])
comparison = nb.compare(found, nb.load_calls(reference))
comparison

# %%
print(comparison.first)
assert comparison.first.path == "blocks.4.attention"
assert comparison.first.fault == "module"

# %% [markdown]
# The linear layers inside are innocent, so it is the code of that attention itself: the division by the square root of
# the width is missing. With it, both runs agree.

# %%
ported.blocks[4].attention = Attention(32)
ported.v = original.v
with nb.track(ported) as found:
    ported(images[:4])
assert nb.compare(found, reference).agrees

# %% [markdown]
# ## Bug 2: the part that learns nothing
#
# This model trains, only badly. We plant a bias that is far too low, as a wrong initial value or one large step may leave
# behind.

# %%
model = PageReader()
model.blocks[2].mlp[0].bias = jnp.full(64, -8.0)
optimizer = nb.Adam(lr=1e-3)


def loss_of(model, pages, labels):
    return nb.cross_entropy(model(pages), labels)


@nb.jit
def train_step(pages, labels):
    loss, gradients = nb.value_and_grad(loss_of)(model, pages, labels)
    optimizer.update(model, gradients)
    return loss


# %% [markdown]
# We look into the *compiled* training step. With `returns="stats"` each return is reduced to a few numbers inside the
# compiled code, so that it costs little; with `gradients=True` we also see the gradient of the loss by each return and
# by each parameter.

# %%
with nb.track(model, returns="stats", gradients=True) as calls:
    train_step(images[:64], labels[:64])

for path in (f"blocks.{i}.mlp" for i in range(6)):
    zeros, gradient = calls[f"{path}.1"].statistics.zeros, calls.gradients[f"{path}.0.weight"]
    print(f"{path}: {zeros:4.0%} zeros, gradients of its first weight up to {gradient.max:.2g}")

# %%
dead = calls.find(lambda call: call.class_name == "ReLU" and call.statistics.zeros == 1)
print("dead:", *dead.paths)
assert dead.paths == ("blocks.2.mlp.1",)

# %% [markdown]
# One `ReLU` returns only zeros, so the layers before it in its `mlp` get no gradients. With a bias of zero they learn. A recorder keeps such numbers over a whole training, here at every twentieth step; the steps in between run as if
# it were not there.

# %%
model.blocks[2].mlp[0].bias = jnp.zeros(64)
recorder = nb.Recorder(model, gradients=True, every=20)
for _epoch in range(3):
    for pages, answers in nb.batches((images[:1436], labels[:1436]), 64, drop_last=True):
        with recorder:
            loss = train_step(pages, answers)

accuracy = float((model(images[1437:]).argmax(-1) == labels[1437:]).mean())
print(f"{accuracy:.0%} of the pages that it has never seen are read rightly")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 2.2))
for i in range(6):
    path = f"blocks.{i}.mlp"
    axes[0].plot(
        recorder.steps, [step[f"{path}.1"].statistics.zeros for step in recorder], label=path
    )
    axes[1].plot(recorder.steps, [step[path].gradient_statistics.std for step in recorder])
axes[0].set(title="share of zeros after ReLU", xlabel="step", ylim=(0, 1))
axes[1].set(title="gradient by the return", xlabel="step", yscale="log")
axes[0].legend(fontsize=6)
plt.show()

# %%
recorder[20]

# %% [markdown]
# ## Bug 3: `nan`
#
# A second loss is added, to keep blocks from changing a page too much: the distance between the input of the last block and
# its return. Training goes well for a while. Then a block returns one line of a page unchanged, and from that step on every
# parameter is `nan`.


# %%
def distance(a, b):
    return jnp.sqrt(((a - b) ** 2).sum(axis=-1))


class CarefulReader(PageReader):
    def forward(self, pages):
        x = self.embed(pages) + self.place
        for block in self.blocks:
            before, x = x, block(x)
        return self.head(x.mean(axis=-2)), distance(x, before).mean()


careful = CarefulReader(blocks=2)
last = careful.blocks[-1]
last.attention.out.v = last.attention.out.v * 0  # so the block does nothing
last.mlp[2].v = last.mlp[2].v * 0


@nb.jit
def careful_step(pages, labels):
    def loss_of(model):
        scores, moved = model(pages)
        return nb.cross_entropy(scores, labels) + 0.1 * moved

    loss, gradients = nb.value_and_grad(loss_of)(careful)
    careful.v = careful.v - 0.1 * gradients
    return loss


# %% [markdown]
# The loss of this step is finite, only its gradient is not. `nb.first_nonfinite` runs the compiled step operation by
# operation, forward and backward, and changes nothing: it names the first operation that makes `nan` or infinity from
# finite numbers, and the line of code that asked for it.

# %%
found = nb.first_nonfinite(careful_step, images[:8], labels[:8])
found

# %%
assert "jnp.sqrt" in found.code
assert np.isfinite(careful.head.weight.value).all()

# %% [markdown]
# The derivative of a square root at zero is infinite. A small constant under the root fixes it.


# %%
def distance(a, b):
    return jnp.sqrt(((a - b) ** 2).sum(axis=-1) + 1e-12)


assert nb.first_nonfinite(careful_step, images[:8], labels[:8]) is None
print("loss after a step:", float(careful_step(images[:8], labels[:8])))

# %% [markdown]
# ## One more question: where does it happen?
#
# Tracking observes; interventions answer *what if*. We run the trained model on two digits, and replace the return of one part
# in the second run by its return in the first. How far do the scores move towards those of the first digit?

# %%
one, other = images[:1], images[3:4]
for part in ("attention", "mlp"):
    for i in range(0, 6, 2):
        clean, corrupt, patched = nb.patch(model, one, other, f"blocks.{i}.{part}")
        towards = float(
            ((patched - corrupt) * (clean - corrupt)).sum() / ((clean - corrupt) ** 2).sum()
        )
        print(f"blocks.{i}.{part:9} moves the scores by {towards:4.0%} of the way")

# %% [markdown]
# ## Try it
#
# - Switch off one block with `model(one, replace_submod_rets={"blocks.1.attention": 0.0})`. Which one matters most?
# - Transpose a weight of `ported` and compare again. Which path is named now?
# - Track with `operations="blocks.0.attention"` and look at `calls.operations`: each operation with its line of code.

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. Who is looked at.** `weights`, of the first block's attention, has the shape (images, line, line looked at). How much attention does each line *get* in each
# image, as a mean over the lines that look?
#
# <details><summary>A hint</summary>
#
# One of the three axes has to go. The rows sum to one: a mean over the last axis is the same for all, and tells nothing.
#
# </details>


# %%
def attention_received(weights):
    return None  # your answer, of shape (images, line)


# %%
others = np.random.default_rng(3).random((5, 8, 8))
nb.check(
    attention_received(others), [[image[:, line].mean() for line in range(8)] for image in others]
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def attention_received_solved(weights):
    return weights.mean(axis=1)


nb.check(
    attention_received_solved(others),
    [[image[:, line].mean() for line in range(8)] for image in others],
)

# %% [markdown]
# **2. Zeros by hand.** A dead ReLU was found by its share of zeros. Compute that share for the ReLU of each block from the returns themselves.
#
# <details><summary>A hint</summary>
#
# The ReLU of block `i` is `blocks.i.mlp.1`, and `calls[path].returns` is an array. The mean of `array == 0` is a share.
#
# </details>


# %%
def shares_of_zeros(calls):
    return None  # your answer: six numbers, one for each block


# %%
def tracked(**options):
    with nb.track(original, **options) as calls:
        original(images[100:200])
    return calls


nb.check(
    shares_of_zeros(tracked()),
    [tracked(returns="stats")[f"blocks.{i}.mlp.1"].statistics.zeros for i in range(6)],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def shares_of_zeros_solved(calls):
    return [float((calls[f"blocks.{i}.mlp.1"].returns == 0).mean()) for i in range(6)]


nb.check(
    shares_of_zeros_solved(tracked()),
    [tracked(returns="stats")[f"blocks.{i}.mlp.1"].statistics.zeros for i in range(6)],
)

# %% [markdown]
# **3. Another port.** One weight of this port is transposed, and its shape does not show it. Which layer is at fault? Give its path.
#
# <details><summary>A hint</summary>
#
# Track a call with the images of the reference, `images[:4]`, then `nb.compare(..., reference)`; `first` is the innermost module whose
# input agrees and whose return does not.
#
# </details>

# %%
another = PageReader()
another.v = original.v
chance = np.random.default_rng(11)
place, layer = int(chance.integers(6)), str(chance.choice(["query", "key", "value", "out"]))
turned = getattr(another.blocks[place].attention, layer)
turned.weight = turned.weight.value.T


# %%
at_fault = None  # your answer: a path, as "blocks.0.mlp.2"


# %%
nb.check(at_fault, f"blocks.{place}.attention.{layer}")


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
with nb.track(another) as found:
    another(images[:4])
nb.check(nb.compare(found, reference).first.path, f"blocks.{place}.attention.{layer}")
