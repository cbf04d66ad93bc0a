"""The verbs that view a model, on an unconverted model of each framework: each works, or is refused
with one sentence.

docs/recipes/other_models.md shows the table; `python -m tools.make_framework_table` writes it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.live.run_data.strips import FIELDS

X = np.linspace(-1.0, 1.0, 15, dtype=np.float32).reshape(5, 3)
OTHER = X[::-1].copy()


class Case(NamedTuple):
    """A network of two layers, `first` and `second`, with a ReLU between, in one framework.

    Attributes:
        model: The model.
        args: What it is called with; for frameworks whose variables stand beside the model, these
            come first.
        call: Calls it as its framework does.
        slope: Runs the framework's own gradient of the sum of squares of the output, compiled where
            it is of JAX.
        state: What holds its variables.
        moved: The state with its numbers moved.
        weights: Kernel and bias of both layers as arrays, kernels with inputs first.
    """

    model: Any
    args: tuple[Any, ...]
    call: Callable[..., Any]
    slope: Callable[[], Any]
    state: Any
    moved: Callable[[], Any]
    weights: tuple[np.ndarray, ...]


def loss_of(y: Any) -> Any:
    return (y**2).sum()


@functools.cache
def nnx_case() -> Case:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 4, rngs=rngs)
            self.second = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            return self.second(nnx.relu(self.first(x)))

    model = Net(nnx.Rngs(0))
    parts = model.first.kernel, model.first.bias, model.second.kernel, model.second.bias

    def moved():
        other = nnx.clone(model)
        other.first.bias[...] = other.first.bias[...] + 1
        return other

    return Case(
        model,
        (jnp.asarray(X),),
        model,
        functools.partial(nnx.jit(nnx.grad(lambda m: loss_of(m(X)))), model),
        model,
        moved,
        tuple(np.asarray(part[...]) for part in parts),
    )


def case_beside(
    model: Any, variables: Any, before: tuple[Any, ...], names: tuple[str, str], layers: Any
) -> Case:
    """Return the case of a model whose variables stand beside it.

    Args:
        model: Has `apply`.
        variables: The first argument of `apply`.
        before: The arguments between the variables and the input.
        names: Of kernel and bias.
        layers: Variables of `first` and `second`.
    """
    apply = lambda variables, x: model.apply(variables, *before, x)
    is_bias = lambda keys: [key.key for key in keys][-2:] == ["first", names[1]]
    return Case(
        model,
        (variables, *before, jnp.asarray(X)),
        lambda x: apply(variables, x),
        functools.partial(jax.jit(jax.grad(lambda v: loss_of(apply(v, X)))), variables),
        variables,
        lambda: jax.tree_util.tree_map_with_path(lambda k, a: a + is_bias(k), variables),
        tuple(np.asarray(layers[layer][name]) for layer in ("first", "second") for name in names),
    )


@functools.cache
def linen_case() -> Case:
    import flax.linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2, name="second")(nn.relu(nn.Dense(4, name="first")(x)))

    variables = Net().init(jax.random.key(0), X)
    return case_beside(Net(), variables, (), ("kernel", "bias"), variables["params"])


@functools.cache
def equinox_case() -> Case:
    import equinox as eqx

    class Net(eqx.Module):
        first: eqx.nn.Linear
        second: eqx.nn.Linear

        def __call__(self, x):
            return jax.vmap(self.second)(jax.nn.relu(jax.vmap(self.first)(x)))

    keys = jax.random.split(jax.random.key(0))
    model = Net(eqx.nn.Linear(3, 4, key=keys[0]), eqx.nn.Linear(4, 2, key=keys[1]))
    return Case(
        model,
        (jnp.asarray(X),),
        model,
        functools.partial(
            eqx.filter_jit(eqx.filter_grad(lambda m: loss_of(m(jnp.asarray(X))))), model
        ),
        model,
        lambda: eqx.tree_at(lambda m: m.first.bias, model, model.first.bias + 1),
        tuple(np.asarray(a) for l in (model.first, model.second) for a in (l.weight.T, l.bias)),
    )


@functools.cache
def haiku_case() -> Case:
    import haiku as hk

    model = hk.transform(
        lambda x: hk.Linear(2, name="second")(jax.nn.relu(hk.Linear(4, name="first")(x)))
    )
    params = model.init(jax.random.key(0), X)
    return case_beside(model, params, (None,), ("w", "b"), params)


@functools.cache
def keras_case() -> Case:
    import keras

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = keras.layers.Dense(4, name="first")
            self.second = keras.layers.Dense(2, name="second")

        def call(self, x):
            return self.second(keras.ops.relu(self.first(x)))

    model, other = Net(), Net()
    model(X), other(X)
    model.first.kernel.assign(model.first.kernel * 3)

    gradient = jax.jit(jax.grad(lambda p: loss_of(model.stateless_call(p, [], X)[0])))

    def moved():
        other.set_weights(model.get_weights())
        other.first.bias.assign(other.first.bias + 1)
        return other

    return Case(
        model,
        (jnp.asarray(X),),
        model,
        lambda: gradient([v.value for v in model.trainable_variables]),
        model,
        moved,
        tuple(np.asarray(w) for w in model.get_weights()),
    )


@functools.cache
def torch_case() -> Case:
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(3, 4)
            self.second = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    torch.manual_seed(0)
    model, other = Net(), Net()
    with torch.no_grad():
        model.first.weight *= 3

    def slope():
        model.zero_grad()
        loss_of(model(torch.tensor(X))).backward()

    def moved():
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            other.first.bias += 1
        return other

    weights = [
        a.detach().numpy().copy() for l in (model.first, model.second) for a in (l.weight.T, l.bias)
    ]
    return Case(
        model,
        (torch.tensor(X),),
        lambda x: model(torch.as_tensor(np.asarray(x))),
        slope,
        model,
        moved,
        tuple(weights),
    )


FRAMEWORKS: dict[str, Callable[[], Case]] = {
    "Flax NNX": nnx_case,
    "Flax linen": linen_case,
    "Equinox": equinox_case,
    "Haiku": haiku_case,
    "Keras (JAX)": keras_case,
    "PyTorch": torch_case,
}


# -- expected values, by NumPy --
def hidden(case: Case, x: np.ndarray = X) -> np.ndarray:
    return x @ case.weights[0] + case.weights[1]


def output(case: Case, x: np.ndarray = X) -> np.ndarray:
    return np.maximum(hidden(case, x), 0) @ case.weights[2] + case.weights[3]


def hidden_gradient(case: Case) -> np.ndarray:
    return (2 * output(case) @ case.weights[2].T) * (hidden(case) > 0)


def close(found: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-5)


# -- the verbs --
def shows(case: Case, capsys: Any) -> None:
    nb.show(case.model, form="text")
    said = capsys.readouterr().out
    assert "first" in said and "26 parameters" in said, said


def summarizes(case: Case, capsys: Any) -> None:
    rows = {row.path: row for row in nb.summary(case.model, *case.args)}
    assert rows["first"].parameters == 16 and rows[""].parameters == 26
    assert rows["first"].calls == 1 and rows["first"].outputs in ("float32[5, 4]", "float32[4]")
    assert rows[""].flops >= 2 * 5 * (3 * 4 + 4 * 2)


def inspects(case: Case, capsys: Any) -> None:
    view = nb.inspect(case.model, *case.args)
    close(view.calls["first"].returns, hidden(case))
    assert view.graph.find("second").operations
    assert "first" in repr(view)


def tracks_returns(case: Case, capsys: Any) -> None:
    with nb.track(case.model) as calls:
        y = case.call(X)
    assert [path for path in calls.paths if path] == ["first", "second"]
    close(calls["first"].returns, hidden(case))
    close(calls["second"].returns, output(case))
    close(y if not hasattr(y, "detach") else y.detach(), output(case))


def tracks_statistics(case: Case, capsys: Any) -> None:
    with nb.track(case.model, returns="stats") as calls:
        case.call(X)
    found, wanted = calls["first"].statistics, hidden(case)
    assert calls["first"].returns is None
    close(
        [found.mean, found.std, found.min, found.max],
        np.array([wanted.mean(), wanted.std(), wanted.min(), wanted.max()]),
    )


def tracks_gradients(case: Case, capsys: Any) -> None:
    plain = case.slope()
    with nb.track(case.model, gradients=True) as calls:
        tracked = case.slope()
    jax.tree.map(close, tracked, plain)
    close(calls["first"].gradient, hidden_gradient(case))
    close(calls["second"].gradient, 2 * output(case))
    assert [call.path for call in calls if call.path] == ["first", "second"]
    assert any("ran uncompiled" in note for note in calls.notes) == (plain is not None)
    assert not any("not captured" in note for note in calls.notes)


def tracks_inputs(case: Case, capsys: Any) -> None:
    with nb.track(case.model, returns=False, inputs=True) as calls:
        case.call(X)
    close(calls["second"].inputs[0], np.maximum(hidden(case), 0))


def draws(case: Case, capsys: Any) -> None:
    made = nb.graph(case.model, *case.args)
    assert made.find("first").operations and made.find("second").operations
    assert made.nodes[made.outputs[0]].shape == (5, 2)


def compares(case: Case, capsys: Any) -> None:
    with nb.track(case.model) as before, nb.track(case.model):
        case.call(X)
    with nb.track(case.model) as after:
        case.call(OTHER)
    assert nb.compare(before, before).agrees
    found = nb.compare(after, before)
    assert not found.agrees and found["first"].fault == "input"


def differs(case: Case, capsys: Any) -> None:
    assert not nb.diff(case.state, case.state)
    found = nb.diff(case.state, case.moved())
    changed = [change for change in found if change.status != "same"]
    assert len(changed) == 1 and changed[0].largest == pytest.approx(1.0)
    assert "first" in changed[0].path


def finds_nonfinite(case: Case, capsys: Any) -> None:
    assert nb.first_nonfinite(case.model, *case.args) is None
    *before, x = case.args
    kernel = case.weights[0]
    # Overflows in one unit of the first layer
    row = 3e38 * np.sign(kernel[:, np.abs(kernel).sum(0).argmax()])
    huge = x * 0 + type(x)(row) if hasattr(x, "detach") else x * 0 + row
    found = nb.first_nonfinite(case.model, *before, huge)
    assert found.path == "first" and found.outputs[0].nonfinite


def patches(case: Case, capsys: Any) -> None:
    *before, x = case.args
    found = nb.patch(case.model, case.args, (*before, x * 0), "first")
    close(found.patched, output(case))
    close(found.corrupt, output(case, X * 0))


def sets(case: Case, capsys: Any) -> None:
    with nb.patch(case.model, {"first": nb.zero()}):
        found = case.call(X)
    close(found, np.broadcast_to(case.weights[3], (5, 2)))
    close(case.call(X), output(case))


def records(case: Case, capsys: Any) -> None:
    recorder = nb.Recorder(case.model, every=2)
    for _ in range(4):
        with recorder:
            case.call(X)
    assert recorder.steps == (0, 2)
    assert recorder[2]["first"].statistics.max == pytest.approx(float(hidden(case).max()), rel=1e-4)


def profiles(case: Case, capsys: Any) -> None:
    found = nb.profile(case.model, *case.args, runs=1)
    assert found["first"].flops >= 2 * 5 * 3 * 4 and found["second"].flops >= 2 * 5 * 4 * 2
    assert found.total.flops >= found["first"].flops + found["second"].flops


def is_live(case: Case, capsys: Any) -> None:
    """The holder of the variables is watched: the model, or the variables beside it."""
    with nb.Live(case.state, display=False) as live:
        for _ in live.steps(itertools.count()):
            case.call(X)
            if "weight" in live.watched:
                break
    found = live.watched["weight"]
    rows = dict(zip(found.paths, found.newest))
    first = next(row for path, row in rows.items() if "first" in path)
    flat = np.concatenate([a.ravel() for a in case.weights[:2]])
    np.testing.assert_allclose(first[FIELDS.index("high")], flat.max(), rtol=1e-5)


CELLS: dict[str, Callable[[Case, Any], None]] = {
    "nb.show": shows,
    "nb.summary": summarizes,
    "nb.inspect": inspects,
    "nb.track: returns": tracks_returns,
    "nb.track: statistics": tracks_statistics,
    "nb.track: gradients": tracks_gradients,
    "nb.track: inputs": tracks_inputs,
    "nb.graph": draws,
    "nb.compare": compares,
    "nb.diff": differs,
    "nb.first_nonfinite": finds_nonfinite,
    "nb.patch": patches,
    "nb.patch: settings": sets,
    "nb.Recorder": records,
    "nb.Live": is_live,
    "nb.profile": profiles,
}

BESIDE = r"holds no \w+: nb\.show of these shows them, nb\.summary\({}, x\)"
# Cells that are refused, with the message.
REFUSED: dict[tuple[str, str], str] = {
    ("nb.show", "Flax linen"): BESIDE.format("model, variables"),
    ("nb.show", "Haiku"): BESIDE.format("net, params, key"),
    ("nb.patch: settings", "PyTorch"): r"nb\.patch takes no values.*nb\.from_torch\(model\)",
    ("nb.profile", "PyTorch"): r"Convert it, as in nb\.profile\(nb\.from_torch\(model\), x\)",
}


def answer(verb: str, framework: str, capsys: Any) -> str | None:
    """Return the message with which a cell is refused; None where it works."""
    try:
        CELLS[verb](FRAMEWORKS[framework](), capsys)
    except (nb.NbModuleError, AssertionError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("verb", CELLS)
def test_each_verb_works_on_an_unconverted_model_of_each_framework(verb, framework, capsys):
    if (verb, framework) in REFUSED:
        assert re.search(REFUSED[verb, framework], answer(verb, framework, capsys) or "")
    else:
        CELLS[verb](FRAMEWORKS[framework](), capsys)


CONVERTERS: dict[str, Callable[..., Any]] = {
    "Flax NNX": nb.from_flax,
    "Flax linen": nb.from_flax,
    "Equinox": nb.from_equinox,
    "Haiku": nb.from_haiku,
    "Keras (JAX)": nb.from_keras,
    "PyTorch": nb.from_torch,
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_converted_model_is_tracked_drawn_hooked_patched_and_saved(framework, tmp_path):
    case, seen = FRAMEWORKS[framework](), []
    beside = () if case.state is case.model else (case.state,)
    model = CONVERTERS[framework](case.model, *beside)
    hook = model.first.register_forward_hook(lambda module, inputs, y: seen.append(y.shape[-1]))
    with hook:
        close(nb.jit(model)(X), output(case))
    assert seen == [4]
    with nb.track(model) as calls:
        model(X)
    assert calls.paths == ("", "first", "second")
    close(calls["first"].returns, hidden(case))
    assert {"first", "second"} <= {group.path for group in nb.graph(model, X).groups}
    assert not model(X, replace_submod_rets={"second": jnp.zeros_like}).any()
    model.save_weights(tmp_path / "w.h5")
    model.v = model.v * 0
    model.load_weights(tmp_path / "w.h5")
    close(model(X), output(case))


def test_the_page_shows_this_table():
    page = (Path(__file__).parents[2] / "docs" / "recipes" / "other_models.md").read_text(
        encoding="utf-8"
    )
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `nb.")]
    found = {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows}
    for verb in CELLS:
        worked = [(verb, framework) not in REFUSED for framework in FRAMEWORKS]
        assert [cell == "works" for cell in found[verb]] == worked, verb
