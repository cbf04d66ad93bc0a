"""`nb.first_nonfinite`: which operation made the first NaN or Inf, in which submodule, in which line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import is_foreign
from nbmodule.base.format import shown
from nbmodule.base.kinds import Shaped
from nbmodule.base.sockets import Shown, socket
from nbmodule.calls.evaluate import Operation, evaluate
from nbmodule.core.boxes.describe import as_flag
from nbmodule.core.boxes.frame import framed
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.recording.parcel import StaticLeaf, as_values
from nbmodule.core.recording.tracker import Tracker, describe, keeps_nothing, untracked, wants_none
from nbmodule.core.running.scopes import own_name
from nbmodule.core.shape.looking import unchanged
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.core.transforms.captured import guess
from nbmodule.core.transforms.differentiate import grad, is_floating
from nbmodule.core.transforms.jit import Jit, split
from nbmodule.core.transforms.options import of_forward, taken
from nbmodule.core.transforms.program import fill
from nbmodule.errors import ArgumentError, ArgumentTypeError

_PHASES = {
    "forward": "forward pass",
    "derivative": "forward pass of a gradient",
    "backward": "backward pass",
    "recomputed": "forward pass, recomputed by checkpoint",
}


class Range(NamedTuple):
    """What an operand looks like; `first` is the index of the first element that is not finite, where it is looked for."""

    of: str
    low: float
    high: float
    nonfinite: int
    first: tuple[int, ...] = ()

    @shown
    def __str__(self) -> str:
        bad = f", {self.nonfinite} non-finite" if self.nonfinite else ""
        bad += f", the first at {list(self.first)}" if self.first else ""
        if self.low != self.low:
            return f"{self.of}{bad or ', no elements'}"
        return f"{self.of} from {self.low:.4g} to {self.high:.4g}{bad}"


@dataclass(frozen=True)
class NonFinite(Shown):
    """The first operation that made NaN or Inf.

    Attributes:
        path: Dotted path of the submodule it stands in, `''` for the model itself or for code outside of modules.
        operation: Its name, as JAX calls it; `argument` or `variable` if the value was there from the start.
        source: File and line of the code that made it, as `model.py:12`.
        code: That line.
        phase: `forward`; `derivative`, the forward pass of code that is being differentiated, where local derivatives are worked out too;
            `backward`; or `recomputed` by `checkpoint`.
        inputs: Shapes and ranges of its operands.
        outputs: Shapes and ranges of its results.
        carriers: Paths of the submodules that merely carried it, in order.
        turns: For each loop around it which turn it was.
        is_chosen: Whether the value is a constant of the code that was chosen, as `nb.cross_entropy` chooses NaN for a label that is no class.
    """

    path: str
    operation: str
    source: str = ""
    code: str = ""
    phase: str = "forward"
    inputs: tuple[Range, ...] = ()
    outputs: tuple[Range, ...] = ()
    carriers: tuple[str, ...] = ()
    turns: tuple[int, ...] = field(default=())
    is_chosen: bool = False

    @shown
    def __str__(self) -> str:
        what = {"argument": "was given as an argument", "variable": "was there from the start, in a variable"}.get(
            self.operation
        )
        if what is not None:
            lines = [f"the first non-finite value {what}: {self.path}, {'; '.join(map(str, self.outputs))}"]
        else:
            lines = [
                f"first non-finite value: {self.operation} in {self.path or 'the model itself'} ({_PHASES[self.phase]})"
            ]
            if self.source:
                lines.append(f"  {self.source}: {self.code}")
            if self.is_chosen:
                lines.append(
                    "  a constant of the code was chosen; nb.cross_entropy chooses NaN for labels outside of 0 ... classes - 1"
                )
            if self.turns:
                lines.append(f"  in turn {', '.join(map(str, self.turns))} of the loop")
            lines += [f"  given {operand}" for operand in self.inputs]
            lines += [f"  gave {result}" for result in self.outputs]
        if self.carriers:
            lines.append(f"  carried on by {', '.join(path or 'the model itself' for path in self.carriers)}")
        return "\n".join(lines)

    __repr__ = __str__


def first_nonfinite(
    fn: Callable[..., Any], *args: object, backward: bool = False, **kwargs: object
) -> NonFinite | None:
    """Find the first operation that made NaN or Inf from finite operands, forward and backward.

    The function is traced, and run operation by operation; what it writes into variables is thrown away, and a compiled function
    stays as it is for other calls. This takes far longer than a call.

    Args:
        fn: A module, a model of another framework as it stands, or any function, compiled or not: a loss, a whole training step. Backward operations are seen if it calls `nb.grad`.
        *args: Its arguments.
        backward: Differentiate the sum of its outputs too, by the parameters of a module and by all arrays among the arguments.
        **kwargs: Its keyword arguments.

    Returns:
        None if all is finite, else where it began. If no operation made it from finite operands, the argument or variable that held it.

    Example:
        >>> model = nb.Sequential(nb.Linear(2, 2), nb.Lambda(jnp.log))
        >>> model[0].weight = jnp.zeros((2, 2))
        >>> found = nb.first_nonfinite(model, jnp.ones((1, 2)))
        >>> found.path, found.operation
        ('1', 'log')
    """
    backward = as_flag("backward", backward)
    if is_foreign(fn):
        return socket("as_it_stands")("first_nonfinite", fn, args, kwargs, backward=backward)
    if not callable(fn):
        raise ArgumentTypeError(f"nb.first_nonfinite takes a module or a function; found {type(fn).__name__}.")
    # Who has told JAX to raise at the first NaN looks for the same: the values have to arrive here.
    inside = fn
    while isinstance(inside, Jit):
        inside = inside.fn
    args, kwargs = taken("nb.first_nonfinite", of_forward(inside), args, kwargs)
    things = [*guess(inside), *split((args, kwargs))[1]]
    with unchanged(things), untracked(), jax.debug_nans(False), jax.debug_infs(False):
        run, arrays, names, roots = _as_function(fn, args, kwargs, backward)
        with Tracker(wants_none, keeps_nothing, "first_nonfinite"):  # who calls whom is wanted, and no values
            closed = jax.make_jaxpr(run)(*arrays)
        watch = _Watch(roots())
        outputs = evaluate(closed, arrays, watch)
        if watch.found is not None:
            return watch.record()
        if not any(_count(x) for x in outputs):
            return None
        return _from_the_start(closed, arrays, names, fn) or watch.record(watch.first_nan) or watch.chosen_record()


def _as_function(
    fn: Callable[..., Any], args: object, kwargs: object, backward: bool
) -> tuple[Callable[..., Any], list[Any], list[str], Callable[[], frozenset[str]]]:
    """A function of arrays alone, those arrays, their names, and (after tracing) the scopes of outermost modules."""
    (held, held_kwargs), things = split((args, kwargs))
    leaves, tree = jax.tree_util.tree_flatten_with_path((held, held_kwargs))
    varied = [i for i, (_, leaf) in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray, np.generic, float))]
    touched: set[str] = set()

    def call(*arrays: object) -> Any:
        full = [leaf for _, leaf in leaves]
        for i, array in zip(varied, arrays):
            full[i] = array
        filled, filled_kwargs = fill(jax.tree.unflatten(tree, full), things)

        def body(frame: Any) -> Any:
            outputs = as_values(fn(*filled, **filled_kwargs))
            outermost = [info.module() for info in frame.log.infos if info.parent < 0 and info.kind == "call"]
            touched.update(
                type(module).__name__
                for module in outermost
                if module is not None and own_name(module) == type(module).__name__
            )
            return [x for x in jax.tree.leaves(outputs) if not isinstance(x, StaticLeaf)], frame.effects().values

        return framed(body)

    arrays = [jnp.asarray(leaves[i][1]) for i in varied]
    run = _with_backward(fn, call, arrays) if backward else call
    names = [_named(fn, leaves[i][0]) for i in varied]
    return run, arrays, names, lambda: frozenset(touched)


def _named(fn: Any, path: tuple[Any, ...]) -> str:
    """The place of an array among the arguments: `x`, `batch['rows']`, `[0]` where the function names none."""
    whole, each = path[0].idx, path[1]
    name, rest = str(getattr(each, "key", "")), jax.tree_util.keystr(path[2:])
    if whole == 0:
        try:
            known = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # a builtin that does not tell
            known = []
        plain = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        name = plain[each.idx] if each.idx < len(plain) else f"[{each.idx}]"
    return name + rest


def _with_backward(fn: Callable[..., Any], call: Callable[..., Any], arrays: list[Any]) -> Callable[..., Any]:
    def total(*arguments: object) -> Any:
        outputs, _ = call(*arguments[1:])
        found = [jnp.sum(jnp.real(x)) for x in outputs if is_floating(x)]
        if not found:
            raise ArgumentError(
                "nb.first_nonfinite(backward=True): the function gives no floating-point array to differentiate."
            )
        return sum(found)

    by = [i + 1 for i, array in enumerate(arrays) if is_floating(array)]
    if is_module(fn):
        by.insert(0, 0)
    if not by:
        raise ArgumentError(
            "nb.first_nonfinite(backward=True): there is nothing to differentiate by. Give a function that calls nb.grad."
        )

    def both(*arrays: object) -> Any:
        gradients = grad(total, argnums=tuple(by))(fn if is_module(fn) else None, *arrays)
        return jax.tree.leaves(gradients)

    return both


class _Watch:
    """Remembers the first operation that made non-finite values from finite ones, and who carried them."""

    def __init__(self, roots: frozenset[str]) -> None:
        self.roots = roots
        self.found: Operation | None = None
        self.first_nan: Operation | None = None  # NaN from operands that held Inf, but no NaN
        self.first_chosen: Operation | None = (
            None  # finite values went in, and a constant that is not came out among them
        )
        self.carriers: dict[str, None] = {}

    def __call__(self, operation: Operation) -> None:
        if not any(_count(x) for x in operation.outputs):
            return
        if self.found is not None or any(_count(x) for x in operation.inputs):
            if self.found is not None:
                self.carriers.setdefault(self.path(operation))
            if (
                self.first_nan is None
                and any(_nans(x) for x in operation.outputs)
                and not any(_nans(x) for x in operation.inputs)
            ):
                self.first_nan = operation
            if self.first_chosen is None or (_has_nans(operation) and not _has_nans(self.first_chosen)):
                self.first_chosen = operation if any(_is_finite(x) for x in operation.inputs) else self.first_chosen
            return
        self.found = operation

    def path(self, operation: Operation) -> str:
        """Scopes as a path: without the outermost one where that is the class of the only model."""
        scopes = operation.scopes
        if scopes and scopes[0] in self.roots and len(self.roots) == 1:
            scopes = scopes[1:]
        return ".".join(scopes)

    def chosen_record(self) -> NonFinite | None:
        """Where a constant came in; NaN before Inf, which masks use."""
        found = self.record(self.first_chosen)
        return found and replace(found, is_chosen=True)

    def record(self, operation: Operation | None = None) -> NonFinite | None:
        operation = operation or self.found
        if operation is None:
            return None
        path = self.path(operation)
        carriers = tuple(each for each in self.carriers if each != path)
        return NonFinite(
            path,
            operation.name,
            operation.source,
            operation.code,
            operation.phase,
            tuple(map(range_of, operation.inputs)),
            tuple(map(range_of, operation.outputs)),
            carriers,
            operation.turns,
        )


def _from_the_start(closed: Any, arrays: list[Any], names: list[str], fn: Callable[..., Any]) -> NonFinite | None:
    for name, array in zip(names, arrays):
        if _count(array):
            first = tuple(map(int, np.argwhere(~np.isfinite(_plain(array)))[0]))
            return NonFinite(f"argument {name}", "argument", outputs=(range_of(array)._replace(first=first),))
    modules = [fn] if is_module(fn) else []
    known = {
        id(box._value): place.name
        for module in modules
        for box, place in plan_of(module).places.items()
        if not box.is_pending
    }
    for value in closed.consts:
        if _count(value):
            return NonFinite(known.get(id(value), "a variable"), "variable", outputs=(range_of(value),))
    return None


def _is_inexact(x: Shaped) -> bool:
    return (
        hasattr(x, "dtype")
        and not jnp.issubdtype(x.dtype, jax.dtypes.extended)
        and jnp.issubdtype(x.dtype, jnp.inexact)
    )


def _plain(x: object) -> np.ndarray:
    array = np.asarray(x.value if isinstance(x, Variable) else x)
    return array if array.dtype.kind in "fc" and array.dtype.itemsize >= 4 else array.astype(np.float32)


def _count(x: Shaped) -> int:
    if isinstance(x, float):
        return int(not np.isfinite(x))
    return int((~np.isfinite(_plain(x))).sum()) if _is_inexact(x) else 0


def _is_finite(x: Any) -> bool:
    return _is_inexact(x) and not _count(x)


def _has_nans(operation: Operation) -> bool:
    return any(_nans(x) for x in operation.outputs)


def _nans(x: Shaped) -> int:
    return int(np.isnan(_plain(x)).sum()) if _is_inexact(x) else 0


def range_of(x: Shaped) -> Range:
    """What an array looks like: its shape, its finite extremes, how many elements are not finite."""
    if not hasattr(x, "dtype") or jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return Range(describe(x), float("nan"), float("nan"), 0)
    array = np.asarray(x)
    array = np.abs(array) if array.dtype.kind == "c" else array
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (float("nan"), float("nan"))
    return Range(describe(x), low, high, wide.size - finite.size)
