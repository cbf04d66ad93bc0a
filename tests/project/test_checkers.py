"""Types that pyright and mypy find in lines of a user, and the mistakes that they report."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.project.conftest import ROOT, run

HEAD = """
from __future__ import annotations
import abc
from typing import Any, cast, reveal_type
import jax
import jax.numpy as jnp
import numpy as np
import nbmodule as nb
from nbmodule import Conv2d, nn, optim
from nbmodule.calls.calls import Calls

class Net(nb.Module):
    def __init__(self, width: int, *, deep: bool = False) -> None:
        self.first = nb.Linear(2, width)
        super().__init__()

    def forward(self, x: jax.Array) -> tuple[jax.Array, int]:
        return self.first(x), 1

class Called(nb.Module):
    def __call__(self, x: int) -> str:
        return ""

class Old(nb.Module):
    def _forward(self, x: int) -> str:
        return ""

class Base(nb.Module, abc.ABC):
    @abc.abstractmethod
    def forward(self, x: int) -> float: ...

class Stepper:
    @nb.jit
    def step(self, x: int) -> str:
        return ""

@nb.jit
def compiled(model: Net, x: jax.Array) -> int:
    return 1

@nb.jit(donate=True)
def donating(x: int) -> str:
    return ""

def loss(model: Net, x: jax.Array) -> jax.Array:
    return x.sum()

x = jnp.ones(2)
net = Net(3)
calls = cast(Calls, None)
"""

# Calls that give an object of the class they name.
MADE = [
    "nb.Linear(3, 2)", "nn.Conv2d(3, 8, 3)", "nb.nn.initializers.Zeros()", "nb.BatchNorm2d(3)", "nb.Dropout(0.5)",
    "nb.Sequential(nb.Linear(2, 2))", "nb.LSTM(2, 3)", "nb.MultiHeadAttention(8, num_heads=2)", "nb.Parameter(x)",
    "nb.Container(a=1)", "nb.Adam(0.001)", "optim.Adam(0.001)", "nb.optim.SGD(0.1)", "nb.ShapeError('a')", "nb.Live(net)", "Net(3)",
]  # fmt: skip
# Each line of a user, and what `reveal_type` says of it.
REVEALED = [
    *((line, line.partition("(")[0].rpartition(".")[2]) for line in MADE),
    ("nb.Linear", "type[Linear]"),
    ("nb.Linear(3, 2).weight", "Parameter"),
    ("nb.Linear(3, 2)(x)", "Array"),
    ("nb.Linear(3, 2)(x, v=None)", "Array"),
    ("nb.Conv2D(3, 8, 3)", "Conv2d"),
    ("Conv2d(3, 8, 3)(x)", "Array"),
    ("nn.Module", "type[Module]"),
    ("nn.functional.relu(x)", "Array"),
    ("nb.F.relu(x)", "Array"),
    ("nb.Sequential(nb.Linear(2, 2))[0]", "Module"),
    ("nb.Sequential(nb.Linear(2, 2))[:1]", "Sequential"),
    ("calls['0']", "Call"),
    ("net.state_dict()", "OrderedDict[str, ndarray[tuple[Any, ...], dtype[Any]]]"),
    ("nb.mse_loss(x, np.ones(2))", "Array"),
    ("nb.cross_entropy(x, np.zeros(4, int))", "Array"),
    ("nb.F.relu(np.ones(2))", "Array"),
    ("nb.Parameter(x).value", "Array"),
    ("2 * nb.Parameter(x) + 1", "Array"),
    ("x @ net.first.weight.T", "Array"),
    ("jnp.sin(nb.Parameter(x))", "Array"),
    ("nb.Buffer(x).shape", "tuple[int, ...]"),
    ("nb.errors.ShapeError", "type[ShapeError]"),
    ("nb.__version__", "str"),
    ("nb.track(net)", "Tracking"),
    ("nb.graph(net, x)", "Graph"),
    ("nb.summary(net, x)", "Summary"),
    ("nb.batches(x, 3)", "Batches"),
    ("net.first", "Linear"),
    ("net(x)", "tuple[Array, int]"),
    ("net(x)[0]", "Array"),
    ("net.eval()", "Net"),
    ("net.v", "Container"),
    ("Called()(3)", "str"),
    ("Old()(3)", "Any"),
    ("compiled(net, x)", "int"),
    ("donating(3)", "str"),
    ("Stepper().step(3)", "str"),
    ("nb.jit(net)(x)", "tuple[Array, int]"),
    ("nb.jit(lambda a: 1)", "Jit[(a: Unknown), int]"),
    ("nb.value_and_grad(loss)(net, x)", "tuple[Array, Any]"),
    ("nb.vmap(loss)(net, x)", "Array"),
    ("nb.checkpoint(loss)(net, x)", "Array"),
    ("nb.execute_with_gradients(lambda v: x, net.v)[1]", "Container"),
]

# Each wrong line, and what must be said of it.
CAUGHT = [
    ("nb.Lineer(3, 2)", '"Lineer" is not a known attribute of module "nbmodule"'),
    ("nb.Linear(3, 2, biaz=4)", 'No parameter named "biaz"'),
    ("nb.Linear('three', 2)", 'cannot be assigned to parameter "in_features"'),
    ("nb.Linear(3)", 'Argument missing for parameter "out_features"'),
    ("nn.Lineer", '"Lineer" is not a known attribute of module "nbmodule.nn"'),
    ("nb.optim.Adamm", '"Adamm" is not a known attribute of module "nbmodule.optim"'),
    ("nb.F.geluu", '"geluu" is not a known attribute of module "nbmodule.nn.functional"'),
    ("nb.errors.ShapedError", '"ShapedError" is not a known attribute of module "nbmodule.errors"'),
    ("Net(3, width=4)", 'Parameter "width" is already assigned'),
    ("Base()", 'Cannot instantiate abstract class "Base"'),
    ("compiled(net)", 'Argument missing for parameter "x"'),
    ("nb.grad(loss)(net)", 'Argument missing for parameter "x"'),
    ("nb.Linear(2, 3).wieght", 'Cannot access attribute "wieght" for class "Linear"'),
    ("nb.Adam(1e-3).updat", 'Cannot access attribute "updat" for class "Adam"'),
    ("net.named_parameterz()", 'Cannot access attribute "named_parameterz" for class "Net"'),
    ("net.train('yes')", 'cannot be assigned to parameter "mode"'),
]


def folder_with_lines(tmp_path_factory):
    """A folder with the lines as `user.py`."""
    folder = tmp_path_factory.mktemp("user")
    lines = [f"reveal_type({line})" for line, _ in REVEALED] + [line for line, _ in CAUGHT]
    (folder / "user.py").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return folder


def by_line(messages):
    """Messages by the line of the file, counted from the first after the head."""
    found: dict[int, list[str]] = {}
    for line, message in messages:
        found.setdefault(line - HEAD.count("\n"), []).append(message)
    return found


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Everything that pyright says, by line of the file; one run for all."""
    folder = folder_with_lines(tmp_path_factory)
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    env = {"PYTHONPATH": str(ROOT)}
    done = run(*command, "-p", str(folder), cwd=folder, env=env, timeout=230)
    messages = json.loads(done.stdout)["generalDiagnostics"]
    return by_line((each["range"]["start"]["line"], each["message"]) for each in messages)


