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
# # Three ways to write a model
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/06_three_ways.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F06_three_ways.ipynb)
#
# People who come to this library already know one way to write a network. Some keep its variables in a container `v` and
# subtract gradients from it. Some know parameters, buffers, hooks and `state_dict`. Some pass dictionaries in and out of
# pure functions. All three work here, and they are views of one storage.
#
# In this notebook the same network is written in each way. All three start from the same numbers and train on the same
# rows. At the end they must agree in every weight.
#
# *Goal:* translate each of the three ways into the other two. About 60 minutes.

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
from sklearn.datasets import load_wine

import nbmodule as nb

nb.seed(0)  # the same numbers in each run

# %% [markdown]
# ## The task
#
# 178 wines of three growers. Each was measured in a laboratory: alcohol, acids, color and ten more. Who grew it?
#
# The network is small: 13 measurements, 16 hidden features, three scores. Between them is a piece of *state*: the
# running mean of the hidden features, which is subtracted. It is not trained. It is updated by each batch.
#
# The initial values are drawn once, here, so that all three models start equal. A `Container` is a tree of arrays.

# %%
wine = load_wine()
measured = ((wine.data - wine.data.mean(axis=0)) / wine.data.std(axis=0)).astype(np.float32)
growers = wine.target.astype(np.int32)
order = np.random.default_rng(0).permutation(len(measured))
train, test = order[50:], order[:50]
batches = [(measured[rows], growers[rows]) for _ in range(10) for rows in np.split(train, 4)]

draw = np.random.default_rng(1)
start = nb.Container(
    hidden={"w": draw.normal(0, 0.3, (16, 13)).astype(np.float32), "b": np.zeros(16, np.float32)},
    scores={"w": draw.normal(0, 0.3, (3, 16)).astype(np.float32), "b": np.zeros(3, np.float32)},
)
start

# %% [markdown]
# ## First way: stateful
#
# `_create_variables` returns the variables, and `_forward` reads them from `self.v`. An array that is assigned
# to an attribute, as `mean` here, becomes a *buffer*: a variable that is not trained. Assigning to it again changes it.
#
# `v=start` gives the model its variables. Without it, those of `_create_variables` are used.


# %%
class StatefulNet(nb.Module):
    def __init__(self, v=None):
        self.mean = jnp.zeros(16)
        super().__init__(v=v)

    def _create_variables(self):
        weights = nb.GlorotUniform()
        return {
            "hidden": {
                "w": weights.create_variables((16, 13), fan_in=13, fan_out=16),
                "b": jnp.zeros(16),
            },
            "scores": {
                "w": weights.create_variables((3, 16), fan_in=16, fan_out=3),
                "b": jnp.zeros(3),
            },
        }

    def _forward(self, x):
        hidden = jnp.tanh(x @ self.v.hidden.w.T + self.v.hidden.b)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * hidden.mean(axis=0)
        return (hidden - self.mean) @ self.v.scores.w.T + self.v.scores.b


stateful = StatefulNet(v=start)
stateful.v

# %% [markdown]
# The training step of this way is one line: new variables are old variables minus gradients times a rate. Containers do
# arithmetic leaf by leaf. `nb.jit` compiles the step and carries `v` and `mean` out of it.


# %%
@nb.jit
def stateful_step(x, y):
    def loss_of(v):
        return nb.cross_entropy(stateful(x, v=v), y)

    loss, gradients = nb.execute_with_gradients(loss_of, stateful.v)
    stateful.v = stateful.v - 0.1 * gradients
    return loss


stateful_losses = [float(stateful_step(x, y)) for x, y in batches]
print(
    f"loss {stateful_losses[0]:.3f} -> {stateful_losses[-1]:.3f}, mean of hidden feature 0: {stateful.mean[0]:.4f}"
)

# %% [markdown]
# ## Second way: a tensor library
#
# Layers are attributes, each layer owns its `Parameter`s, and what is not trained is a `Buffer`. `state_dict` and
# `load_state_dict` use dotted names, as in PyTorch.


