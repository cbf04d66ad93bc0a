"""`nb.explain_retrace` names what made a compiled function trace again, before the call and after
it.
"""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.core.compiled.key import cells

from jax_settings import FLOAT

pytestmark = pytest.mark.not_under("eager", reason="nothing is traced")
X = jnp.ones((4, 3))


class Counted:
    """A compiled step over a model from the surroundings, and how often it was traced."""

    def __init__(self, model, **options):
        self.traces = 0

        def step(x, scale=1.0, *, mode="train"):
            self.traces += 1
            y = model(x) * scale
            return y if mode == "train" else -y

        self.step = nb.jit(step, static_argnames="mode", **options)


@pytest.fixture
def model():
    nb.seed(0)
    return nb.Sequential(
        nb.Linear(3, 2), nb.Dropout(0.5), nb.Sequential(nb.Linear(2, 2), nb.ReLU())
    )


def whats(found):
    return [str(change) for change in found.changes]


def doubled(module, inputs, outputs):
    return outputs * 2


def freeze(model):
    model[0].weight.requires_grad_(False)


MIXED = pytest.mark.not_under("strict", reason="mixes two precisions on purpose")

CHANGES = {
    "eval": (lambda m: m.eval(), "training of model and 5 more: True before, False now"),
    "attribute": (lambda m: setattr(m[1], "rate", 0.25), "model.1.rate: 0.5 before, 0.25 now"),
    "layer": (lambda m: m.__setitem__(1, nb.Identity()), "model.1: Dropout before, Identity now"),
    "hook": (
        lambda m: m[2].register_forward_hook(doubled),
        "forward hooks of model.2: none before, doubled now",
    ),
    "frozen": (
        freeze,
        f"model.0.weight: Parameter {FLOAT}[2, 3] before, Parameter {FLOAT}[2, 3] frozen now",
    ),
    "dtype": (
        lambda m: m[0].to(dtype="bfloat16"),
        f"model.0.bias: Parameter {FLOAT}[2] before, Parameter bfloat16[2] now",
    ),
    "shared": (
        lambda m: setattr(m[2][0], "bias", m[0].bias),
        f"model.2.0.bias: Parameter {FLOAT}[2] before, the variable model.0.bias now",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=MIXED) if n == "dtype" else n for n in CHANGES]
)
def test_a_change_of_the_model_is_named_before_and_after_the_call(model, name):
    change, words = CHANGES[name]
    counted = Counted(model)
    counted.step(X)
    before = nb.explain_retrace(counted.step, X)
    assert (before.expected, before.trace, before.changes) == (False, 1, ())
    kept = change(model)

    traced = counted.traces
    expected = nb.explain_retrace(counted.step, X)
    assert counted.traces == traced
    counted.step(X)
    found = nb.explain_retrace(counted.step, X)

    assert counted.traces > traced
    assert (expected.expected, expected.traces) == (True, 1)
    assert (found.expected, found.traces, found.trace) == (False, 2, 2)
    assert words in whats(expected)
    assert words in whats(found)
    del kept


ARGUMENTS = {
    "shape": ((jnp.ones((5, 3)),), {}, f"argument x: {FLOAT}[4, 3] before, {FLOAT}[5, 3] now"),
    "dtype": (
        (jnp.ones((4, 3), "float16"),),
        {},
        f"argument x: {FLOAT}[4, 3] before, float16[4, 3] now",
    ),
    "static": ((X,), {"mode": "test"}, "argument mode: 'train' before, 'test' now"),
    "count": (
        (X, 2.0),
        {},
        f"argument scale: not there before, {FLOAT}[] from a Python number now",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=MIXED) if n == "dtype" else n for n in ARGUMENTS]
)
def test_the_argument_that_differs_is_named(model, name):
    args, kwargs, words = ARGUMENTS[name]
    counted = Counted(model)
    counted.step(X, mode="train")
    kwargs = {"mode": "train"} | kwargs
    traced = counted.traces

    assert whats(nb.explain_retrace(counted.step, *args, **kwargs)) == [words]
    counted.step(*args, **kwargs)
    assert counted.traces > traced
    assert whats(nb.explain_retrace(counted.step, *args, **kwargs)) == [words]


