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
# # Attention heads
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/09_attention.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F09_attention.ipynb)
#
# A transformer attends to earlier positions with several *heads*, each with its own pattern. Where do they attend, and which
# of them matter? The pattern alone cannot tell: a head may attend to the right position and change nothing.
#
# In this lesson a small transformer learns to continue a text, and then you take it apart: you display the attention of each
# head, ablate heads one by one, and find two kinds that work together.
#
# *Goal:* distinguish where a head attends from whether it matters. About 60 minutes.

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
# ## The text
#
# The notebook generates its own text: six to twelve different letters in random order, repeated several times. Each text has
# its own order, so the model cannot memorize one. In the first round the next letter cannot be predicted. From the second
# round on it can: *find where this letter occurred before, and predict the letter that followed it.*

# %%
LETTERS, LENGTH = 26, 28


def make_texts(how_many, draw):
    """Texts as numbers from 0 to 25, and how many letters a round has."""
    rounds = draw.integers(6, 13, how_many)
    order = draw.permuted(np.tile(np.arange(LETTERS, dtype=np.int32), (how_many, 1)), axis=1)
    places = np.arange(LENGTH) % rounds[:, None]
    return np.take_along_axis(order, places, axis=1), rounds


def knowable(rounds):
    """1 where the next letter can be known, else 0."""
    return (np.arange(1, LENGTH) >= rounds[:, None]).astype(np.float32)


def spell(text):
    return "".join(chr(ord("a") + letter) for letter in text)


texts, rounds = make_texts(4, np.random.default_rng(1))
for text, length in zip(texts, rounds, strict=True):
    print(spell(text), f"  a round has {length} letters")

# %% [markdown]
# ## The model
#
# Two blocks of attention with four heads each, and no other layers between them: whatever the model can do, its heads do.
# `is_causal` prevents a position from attending to later ones. `rotary` encodes the distance between queries and keys.
# `nb.tap` names the attention weights, so that a tracked call records them under that name.


# %%
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
    def __init__(self, width=48, heads=4):
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

# %% [markdown]
# ## Training
#
# The loss counts only predictable letters. It first stays at the level of guessing among the letters of the text. Then it
# falls: the model has learned to look up the previous round.

# %%
optimizer = nb.Adam(lr=3e-3)


def loss_of(model, texts, counts):
    losses = nb.cross_entropy(model(texts[:, :-1]), texts[:, 1:], reduction="none")
    return (losses * counts).sum() / counts.sum()


@nb.jit
def train_step(texts, counts):
    loss, gradients = nb.value_and_grad(loss_of)(model, texts, counts)
    optimizer.update(model, gradients)
    return loss


curve = nb.LossCurve()
draw = np.random.default_rng(0)
for step in range(300):
    texts, rounds = make_texts(128, draw)
    curve.log(step, loss=train_step(texts, knowable(rounds)))

# %%
model.eval()
texts, rounds = make_texts(200, np.random.default_rng(2))
counts = knowable(rounds)


def share_right(**options):
    """Return the accuracy on predictable letters; options go to the call of the model."""
    right = model(texts[:, :-1], **options).argmax(axis=-1) == texts[:, 1:]
    return float((right * counts).sum() / counts.sum())


complete = share_right()
print(f"{complete:.1%} of the predictable letters are right; a guess gives {1 / LETTERS:.0%}")
assert complete > 0.9

# %% [markdown]
# ## Where the heads attend
#
# We track one call and read the weights by their name. Their axes are `(texts, heads, query, key)`.

# %%
with nb.track(model) as calls:
    model(texts[:, :-1])
weights = [np.asarray(calls[f"blocks.{block}.weights"].returns) for block in range(2)]
print(
    weights[0].shape,
    "and the weights of each letter sum to",
    weights[0].sum(axis=-1).mean().round(4),
)

# %% [markdown]
# These are the four heads of the first block for one text. Each row is a query position, each column a key position. Some
# heads have a line just below the diagonal: each position attends to the one *before* it.


# %%
def draw_heads(weights, block):
    letters = list(spell(texts[0, :-1]))
    _, axes = plt.subplots(1, 4, figsize=(13, 3.5))
    for head, axis in enumerate(axes):
        axis.imshow(weights[0, head], cmap="Blues", vmin=0, vmax=1)
        axis.set_xticks(range(LENGTH - 1), letters, fontsize=6)
        axis.set_yticks(range(LENGTH - 1), letters, fontsize=6)
        axis.set_title(f"head {block}.{head}", fontsize=9)
    axes[0].set(xlabel="letter looked at", ylabel="letter that looks")
    plt.show()