# %%
class LayeredNet(nb.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nb.Linear(13, 16)
        self.scores = nb.Linear(16, 3)
        self.register_buffer("mean", jnp.zeros(16))

    def forward(self, x):
        hidden = jnp.tanh(self.hidden(x))
        if self.training:
            self.mean.value = 0.9 * self.mean + 0.1 * hidden.mean(axis=0)
        return self.scores(hidden - self.mean)


long_names = {
    f"{layer}.{name}": start[layer][name[0]]
    for layer in ("hidden", "scores")
    for name in ("weight", "bias")
}
layered = LayeredNet()
layered.load_state_dict(long_names | {"mean": np.zeros(16, np.float32)})
for name, tensor in layered.named_tensors():
    print(f"{name:14} {type(tensor).__name__:9} {tensor.dtype}{list(tensor.shape)}")

# %% [markdown]
# An optimizer changes the parameters in place.

# %%
optimizer = nb.SGD(lr=0.1)


@nb.jit
def layered_step(x, y):
    loss, gradients = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(layered)
    optimizer.update(layered, gradients)
    return loss


layered_losses = [float(layered_step(x, y)) for x, y in batches]
print(
    f"loss {layered_losses[0]:.3f} -> {layered_losses[-1]:.3f}, mean of hidden feature 0: {layered.mean[0]:.4f}"
)

# %% [markdown]
# Hooks observe or change a call. This one counts nearly saturated hidden features and is removed after
# the `with` block.

# %%
seen = []


def note_saturation(module, inputs, output):
    seen.append(float((abs(jnp.tanh(output)) > 0.95).mean()))


with layered.hidden.register_forward_hook(note_saturation):
    layered.eval()(measured[test])
    layered.train()
print(f"{seen[0]:.0%} of the hidden features are nearly saturated")

# %% [markdown]
# ## Third way: functional
#
# A model is a PyTree and its state is a dictionary. Nothing is changed in place: the state goes in, and the new state
# comes out. `StateEntry` marks a value as state; `nb.export_state` takes all of them out of the model and leaves their
# keys behind.


# %%
class FunctionalNet(nb.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nb.Linear(13, 16)
        self.scores = nb.Linear(16, 3)
        self.mean = nb.StateEntry(jnp.zeros(16))

    def forward(self, x, state):
        hidden = jnp.tanh(self.hidden(x))
        if self.training:
            mean = 0.9 * state[self.mean] + 0.1 * hidden.mean(axis=0)
            state = nb.update_state(state, {self.mean: mean})
        return self.scores(hidden - state[self.mean]), state


exported, state = nb.export_state(FunctionalNet())
for key, value in state.items():
    print(key, value.shape)

# %% [markdown]
# `partition` splits the model into a *definition*, which is static, and dictionaries of arrays. Here we ask for the
# parameters. The definition builds the model again from any such dictionary, so we pass our initial values.

# %%
definition, leaves = exported.partition()
leaves = {f".{name}": array for name, array in long_names.items()}
definition

# %% [markdown]
# The training step needs nothing of nbmodule: it is plain JAX, from `jax.jit` to `jax.tree.map`.


# %%
@jax.jit
def functional_step(leaves, state, x, y):
    def loss_of(leaves):
        scores, new_state = definition(leaves)(x, state)
        return nb.cross_entropy(scores, y), new_state

    (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(leaves)
    return jax.tree.map(lambda p, g: p - 0.1 * g, leaves, gradients), state, loss


functional_losses = []
for x, y in batches:
    leaves, state, loss = functional_step(leaves, state, x, y)
    functional_losses.append(float(loss))
(mean,) = state.values()
print(
    f"loss {functional_losses[0]:.3f} -> {functional_losses[-1]:.3f}, mean of hidden feature 0: {mean[0]:.4f}"
)

# %% [markdown]
# ## The proof
#
# Same losses, same weights, same state, same predictions on held-out wines. `nb.check` compares
# an answer with the right one, array by array.

# %% tags=["example"]
nb.check(
    np.array([layered_losses, functional_losses]), np.array([stateful_losses, stateful_losses])
)

# %% tags=["example"]
weights = {
    "stateful": stateful.v.cont_to_flat_list(),
    "tensor library": [p.value for p in layered.parameters()],
    "functional": [leaves[key] for key in sorted(leaves)],
}
nb.check(weights["tensor library"] + weights["functional"], weights["stateful"] * 2)

# %% tags=["example"]
x = measured[test]
answers = {
    "stateful": stateful.eval()(x),
    "tensor library": layered.eval()(x),
    "functional": definition(leaves).eval()(x, state)[0],
}
right = float((answers["stateful"].argmax(axis=-1) == growers[test]).mean())
print(f"{right:.0%} of the unseen wines are given to the right grower")
nb.check([answers["tensor library"], answers["functional"]], [answers["stateful"]] * 2)

# %% [markdown]
# The state agrees as well. (A cell displays only its last expression, so these checks are asserted.)

# %% tags=["example"]
assert nb.check([layered.mean.value, mean], [stateful.mean.value] * 2)
for name in ("tensor library", "functional"):
    assert nb.check(weights[name], weights["stateful"])
    assert nb.check(answers[name], answers["stateful"])

plt.figure(figsize=(6, 2.2))
for width, (name, losses) in zip(
    (7, 4, 1.5),
    (
        ("stateful", stateful_losses),
        ("tensor library", layered_losses),
        ("functional", functional_losses),
    ),
    strict=True,
):
    plt.plot(losses, linewidth=width, label=name)
plt.legend(fontsize=8)
plt.gca().set(xlabel="step", ylabel="loss")
plt.show()

# %% [markdown]
# ## One storage
#
# Nothing is copied between the three. Each array is owned by a variable, a `Parameter` or a `Buffer`, and each way reads the
# same variables under its own spelling of the same path. (The PyTree holds the buffer `mean` too. This table omits it.)

# %%
ways = zip(
    layered.named_parameters(),
    layered.v.cont_all_key_chains(),
    [
        (key, leaf)
        for key, leaf in jax.tree_util.tree_leaves_with_path(layered)
        if leaf is not layered.mean.value
    ],
    strict=True,
)
print(f"{'tensor library':16} {'stateful':12} {'functional':16} one array?")
for (name, variable), chain, (path, leaf) in ways:
    same = variable.value is layered.v[chain] is leaf
    print(f"{name:16} v.{chain.replace('/', '.'):10} {jax.tree_util.keystr(path):16} {same}")

# %% [markdown]
# So a change by one way is visible to the others at once.

# %%
layered.v.scores.b = jnp.array([1.0, 2.0, 3.0])  # stateful
print("parameter  ", layered.scores.bias)
print("state_dict ", layered.state_dict()["scores.bias"])
print("PyTree     ", jax.tree.leaves(layered.scores)[0])
layered.v.scores.b = leaves[".scores.bias"]  # back to what was learned

# %% [markdown]
# A variable can belong to more than one model. Here a model of the first way takes the variables of one of the second: it
# recognizes the arrays of `layered.v`. Both learn when one of them does.


# %% tags=["example"]
class Twin(StatefulNet):
    def _create_variables(self):
        return layered.v


twin = Twin()
twin.mean = layered.mean  # a variable is shared; an array would change the value
layered.train()
before = twin.v.hidden.w
layered_step(*batches[0])
print("twin has learned too:", bool((twin.v.hidden.w != before).any()))
nb.check(twin.eval()(x), layered.eval()(x))

# %% [markdown]
# Which way is the best? The one you can read. Mixing is fine: write layers, train with `model.v = model.v - gradients`,
# hand the model to `jax.vmap` as a PyTree.
#
# ## Exercises
#
# Replace `None` with your answer and run the cell: `nb.check` reports whether it is right, and if not, what is wrong. The
# solution is folded below.
#
# **1. From one spelling to the other.** `leaves` has the names of the functional way. Make a `Container` of them that
# `StatefulNet(v=...)` takes. The result must equal `stateful.v`.
#
# <details><summary>A hint</summary>
#
# A key reads `.hidden.weight`: split it at its dots. `made = nb.Container()` and `made["hidden/w"] = value` makes the
# levels on the way; in `v` a weight is `w`, a bias `b`.
#
# </details>


# %%
def as_container(leaves):
    return None  # your answer


# %%
nb.check(as_container({key: 2 * value for key, value in leaves.items()}), 2 * stateful.v)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def as_container_solved(leaves):
    short = {"weight": "w", "bias": "b"}
    made = nb.Container()
    for key, value in leaves.items():
        _, layer, variable = key.split(".")
        made[f"{layer}/{short[variable]}"] = value  # levels are made on the way
    return made


nb.check(as_container_solved({key: 2 * value for key, value in leaves.items()}), 2 * stateful.v)

# %% [markdown]
# **2. A frozen layer.** Take one step with `x` and `y` in which only `scores` is trained. In the second way
# `requires_grad_(False)` freezes a layer. Do the same in the third way: let `partition` split off the leaves that
# learn, and differentiate by those only. Return the new weight of `scores`.
#
# <details><summary>A hint</summary>
#
# `model.partition(lambda module: module is model.scores)` returns three values: the definition, the leaves that learn, the
# rest. `definition(learned, rest)(x, state)` is the model again, and `jax.grad` takes a function of `learned` alone.
#
# </details>


# %%
def step_of_scores(model, state, x, y):
    return None  # your answer


# %%
def with_frozen_layer(x, y):
    frozen = LayeredNet()
    frozen.v = start
    frozen.hidden.requires_grad_(False)
    gradients = nb.grad(lambda model: nb.cross_entropy(model(x), y))(frozen)
    return (frozen.v - 0.1 * gradients).scores.w


_, state = nb.export_state(FunctionalNet())
exported.v = start
nb.check(step_of_scores(exported, state, *batches[1]), with_frozen_layer(*batches[1]))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def step_of_scores_solved(model, state, x, y):
    definition, learned, rest = model.partition(lambda module: module is model.scores)

    def loss_of(learned):
        scores, _ = definition(learned, rest)(x, state)
        return nb.cross_entropy(scores, y)

    gradients = jax.grad(loss_of)(learned)
    return learned[".scores.weight"] - 0.1 * gradients[".scores.weight"]


nb.check(step_of_scores_solved(exported, state, *batches[1]), with_frozen_layer(*batches[1]))
