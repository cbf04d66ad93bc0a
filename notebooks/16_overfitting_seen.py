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
# # Overfitting, seen in weights and returns
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/nbmodule/nbmodule/blob/main/notebooks/16_overfitting_seen.ipynb)
# [![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/nbmodule/nbmodule/main?labpath=notebooks%2F16_overfitting_seen.ipynb)
#
# A network with more weights than it needs memorizes its examples. The loss shows it late, and only if some examples are
# held out. The weights and returns show it earlier: weights that grow, units that respond to a single image, overconfident
# predictions. We train one network for too long and one with the usual regularization, and inspect both.
#
# *Goal:* distinguish memorizing from generalizing by inspecting a network. About 45 minutes.

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

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
order = np.random.default_rng(0).permutation(len(images))
train, test = order[:200], order[1000:]  # few examples, so that they are easy to memorize

wrong = labels.copy()  # one in six has a wrong label, which can only be memorized
mixed = train[::6]
wrong[mixed] = (labels[mixed] + 1 + np.arange(len(mixed)) % 9) % 10
x, y = jnp.asarray(images[train]), jnp.asarray(wrong[train])
held_x, held_y = jnp.asarray(images[test]), jnp.asarray(labels[test])

# %% [markdown]
# ## Two models
#
# The same network twice: one is trained without regularization, the other with weight decay and dropout.


# %%
def network(rate):
    return nb.Sequential(
        nb.Linear(64, 256),
        nb.ReLU(),
        nb.Dropout(rate),
        nb.Linear(256, 256),
        nb.ReLU(),
        nb.Dropout(rate),
        nb.Linear(256, 10),
    )


models = {
    "plain": (network(0.0), nb.AdamW(1e-3, weight_decay=0.0)),
    "regularized": (network(0.5), nb.AdamW(1e-3, weight_decay=5.0)),
}


def trained(model, optimizer, epochs=150):
    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda model: nb.cross_entropy(model(x), y))(model)
        optimizer.update(model, grads)
        return loss

    @nb.jit
    def held(x, y):
        logits = model(x)
        return nb.cross_entropy(logits, y), (logits.argmax(-1) == y).mean()

    rows = []
    for epoch in range(epochs):
        model.train()
        for bx, by in nb.batches((x, y), 50, shuffle=True, key=epoch):
            step(bx, by)
        model.eval()
        rows.append(
            [
                float(held(x, y)[0]),
                *map(float, held(held_x, held_y)),
                float(jnp.linalg.norm(model[3].weight())),
            ]
        )
    return np.array(rows)


histories = {name: trained(*pair) for name, pair in models.items()}

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for (name, curves), color in zip(histories.items(), ("tab:red", "tab:blue")):
    axes[0].plot(curves[:, 0], "--", color=color)
    axes[0].plot(curves[:, 1], color=color, label=name)
    axes[1].plot(curves[:, 2], color=color)
    axes[2].plot(curves[:, 3], color=color)
axes[0].set(title="loss: held out, training (dashed)", ylim=(0, 3))
axes[1].set(title="accuracy on held out")
axes[2].set(title="norm of the middle weights")
axes[0].legend()
plt.show()

best = histories["plain"][:, 1].argmin()
print(
    f"plain: held-out loss lowest after {best + 1} epochs, {histories['plain'][-1, 1] / histories['plain'][best, 1]:.1f} times that at the end"
)
assert histories["plain"][-1, 1] > 1.5 * histories["plain"][best, 1]
assert histories["regularized"][-1, 2] > histories["plain"][-1, 2]

# %% [markdown]
# The training loss of the plain model goes to zero, wrong labels included, while its held-out loss rises: it becomes more and
# more certain of wrong answers. Its weights grow during the whole training.
#
# ## The returns of the layers
#
# `nb.track` shows the returns of each layer. Large weights produce large returns, and large logits are certain predictions.

