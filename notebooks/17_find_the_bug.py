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
# # Find the bug
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/17_find_the_bug.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F17_find_the_bug.ipynb)
#
# Ten common mistakes are planted in two small models. If something is wrong, a bar below the title of a view names the
# finding and its location, most severe first, and the view opens there. Each finding in the bar links to its row. A model
# without findings has no bar.
#
# *Goal:* read the first finding that a view reports about a model, and know how far to trust it. About 60 minutes.

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

import nbmodule as nb

# %% [markdown]
# ## The two models


# %%
class Layer(nb.Module):
    def __init__(self, width):
        self.lin, self.act, self.drop = nb.Linear(width, width), nb.ReLU(), nb.Dropout(0.2)

    def forward(self, x):
        return self.drop(self.act(self.lin(x)))


class Perceptron(nb.Module):
    def __init__(self, width=16):
        self.stem, self.layers, self.head = (
            nb.Linear(8, width),
            [Layer(width) for _ in range(6)],
            nb.Linear(width, 4),
        )

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def perceptron():
    nb.seed(0)
    return Perceptron().eval()


rows = jnp.asarray(np.random.default_rng(0).normal(size=(32, 8)), jnp.float32)


# %%
class Attention(nb.Module):
    def __init__(self, width):
        self.query, self.key, self.value, self.out = (nb.Linear(width, width) for _ in range(4))
        self.heads, self.axis, self.offset = 2, -1, 0

    def forward(self, x):
        def split(y):
            return y.reshape(*y.shape[:-1], self.heads, -1).swapaxes(-2, -3)

        scores = split(self.query(x)) @ split(self.key(x)).swapaxes(-1, -2) / x.shape[-1] ** 0.5
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool), self.offset)
        weights = nb.tap(nb.softmax(jnp.where(seen, scores, -1e9), axis=self.axis), "weights")
        return self.out((weights @ split(self.value(x))).swapaxes(-2, -3).reshape(x.shape))


class Block(nb.Module):
    def __init__(self, width, eps):
        self.norm, self.attention = nb.LayerNorm(width, eps=eps), Attention(width)
        self.mlp = nb.Sequential(
            nb.Linear(width, 2 * width), nb.GELU(), nb.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Language(nb.Module):
    def __init__(self, width=16, words=12, odd_eps=1e-5):
        self.embed = nb.Embedding(words, width)
        self.blocks = [Block(width, odd_eps if k == 2 else 1e-5) for k in range(4)]
        self.head = nb.Linear(width, words, with_bias=False)
        self.head.weight = self.embed.weight  # tied

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def language(**options):
    nb.seed(0)
    return Language(**options).eval()


tokens = jnp.arange(16).reshape(2, 8) % 12
assert nb.inspect(perceptron(), rows).findings == nb.inspect(language(), tokens).findings == ()

# %% [markdown]
# ## 1. A dead ReLU

# %%
model = perceptron()
model.layers[2].lin.bias = model.layers[2].lin.bias - 30.0
nb.inspect(model, rows)

# %% [markdown]
# ## 2. A depth that explodes

# %%
model = perceptron()
for layer in model.layers:
    layer.lin.weight = layer.lin.weight * 9
nb.inspect(model, rows)

# %% [markdown]
# ## 3. A softmax over the wrong axis

# %%
model = language()
model.blocks[1].attention.axis = -2
nb.inspect(model, tokens)

# %% [markdown]
# ## 4. A forgotten `eval()`

# %%
model = perceptron().train()
nb.inspect(model, rows)

# %% [markdown]
# ## 5. NaN in one head

# %%
model = language()
model.blocks[1].attention.value.weight[8:] = jnp.nan
nb.inspect(model, tokens)

# %% [markdown]
# ## 6. A layer that is frozen and should train

# %%
model = language()
model.blocks[1].mlp.requires_grad_(False)
nb.inspect(model, tokens)

# %% [markdown]
# ## 7. Tied weights that are not tied: a copy in a separate variable

# %%
model = language()
model.head.weight = nb.Parameter(model.embed.weight.value)
nb.inspect(model, tokens)

# %% [markdown]
# ## 8. One norm with another `eps`

# %%
model = language(odd_eps=0.1)
nb.inspect(model, tokens)

# %% [markdown]
# ## 9. Two swapped layers
#
# Such a model has no fault of its own. Compared with an earlier run, the view opens at the first of the two layers.

# %%
model = perceptron()
with nb.track(model) as reference:
    model(rows)
model.layers = [model.layers[k] for k in (0, 2, 1, 3, 4, 5)]
with nb.track(model) as calls:
    model(rows)
nb.compare(calls, reference)

# %% [markdown]
# ## 10. A mask that is off by one

# %%
model = language()
model.blocks[0].attention.offset = 1
view = nb.inspect(model, tokens)
view

# %% [markdown]
# The findings as data, for a test or a script:

# %%
view.findings[0].text

# %% [markdown]
# ## Exercises
#
# Replace `None` with your answer and run that cell and the next one: `nb.check` reports whether it is right, and if not, what is wrong.
# The solution is folded below.
#
# **1. The eleventh.** This model has a fault at a random place. Inspect it, and give the path of the module where it begins.
#
# <details><summary>A hint</summary>
#
# `nb.inspect(eleventh, rows)`: the bar under the title names what is wrong and where.
#
# </details>

# %%
eleventh = perceptron()
place = int(np.random.default_rng(7).integers(6))
eleventh.layers[place].lin.bias = eleventh.layers[place].lin.bias - 30.0


# %%
begins = None  # your answer: a path, as "layers.0.lin"


# %%
nb.check(begins, f"layers.{place}.act")


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
dead = nb.inspect(eleventh, rows).findings[0]
print(dead.text)
nb.check(dead.text.split()[-1], f"layers.{place}.act")

# %% [markdown]
# **2. The mask.** Write a mask that lets each position attend to itself and to earlier positions only: a square of True and False, in which rows attend to
# columns.
#
# <details><summary>A hint</summary>
#
# `np.arange(length)` twice, once as a column (`[:, None]`) and once as a row. Which relation must hold between the position that attends and the
# position that it attends to?
#
# </details>


# %%
def causal_mask(length):
    return None  # your answer: a square of bools


# %%
nb.check(causal_mask(6), np.tri(6, dtype=bool))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def causal_mask_solved(length):
    places = np.arange(length)
    return places[:, None] >= places


nb.check(causal_mask_solved(6), np.tri(6, dtype=bool))

# %% [markdown]
# **3. The first of two.** Two parts of this model make `nan`. A repair of the later one would change nothing. Which is the first?
#
# <details><summary>A hint</summary>
#
# The finding names the *first* module whose return is not finite while its input is.
#
# </details>

# %%
sick = language()
early, late = sorted(int(k) for k in np.random.default_rng(5).choice(4, 2, replace=False))
for block in (early, late):
    sick.blocks[block].mlp[2].bias[0] = jnp.nan


# %%
first = None  # your answer: a path, as "blocks.0.mlp.0"


# %%
nb.check(first, f"blocks.{early}.mlp.2")


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
with nb.track(sick) as calls:
    sick(tokens)
outer = {"", *(f"blocks.{k}" for k in range(4)), *(f"blocks.{k}.mlp" for k in range(4))}
bad = [
    call.path for call in calls if call.path not in outer and not np.isfinite(call.returns).all()
]
nb.check(bad[0], f"blocks.{early}.mlp.2")
