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
# # Graphs: what does it compute?
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/04_graphs.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F04_graphs.ipynb)
#
# Code says what you meant. A *graph* says what the machine does: every operation, its inputs and outputs, its cost, and the
# line of your code that caused it. A model has thousands of operations, so the graph is folded by module and opens where
# you click.
#
# Nothing runs when a graph is made. The function is traced with shapes only, and no variable, random key or statistic of
# the model changes.
#
# *Goal:* read from a graph what a line of code costs, and what the backward pass adds. About 45 minutes.

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

import jax.numpy as jnp

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

# %% [markdown]
# ## A model
#
# A small language model: each letter becomes a vector, six blocks let each letter attend to those before it, and the last
# layer computes a score for each possible next letter.


# %%
class Block(nb.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nb.LayerNorm(width), nb.LayerNorm(width)
        self.attention = nb.MultiHeadAttention(width, heads)
        self.mlp = nb.Sequential(
            nb.Linear(width, 4 * width), nb.GELU(), nb.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x), is_causal=True)
        return x + self.mlp(self.norm2(x))


class Letters(nb.Module):
    def __init__(self, layers=6, width=64, heads=4, letters=128):
        super().__init__()
        self.embed = nb.Embedding(letters, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.norm = nb.LayerNorm(width)
        self.head = nb.Linear(width, letters)

    def forward(self, text):
        x = self.embed(text)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


model = Letters()
model

# %% [markdown]
# ## Its graph
#
# `nb.graph` takes a function or a model, and example arguments. The six equal blocks are one frame: click to open its members,
# and click a member to see inside, down to single operations. A double click zooms into a frame. The arrow keys follow the
# edges, `/` searches, `i` and `o` highlight everything that a node depends on, or that depends on it.

# %%
text = jnp.asarray([[ord(letter) for letter in "the graph of a small model"]])
graph = nb.graph(model, text)
graph

# %% [markdown]
# In a terminal the same graph is an outline, and `depth` sets how far it is opened.

# %%
print(graph.drawn(depth=1))

# %% [markdown]
# The graph is also data. Each node has its operation, the path of its module, shape, dtype, and the line of code.

# %%
products = [node for node in graph.nodes if node.operation == "dot_general"]
print(
    f"{graph.operations} operations, {len(products)} of them are matrix products; those of one block:"
)
for node in products:
    if node.path.startswith("blocks.0"):
        print(f"  {node.path:28} {node.dtype}{list(node.shape)!s:16} {node.flops:>9,} FLOP")

# %% [markdown]
# ## What does it cost?
#
# `color="flops"` colors each frame by the floating point operations inside it, `"bytes"` by the memory it reads and writes.
# Here one block is opened: which part is the most expensive?

# %%
graph.drawn(color="flops", focus="blocks.0")

# %% [markdown]
# ## What flows along the edges?
#
# A graph has shapes. Numbers come from a tracked call. Together they show the mean, the deviation and a small picture of what
# each module returned. Non-finite values are counted in red.

# %%
with nb.track(model) as calls:
    model(text)
graph.drawn(values=calls, focus="blocks.0")

# %% [markdown]
# ## A training step
#
# Every function has a graph, and a training step is a function. The forward and backward passes of each module are separate,
# the optimizer is a frame of its own, and the values that the step *writes* to variables are at the end, beside the loss that it
# returns. Open `written` to see their names.

# %%
optimizer = nb.Adam(1e-3)


def train_step(text):
    def loss(model):
        return nb.cross_entropy(model(text[:, :-1]), text[:, 1:])

    value, gradients = nb.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


step = nb.graph(train_step, text)
step

# %%
written = [
    node.name.removeprefix("written: ") for node in step.nodes if node.operation == "written"
]
print(f"{len(written)} variables are written, among them {written[0]} and {written[-1]}")
print(
    f"forward {graph.flops / 1e6:.1f} MFLOP, the whole step {step.flops / 1e6:.1f} MFLOP: {step.flops / graph.flops:.1f} times as much"
)

# %% [markdown]
# About three times as much as the forward pass: the gradient of a matrix product is two products.
#
# ## When it fails
#
# A function that fails while it is traced still has a graph up to the failed operation, which is red and shows its line of
# code and input shapes. Here the `head` was created for vectors of another width.

# %%
broken = Letters()
broken.head = nb.Linear(32, 128)
nb.graph(broken, text).drawn(depth=0)

# %% [markdown]
# ## Why was it traced again?
#
# A compiled function is traced at its first call, and again whenever something other than a value changes: a shape, a flag,
# a layer. Then a call that took a millisecond takes seconds. `nb.explain_retrace` reports the reason, before or after the
# call.

# %%
fast_step = nb.jit(train_step)
fast_step(text)
fast_step(text)  # the same shapes: the compiled function is used
nb.explain_retrace(fast_step, text[:, :10])

# %% [markdown]
# One letter more or less is another shape and another compilation: cut texts to a few lengths, or pad them. Flags count,
# too:

# %%
model.eval()
nb.explain_retrace(fast_step, text)

# %% [markdown]
# ## Save it
#
# `save` writes a page that needs no kernel and no network, or a picture for a paper, depending on the file name.
# `model.show_graph()` does the same for the last call of a model.

# %%
with tempfile.TemporaryDirectory() as folder:
    for ending in ("html", "svg", "dot", "txt"):
        path = graph.save(os.path.join(folder, f"letters.{ending}"))
        print(f"{path.name:13} {path.stat().st_size / 1000:6.1f} kB")

# %% [markdown]
# ## Try it
#
# - Color the graph by `"bytes"`. Which frames move much and compute little?
# - Share two blocks: `model.blocks[1] = model.blocks[0]`. What does the graph show for its variables?
# - Display `nb.graph(jax.nn.softmax, jnp.ones((2, 3)))`: functions of JAX have graphs as well.
# - Print `nb.graph(nb.grad(lambda x: jnp.tanh(x) ** 2), 1.0)` and derive each line by hand.

# %% [markdown]
# ## Exercises
#
# **1. A product by hand.** A product of an `n × k` and a `k × m` matrix takes `2 n k m` operations: for each of the `n m` results, `k`
# products and `k` sums. What do the two products of `mlp` in one block take together, for the text above?
#
# <details><summary>A hint</summary>
#
# Each letter is a row. The first product goes from `width` to `4 * width` features, the second back.
#
# </details>

# %%
length, width = text.shape[1], 64


# %%
by_hand = None  # your answer


# %%
nb.check(by_hand, sum(node.flops for node in products if node.path.startswith("blocks.0.mlp")))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
by_hand_solved = 2 * length * width * (4 * width) + 2 * length * (4 * width) * width
nb.check(
    by_hand_solved, sum(node.flops for node in products if node.path.startswith("blocks.0.mlp"))
)

# %% [markdown]
# **2. What attention adds.** Attention has two products that belong to no layer: the scores, each letter with each letter, and the sum of the values, weighted by them. What do
# these two take together, over all heads?
#
# <details><summary>A hint</summary>
#
# The heads share the width: four of 16 features take what one of 64 takes. The scores are `length × length`, and so are the weights.
#
# </details>

# %%
between_letters = None  # your answer


# %%
own = [node for node in products if node.path == "blocks.0.attention"]
nb.check(between_letters, sum(node.flops for node in own))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
between_letters_solved = 2 * length * width * length + 2 * length * length * width
nb.check(between_letters_solved, sum(node.flops for node in own))