def test_a_users_own_classes_are_without_fault(said):
    assert {line: messages for line, messages in said.items() if line < 0} == {}


def test_pyright_finds_the_type_of_every_line(said):
    for number, (line, kind) in enumerate(REVEALED):
        assert said.get(number) == [f'Type of "{line}" is "{kind}"']


def test_pyright_catches_every_mistake(said):
    for number, (line, message) in enumerate(CAUGHT, start=len(REVEALED)):
        assert message in " ".join(said.get(number, ())), line


# -- mypy --
@pytest.fixture(scope="module")
def said_by_mypy(tmp_path_factory):
    """The same lines under mypy; it reads the package from its source, which takes long."""
    folder = folder_with_lines(tmp_path_factory)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder), "user.py"]
    done = run(*command, cwd=folder, env={"MYPYPATH": str(ROOT)}, timeout=600)
    messages = re.finditer(r"^user\.py:(\d+): (?:error|note): (.*)$", done.stdout, re.MULTILINE)
    return by_line((int(each[1]) - 1, each[2]) for each in messages)


@pytest.mark.long
def test_mypy_knows_the_type_of_every_line(said_by_mypy):
    assert {line: messages for line, messages in said_by_mypy.items() if line < 0} == {}
    for number, (line, kind) in enumerate(REVEALED):
        revealed = " ".join(said_by_mypy.get(number, ['"Any"'])).replace("def (", "type def (")
        assert ('"Any"' in revealed) == (kind == "Any"), line
        assert all(word in revealed for word in re.findall(r"\w+", kind.partition("[")[0])), line


@pytest.mark.long
def test_mypy_catches_every_mistake(said_by_mypy):
    for number, (line, _) in enumerate(CAUGHT, start=len(REVEALED)):
        assert number in said_by_mypy, line