PRECISION = "JAX's setting jax_default_matmul_precision: None before, highest now"


@pytest.mark.parametrize(
    ("surroundings", "words"),
    [
        (lambda model: jax.default_matmul_precision("highest"), PRECISION),
        (nb.track, "tracking: off before, on now"),
    ],
)
def test_settings_of_jax_and_tracking_are_named(model, surroundings, words):
    counted = Counted(model)
    counted.step(X)
    traced = counted.traces

    with surroundings(model):
        assert whats(nb.explain_retrace(counted.step, X)) == [words]
        counted.step(X)
        assert not nb.explain_retrace(counted.step, X).expected
    assert counted.traces == traced + 1


def test_models_among_the_arguments_are_named_by_their_parameter():
    @nb.jit
    def predict(net, x):
        return net(x)

    predict(nb.Linear(3, 2), X)

    assert not nb.explain_retrace(predict, nb.Linear(3, 2), X).expected
    predict(nb.Linear(3, 2), X)
    assert predict.count == 1  # equal structures share a program
    assert whats(nb.explain_retrace(predict, nb.Conv2d(3, 2, 1), X)) == [
        "net: Linear before, Conv2d now"
    ]
    assert "net.out_features: 2 before, 5 now" in whats(
        nb.explain_retrace(predict, nb.Linear(3, 5), X)
    )


def test_a_compiled_module_is_explained_by_its_own_arguments():
    model = nb.Linear(3, 2).compile()
    model(X)

    assert not nb.explain_retrace(model).expected  # its first call
    assert repr(nb.explain_retrace(model, jnp.ones((7, 3)))).splitlines() == [
        "Linear was traced once; this call would be traced, since compared with trace 1",
        f"  argument x: {FLOAT}[4, 3] before, {FLOAT}[7, 3] now",
    ]


def test_a_captured_object_that_is_gone_is_named():
    held = [nb.Linear(3, 2)]

    @nb.jit
    def step(x):
        return sum(model(x) for model in held)

    step(X)
    held[0] = nb.Linear(3, 2)
    gc.collect()
    assert not nb.explain_retrace(step, X).expected  # what was compiled is kept for its like

    held[0] = nb.Linear(3, 5)
    gc.collect()
    assert "held[0].out_features: 2 before, 5 now" in whats(nb.explain_retrace(step, X))
    held.append(nb.Linear(3, 2))
    assert "the length of held: 1 before, 2 now" in whats(nb.explain_retrace(step, X))


def test_the_last_sixteen_traces_are_known():
    double = nb.jit(lambda x: x)
    for rows in range(1, 20):
        double(jnp.ones(rows))

    for rows in range(4, 20):
        assert nb.explain_retrace(double, jnp.ones(rows)).trace == rows
    assert nb.explain_retrace(double, jnp.ones(1)).traces == 19
    assert f"{FLOAT}[99]" in repr(nb.explain_retrace(double, jnp.ones(99)))
    assert len(double.traces) == 16


def test_functions_and_modules_that_are_not_compiled_are_refused(model):
    with pytest.raises(
        nb.ArgumentTypeError,
        match=r"takes a function of nb\.jit or a compiled module, got function",
    ):
        nb.explain_retrace(lambda x: x, X)
    with pytest.raises(nb.ArgumentTypeError, match="jax_explain_cache_misses"):
        nb.explain_retrace(jax.jit(jnp.sin), X)
    with pytest.raises(
        nb.NbModuleError, match=r"its calls are not compiled\. Compile it with model\.compile\(\)"
    ):
        nb.explain_retrace(model, X)


def test_the_next_cell_is_a_reason_to_trace(model):
    counted = Counted(model)
    counted.step(X)
    cells.advance()
    found = nb.explain_retrace(counted.step, X)
    assert found.expected
    assert whats(found) == ["the cell: an earlier one before, this one now"]