print(spell(texts[0]), f"- a round has {rounds[0]} letters")
draw_heads(weights[0], 0)

# %% [markdown]
# The heads of the second block have another pattern. Their line is almost one round below the diagonal: a position attends to
# the letter that *followed the same letter* in the last round. That is the letter to be predicted.

# %%
draw_heads(weights[1], 1)

# %% [markdown]
# We reduce each head to two numbers, averaged over all texts: how much of its attention goes to the previous letter, and how
# much to the letter that followed last time.


# %%
def looking_back(weights, rounds, distance):
    """For each head: mean weight that lies `distance(round)` letters back, where the next letter can be known."""
    found = [
        weights[number, :, at, at - distance(length)]
        for number, length in enumerate(rounds)
        for at in range(length, LENGTH - 1)
    ]
    return np.mean(found, axis=0)


names = [f"{block}.{head}" for block in range(2) for head in range(4)]
before = np.concatenate([looking_back(w, rounds, lambda length: 1) for w in weights])
followed = np.concatenate([looking_back(w, rounds, lambda length: length - 1) for w in weights])

figure, axis = plt.subplots(figsize=(7, 2.2))
axis.bar(np.arange(8) - 0.2, before, 0.4, label="at the letter before")
axis.bar(np.arange(8) + 0.2, followed, 0.4, label="at what followed last time")
axis.set(xticks=range(8), xticklabels=names, xlabel="block.head", ylabel="attention", ylim=(0, 1))
axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Which heads matter
#
# Now we intervene. `replace_submod_rets` takes the path of a submodule and a function of its return; the rest of the model
# continues with the result. Head `h` owns twelve features of `value`, starting at `12 * h`. If they are zero, the head
# returns zeros, wherever it attends.


# %%
def without(*heads):
    """Interventions that switch off heads, each a pair (block, head)."""

    def silence(block):
        def zeroed(values):
            for _, head in (pair for pair in heads if pair[0] == block):
                values = values.at[..., 12 * head : 12 * (head + 1)].set(0)
            return values

        return zeroed

    return {
        f"blocks.{block}.attention.value": silence(block) for block in {block for block, _ in heads}
    }


alone = [
    share_right(replace_submod_rets=without((block, head)))
    for block in range(2)
    for head in range(4)
]
for name, share in zip(names, alone, strict=True):
    print(f"without head {name}: {share:5.1%} right")

# %% [markdown]
# One head of the first block matters most. No single head of the second block matters much. Do they do nothing? We ablate two
# heads at a time; the entries off the diagonal are the pairs.

# %%
heads = [(block, head) for block in range(2) for head in range(4)]
pairs = np.array([[share_right(replace_submod_rets=without(a, b)) for b in heads] for a in heads])

figure, axis = plt.subplots(figsize=(4.4, 3.6))
drawn = axis.imshow(pairs, cmap="viridis", vmin=0, vmax=1)
axis.set(
    xticks=range(8),
    yticks=range(8),
    xticklabels=names,
    yticklabels=names,
    title="share right without both",
)
figure.colorbar(drawn)
plt.show()

# %% [markdown]
# The darkest pair is in the first block: two heads that attend to the previous letter. In the second block each pair is
# darker than either of its heads. So we ablate more of them at once.

# %%
groups = {
    "the first block": [(0, head) for head in range(4)],
    "the second block": [(1, head) for head in range(4)],
    "three of four in the second block": [(1, head) for head in range(3)],
}
without_groups = {
    name: share_right(replace_submod_rets=without(*group)) for name, group in groups.items()
}
for name, share in without_groups.items():
    print(f"without {name}: {share:.1%} right")
assert without_groups["the second block"] < 0.5 * complete

# %% [markdown]
# Without all heads of the second block the accuracy is lost. These heads do the same work and replace each other, which is why
# ablating one of them shows so little. Single ablations would have missed all of them.
#
# ## How they work together
#
# How does a position find the letter that followed its own letter? In the second block, the query `k` looks for a position
# *that comes after a `k`*. A position knows its own letter. That it also knows the letter before it is the work of the first
# block. If this explanation is right, the second block must lose its pattern when the two most important heads of the first
# block are ablated. We intervene and track in the same call:

