"""Observe one training step inside, without a change of the user's own step.

The step runs once more on the same inputs in a frame whose writes are dropped, as another program
that also returns what each submodule received and returned. The user's step, its variables and its
random keys are not affected.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from nbmodule.calls.call import Call
from nbmodule.calls.track import track
from nbmodule.core.call.module import CoreModule
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.differentiate import value_and_grad
from nbmodule.core.transforms.options import argument_names
from nbmodule.core.variables.frame import framed, take_over
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError
from nbmodule.live.diagnosis.evidence import (
    DROPS,
    NORMALIZES_BATCH,
    NOTHING,
    Batch,
    CallEvidence,
    Evidence,
    LoggedCurve,
    Snapshot,
    VariableEvidence,
)
from nbmodule.live.diagnosis.rule import Diagnosis, judge

Array = NDArray[Any]
StepCall = functools.partial[Any]  # a training step with its arguments

MOST_ELEMENTS = 2**20
"""Elements of an array that rules read; of larger ones the first rows."""
MOST_BATCHES = 200
_SMALL = 2**16
"""Bytes of an array that is copied at once."""
_SAMPLE = 1024
"""Elements of a large array that its digest is made of."""
AT_ONCE = 2.0
"""Seconds that an observation may take without waiting."""
SHARE = 0.02
"""Share of the run's time that longer observations may take together."""
_MIXES = ("Attention", "LSTM", "GRU", "RNN", "Recurrent", "Graph", "Transformer")


def examine(call: StepCall, model: CoreModule, number: int) -> Snapshot:
    """Run a step once more, outside of the training, and return the observations.

    Args:
        call: The training step, compiled or not, with its arguments.
        model: The module whose submodules are observed.
        number: Number of the step.

    Raises:
        Whatever the step raises.
    """
    variables = {
        path: variable
        for path, variable in model.named_tensors()
        if variable.size and jax.numpy.issubdtype(variable.dtype, jax.numpy.floating)
    }
    before = {path: np.asarray(variable.value) for path, variable in variables.items()}

    def body(frame: Any) -> tuple[Any, dict[str, Array], Any]:
        result = call()
        after = {path: np.asarray(variable.value) for path, variable in variables.items()}
        return result, after, frame.effects()

    with track(model, returns=True, gradients=True, inputs=True) as calls:
        result, after, effects = framed(body)
        take_over(effects.names[1], effects.records)
    modules = dict(model.named_modules())
    known = [each for each in calls if each.kind == "call" and not each.error]
    roots = [each for each in known if each.path == ""]
    leaves = [c for c in known if c.path and not any(True for _ in modules[c.path].children())]
    root = _call_evidence(roots[-1], model) if roots else None
    measured = [_measured(p, v, before[p], after[p]) for p, v in variables.items()]
    moved = {id(v) for v, each in zip(variables.values(), measured) if each.change != 0}
    snapshot = Snapshot(
        number,
        _loss_of(result),
        _batch(_named_arrays(call), root.inputs if root else NOTHING),
        root,
        tuple(_call_evidence(each, modules[each.path]) for each in leaves),
        tuple(measured),
        _uncalled(modules, {id(call.module) for call in known}, moved),
        _modes(modules),
    )
    return _with_perturbed(model, roots[-1], snapshot) if roots else snapshot


