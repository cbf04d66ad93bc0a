"""`nb.first_nonfinite`: find the operation that produced the first NaN or Inf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import is_foreign
from nbmodule.base.format import printable_repr
from nbmodule.base.kinds import Shaped, as_flag
from nbmodule.base.sockets import Shown, socket
from nbmodule.calls.evaluate import Operation, evaluate
from nbmodule.core.call.staging import Staged, staged
from nbmodule.core.recording.tracker import describe
from nbmodule.core.structure.walk import is_module
from nbmodule.core.transforms.differentiate import grad, is_floating
from nbmodule.core.transforms.options import argument_names
from nbmodule.core.variables.traceback import shortened
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError

_PHASES = {
    "forward": "forward pass",
    "derivative": "forward pass of a gradient",
    "backward": "backward pass",
    "recomputed": "forward pass, recomputed by checkpoint",
}


class Range(NamedTuple):
    """The range of an operand."""

    of: str
    low: float
    high: float
    nonfinite: int

    @printable_repr
    def __str__(self) -> str:
        bad = f", {self.nonfinite} non-finite" if self.nonfinite else ""
        if self.low != self.low:
            return f"{self.of}{bad or ', no elements'}"
        return f"{self.of} from {self.low:.4g} to {self.high:.4g}{bad}"


@dataclass(frozen=True)
class NonFinite(Shown):
    """The first operation that produced NaN or Inf.

    Attributes:
        path: Dotted path of its submodule, `''` for the model itself or for code outside of
            modules.
        operation: The name of its primitive in JAX; `argument` or `variable` if an input had the
            value.
        source: File and line of its code, as `model.py:12`.
        code: That line.
        phase: `forward`; `derivative`, the forward pass of differentiated code, which includes
            local derivatives; `backward`; or `recomputed` by `checkpoint`.
        inputs: Shapes and ranges of its operands.
        outputs: Shapes and ranges of its results.
        carriers: Paths of the submodules that passed it on, in order.
        turns: The iteration of each loop around it.
        is_chosen: Whether the value is a constant that the code selected, as `nb.cross_entropy`
            selects NaN for a label that is no class.
        input_fault: The first such element of an argument, if an argument had one.
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
    input_fault: InputFault | None = None

    @printable_repr
    def __str__(self) -> str:
        given = "; ".join(map(str, self.outputs))
        if self.input_fault is not None:
            lines = [str(self.input_fault), f"  {self.path}, {given}"]
        elif self.operation in ("argument", "variable"):
            lines = [f"not finite from the start: {self.path}, {given}"]
        else:
            lines = self._lines()
        if self.carriers:
            names = (path or "the model itself" for path in self.carriers)
            lines.append(f"  carried on by {', '.join(names)}")
        return "\n".join(lines)

    def _lines(self) -> list[str]:
        lines = [
            f"first non-finite value: {self.operation} in {self.path or 'the model itself'} "
            f"({_PHASES[self.phase]})"
        ]
        if self.source:
            lines.append(f"  {self.source}: {self.code}")
        if self.is_chosen:
            lines.append(
                "  a constant of the code was chosen; nb.cross_entropy chooses NaN for "
                "labels outside of 0 ... classes - 1"
            )
        if self.turns:
            lines.append(f"  in turn {', '.join(map(str, self.turns))} of the loop")
        lines += [f"  given {operand}" for operand in self.inputs]
        return lines + [f"  gave {result}" for result in self.outputs]

    __repr__ = __str__


@shortened
def first_nonfinite(
    fn: Callable[..., Any], *args: object, backward: bool = False, **kwargs: object
) -> NonFinite | None:
    """Find the first operation that produced NaN or Inf from finite operands, forward and backward.

    Infinities count only if they reach an output or lead to NaN; a mask of -inf in a softmax does
    not count.

    The function is traced and run operation by operation, which takes far longer than a call. Its
    writes into variables are discarded.

    Args:
        fn: A module, an unconverted model of another framework, or any function, compiled or not,
            such as a training step. Backward operations are included if it calls `nb.grad`.
        *args: Its arguments.
        backward: Differentiate the sum of a module's outputs too, by its parameters. For other
            functions, pass `nb.grad(fn)`.
        **kwargs: Its keyword arguments.

    Returns:
        None if all values are finite, else the origin. If no operation produced it from finite
        operands, the argument or variable that contains it.

    Example:
        >>> model = nb.Sequential(nb.Linear(2, 2), nb.Lambda(jnp.log))
        >>> model[0].weight = jnp.zeros((2, 2))
        >>> found = nb.first_nonfinite(model, jnp.ones((1, 2)))
        >>> found.path, found.operation
        ('1', 'log')
    """
    backward = as_flag("backward", backward)
    if is_foreign(fn):
        return socket("native_verb")("first_nonfinite", fn, args, kwargs, backward=backward)
    if not callable(fn):
        raise ArgumentTypeError(
            f"nb.first_nonfinite takes a module or a function, got {type(fn).__name__}."
        )
    run = fn
    if backward:
        if not is_module(fn):
            raise ArgumentError(
                "nb.first_nonfinite(backward=True) takes a module. Pass a function that calls "
                "nb.grad."
            )
        run = grad(lambda model, *args, **kwargs: _total(model(*args, **kwargs)))
        args = (fn, *args)
    # With these settings JAX would raise at the first NaN, before it is found here.
    with jax.debug_nans(False), jax.debug_infs(False):
        return staged(run, args, kwargs, lambda stage: _search(run, stage))


