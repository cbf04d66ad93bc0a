"""`nb.first_nonfinite`: the operation, the submodule, the line; forward and backward, compiled or
not.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import first_nonfinite
from tests.calls.test_track import WAYS

from jax_settings import FLOAT


class Logs(nb.Module):
    def forward(self, x):
        y = x * 0
        return jnp.log(y)  # planted


class Roots(nb.Module):
    def forward(self, x):
        return jnp.sqrt(x * 0.0)  # planted: finite here, its derivative is not


class Net(nb.Module):
    def __init__(self, planted):
        self.stem, self.blocks, self.head = nb.Linear(3, 4), [nb.Tanh(), planted], nb.Linear(4, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def line_of(kind):
    lines, start = inspect.getsourcelines(kind)
    return (
        f"test_nonfinite.py:{start + next(i for i, line in enumerate(lines) if 'planted' in line)}"
    )


def squares(model, x):
    return (model(x) ** 2).sum()


def row_by_row(model, x):
    return nb.scan(lambda c, row: (c + (model(row) ** 2).sum(), None), 0.0, x)[0]


@pytest.mark.parametrize("way", WAYS)
def test_the_first_operation_with_a_non_finite_result_is_named(way, x):
    found = first_nonfinite(WAYS[way](Net(Logs())), x)
    assert (found.path, found.operation, found.source) == ("blocks.1", "log", line_of(Logs))
    assert found.code.startswith("return jnp.log(y)")
    assert (found.inputs[0].low, found.inputs[0].high, found.inputs[0].nonfinite) == (0, 0, 0)
    assert found.carriers[0] == "head"
    assert found.turns == ((0,) if "scan" in way else ())


BACKWARD = {
    "grad": lambda model, x: (lambda x: nb.grad(squares)(model, x), x),
    "jit": lambda model, x: (nb.jit(lambda x: nb.value_and_grad(squares)(model, x)), x),
    "scan": lambda model, x: (nb.jit(lambda x: nb.grad(row_by_row)(model, x)), x),
    "checkpoint": lambda model, x: (lambda x: nb.grad(nb.checkpoint(squares))(model, x), x),
}


@pytest.mark.parametrize("way", BACKWARD)
def test_a_derivative_that_is_not_finite_is_named_by_its_line(way, x):
    model = Net(Roots())
    assert first_nonfinite(model, x) is None
    found = first_nonfinite(*BACKWARD[way](model, x))
    assert (found.path, found.source) == ("blocks.1", line_of(Roots))
    assert found.phase != "forward"


def test_a_model_is_differentiated_on_request(x):
    found = first_nonfinite(Net(Roots()), x, backward=True)
    assert (found.path, found.source) == ("blocks.1", line_of(Roots))
    assert first_nonfinite(nb.Sequential(nb.Linear(3, 4)), x, backward=True) is None


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_a_non_finite_argument_or_variable_is_named(x):
    model = Net(nb.Tanh())
    model.head.weight[0, 1] = jnp.nan
    found = first_nonfinite(model, x)
    assert (found.operation, found.path) == ("variable", "head.weight")
    found = first_nonfinite(Net(nb.Tanh()), x.at[0, 0].set(jnp.nan))
    assert found.operation == "argument"
    assert str(found.input_fault) == "NaN in the input: x[0, 0] (row 0 of 5)"
    assert repr(found).startswith("NaN in the input: x[0, 0] (row 0 of 5)")


def test_nan_from_infinite_operands_is_found_when_nothing_else_is():
    found = first_nonfinite(
        lambda x: x - jnp.where(x > 0, jnp.inf, x) + jnp.where(x > 0, jnp.inf, x), jnp.ones(2)
    )
    assert (found.operation, found.source.partition(":")[0]) == ("add", "test_nonfinite.py")


def test_the_text_names_operation_operands_and_carriers(x):
    text = repr(first_nonfinite(Net(Logs()), x))
    assert "first non-finite value: log in blocks.1 (forward pass)" in text
    assert f"given {FLOAT}[5, 4] from" in text
    assert "carried on by head" in text


def test_bad_requests_are_refused():
    with pytest.raises(nb.ArgumentTypeError, match="takes a module or a function, got int"):
        first_nonfinite(3)
    with pytest.raises(nb.ArgumentError, match="backward=True. takes a module"):
        first_nonfinite(lambda x: x * 1.0, jnp.arange(3), backward=True)
    assert first_nonfinite(jax.nn.relu, jnp.ones(2)) is None


@nb.jit
def loss_of_labels(net, x, labels):
    return nb.cross_entropy(net(x), labels)  # chosen


def test_a_label_that_is_no_class_is_found_with_the_line_of_the_loss():
    net, x = nb.Linear(3, 3, key=0), np.ones((4, 3), np.float32)
    assert first_nonfinite(loss_of_labels, net, x, np.array([0, 1, 2, 0])) is None
    found = first_nonfinite(loss_of_labels, net, x, np.array([1, 2, 3, 1]))
    assert found is not None and found.is_chosen and found.code.endswith("# chosen")
    assert "labels outside of 0 ... classes - 1" in str(found)


def test_a_missing_value_is_named_by_its_argument_and_index():
    table = np.ones((4, 3), np.float32)
    table[2, 1] = table[3, 0] = np.nan
    found = str(
        first_nonfinite(
            lambda model, batch: model(batch["x"]), nb.Linear(3, 2, key=0), {"x": table}
        )
    )
    assert "argument batch['x'], float32[4, 3] from 1 to 1, 2 non-finite" in found
    assert "argument x, float32" in str(first_nonfinite(nb.Linear(3, 2, key=0), x=table))


class Masked(nb.Module):
    def __init__(self, planted=None):
        self.scores, self.out = nb.Linear(3, 3, key=0), planted or nb.Linear(3, 3, key=1)

    def forward(self, x):
        mask = jnp.full((3,), -jnp.inf).at[:2].set(0.0)
        distance = jnp.log(jnp.arange(3.0))  # -inf, thrown away below
        bias = jnp.where(jnp.arange(3) > 0, distance, 0.0)
        return self.out(jax.nn.softmax(self.scores(x) + bias + mask))


def test_inf_that_reaches_no_output_is_not_reported(x):
    assert first_nonfinite(Masked(), x) is None
    assert first_nonfinite(nb.jit(lambda model, x: model(x)), Masked(), x) is None
    found = first_nonfinite(Masked(nb.Lambda(lambda y: jnp.exp(y * 1e5))), x)
    assert (found.path, found.operation) == ("out", "exp")
    found = first_nonfinite(Masked(nb.Lambda(lambda y: jnp.log(-y))), x)
    assert (found.path, found.operation) == ("out", "log")
