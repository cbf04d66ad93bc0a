"""Observe one training step inside, beside the user's own step.

The step runs once more on the same inputs in a frame whose writes are dropped, as another program
that also returns what each submodule received and returned. The user's step, its variables and its
random keys are not affected.
"""

from __future__ import annotations

import inspect
import math
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from nbmodule.calls.call import Call
from nbmodule.calls.track import track
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import is_module
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.differentiate import value_and_grad
from nbmodule.core.variables.frame import framed, take_over
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError
from nbmodule.live.diagnosis.evidence import (
    DROPS,
    NORMALIZES_BATCH,
    Batch,
    CallEvidence,
    Evidence,
    LoggedCurve,
    Snapshot,
    VariableEvidence,
)
from nbmodule.live.diagnosis.judge import Diagnosis, judge

Array = NDArray[Any]

MOST_ELEMENTS = 2**20
"""Elements of an array that rules read; of larger ones the first rows."""
MOST_BATCHES = 200
AT_ONCE = 2.0
"""Seconds that an observation may take without waiting."""
SHARE = 0.02
"""Share of the run's time that longer observations may take together."""
_MIXES = ("Attention", "LSTM", "GRU", "RNN", "Recurrent", "Graph", "Transformer")


def examine(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    model: CoreModule,
    number: int,
) -> Snapshot:
    """Run `step(*args, **kwargs)` beside the training and return what was observed.

    Args:
        step: The training step, compiled or not.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        model: The module whose submodules are observed.
        number: Number of the step.

    Raises:
        Whatever the step raises.
    """
    variables = dict(model.named_tensors())
    before = {path: _host(variable.value) for path, variable in variables.items()}

    def body(frame: Any) -> tuple[Any, dict[str, Array], Any]:
        result = step(*args, **kwargs)
        after = {path: _host(variable.value) for path, variable in variables.items()}
        return result, after, frame.effects()

    with track(model, returns=True, gradients=True, inputs=True) as calls:
        result, after, effects = framed(body)
        take_over(effects.names[1], effects.records)
    return _snapshot(
        number, model, result, (step, args, kwargs), list(calls), variables, before, after
    )


def _snapshot(
    number: int,
    model: CoreModule,
    result: Any,
    call: tuple[Any, tuple[Any, ...], Mapping[str, Any]],
    calls: list[Call],
    variables: Mapping[str, Variable],
    before: Mapping[str, Array],
    after: Mapping[str, Array],
) -> Snapshot:
    modules = dict(model.named_modules())
    known = [each for each in calls if each.kind == "call" and not each.error]
    roots = [each for each in known if each.path == ""]
    leaves = [c for c in known if c.path and not any(True for _ in modules[c.path].children())]
    root = _call_evidence(roots[-1], modules) if roots else None
    batch = _batch(number, call, root)
    changed = {
        path: float(_size(after[path] - before[path]))
        for path in before
        if _is_number(before[path])
    }
    found = tuple(
        VariableEvidence(
            path,
            tuple(variable.shape),
            bool(getattr(variable, "requires_grad", False)),
            float(_size(before[path])),
            changed[path],
            _rows_equal(before[path]),
        )
        for path, variable in variables.items()
        if path in changed
    )
    snapshot = Snapshot(
        number,
        _loss_of(result),
        batch,
        root,
        tuple(_call_evidence(each, modules) for each in leaves),
        found,
        _uncalled(modules, known, variables, changed),
        _modes(modules),
    )
    if not roots:
        return snapshot
    mixes, sees = _perturbed(model, roots[-1], snapshot)
    return replace(snapshot, mixes_rows=mixes, sees_targets=sees)


# -- arrays on the host ----------------------------------------------------------------------------
def _host(x: Any) -> Array:
    if hasattr(x, "dtype") and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.zeros(0, bool)
    return np.asarray(x)


