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
# # Many devices
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/10_many_devices.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F10_many_devices.ipynb)
#
# Large models train on many devices at once. You can test such a program on any laptop: XLA can simulate eight devices on
# one processor. They are no faster than one, but arrays are really split, data is really exchanged, and the same code runs
# on eight accelerators.
#
# The number of devices must be set before JAX is imported. **Restart the kernel** if JAX has been imported already.
#
# *Goal:* shard a model over devices by rules, and prove that the result is the same. About 45 minutes.

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

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits

import nbmodule as nb

print(jax.devices())
assert len(jax.devices()) == 8, "JAX was imported before: restart the kernel and run all cells"

# %% [markdown]
# ## The model and one device
#
# A small transformer reads handwritten digits, line by line. All other runs must reproduce this one.

# %%
digits = load_digits()
images = (digits.images / 16).astype(np.float32)  # eight lines of eight pixels
labels = digits.target.astype(np.int32)


class LineReader(nb.Module):
    def __init__(self, width=64, heads=8):
        super().__init__()
        self.embed = nb.Linear(8, width, with_bias=False)  # the norm would take a bias away again
        self.norm = nb.BatchNorm1d(width)
        self.encoder = nb.TransformerEncoder(
            1, width, heads, 4 * width, dropout_rate=0.0, norm_first=True
        )
        self.head = nb.Linear(width, 16)

    def forward(self, x):
        return self.head(self.encoder(self.norm(self.embed(x))).mean(axis=-2))


def new_model():
    nb.seed(0)  # the same numbers in each model
    return LineReader()


def train(model, steps=20, place=lambda batch: batch):
    """Losses of some steps; `place` lays each batch out."""
    optimizer = nb.Adam(lr=3e-3)

    @nb.jit
    def train_step(images, labels):
        loss, gradients = nb.value_and_grad(lambda model: nb.cross_entropy(model(images), labels))(
            model
        )
        optimizer.update(model, gradients)
        return loss

    batches = nb.batches((images, labels), 64, shuffle=False, drop_last=True)
    losses = [
        float(train_step(*place(batch))) for _, batch in zip(range(steps), batches, strict=False)
    ]
    return losses, optimizer


alone = new_model()
expected, _ = train(alone)
print(f"loss {expected[0]:.4f} -> {expected[-1]:.4f}")

# %% [markdown]
# ## A mesh
#
# Devices are arranged in a grid whose axes have names. Rules then speak of names, never of device numbers. Here eight
# devices are in one row, along the axis `data`.

# %%
mesh = nb.make_mesh(data=8)
mesh

# %% [markdown]
# ## The same model everywhere, the batch in parts
#
# This is the simplest way: each device holds a whole copy of the model and reads an eighth of the batch.
# `nb.shard` lays out the variables, `nb.shard_batch` the rows.


# %%
def draw_parts(array, title):
    """Color each element by the device that holds it; one that holds a copy only is not seen."""
    owner = np.zeros(array.shape[:2], int)
    for part in array.addressable_shards:
        owner[part.index[:2]] = part.device.id
    figure, axis = plt.subplots(figsize=(5, 1.8))
    drawn = axis.imshow(owner, cmap="tab10", vmin=0, vmax=9, aspect="auto")
    axis.set(title=title, ylabel="first axis", xlabel="second axis")
    figure.colorbar(drawn, ticks=range(8), label="device", boundaries=np.arange(-0.5, 8))
    plt.show()


copied = nb.shard(new_model(), mesh, nb.data_parallel())
batch = nb.shard_batch((images[:64], labels[:64]), mesh)
print(
    "a batch of", batch[0].shape, "as", batch[0].addressable_shards[0].data.shape, "on each device"
)
draw_parts(batch[0], "64 rows of a batch")

# %% [markdown]
# The training step is written as for one device. The compiler sees how its inputs lie and splits the work. Where a result
# needs all rows (the gradients, and the mean and variance of `BatchNorm1d`) it lets the devices exchange what they have.
# So the losses are those of one device, to rounding: sums are taken in another order.

