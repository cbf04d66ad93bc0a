"""One call of one module: its path, inputs and returns.

Values are read on first access.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import printable_repr
from nbmodule.base.statistics import Statistics, statistics_of_elements
from nbmodule.calls.reduction import read_statistics, reduce_tree
from nbmodule.core.recording.parcel import as_given

NOT_CAPTURED = " (not captured)"


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One call of one module, or one value named by `nb.tap`, or one operation.

    Attributes:
        path: Dotted name below the tracked model, `''` for the model itself.
        index: Counts repeats of that path within one parent call, from 0.
        parent: The call around this one, None for an outermost one.
        step: Number of the outermost call that it belongs to.
        order: Position within the step.
        depth: How many calls are around it.
        returned: Position in the order of returning, -1 if it did not return.
        class_name: Name of the module's class, or of the operation.
        framework: `torch` for a model of PyTorch, whose images have channels first; empty for
            others.
        kind: `call`, `tap` or `operation`.
        input_shapes: Shapes of the arguments as text.
        return_shapes: Shapes of the return as text.
        seconds: Wall time until the arrays were ready, for eager calls; with `profile=True`
            measured alone.
        compiling: How many of these seconds JAX spent in compiling; None where they were not
            measured in the call itself.
        start: When an eager call began, in seconds on the clock of `time.perf_counter`.
        error: First line of the exception that ended the call, empty if none.
        lifted: The transforms that stacked the values (`vmap 5`, `scan 10`), outermost
            last.
        captured: False if a raw JAX transform between the model and the tracker kept the values
            inside.
        source: File and line, for an operation.
        flops: Floating-point operations of the module alone, counted from shapes; None before
            `calls.estimate()`.
        bytes_accessed: Bytes read and written, by the estimate of the compiler.
    """

    path: str
    _values: Callable[[], dict[str, Any]] | dict[str, Any] | None = None
    index: int = 0
    parent: Call | None = None
    step: int = 0
    order: int = 0
    depth: int = 0
    returned: int = -1
    class_name: str = ""
    framework: str = ""
    kind: str = "call"
    input_shapes: str = ""
    return_shapes: str = ""
    seconds: float | None = None
    compiling: float | None = None
    start: float | None = None
    error: str = ""
    lifted: tuple[str, ...] = ()
    captured: bool = True
    source: str = ""
    flops: float | None = None
    bytes_accessed: float | None = None
    _module: Callable[[], Any] = lambda: None
    _read: dict[str, Any] | None = field(default=None, init=False)

    # -- copies --
    def __getstate__(self) -> dict[str, Any]:
        """Return the metadata, and recorded values as plain arrays, without the module."""
        state = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
        values: dict[str, Any] = {}
        for category, tree in self.values.items():
            if category in ("statistics", "gradient_statistics"):
                values[category] = [read_statistics(parts) for parts in tree]
            elif category in ("input", "output", "gradient") and not hasattr(tree, "mask"):
                values[category] = arrays_of(tree)
        return state | {"_values": values}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._read, self._module = None, lambda: None
        for name, value in state.items():
            setattr(self, name, value)

    # -- values --
    @property
    def values(self) -> dict[str, Any]:
        """All recorded values, in the form in which the program returned them."""
        if self._read is None:
            self._read = self._values() if callable(self._values) else (self._values or {})
        return self._read

    @property
    def module(self) -> Any:
        """The module that was called, if it still exists."""
        return self._module()

    @property
    def returns(self) -> Any:
        """The return of the call; None if it was not kept."""
        return arrays_of(self.values.get("output"))

    @property
    def inputs(self) -> tuple[Any, ...] | None:
        """The positional arguments; None if they were not kept."""
        supplied = self.values.get("input")
        return arrays_of(supplied[0]) if supplied is not None else None

    @property
    def keywords(self) -> dict[str, Any] | None:
        """The keyword arguments; None if they were not kept."""
        supplied = self.values.get("input")
        return arrays_of(supplied[1]) if supplied is not None else None

    @property
    def gradient(self) -> Any:
        """Gradient of the loss by the return, in its structure; None if there is none."""
        gradient = self.values.get("gradient")
        return None if gradient is None or hasattr(gradient, "mask") else arrays_of(gradient)

    @property
    def statistics(self) -> Statistics | list[Statistics | None] | None:
        """Statistics of the return: of its one array, or a list for all its arrays."""
        return self._statistics("statistics", "output")

    @property
    def gradient_statistics(self) -> Statistics | list[Statistics | None] | None:
        """Statistics of the gradient by the return, likewise."""
        return self._statistics("gradient_statistics", "gradient")

    def _statistics(self, reduced: str, whole: str) -> Any:
        result = self.values.get(reduced)
        if result is None:
            tree = self.values.get(whole)
            if tree is None or hasattr(tree, "mask"):
                return None
            result = self.values[reduced] = _reduced(as_given(tree))
        read = [read_statistics(parts) for parts in result]
        return read[0] if len(read) == 1 else read

    @printable_repr
    def __repr__(self) -> str:
        number = f" (call {self.index + 1})" if self.index else ""
        return f"<Call {self.path or self.class_name}{number}: {self.outcome}>"

    @property
    def outcome(self) -> str:
        """The shapes of arguments and return, or the error, as text."""
        supplied = self.input_shapes or "nothing"
        if self.error:
            return f"given {supplied}, raised {self.error}"
        return f"{supplied} → {self.return_shapes or 'nothing'}{self.mark}"

    @property
    def mark(self) -> str:
        """The remark after the return of a call whose values could not be captured."""
        return "" if self.captured else NOT_CAPTURED


def _reduced(tree: object) -> list[Any]:
    """Reduce arrays as they were recorded; those on the host there."""
    leaves = jax.tree.leaves(tree)
    if all(type(leaf) is np.ndarray and leaf.size for leaf in leaves):
        return [statistics_of_elements(leaf) for leaf in leaves]
    return reduce_tree(leaves)


def bytes_in(tree: object) -> int:
    """Return the bytes of the arrays of a PyTree, each counted once."""
    arrays = {id(leaf): leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "nbytes")}
    return sum(array.nbytes for array in arrays.values())


def arrays_of(tree: object) -> Any:
    """Return recorded values in the user's form: packed ones become JAX arrays again."""
    if tree is None:
        return None
    supplied = as_given(tree)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if _is_packed(leaf) else leaf, supplied)


def _is_packed(leaf: object) -> bool:
    """Return True if it is a part of one transfer from a device: a view, of a dtype that JAX has,
    unlike an array of a reference.
    """
    return (
        type(leaf) is np.ndarray
        and leaf.base is not None
        and jax.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype
    )