def _search(fn: Callable[..., Any], stage: Staged) -> NonFinite | None:
    """Trace a function with its variables taken out, and run it operation by operation."""
    run, inputs = stage.of_arrays(_is_number)
    inputs = list(map(jnp.asarray, inputs))
    closed = jax.make_jaxpr(run)(stage.values, inputs)
    variables = [variable.value for variable in stage.variables]
    watch = _Watch(stage.roots)
    outputs = evaluate(closed, [*variables, *inputs], watch)
    origin, chosen = watch.find(outputs), watch.chosen
    if origin is not None:
        return watch.found(origin)
    if not any(map(_count, outputs)):
        return None
    paths = jax.tree_util.tree_leaves_with_path((stage.args, stage.kwargs))
    for path, value in zip([path for path, leaf in paths if _is_number(leaf)], inputs):
        fault = InputFault.of(_named(fn, path), value)
        if fault is not None:
            ranges = (range_of(value),)
            name = f"argument {fault.name}"
            return NonFinite(name, "argument", outputs=ranges, input_fault=fault)
    for name, value in zip(stage.names, variables):
        if _count(value):
            return NonFinite(name, "variable", outputs=(range_of(value),))
    if not chosen:
        return None
    return replace(watch.found(chosen.get(True) or chosen[False]), is_chosen=True)


def _is_number(leaf: object) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, float))


def _named(fn: Any, path: tuple[Any, ...]) -> str:
    """Return the name of an argument with the path to a leaf: `x`, `batch['rows']`, `[0]` if it has
    no name.
    """
    whole, item = path[0].idx, path[1]
    name = item.key if whole else argument_names(fn, item.idx + 1)[item.idx]
    text = name if isinstance(name, str) else f"[{name}]"
    return text + jax.tree_util.keystr(path[2:])


def _total(outputs: object) -> Any:
    """Sum the floating outputs of a function, to differentiate them."""
    return sum(jnp.sum(jnp.real(x)) for x in jax.tree.leaves(outputs) if is_floating(x))