# %% tags=["example"]
losses, _ = train(copied, place=lambda batch: nb.shard_batch(batch, mesh))
nb.check(np.array(losses), np.array(expected), rtol=1e-3)

# %% tags=["example"]
nb.check(copied.norm.running_mean.value, alone.norm.running_mean.value, rtol=1e-2, atol=1e-3)

# %% [markdown]
# `nb.layout` shows the placement of the variables. `whole` is a copy on each device, which saves no memory.

# %%
nb.layout(copied)

# %% [markdown]
# ## The variables in parts as well
#
# For a model that does not fit on one device, each variable is split over the devices that share the batch. A device
# gathers a layer when it needs it and forgets it again. With the rule `nb.fsdp()` the largest axis of each variable is
# split; small ones stay whole. The state of the optimizer follows its variables.

# %% tags=["example"]
split = nb.shard(new_model(), mesh, nb.fsdp())
losses, optimizer = train(split, place=lambda batch: nb.shard_batch(batch, mesh))
nb.check(np.array(losses), np.array(expected), rtol=1e-3)

# %%
nb.layout(split)

# %%
with_state = nb.layout(split, optimizer=optimizer)
each = max(with_state.bytes_per_device.values())
print(f"with what Adam remembers: {each:,} of {with_state.nbytes:,} bytes on each device")

# %% [markdown]
# One weight, and which device holds which rows of it:

# %%
weight = split.encoder.layers[0].linear1.weight
print(
    weight.shape,
    weight.sharding.spec,
    "the part on each device:",
    weight.value.addressable_shards[0].data.shape,
)
draw_parts(weight.value, "linear1.weight, fsdp")

# %% [markdown]
# ## Work in parts: a mesh of two axes
#
# The third way splits the work inside a layer. Attention is split by heads, and the two linear layers after it by
# hidden features, so that the devices talk only once for each pair. Now the mesh has two axes: two groups share the batch,
# and the four devices in a group share each layer. Rules can be combined: the first that matches decides for an axis.

# %% tags=["example"]
grid = nb.make_mesh(data=2, model=4)
both = nb.shard(new_model(), grid, [nb.tensor_parallel(), nb.fsdp()])
losses, _ = train(both, place=lambda batch: nb.shard_batch(batch, grid))
nb.check(np.array(losses), np.array(expected), rtol=1e-3)

# %%
nb.layout(both)

# %% [markdown]
# The same weight again. Its rows are split over `model`, its columns over `data`:

# %%
weight = both.encoder.layers[0].linear1.weight
print(weight.shape, weight.sharding.spec)
draw_parts(weight.value, "linear1.weight, tensor_parallel and fsdp")

# %% [markdown]
# The result: the bytes of variables on each device, and the losses of all four runs.

# %%
ways = {"one device": alone, "data_parallel": copied, "fsdp": split, "tensor_parallel + fsdp": both}
most = {name: max(nb.layout(model).bytes_per_device.values()) for name, model in ways.items()}

figure, axis = plt.subplots(figsize=(6, 1.8))
axis.barh(list(most), [number / 1024 for number in most.values()])
axis.invert_yaxis()
axis.set(xlabel="KiB of variables on each device")
plt.show()

# %% [markdown]
# ## Rules of your own
#
# A rule is a path pattern and a `PartitionSpec`: for each axis of the array, the axis of the mesh that splits it, or None.
# A variable without a rule stays whole.

# %%
own = nb.shard(
    new_model(), grid, {"encoder.*.linear1.*": P("model"), "embed.weight": P("model", None)}
)
for name, variable in own.named_parameters():
    if any(variable.sharding.spec):
        print(f"{name:34} {variable.sharding.spec}")

# %% [markdown]
# All variables are checked before the first one is moved, so a mistake changes nothing.


# %%
def refused(fn, *args, **kwargs):
    try:
        fn(*args, **kwargs)
    except nb.NbModuleError as error:
        print(f"{type(error).__name__}: {error}\n")
    else:
        raise AssertionError("this was not refused")


