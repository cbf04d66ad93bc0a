"""The verbs that view a model, on an unconverted model of each framework: each works, or is refused
with one sentence.

The answers are compared with the framework's own records; see `tests/wild/jax_verbs.py`.
docs/recipes/other_models.md shows the table; `python -m tools.make_framework_table` writes it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from flax import nnx

import nbmodule as nb
from nbmodule.live.run_data.strips import FIELDS
from tests.wild import jax_verbs, table
from tests.wild.jax_models import Model, of_equinox, of_haiku, of_keras, of_linen, of_nnx
from tests.wild.jax_verbs import JaxWild, close

X = np.linspace(-1.0, 1.0, 15, dtype=np.float32).reshape(5, 3)


# -- a network of two layers with a ReLU between, in each framework; `v` is a name that modules have --
def nnx_net() -> Model:
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.v = nnx.Linear(3, 4, rngs=rngs)
            self.second = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            return self.second(nnx.relu(self.v(x)))

    return of_nnx(Net(nnx.Rngs(0)), jnp.asarray(X))


def linen_net() -> Model:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2, name="second")(nn.relu(nn.Dense(4, name="v")(x)))

    return of_linen(Net(), jnp.asarray(X))


def equinox_net() -> Model:
    class Net(eqx.Module):
        v: eqx.nn.Linear
        second: eqx.nn.Linear

        def __call__(self, x):
            return self.second(jax.nn.relu(self.v(x)))

    keys = jax.random.split(jax.random.key(0))
    layers = eqx.nn.Linear(3, 4, key=keys[0]), eqx.nn.Linear(4, 2, key=keys[1])
    return of_equinox(Net(*layers), jnp.asarray(X[0]))


def haiku_net() -> Model:
    def net(x):
        return hk.Linear(2, name="second")(jax.nn.relu(hk.Linear(4, name="v")(x)))

    return of_haiku(net, jnp.asarray(X))


def keras_net() -> Model:
    class Net(keras.Model):
        def __init__(self, **_):
            super().__init__()
            self.v = keras.layers.Dense(4, name="v")
            self.second = keras.layers.Dense(2, name="second")

        def call(self, x):
            return self.second(keras.ops.relu(self.v(x)))

    model = Net()
    model(X)
    return of_keras(model, jnp.asarray(X))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.v = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.second(torch.relu(self.v(x)))


FRAMEWORKS: dict[str, Callable[[], Any]] = {
    "Flax NNX": lambda: JaxWild(nnx_net(), "v"),
    "Flax linen": lambda: JaxWild(linen_net(), "v"),
    "Equinox": lambda: JaxWild(equinox_net(), "v"),
    "Haiku": lambda: JaxWild(haiku_net(), "v"),
    "Keras (JAX)": lambda: JaxWild(keras_net(), "v"),
    "PyTorch": lambda: table.Wild(Net().eval(), (torch.tensor(X),), {}, "v"),
}


@functools.cache
def wild_of(framework: str) -> Any:
    """Return the network with the records of its framework, which no verb changes."""
    torch.manual_seed(0)
    return FRAMEWORKS[framework]()


def verb(name: str) -> Callable[[Any], Any]:
    """Return a check that published models go through, too."""
    return lambda wild: (jax_verbs if isinstance(wild, JaxWild) else table).VERBS[name](wild)


def output_of(wild: Any) -> np.ndarray:
    return np.asarray(wild.arrays_in(wild.output)[0])


# -- the verbs --
def shows(wild: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        nb.show(wild.model, form="text")
    text = text.getvalue()
    assert re.search(r"\bv\b", text) and "26 parameters" in text, text


def summarizes(wild: Any) -> None:
    rows = {row.path: row for row in nb.summary(wild.model, *wild.args)}
    assert rows["v"].parameters == 16 and rows[""].parameters == 26
    assert rows["v"].calls == 1 and rows["v"].outputs in ("float32[5, 4]", "float32[4]")
    assert rows[""].flops >= output_of(wild).size * (3 * 4 + 4 * 2)


def compares(wild: Any) -> None:
    with nb.track(wild.model) as before, nb.track(wild.model):
        wild.run()
    with nb.track(wild.model) as after:
        wild.run(wild.args[-1] * -1)
    assert nb.compare(before, before).agrees
    found = nb.compare(after, before)
    assert not found.agrees and found["v"].fault == "input"


def differs(wild: Any) -> None:
    assert not nb.diff(wild.holder, wild.holder)
    model, (variables, *_) = wild.scaled(2.0)
    found = nb.diff(wild.holder, variables if wild.holder is not wild.model else model)
    changed = {change.path for change in found if change.status != "same"}
    assert len(changed) == sum(bool(leaf.any()) for leaf in wild.leaves())
    assert any(re.search(r"\bv\b", path) for path in changed)


def finds_nonfinite(wild: Any) -> None:
    """It overflows in the first layer."""
    assert nb.first_nonfinite(wild.model, *wild.args) is None
    model, (*before, x) = wild.scaled(1e30)
    found = nb.first_nonfinite(model, *before, x * 1e10)
    assert found.path == "v" and found.outputs[0].nonfinite


def patches(wild: Any) -> None:
    *before, x = wild.args
    found = nb.patch(wild.model, wild.args, (*before, x * 0), "v")
    close(wild.arrays_in(found.patched)[0], output_of(wild))
    close(wild.arrays_in(found.corrupt)[0], wild.arrays_in(wild.run(x * 0))[0])


def records(wild: Any) -> None:
    recorder = nb.Recorder(wild.model, every=2)
    for _ in range(4):
        with recorder:
            wild.run()
    assert recorder.steps == (0, 2)
    largest = wild.returned("v").max()
    assert recorder[2]["v"].statistics.max == pytest.approx(largest, rel=1e-4)


def is_live(wild: Any) -> None:
    """The holder of the variables is watched: the model, or the variables beside it."""
    with nb.Live(wild.holder, display=False) as live:
        for _ in live.steps(itertools.count()):
            wild.run()
            if "weight" in live.watched:
                break
    found = live.watched["weight"]
    assert any(re.search(r"\bv\b", path) for path in found.paths)
    largest = max(np.asarray(leaf).max() for leaf in wild.leaves())
    assert max(row[FIELDS.index("high")] for row in found.newest) == pytest.approx(largest)


CELLS: dict[str, Callable[[Any], Any]] = {
    "nb.show": shows,
    "nb.summary": summarizes,
    "nb.inspect": verb("inspect"),
    "nb.track: returns": verb("track"),
    "nb.track: statistics": verb("statistics"),
    "nb.track: gradients": verb("gradients"),
    "nb.track: inputs": verb("inputs"),
    "nb.graph": verb("graph"),
    "nb.compare": compares,
    "nb.diff": differs,
    "nb.first_nonfinite": finds_nonfinite,
    "nb.patch": patches,
    "nb.patch: settings": verb("settings"),
    "nb.Recorder": records,
    "nb.Live": is_live,
    "nb.profile": verb("profile"),
}

BESIDE = r"holds no \w+: nb\.show of these shows them, nb\.summary\({}, x\)"
# Cells that are refused, with the message.
REFUSED: dict[tuple[str, str], str] = {
    ("nb.show", "Flax linen"): BESIDE.format("model, variables"),
    ("nb.show", "Haiku"): BESIDE.format("net, params, key"),
    ("nb.patch: settings", "PyTorch"): r"nb\.patch takes no values.*nb\.from_torch\(model\)",
    ("nb.profile", "PyTorch"): r"Convert it, as in nb\.profile\(nb\.from_torch\(model\), x\)",
}


def answer(verb: str, framework: str) -> str | None:
    """Return the message with which a cell is refused; None where it works."""
    try:
        CELLS[verb](wild_of(framework))
    except (nb.NbModuleError, AssertionError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("verb", CELLS)
def test_each_verb_works_on_an_unconverted_model_of_each_framework(verb, framework):
    wild = wild_of(framework)
    if (verb, framework) in REFUSED:
        assert re.search(REFUSED[verb, framework], answer(verb, framework) or "")
    else:
        CELLS[verb](wild)
    assert wild.unchanged()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_converted_model_is_tracked_drawn_hooked_patched_and_saved(framework, tmp_path):
    wild, seen = wild_of(framework), []
    model, x, expected = wild.converted(), np.asarray(wild.args[-1]), output_of(wild)
    hook = model.v_.register_forward_hook(lambda module, inputs, y: seen.append(y.shape[-1]))
    with hook:
        close(nb.jit(model)(x), expected)
    assert seen == [4]
    with nb.track(model) as calls:
        model(x)
    assert calls.paths == ("", "v", "second")
    close(calls["v"].returns, wild.returned("v"))
    assert {"v", "second"} <= {group.path for group in nb.graph(model, x).groups}
    assert not model(x, replace_submod_rets={"second": jnp.zeros_like}).any()
    model.save_weights(tmp_path / "w.h5")
    model.v = model.v * 0
    model.load_weights(tmp_path / "w.h5")
    close(model(x), expected)


def test_the_page_shows_this_table():
    page = (Path(__file__).parents[2] / "docs" / "recipes" / "other_models.md").read_text(
        encoding="utf-8"
    )
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `nb.")]
    found = {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows}
    for verb in CELLS:
        worked = [(verb, framework) not in REFUSED for framework in FRAMEWORKS]
        assert [cell == "works" for cell in found[verb]] == worked, verb