# %%
for name, (model, _) in models.items():
    with nb.track(model) as calls:
        model(x)
    strongest = [float(np.abs(calls[layer].returns).max()) for layer in ("0", "3", "6")]
    print(
        f"{name:11}: largest returns of the three layers",
        ", ".join(f"{value:.1f}" for value in strongest),
    )

# %% [markdown]
# And the weights themselves, as one view of the differences between both models:

# %%
nb.diff(models["regularized"][0], models["plain"][0])

# %% [markdown]
# ## How certain the models are
#
# On images with a wrong label the plain model predicts the wrong label with near certainty: it has memorized each of them. The
# regularized one mostly predicts the true class, because similar images outvote the label, and it is less certain.

# %%
at = np.flatnonzero(np.isin(train, mixed))
for name, (model, _) in models.items():
    p = np.asarray(nb.softmax(model(x[at])))
    as_labeled = p.argmax(-1) == np.asarray(y[at])
    as_true = p.argmax(-1) == labels[train[at]]
    print(
        f"{name:11}: wrong label predicted {as_labeled.mean():.0%}, true class {as_true.mean():.0%}; mean confidence {p.max(-1).mean():.0%}"
    )
assert (
    as_true.mean() > 0.5 > as_labeled.mean()
)  # the regularized model, although its label was wrong

# %% [markdown]
# ## Exercises
#
# **1. Stop in time.** From the held-out losses, give the epoch at which a training with *patience* ends: the first after which `patience`
# epochs in a row have not been better than the best so far.
#
# <details><summary>A hint</summary>
#
# Keep two numbers while you go through the losses: the best so far, and how many epochs ago that was.
#
# </details>


# %%
def stops_at(losses, patience):
    return None  # your answer


# %%
curves = [histories["plain"][:, 1], 2 + np.cos(np.arange(60) / 9)]
nb.check(
    [stops_at(losses, patience) for losses in curves for patience in (3, 10)],
    [
        next(n for n in range(len(losses)) if n - np.argmin(losses[: n + 1]) >= patience)
        for losses in curves
        for patience in (3, 10)
    ],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 1
def stops_at_solved(losses, patience):
    best, since = np.inf, 0
    for epoch, loss in enumerate(losses):
        best, since = (loss, 0) if loss < best else (best, since + 1)
        if since == patience:
            return epoch
    return None


nb.check(
    [stops_at_solved(losses, patience) for losses in curves for patience in (3, 10)],
    [
        next(n for n in range(len(losses)) if n - np.argmin(losses[: n + 1]) >= patience)
        for losses in curves
        for patience in (3, 10)
    ],
)

# %% [markdown]
# **2. Calibration.** A model that claims 80 % should be right in 80 % of such cases. Return the mean confidence minus the accuracy on the held-out
# images: how overconfident a model is.
#
# <details><summary>A hint</summary>
#
# The confidence of a prediction is its largest probability, `nb.softmax(model(held_x)).max(-1)`.
#
# </details>


# %%
def overconfidence(model):
    return None  # your answer


# %%
nb.check(
    [overconfidence(model) for model, _ in models.values()],
    [
        (p.max(-1) - (p.argmax(-1) == np.asarray(held_y))).mean()
        for p in (
            np.exp(np.asarray(nb.log_softmax(model(held_x)), np.float64))
            for model, _ in models.values()
        )
    ],
)


# %% jupyter={"source_hidden": true} tags=["solution", "hide-cell"]
# Solution 2
def overconfidence_solved(model):
    p = nb.softmax(model(held_x))
    return float(p.max(-1).mean() - (p.argmax(-1) == held_y).mean())


nb.check(
    [overconfidence_solved(model) for model, _ in models.values()],
    [
        (p.max(-1) - (p.argmax(-1) == np.asarray(held_y))).mean()
        for p in (
            np.exp(np.asarray(nb.log_softmax(model(held_x)), np.float64))
            for model, _ in models.values()
        )
    ],
)