# -- arrays on the host ----------------------------------------------------------------------------
def _rows(x: Any) -> Array:
    """Return an array on the host; of a large one its first rows, of another kind of value
    nothing.
    """
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        return NOTHING
    if not x.size or x.dtype == object or jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        return NOTHING
    if x.size > MOST_ELEMENTS and x.ndim:
        x = x[: max(1, MOST_ELEMENTS // max(x.size // x.shape[0], 1))]
    host = np.asarray(x)
    return host.astype(np.float32) if host.dtype.name == "bfloat16" else host


def is_small(array: Any) -> bool:
    """Return True if a copy takes a few microseconds."""
    return array.nbytes <= _SMALL


def digest_of(array: Any) -> int:
    """Return a digest of an array: of all of a small one, of a strided sample of a large one."""
    header = repr((array.shape, array.dtype.str)).encode()
    stride = (array.size // _SAMPLE) | 1 if not is_small(array) else 1
    sample = array.reshape(-1)[::stride] if array.flags.c_contiguous else array.flat[::stride]
    data: Any = np.ascontiguousarray(sample).view(np.uint8)
    return zlib.crc32(data, zlib.crc32(header))


def digest_of_item(item: object) -> int:
    """Return a digest of the arrays of a batch, the same in every process; 0 without arrays."""
    digest = 0
    for leaf in jax.tree.leaves(item):
        is_array = isinstance(leaf, jax.Array) and not leaf.is_deleted()
        if is_array or isinstance(leaf, (np.ndarray, np.generic, int, float)):
            digest = digest_of(np.asarray(leaf)) ^ (digest * 31 % 2**32)
    return digest


def _first(tree: object) -> Array:
    return next((rows for rows in map(_rows, jax.tree.leaves(tree)) if rows.size), NOTHING)


def _size(x: Array) -> float:
    wide = x.astype(np.float64)
    return float(np.linalg.norm(wide)) if np.isfinite(wide).all() else math.nan


def _measured(path: str, variable: Variable, before: Array, after: Array) -> VariableEvidence:
    sizes = _size(before), _size(after - before)
    rows_equal = before.ndim >= 2 and len(before) > 1 and bool((before == before[:1]).all())
    return VariableEvidence(path, tuple(variable.shape), variable.requires_grad, *sizes, rows_equal)


def _loss_of(result: object) -> float | None:
    numbers = [leaf for leaf in jax.tree.leaves(result) if getattr(leaf, "shape", None) == ()]
    return float(numbers[0]) if numbers and numbers[0].dtype.kind in "fiu" else None


# -- calls of the model ----------------------------------------------------------------------------
def _call_evidence(call: Call, module: Any) -> CallEvidence:
    given = (call.inputs, call.keywords) if call.inputs is not None else None
    return CallEvidence(
        call.path,
        call.class_name,
        _first(given),
        _first(call.returns),
        _first(call.gradient),
        sum(v.size for v in _own_variables(module) if v.requires_grad),
        module.training,
    )


def _own_variables(module: Any) -> list[Variable]:
    return [v for _, v in module.named_tensors(recursive=False)]


def _uncalled(modules: Mapping[str, Any], called: set[int], moved: set[int]) -> tuple[str, ...]:
    """Modules with trainable variables that did not run and of which nothing changed."""
    paths = [path for path, module in modules.items() if path and id(module) not in called]
    own = {p: {id(v) for v in _own_variables(modules[p]) if v.requires_grad} for p in paths}
    return tuple(path for path in paths if moved and own[path] and own[path].isdisjoint(moved))


def _modes(modules: Mapping[str, Any]) -> dict[str, bool]:
    """Modes of the modules that behave differently in training; dropout at rate 0 does not, nor
    does a frozen normalization.
    """
    modes = {}
    for path, module in modules.items():
        name, own = type(module).__name__, _own_variables(module)
        is_trained = not own or any(v.requires_grad for v in own)
        drops = DROPS.search(name) and getattr(module, "rate", 1) != 0
        if drops or (NORMALIZES_BATCH.search(name) and is_trained):
            modes[path] = module.training
    return modes


# -- arguments of the step ------------------------------------------------------------------------
def _batch(arrays: dict[str, Array], fed: Array) -> Batch:
    """Tell inputs and targets apart: inputs are what the model received, targets have as many
    rows.
    """
    inputs = {name: x for name, x in arrays.items() if fed.size and _same(x, fed)}
    is_transformed = fed.size > 0 and not inputs
    inputs = {"x": fed} if is_transformed else inputs
    others = {name: x for name, x in arrays.items() if name not in inputs and x.ndim}
    has_rows = fed.size and fed.ndim
    targets = {name: x for name, x in others.items() if not has_rows or len(x) == len(fed)}
    if is_transformed and "x" not in arrays and len(targets) > 1:
        raw = next(iter(targets))  # the argument that becomes the model's input
        inputs[raw] = targets.pop(raw)
    return Batch(inputs, targets)


def named_arguments(function: Callable[..., Any], args: Sequence[Any]) -> dict[str, Any]:
    """Return positional arguments by the names of their parameters, otherwise by number."""
    names = argument_names(inspect.unwrap(function), len(args))
    texts = [name if isinstance(name, str) else f"argument {name}" for name in names]
    return dict(zip(texts, args))


def named_leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in values by name and path, such as `batch['rows']`; not the arrays of
    stateful objects.
    """
    for name, value in values.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(value, is_leaf=is_stateful):
            if hasattr(leaf, "dtype") and not is_stateful(leaf):
                yield name + jax.tree_util.keystr(path), leaf


def _named_arrays(call: StepCall) -> dict[str, Array]:
    leaves = named_leaves(named_arguments(call.func, call.args) | call.keywords)
    arrays = ((name, _rows(leaf)) for name, leaf in leaves)
    return {name: host for name, host in arrays if host.size}


def _same(x: Array, y: Array) -> bool:
    return x.shape == y.shape and np.array_equal(
        x.astype(y.dtype), y, equal_nan=y.dtype.kind == "f"
    )


# -- effect of changed inputs --------------------------------------------------------------------
def _with_perturbed(model: CoreModule, call: Call, snapshot: Snapshot) -> Snapshot:
    """Note whether the return for one row depends on another row, and for a position on a later
    one.
    """
    given, y = call.inputs or (), snapshot.returns
    if len(given) != 1 or not hasattr(given[0], "shape") or call.keywords:
        return snapshot
    x = np.asarray(given[0])
    is_small = x.ndim >= 2 and len(x) >= 4 and len(x) * y.size <= MOST_ELEMENTS * 8
    if not is_small or y.ndim < 1 or len(y) != len(x):
        return snapshot
    names = [(type(module).__name__, module.training) for module in model.modules()]
    if any(training and NORMALIZES_BATCH.search(name) for name, training in names):
        return snapshot
    mixes = sees = None
    is_graph = x.ndim == 2 and x.dtype.kind == "f"  # of which the rows may be one sequence
    if not (is_graph and any(word in name for word in _MIXES for name, _ in names)):
        other = x.copy()
        other[0] = x[-1] if x.dtype.kind in "iub" else x[-1] * 0.5 + 0.25
        mixes = _differs(model, other, y, np.s_[1:])
    if _is_next_token(x, y, snapshot.labels):
        other = x.copy()
        other[:, -1] = np.roll(x[:, -1], 1)
        if np.array_equal(other, x):
            other[:, -1] = (x[:, -1] + 1) % max(int(x.max()), 2)
        sees = _differs(model, other, y, np.s_[:, :-2])
    return replace(snapshot, mixes_rows=mixes, sees_targets=sees)


def _is_next_token(x: Array, y: Array, labels: Array) -> bool:
    """Return True if the labels are the input shifted by one position."""
    if labels.shape != x.shape or x.ndim != 2 or x.dtype.kind not in "iu":
        return False
    is_sequence = x.shape[1] >= 4 and y.ndim == 3
    return is_sequence and float((labels[:, :-1] == x[:, 1:]).mean()) >= 0.99


def _differs(model: CoreModule, x: Array, y: Array, part: Any) -> bool | None:
    """Return True if the model returns something else than `y` for `x`, in a part of it."""
    changed = framed(lambda frame: _first(model(jax.numpy.asarray(x))))
    if changed.shape != y.shape:
        return None
    return not np.allclose(changed[part], y[part], rtol=1e-3, atol=1e-5, equal_nan=True)


# -- a run, a setup --------------------------------------------------------------------------------
class Examiner:
    """Observes some watched calls of compiled steps, and collects the evidence of the run.

    An observation compiles the step once more and then costs about one step. It is made at once if
    the first step took less than two seconds, otherwise when its share of the time allows it.

    Args:
        model: The module that is trained; it is held weakly.
    """

    def __init__(self, model: CoreModule) -> None:
        self._model = weakref.ref(model)
        self.snapshots: list[Snapshot] = []
        self.labels: list[Array] = []
        self.digests: list[int] = []
        self.item: Callable[[], object] = lambda: None
        """Returns the item that the loop received for the step."""
        self._items: set[int] = set()
        self.error = ""
        """Why a step could not be observed; empty if each could."""
        self._first: float | None = None
        """When the first call began."""
        self._seconds = 0.0
        """Duration of the last observation; before there is one, of the first step."""
        self._spent = 0.0

    def observe(self, call: StepCall, number: int) -> None:
        """Observe a call that is about to be made, if it is time; never raise."""
        begun = time.perf_counter()
        if self._first is None:
            self._first = begun  # this step compiles: its time is that of an observation
        elif not self.error:
            self._seconds = self._seconds or begun - self._first
            allowed = SHARE * (begun - self._first)
            if self.is_due(number):
                if self._seconds > AT_ONCE and self._spent + self._seconds > allowed:
                    return
                self.see_step(call, number)
                self._seconds = time.perf_counter() - begun
                self._spent += self._seconds
            self.see_batch(call)

    def is_due(self, number: int) -> bool:
        """Return True if step `number` is to be observed: the first one, then each time it has
        doubled.
        """
        last = self.snapshots[-1].step if self.snapshots else 0
        return number >= 2 * last and not self.error

    def see_batch(self, call: StepCall) -> None:
        """Note the labels and a digest of a batch; cheap enough for each of the first steps."""
        if len(self.digests) >= MOST_BATCHES:
            return
        arrays = _named_arrays(call)
        self.digests.append(digest_of_item(arrays))
        self._items.add(digest_of_item(list(map(_rows, jax.tree.leaves(self.item())))))
        names = self.snapshots[0].batch.targets if self.snapshots else ()
        labels = [arrays[n] for n in names if n in arrays and arrays[n].dtype.kind in "iu"]
        self.labels += labels[:1]

    def see_step(self, call: StepCall, number: int) -> None:
        """Observe a step inside; what it raises becomes `error`, never an exception."""
        model = self._model()
        if model is None:
            return
        try:
            self.snapshots.append(examine(call, model, number))
        except Exception as error:  # noqa: BLE001 watching must never end the user's loop
            self.error = f"{type(error).__name__}: {error}"

    def evidence(self, curves: Mapping[str, LoggedCurve]) -> Evidence:
        """Everything collected so far, with the logged series."""
        seen = tuple(self.snapshots), tuple(self.labels), tuple(self.digests)
        return Evidence(curves, *seen, len(self._items) > 1)


def check_setup(
    model: CoreModule, batch: Any, targets: object = None, loss: Callable[..., Any] | None = None
) -> Diagnosis:
    """Look for faults of data, model and loss with one batch, before training.

    The model is run and differentiated once, in a frame whose writes are dropped.

    Args:
        model: A module.
        batch: The input of the model; a tuple is passed as several arguments.
        targets: The targets of the loss, one row for each row of the batch.
        loss: `loss(prediction, targets)`, a number.

    Returns:
        Verdicts, worst first; empty if no rule found a fault.

    Raises:
        ArgumentError: If `loss` is given without `targets`, or targets without a loss.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.Linear(4, 2))
        >>> x, y = jnp.ones((8, 3)) * 300, jnp.zeros(8, int)
        >>> print(nb.check_setup(model, x, y, nb.cross_entropy).names)
        ('input-scale', 'no-activation')
    """
    if (targets is None) != (loss is None):
        raise ArgumentError("check_setup takes targets and loss together, got only one of them.")

    def objective(model: Any, x: Any, y: Any) -> Any:
        prediction = model(*x) if isinstance(x, tuple) else model(x)
        if loss is not None:
            return loss(prediction, y)
        return sum((leaf**2).mean() for leaf in jax.tree.leaves(prediction))

    def step(x: object, y: object) -> Any:
        value, gradients = value_and_grad(lambda m: objective(m, x, y))(model)
        model.v = model.v - 1e-3 * gradients
        return value

    snapshot = examine(functools.partial(step, batch, targets), model, 0)
    snapshot = replace(snapshot, logits=_takes_logits(loss, snapshot) if loss else None)
    return judge(Evidence(snapshots=(snapshot,), labels=(snapshot.labels,)))


def _takes_logits(loss: Callable[..., Any], snapshot: Snapshot) -> bool | None:
    """Return True if a loss applies softmax or sigmoid itself, found by calling it.

    Softmax does not change when a constant is added to all logits of a row; a loss of
    probabilities does. The sigmoid of a logit -2 with target 1 gives log(1 + e^2).
    """
    returns = snapshot.returns
    with contextlib.suppress(Exception):  # a loss of another kind tells nothing
        target = next(iter(snapshot.batch.targets.values()))
        if snapshot.classes:
            plain, moved = float(loss(returns, target)), float(loss(returns + 3, target))
            return abs(plain - moved) < 1e-3 * max(abs(plain), 1e-3)
        if returns.shape == target.shape and set(np.unique(target)) <= {0, 1}:
            ones = np.ones_like(returns)
            return abs(float(loss(-2 * ones, ones)) - math.log1p(math.exp(2))) < 1e-2
    return None
