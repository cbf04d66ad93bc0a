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
# # What does this head do?
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/11_what_does_this_head_do.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F11_what_does_this_head_do.ipynb)
#
# A small transformer learns to continue repeating texts. Some part of it must look back: *this letter occurred before, and
# that one followed.* Which part is it? You find out by changing one thing at a time: a sweep finds the heads, patching
# confirms what they carry, and their attention shows how they work.
#
# *Goal:* support a claim about a part of a model by an intervention, not only by observation. About 60 minutes.

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

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

# %% [markdown]
# ## Texts and model
#
# Ten letters in random order, repeated several times; each text has its own order. In the first round the next letter cannot
# be predicted; from the second round on it can. The model has two blocks of attention with two heads each.

# %%
LETTERS, ROUND, LENGTH = 20, 8, 24


def make_texts(how_many, draw):
    order = draw.permuted(np.tile(np.arange(LETTERS, dtype=np.int32), (how_many, 1)), axis=1)
    starts = draw.integers(0, ROUND, (how_many, 1))
    return np.take_along_axis(order, (np.arange(LENGTH) + starts) % ROUND, axis=1)


class Block(nb.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm = nb.LayerNorm(width)
        self.attention = nb.MultiHeadAttention(width, heads, rotary=True)

    def forward(self, x):
        found, weights = self.attention(self.norm(x), is_causal=True, return_weights=True)
        nb.tap(weights, "weights")
        return x + found


class Reader(nb.Module):
    def __init__(self, width=32, heads=2):
        super().__init__()
        self.embed = nb.Embedding(LETTERS, width)
        self.blocks = [Block(width, heads) for _ in range(2)]
        self.norm = nb.LayerNorm(width)
        self.scores = nb.Linear(width, LETTERS)

    def forward(self, text):
        x = self.embed(text)
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


model = Reader()
model

# %%
optimizer = nb.Adam(lr=5e-3)


def loss_of(scores, texts):
    """Cross entropy where the next letter can be known: from the second round on."""
    return nb.cross_entropy(scores[:, ROUND:], texts[:, ROUND + 1 :])


@nb.jit
def train_step(texts):
    loss, gradients = nb.value_and_grad(lambda model: loss_of(model(texts[:, :-1]), texts))(model)
    optimizer.update(model, gradients)
    return loss


draw = np.random.default_rng(0)
for step in range(400):
    loss = train_step(make_texts(96, draw))
    if step % 100 == 99:
        print(f"step {step + 1}: loss {float(loss):.3f}")

# %%
model.eval()
texts = make_texts(64, np.random.default_rng(1))
right = model(texts[:, :-1])[:, ROUND:].argmax(-1) == texts[:, ROUND + 1 :]
print(f"{float(right.mean()):.1%} of the predictable letters are right")
assert right.mean() > 0.9

# %% [markdown]
# ## A sweep: ablate each head of each layer
#
# `nb.sweep` runs the model once per head, with the return of that head set to zero, all in one compiled call. The heat map
# shows how much the loss increases.

# %%
sweep = nb.sweep(model, texts[:, :-1], "heads", target=texts, loss=loss_of)
sweep

# %% [markdown]
# Each entry is also data, with the intervention that it stands for. We continue with the head that matters most in the
# second block.

# %%
for found in sweep.most(4):
    print(f"{found.path} {found.setting!r}: loss +{found.shown:.2f}")
head = int(np.argmax(sweep.changes[1]))
path = "blocks.1.attention"
print(f"the head in question: {path}, head {head}")

# %% [markdown]
# ## Confirmed by patching
#
# Does this head really carry *which letter followed*? We corrupt the texts: the same last letter, but another order in the
# earlier rounds, so that the model predicts another letter. Then we put the return of the head from the clean run, and
# nothing else, into the corrupted run. If the clean prediction comes back, the head carries it.

# %%
clean = texts[:, : 2 * ROUND + 1]
spoiled = clean.copy()
for row in spoiled:
    others = [letter for letter in dict.fromkeys(row.tolist()) if letter != row[-1]]
    mixed = dict(zip(others, np.roll(others, 3), strict=True))
    row[:] = [mixed.get(letter, letter) for letter in row.tolist()]
answers = clean[:, ROUND + 1]  # what followed the last letter when it stood there before
rows = np.arange(len(clean))


def score_of_answer(scores):
    """How much higher the old answer stands than the spoiled one, at the last place."""
    return (scores[rows, -1, answers] - scores[rows, -1, spoiled[:, ROUND + 1]]).mean()


patched = nb.sweep(model, spoiled, "heads", nb.from_example(clean), metric=score_of_answer)
whole = float(score_of_answer(model(clean)))
for (block, each), score in np.ndenumerate(patched.values):
    print(
        f"head {each} of block {block}: {(score - patched.before) / (whole - patched.before):4.0%} of the old answer comes back"
    )
back = (patched.values - patched.before) / (whole - patched.before)
assert back[1].max() > back[0].max()

# %% [markdown]
# ## Where in the text does it happen?
#
# `nb.trace_causes` restores each module at each position, one by one. The difference enters with the letters of the earlier
# rounds, and reaches the last position through the attention of the second block.

# %%
causes = nb.trace_causes(
    model,
    clean,
    spoiled,
    score_of_answer,
    only=["embed", "blocks.0.attention", "blocks.1.attention"],
)
causes

# %% [markdown]
# ## Visible in its attention
#
# Each row is a query position, each column a key position. The line is one round below the diagonal, less one position: each
# letter attends to the one that *followed the same letter* in the last round. Such a head is called an induction head.

# %%
with nb.track(model) as calls:
    model(texts[:, :-1])
weights = np.asarray(calls["blocks.1.weights"].returns)
letters = [chr(ord("a") + letter) for letter in texts[0, :-1]]
figure, axis = plt.subplots(figsize=(4.6, 4.2))
axis.imshow(weights[0, head], cmap="Blues", vmin=0, vmax=1)
axis.set_xticks(range(LENGTH - 1), letters, fontsize=7)
axis.set_yticks(range(LENGTH - 1), letters, fontsize=7)
axis.set(xlabel="letter looked at", ylabel="letter that looks", title=f"{path}, head {head}")
plt.show()
places = range(ROUND, LENGTH - 1)
followed = np.mean([weights[:, :, at, at - ROUND + 1] for at in places], axis=(0, 1))
print("attention to what followed last time, by head:", followed.round(2))
assert followed[head] > 0.5

# %% [markdown]
# ## Interactively
#
# `nb.what_if` answers the same question interactively: it shows the output before and after, and how much each module changes.
# With a running kernel its sliders, switches and sweeps work; below them stands the code that does the same.

# %%
tried = nb.what_if(
    model,
    texts[:, :-1],
    {path: nb.scale_by(0.5, head=head), "blocks.0.attention": nb.zero(head=0)},
    target=texts,
    loss=loss_of,
)
tried

# %%
print(tried.code)

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. A sweep of your own.** `nb.sweep` ablated each head alone. Do it by hand: return the loss on some `texts` while one head of `blocks.1.attention` returns zeros.
#
# <details><summary>A hint</summary>
#
# `with nb.patch(model, {path: nb.zero(head=head)}):` changes the model inside the block, and `loss_of(model(texts[:, :-1]), texts)` is the loss.
#
# </details>


# %%
def loss_without(head, texts):
    return None  # your answer: one number


# %%
others = make_texts(64, np.random.default_rng(5))
nb.check(
    [loss_without(head, others) for head in range(2)],
    nb.sweep(model, others[:, :-1], "heads", target=others, loss=loss_of).values[1],
    rtol=1e-3,
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def loss_without_solved(head, texts):
    with nb.patch(model, {path: nb.zero(head=head)}):
        return float(loss_of(model(texts[:, :-1]), texts))


nb.check(
    [loss_without_solved(head, others) for head in range(2)],
    nb.sweep(model, others[:, :-1], "heads", target=others, loss=loss_of).values[1],
    rtol=1e-3,
)

# %% [markdown]
# **2. The best possible guess.** In the first round the next letter is drawn from those that have not occurred yet. What is the mean loss of the best possible
# model there, over the seven letters from the second to the eighth? (There are 20 letters, and a round has eight.)
#
# <details><summary>A hint</summary>
#
# After `n` letters 20 - n are left, all equally likely. The best model gives each of them the same probability, and the loss is minus the
# logarithm of that probability.
#
# </details>

# %%
best_loss = None  # your answer: one number


# %%
from math import lgamma

nb.check(best_loss, (lgamma(LETTERS) - lgamma(LETTERS - ROUND + 1)) / (ROUND - 1))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
nb.check(
    np.mean([np.log(LETTERS - n) for n in range(1, ROUND)]),
    (lgamma(LETTERS) - lgamma(LETTERS - ROUND + 1)) / (ROUND - 1),
)