class Origins:
    """Trace non-finite values back to the operations that produced them.

    An Inf that does not reach an output, such as a mask in a softmax, is not reported. A NaN is
    always reported; if infinite operands led to it, their origin is.

    Args:
        count: Number of elements of a value that are not finite.
        count_nans: Number of elements that are NaN.
    """

    def __init__(self, count: Callable[[Any], int], count_nans: Callable[[Any], int]) -> None:
        self._count, self._count_nans = count, count_nans
        # By id: the value, which stays alive so that its id is not reused, and its origin.
        self._origins: dict[int, tuple[Any, Any]] = {}
        self._nan: Any = None
        self.carriers: dict[int, dict[str, None]] = {}
        # The first operation that selected a value without origin, by whether it returned NaN.
        self.chosen: dict[bool, Any] = {}

    def record(
        self, operation: object, path: str, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """Record an operation that has run."""
        bad = [value for value in outputs if self._count(value)]
        if not bad:
            return
        has_nans = any(map(self._count_nans, bad))
        nans = [value for value in inputs if self._count_nans(value)]
        infinite = [value for value in inputs if self._count(value)]
        origin = self._first(nans or infinite) if infinite else operation
        if origin is None and len(infinite) < len(inputs):
            self.chosen.setdefault(has_nans, operation)
        elif origin is not None and origin is not operation:
            self.carriers.setdefault(id(origin), {}).setdefault(path)
        self._origins.update((id(value), (value, origin)) for value in bad)
        if self._nan is None and not nans and has_nans:
            self._nan = operation if origin is None else origin

    def derive(self, values: Sequence[Any], result: object) -> None:
        """Record a value that a loop stacked or sliced from others."""
        if self._count(result):
            self._origins[id(result)] = (result, self._first(values))

    def _first(self, values: Iterable[Any]) -> Any:
        """Return the first origin of some values, if any."""
        origins = (self._origins.get(id(value), (None, None))[1] for value in values)
        return next((origin for origin in origins if origin is not None), None)

    def find(self, outputs: Sequence[Any]) -> Any:
        """Return the operation to report, given the outputs of the whole; None if there is none."""
        if self._nan is not None:
            return self._nan
        return self._first(x for x in outputs if self._count(x))


class _Watch(Origins):
    """Follow the operations of a traced function."""

    def __init__(self, roots: set[str]) -> None:
        super().__init__(_count, _nans)
        self.roots = roots

    def __call__(self, operation: Operation) -> None:
        self.record(operation, self.path(operation), operation.inputs, operation.outputs)

    def path(self, operation: Operation) -> str:
        """Return the scopes as a path, without the outermost one if it names the only model."""
        scopes = operation.scopes
        if scopes and scopes[0] in self.roots and len(self.roots) == 1:
            scopes = scopes[1:]
        return ".".join(scopes)

    def found(self, operation: Operation) -> NonFinite:
        """Return the record of an operation."""
        path = self.path(operation)
        facts = operation.name, operation.source, operation.code, operation.phase
        given, gave = (tuple(map(range_of, x)) for x in (operation.inputs, operation.outputs))
        others = tuple(x for x in self.carriers.get(id(operation), {}) if x != path)
        return NonFinite(path, *facts, given, gave, others, operation.turns)


class InputFault(NamedTuple):
    """The first element of an input that is not finite.

    Attributes:
        name: Name of the argument, `x` or `batch['rows']`.
        index: Index of the element; its first number is the row of the batch.
        value: The element.
        rows: Length of the first axis; 0 for a scalar.
    """

    name: str
    index: tuple[int, ...]  # pyright: ignore[reportIncompatibleMethodOverride]
    value: float
    rows: int

    @staticmethod
    def of(name: str, array: Any) -> InputFault | None:
        """Return the first element of an array that is not finite; None if all are finite."""
        if getattr(array, "is_deleted", bool)() or not _count(array):
            return None
        plain = _plain(array)
        index = tuple(map(int, np.argwhere(~np.isfinite(plain))[0]))
        value = plain[index].real if np.isfinite(plain[index].imag) else plain[index].imag
        return InputFault(name, index, float(value), len(plain) if plain.ndim else 0)

    @printable_repr
    def __str__(self) -> str:
        word = "NaN" if self.value != self.value else "Inf"
        location = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        row = f" (row {self.index[0]} of {self.rows})" if self.rows > 1 else ""
        return f"{word} in the input: {self.name}{location}{row}"


def find_input_fault(fn: object, args: Sequence[Any], kwargs: object) -> InputFault | None:
    """Return the first element among the arguments of a call that is not finite.

    Example:
        >>> x = np.ones((4, 3))
        >>> x[2, 1] = np.nan
        >>> str(find_input_fault(lambda x: x, (x,), {}))
        'NaN in the input: x[2, 1] (row 2 of 4)'
    """
    for path, leaf in jax.tree_util.tree_flatten_with_path((tuple(args), kwargs))[0]:
        if hasattr(leaf, "shape") and not isinstance(leaf, Tracer):
            fault = InputFault.of(_named(getattr(fn, "forward", fn), path), leaf)
            if fault is not None:
                return fault
    return None


def _is_inexact(x: Shaped) -> bool:
    return (
        hasattr(x, "dtype")
        and not jnp.issubdtype(x.dtype, jax.dtypes.extended)
        and jnp.issubdtype(x.dtype, jnp.inexact)
    )


def _plain(x: object) -> np.ndarray:
    array = np.asarray(x.value if isinstance(x, Variable) else x)
    is_wide = array.dtype.kind in "fc" and array.dtype.itemsize >= 4
    return array if is_wide else array.astype(np.float32)


def _count(x: Shaped) -> int:
    if isinstance(x, float):
        return int(not np.isfinite(x))
    return int((~np.isfinite(_plain(x))).sum()) if _is_inexact(x) else 0


def _nans(x: Shaped) -> int:
    return int(np.isnan(_plain(x)).sum()) if _is_inexact(x) else 0


def range_of(x: Shaped) -> Range:
    """Return shape, finite extremes and number of non-finite elements of an array."""
    if not hasattr(x, "dtype") or jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return Range(describe(x), float("nan"), float("nan"), 0)
    array = np.asarray(x)
    array = np.abs(array) if array.dtype.kind == "c" else array
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    ends = (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)
    return Range(describe(x), *ends, wide.size - finite.size)