# %%
best, second = (int(head) for head in np.argsort(alone[:4])[:2])
with nb.track(model) as blind:
    model(texts[:, :-1], replace_submod_rets=without((0, best), (0, second)))
lost = looking_back(
    np.asarray(blind["blocks.1.weights"].returns), rounds, lambda length: length - 1
)
print(f"attention to what followed last time, with all heads and without 0.{best} and 0.{second}")
for head in range(4):
    print(f"head 1.{head}: {followed[4 + head]:4.0%} -> {lost[head]:4.0%}")
assert lost.max() < followed[4:].min()

# %%
draw_heads(np.asarray(blind["blocks.1.weights"].returns), 1)

# %% [markdown]
# So this is what the model has learned: heads that copy the previous letter to each position, and heads that search for it.
# Together they are called an *induction circuit*. Large language models have it too, and there it also appears suddenly
# during training.
#
# ## Exercises
#
# **1. Write the measure.** How much of its attention does each head spend on the previous letter? Take the mean over all
# letters but the first, and over all texts.
#
# <details><summary>A hint</summary>
#
# `np.diagonal(weights, offset=-1, axis1=2, axis2=3)` takes, for each letter, the weight of the position before it; the
# letters are the last axis of the result.
#
# </details>


# %%
def previous_letter(weights):
    return None  # your answer; weights has the shape (texts, heads, letter, letter looked at)


# %%
nb.check(
    previous_letter(weights[1]),
    np.mean([weights[1][:, :, at, at - 1] for at in range(1, LENGTH - 1)], axis=(0, 1)),
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def previous_letter_solved(weights):
    return np.diagonal(weights, offset=-1, axis1=2, axis2=3).mean(axis=(0, 2))


nb.check(
    previous_letter_solved(weights[1]),
    np.mean([weights[1][:, :, at, at - 1] for at in range(1, LENGTH - 1)], axis=(0, 1)),
)

# %% [markdown]
# **2. The same with a hook.** A pre-hook receives the inputs of a module and may replace them. `attention.out` receives the
# returns of the heads, side by side. Write a pre-hook that ablates head 0 there. The scores must equal those of `without((1, 0))`.
#
# <details><summary>A hint</summary>
#
# A hook that returns something other than None replaces the input. Each head has twelve features side by side: those of
# head 0 are `[..., :12]`, and `inputs[0].at[...].set(0)` gives a changed copy.
#
# </details>


# %%
def silence_first_head(module, inputs):
    return inputs  # your answer; inputs is a tuple with one array


# %%
def scores_with(hook):
    with model.blocks[1].attention.out.register_forward_pre_hook(hook):
        return model(texts[5:10, :-1])


nb.check(
    scores_with(silence_first_head), model(texts[5:10, :-1], replace_submod_rets=without((1, 0)))
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def silence_first_head_solved(module, inputs):
    return inputs[0].at[..., :12].set(0)


nb.check(
    scores_with(silence_first_head_solved),
    model(texts[5:10, :-1], replace_submod_rets=without((1, 0))),
)

# %% [markdown]
# **3. Another ablation.** Zeros may be values that the model has never received. Use the *mean* of each feature over all texts
# and letters instead. Return the accuracy when that head of the first block is ablated in this way.
#
# <details><summary>A hint</summary>
#
# `replace_submod_rets` takes a function of the return instead of a value. Replace the return of `blocks.0.attention.value`,
# in the twelve features of the head, by its mean over axes 0 and 1.
#
# </details>


# %%
def mean_ablated(block, head):
    return None  # your answer


# %%
def mean_of(head):
    values = np.array(calls["blocks.0.attention.value"].returns)
    values[..., 12 * head : 12 * (head + 1)] = np.mean(
        values[..., 12 * head : 12 * (head + 1)], axis=(0, 1)
    )
    return {"blocks.0.attention.value": values}


nb.check(
    [mean_ablated(0, head) for head in range(4)],
    [share_right(replace_submod_rets=mean_of(head)) for head in range(4)],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
def mean_ablated_solved(block, head):
    own = slice(12 * head, 12 * (head + 1))

    def averaged(values):
        return values.at[..., own].set(values[..., own].mean(axis=(0, 1)))

    return share_right(replace_submod_rets={f"blocks.{block}.attention.value": averaged})


nb.check(
    [mean_ablated_solved(0, head) for head in range(4)],
    [share_right(replace_submod_rets=mean_of(head)) for head in range(4)],
)