refused(nb.shard, own, grid, {"encodr.*": P("model")})
refused(nb.shard, own, grid, {"head.weight": P(None, "modle")})
refused(nb.shard, LineReader(heads=2), grid, nb.tensor_parallel())
refused(nb.shard_batch, images[:60], mesh)
refused(nb.make_mesh, data=3)

# %% [markdown]
# ## Back to one device
#
# A saved file holds whole arrays, wherever they came from. So does a state dict. What was trained on eight devices is read on
# one.

# %% tags=["example"]
home = LineReader()
file = os.path.join(tempfile.mkdtemp(), "digits.h5")
both.save_weights(file)
home.load_weights(file)
print(home.head.weight.sharding)

scores_of = nb.jit(lambda model, images: model(images))
scores = scores_of(home.eval(), images[-496:])
print(
    f"after 20 steps {float((scores.argmax(axis=-1) == labels[-496:]).mean()):.0%} of the last digits are read rightly"
)
nb.check(scores, scores_of(both.eval(), nb.shard_batch(images[-496:], grid)), rtol=1e-3, atol=1e-4)

# %% [markdown]
# On real devices only the first cell changes. Several machines begin with `nb.join_hosts()`, and each passes
# its own rows to `nb.shard_batch`.
#
# ## Exercises
#
# **1. Predict a shape.** Give the shape of the part of a weight of `(256, 64)` that each device holds under the spec
# `P("data", "model")` on `grid`. Then compare with JAX.
#
# <details><summary>A hint</summary>
#
# `grid` has two devices along `data` and four along `model`. The first axis of the weight goes along `data`.
#
# </details>

# %%
shape_of_part = ()  # your answer


# %%
laid_out = jax.device_put(jnp.zeros((256, 64)), jax.NamedSharding(grid, P("data", "model")))
nb.check(np.array(shape_of_part), np.array(laid_out.addressable_shards[0].data.shape))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1: 256 rows over 2 devices, 64 columns over 4
nb.check(np.array([256 // 2, 64 // 4]), np.array(laid_out.addressable_shards[0].data.shape))

# %% [markdown]
# **2. By hand.** Write rules that lay out the two linear layers of the encoder as `nb.tensor_parallel()` does: `linear1` is
# split by its outputs, `linear2` by its inputs. Weights are `(out, in)`. Which bias is split, and which is whole?
#
# <details><summary>A hint</summary>
#
# A rule is a pattern of a path and a `P`. The outputs of a layer are the first axis of its weight: `P("model", None)`. The
# bias of the layer whose results are added up must be added once.
#
# </details>

# %%
rules = {}  # your answer


# %%
def specs_of_linear_layers(rules):
    layer = nb.shard(new_model(), grid, rules).encoder.layers[0]
    return {
        name: str(variable.sharding.spec)
        for name, variable in layer.named_parameters()
        if name.startswith("linear")
    }


nb.check(specs_of_linear_layers(rules), specs_of_linear_layers(nb.tensor_parallel()))


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2: the bias of linear2 is added once, after the sum, so it is whole
rules_solved = {
    "encoder.*.linear1.weight": P("model", None),
    "encoder.*.linear1.bias": P("model"),
    "encoder.*.linear2.weight": P(None, "model"),
}
nb.check(specs_of_linear_layers(rules_solved), specs_of_linear_layers(nb.tensor_parallel()))

# %% [markdown]
# **3. Prove it.** Train with your rules for some steps, with the batch split over `data`, and return the losses. They must
# be those of one device.
#
# <details><summary>A hint</summary>
#
# `nb.shard(new_model(), grid, rules)` lays out, and `train` above takes `place=`, a function that lays out a batch:
# `nb.shard_batch(batch, grid)`.
#
# </details>


# %%
def losses_with(rules, steps):
    return None  # your answer


# %%
nb.check(losses_with(rules, 5), np.array(train(new_model(), 5)[0]), rtol=1e-3)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 3
def losses_with_solved(rules, steps):
    model = nb.shard(new_model(), grid, rules)
    return train(model, steps=steps, place=lambda batch: nb.shard_batch(batch, grid))[0]


nb.check(losses_with_solved(rules_solved, 5), np.array(train(new_model(), 5)[0]), rtol=1e-3)