def _rows(x: Any) -> Array | None:
    """An array on the host; of a large one its first rows."""
    if x is None or not hasattr(x, "dtype") or not hasattr(x, "shape"):
        return None
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) or not x.size:
        return None
    if x.size > MOST_ELEMENTS and x.ndim:
        x = x[: max(1, MOST_ELEMENTS // max(x.size // x.shape[0], 1))]
    host = np.asarray(x)
    return host.astype(np.float32) if host.dtype.name == "bfloat16" else host


def _first(tree: Any) -> Array | None:
    leaves = [_rows(leaf) for leaf in jax.tree.leaves(tree)]
    return next((leaf for leaf in leaves if leaf is not None), None)


def _is_number(x: Array) -> bool:
    return x.size > 0 and (x.dtype.kind == "f" or x.dtype.name == "bfloat16")


def _size(x: Array) -> float:
    wide = x.astype(np.float64)
    return math.sqrt(float(np.sum(wide * wide))) if np.isfinite(wide).all() else math.nan


def _rows_equal(x: Array) -> bool:
    return x.ndim >= 2 and len(x) > 1 and bool((x == x[:1]).all())


def _loss_of(result: Any) -> float | None:
    numbers = [leaf for leaf in jax.tree.leaves(result) if getattr(leaf, "shape", None) == ()]
    return float(numbers[0]) if numbers and numbers[0].dtype.kind in "fiu" else None


# -- what the model did ----------------------------------------------------------------------------
def _call_evidence(call: Call, modules: Mapping[str, Any]) -> CallEvidence:
    module = modules.get(call.path)
    own = _own_variables(module)
    trainable = sum(v.size for v in own if getattr(v, "requires_grad", False))
    given = (call.inputs, call.keywords) if call.inputs is not None else None
    return CallEvidence(
        call.path,
        call.class_name,
        _first(given),
        _first(call.returns),
        _first(call.gradient),
        int(trainable),
        bool(getattr(module, "training", True)),
    )


def _own_variables(module: Any) -> list[Variable]:
    if module is None:
        return []
    return [v for _, v in module.named_tensors(recursive=False)]


def _uncalled(
    modules: Mapping[str, Any],
    calls: list[Call],
    variables: Mapping[str, Variable],
    changed: Mapping[str, float],
) -> tuple[str, ...]:
    """Modules with trainable variables that did not run and of which nothing changed."""
    called = {id(call.module) for call in calls}
    moved = {id(variables[path]) for path, change in changed.items() if change != 0}
    if not moved:
        return ()
    found = []
    for path, module in modules.items():
        own = [v for v in _own_variables(module) if getattr(v, "requires_grad", False)]
        if own and path and id(module) not in called and not any(id(v) in moved for v in own):
            found.append(path)
    return tuple(found)


def _modes(modules: Mapping[str, Any]) -> dict[str, bool]:
    """Modes of the modules that behave differently in training; dropout at rate 0 does not."""
    found = {}
    for path, module in modules.items():
        name = type(module).__name__
        drops = DROPS.search(name) and getattr(module, "rate", 1) != 0
        if drops or (NORMALIZES_BATCH.search(name) and _is_trained(module)):
            found[path] = bool(module.training)
    return found


def _is_trained(module: Any) -> bool:
    own = [v for v in _own_variables(module) if hasattr(v, "requires_grad")]
    return not own or any(v.requires_grad for v in own)


# -- what the step received ------------------------------------------------------------------------
def _batch(
    number: int, call: tuple[Any, tuple[Any, ...], Mapping[str, Any]], root: CallEvidence | None
) -> Batch:
    arrays = dict(_named_arrays(*call))
    fed = root.inputs if root else None
    inputs = {name: x for name, x in arrays.items() if fed is not None and _same(x, fed)}
    if not inputs and fed is not None:
        inputs = {"x": fed}  # the step transforms what it receives
    first = next(iter(inputs.values()), None)
    rows = len(first) if first is not None and first.ndim else None
    rest = {
        n: x
        for n, x in arrays.items()
        if n not in inputs and x.ndim and (rows is None or len(x) == rows)
    }
    if fed is not None and "x" in inputs and "x" not in arrays and rest:
        raw = next(iter(rest))  # the argument that becomes the model's input
        if len(rest) > 1:
            inputs[raw] = rest.pop(raw)
    return Batch(number, inputs, rest)


def _named_arrays(
    step: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Array]]:
    try:
        names = list(inspect.signature(inspect.unwrap(step)).parameters)
    except (TypeError, ValueError):
        names = []
    named = [(names[k] if k < len(names) else f"argument {k}", arg) for k, arg in enumerate(args)]
    for name, arg in [*named, *kwargs.items()]:
        if is_stateful(arg) or is_module(arg):
            continue
        for path, leaf in jax.tree_util.tree_leaves_with_path(arg):
            host = _rows(leaf) if not is_stateful(leaf) else None
            if host is not None:
                yield name + jax.tree_util.keystr(path), host


def _same(x: Array, y: Array) -> bool:
    return x.shape == y.shape and bool(
        np.array_equal(x.astype(y.dtype), y, equal_nan=y.dtype.kind == "f")
    )


def _perturbed(
    model: CoreModule, call: Call, snapshot: Snapshot
) -> tuple[bool | None, bool | None]:
    """Return True if the return for one row depends on another row, and for a position on a later
    one.
    """
    given = call.inputs or ()
    arrays = [x for x in given if hasattr(x, "shape")]
    root = snapshot.root
    if root is None or root.returns is None or len(given) != 1 or len(arrays) != 1 or call.keywords:
        return None, None
    x, y = np.asarray(arrays[0]), root.returns
    if (
        x.ndim < 2
        or len(x) < 4
        or y.ndim < 1
        or len(y) != len(x)
        or x.shape[0] * y.size > MOST_ELEMENTS * 8
    ):
        return None, None
    if any(
        t and NORMALIZES_BATCH.search(path + type_name) for path, type_name, t in _training(model)
    ):
        return None, None
    names = {c.class_name for c in snapshot.calls} | {type(m).__name__ for m in model.modules()}
    if (
        x.ndim == 2
        and x.dtype.kind == "f"
        and any(word in name for word in _MIXES for name in names)
    ):
        return None, _sees_targets(model, x, y, snapshot)
    other = x.copy()
    other[0] = x[-1] if x.dtype.kind in "iub" else x[-1] * 0.5 + 0.25
    changed = _run(model, other)
    if changed is None or changed.shape != y.shape:
        return None, None
    return not _close(changed[1:], y[1:]), _sees_targets(model, x, y, snapshot)


def _training(model: CoreModule) -> list[tuple[str, str, bool]]:
    return [(path, type(m).__name__, bool(m.training)) for path, m in model.named_modules()]


def _sees_targets(model: CoreModule, x: Array, y: Array, snapshot: Snapshot) -> bool | None:
    labels = snapshot.labels
    if (
        labels is None
        or x.dtype.kind not in "iu"
        or x.ndim != 2
        or x.shape[1] < 4
        or labels.shape != x.shape
    ):
        return None
    if y.ndim != 3 or float((labels[:, :-1] == x[:, 1:]).mean()) < 0.99:
        return None
    other = x.copy()
    other[:, -1] = np.roll(x[:, -1], 1)
    if np.array_equal(other, x):
        other[:, -1] = (x[:, -1] + 1) % max(int(x.max()), 2)
    changed = _run(model, other)
    return None if changed is None else not _close(changed[:, :-2], y[:, :-2])


def _run(model: CoreModule, x: Array) -> Array | None:
    returned = framed(lambda frame: _first(model(jax.numpy.asarray(x))))
    return None if returned is None else np.asarray(returned)


def _close(a: Array, b: Array) -> bool:
    return bool(
        np.allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=1e-3, atol=1e-5, equal_nan=True
        )
    )


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
        self._seconds: float | None = None
        """Duration of the last observation; before there is one, of the first step."""
        self._spent = 0.0

    def observe(
        self, step: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], number: int
    ) -> None:
        """Observe a call that is about to be made, if it is time; never raise."""
        if self.error:
            return
        begun = time.perf_counter()
        if self._first is None:
            self._first = begun  # this step compiles: its time is that of an observation
            return
        if self._seconds is None:
            self._seconds = begun - self._first
        if self.is_due(number):
            allowed = SHARE * (begun - self._first)
            if self._seconds > AT_ONCE and self._spent + self._seconds > allowed:
                return
            self.see_step(step, args, kwargs, number)
            self._seconds = time.perf_counter() - begun
            self._spent += self._seconds
        self.see_batch(step, args, kwargs)

    def is_due(self, number: int) -> bool:
        """Return True if step `number` is to be observed: the first one, then each time it has
        doubled.
        """
        last = self.snapshots[-1].step if self.snapshots else 0
        return number >= 2 * last and not self.error

    def see_batch(self, step: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note the labels and a digest of a batch; cheap enough for each of the first steps."""
        if len(self.digests) >= MOST_BATCHES:
            return
        arrays = dict(_named_arrays(step, args, kwargs))
        self.digests.append(_digest(arrays.values()))
        leaves = [_rows(leaf) for leaf in jax.tree.leaves(self.item())]
        self._items.add(_digest(leaf for leaf in leaves if leaf is not None))
        names = self.snapshots[0].batch.targets if self.snapshots else ()
        labels = [arrays[n] for n in names if n in arrays and arrays[n].dtype.kind in "iu"]
        if labels:
            self.labels.append(labels[0])

    def see_step(
        self, step: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], number: int
    ) -> None:
        """Observe a step inside; what it raises becomes `error`, never an exception."""
        model = self._model()
        if model is None:
            return
        try:
            self.snapshots.append(examine(step, args, kwargs, model, number))
        except Exception as error:  # noqa: BLE001 watching must never end the user's loop
            self.error = f"{type(error).__name__}: {error}"

    def evidence(self, curves: Mapping[str, LoggedCurve], **more: Any) -> Evidence:
        """Everything collected so far, with the logged series."""
        seen = tuple(self.snapshots), tuple(self.labels), tuple(self.digests)
        return Evidence(curves, *seen, len(self._items) > 1, **more)


def _digest(arrays: Any) -> int:
    digest = 0
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1)
        sample = flat[:: max(1, flat.size // 4096)]
        digest = zlib.crc32(sample.tobytes(), zlib.crc32(str(array.shape).encode(), digest))
    return digest


def check_setup(
    model: CoreModule, batch: Any, targets: object = None, loss: Callable[..., Any] | None = None
) -> Diagnosis:
    """Look for faults of data, model and loss with one batch, before training.

    The model is run and differentiated once, in a frame whose writes are dropped.

    Args:
        model: A module.
        batch: What the model is called with; a tuple is passed as several arguments.
        targets: What the loss compares the return with, one row for each row of the batch.
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
    inputs = batch if isinstance(batch, tuple) else (batch,)

    def step(x: Any, y: Any) -> Any:
        value, gradients = value_and_grad(lambda m: _objective(m, x, y, loss))(model)
        model.v = model.v - 1e-3 * gradients
        return value

    snapshot = examine(step, (inputs if isinstance(batch, tuple) else batch, targets), {}, model, 0)

    snapshot = replace(snapshot, logits=_takes_logits(loss, snapshot) if loss else None)
    labels = (snapshot.labels,) if snapshot.labels is not None else ()
    return judge(Evidence(snapshots=(snapshot,), labels=labels))


def _objective(model: CoreModule, x: Any, y: Any, loss: Callable[..., Any] | None) -> Any:
    prediction = model(*x) if isinstance(x, tuple) else model(x)
    if loss is not None:
        return loss(prediction, y)
    return sum((leaf**2).mean() for leaf in jax.tree.leaves(prediction))


def _takes_logits(loss: Callable[..., Any], snapshot: Snapshot) -> bool | None:
    """Return True if a loss applies softmax or sigmoid itself, found by calling it.

    Softmax does not change when a constant is added to all logits of a row; a loss of
    probabilities does. The sigmoid of a logit -2 with target 1 gives log(1 + e^2).
    """
    returns = snapshot.root.returns if snapshot.root else None
    target = next(iter(snapshot.batch.targets.values()), None)
    if returns is None or target is None:
        return None
    try:
        if snapshot.classes:
            plain, moved = float(loss(returns, target)), float(loss(returns + 3, target))
            return bool(abs(plain - moved) < 1e-3 * max(abs(plain), 1e-3))
        if returns.shape == target.shape and set(np.unique(target)) <= {0, 1}:
            ones = np.ones_like(returns)
            value = float(loss(-2 * ones, ones))
            return bool(abs(value - math.log1p(math.exp(2))) < 1e-2)
    except Exception:  # noqa: BLE001 a loss of another kind tells nothing
        return None
    return None
