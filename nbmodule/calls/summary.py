"""`nb.summary`: one row for each module of a model: size, shapes of returns, calls, FLOPs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.flops import counted
from nbmodule.base.foreign import as_read_or_left, framework_of, is_foreign, read_foreign
from nbmodule.base.format import count_noun, format_bytes
from nbmodule.base.sockets import socket
from nbmodule.calls.evaluate import read_stack
from nbmodule.calls.rows import PathRows
from nbmodule.core.call.module import CoreModule
from nbmodule.core.call.staging import staged
from nbmodule.core.recording.parcel import as_given
from nbmodule.core.recording.tracker import (
    Tracker,
    describe,
    describe_arguments,
    keeps_nothing,
    wants_none,
)
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.naming import defined_children, other_names
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.traceback import shortened
from nbmodule.core.variables.variable import Buffer, Parameter
from nbmodule.errors import ArgumentTypeError


class SummaryRow(NamedTuple):
    """One module.

    Attributes:
        path: Dotted name, `''` for the model itself.
        class_name: Name of its class.
        parameters: Number of trained values, here and below; shared ones count once.
        buffers: Number of values that are not trained.
        bytes: Bytes of all its variables.
        inputs: Shapes of the arguments of its first call.
        outputs: Shapes of the return of its first call.
        calls: Number of calls; in a loop of known length, each iteration counts.
        flops: Floating-point operations of all its calls, counted from shapes as by `nb.graph`;
            a loop of known length counts each iteration. None if it was not called.
        shared_with: Path of the first earlier module with which it shares a variable.
        frozen: Number of the trained values that are frozen.
    """

    path: str
    class_name: str
    parameters: int
    buffers: int
    bytes: int
    inputs: str
    outputs: str
    calls: int
    flops: float | None
    shared_with: str = ""
    frozen: int = 0


class Summary(PathRows[SummaryRow]):
    """The rows of a model, the model itself first; printed and displayed as a table, with equal
    blocks on one line.

    Attributes:
        others: Other names of shared modules, with their paths.
        without_calls: Text for the return of a module that was not called.
    """

    without_calls = "not called"

    def __init__(self, model: CoreModule, traced: Mapping[str, TracedCalls]) -> None:
        super().__init__(_rows(model, traced))
        self.others = other_names(model)

    def __getitem__(self, key: object) -> Any:
        return super().__getitem__(self.others.get(key, key) if isinstance(key, str) else key)

    def facts(self) -> tuple[str, ...]:
        """Return the parts of the title, the class of the model first."""
        whole = self[0]
        flops = () if whole.flops is None else (f"{whole.flops:,.0f} FLOPs",)
        frozen = f"{whole.frozen:,} frozen" if whole.frozen else ""
        sizes = count_noun(whole.parameters, "parameter"), frozen, format_bytes(whole.bytes)
        return (whole.class_name, *filter(None, [*sizes, whole.outputs]), *flops)


@shortened
def summary(model: Any, *args: Any, **kwargs: Any) -> Summary:
    """Return parameters, bytes, output shapes, calls and FLOPs of each module, from one call that
    is traced and not run.

    Args:
        model: A module, or an unconverted model of another framework.
        *args: Arguments of a call, as the framework wants them (`variables, x` for a linen module);
            each array may be a `jax.ShapeDtypeStruct`. Without arguments, there are only sizes.
        **kwargs: Keyword arguments of a call.

    Returns:
        A sequence of `SummaryRow`, the model itself first; `summary["layers.0"]` is that of a path.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> table = nb.summary(nb.Sequential(nb.Linear(3, 4), nb.ReLU()), jnp.ones((2, 3)))
        >>> [(row.path, row.parameters, row.outputs) for row in table]
        [('', 16, 'float32[2, 4]'), ('0', 16, 'float32[2, 4]'), ('1', 0, 'float32[2, 4]')]
    """
    if is_foreign(model):
        table = socket("native_verb")("summary", model, args, kwargs)
        if framework_of(model) != "torch":
            table.without_calls = "not seen"  # a loop may have called a copy of the part
        return table
    if not is_module(model):
        raise ArgumentTypeError(
            "nb.summary takes a module, or a model of Flax, Equinox, Haiku, Keras or PyTorch, "
            f"got {type(model).__name__}."
        )
    ensure_built(model)
    if not args and not kwargs:
        return Summary(model, {})
    supplied, kwargs = jax.tree.map(_shape_of, (args, kwargs), is_leaf=_is_shape)
    try:
        return staged(model, supplied, kwargs, lambda stage: Summary(model, _trace(model, stage)))
    except Exception as error:
        shapes = [x for x in (*args, *kwargs.values()) if _is_plain_shape(x)]
        if not shapes:
            raise
        shape = (1, *(size for size in shapes[0] if size is not None))
        raise ArgumentTypeError(
            f"nb.summary takes the arguments of a call, got the shape {shapes[0]}: give "
            f"jnp.ones({shape}), or jax.ShapeDtypeStruct({shape}, 'float32')."
        ) from error


def _is_shape(x: object) -> bool:
    return isinstance(x, jax.ShapeDtypeStruct)


def _is_plain_shape(x: object) -> bool:
    """Return True if a value is a shape as in other summary tools, such as `(1, 28, 28)`."""
    return isinstance(x, (tuple, list)) and bool(x) and all(n is None or type(n) is int for n in x)


def _shape_of(x: object) -> Any:
    x = as_read_or_left(read_foreign(x, "nb.summary"))
    return jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, (jax.Array, np.ndarray)) else x


class TracedCalls(NamedTuple):
    """The calls of one submodule in a traced call of the model: shapes of the first, and number."""

    inputs: str
    outputs: str
    calls: int
    flops: int


def _trace(model: Any, stage: Any) -> dict[str, TracedCalls]:
    """Trace one call of the model, and describe the calls by path; no value is computed."""
    run, arrays = stage.of_arrays(_is_shape)
    if not model.built_:
        # The first call makes the parts that the second one records; both are undone at the end.
        jax.eval_shape(run, stage.values, arrays)
    with Tracker(wants_none, keeps_nothing, "summary"):
        jaxpr, (outputs, _) = jax.make_jaxpr(run, return_shape=True)(stage.values, arrays)
    paths = {module: location.name for module, location in plan_of(model).modules.items()}
    flops = _flops_by_path(jaxpr, {"", *paths.values()}, other_names(model))
    shapes = describe_arguments(stage.args, stage.kwargs)
    result = {"": TracedCalls(shapes, describe(as_given(outputs)), 1, flops[""])}
    for info in stage.log.infos:
        path = paths.get(info.module()) if info.kind == "call" else None
        if path is None:
            continue
        first = result.get(path, TracedCalls(info.inputs, info.outputs, 0, flops[path]))
        result[path] = first._replace(calls=first.calls + _turns(info.lifted))
    return result


def _turns(lifted: tuple[str, ...]) -> int:
    """Return the number of iterations of the loops around a call, as far as it is known."""
    loops = [text.split() for text in lifted]
    return math.prod(int(loop[1]) for loop in loops if loop[0] == "scan" and len(loop) > 1)


def _flops_by_path(jaxpr: object, paths: set[str], others: Mapping[str, str]) -> dict[str, int]:
    """Sum the operations of each module and of all that it calls, by the name scopes of calls."""
    totals = dict.fromkeys(paths, 0)
    for stack, _, flops in counted(jaxpr):
        scopes, _ = read_stack(stack)
        path, within = "", {""}
        for name in scopes:
            inner = f"{path}.{name}" if path else name
            inner = others.get(inner, inner)
            if inner in paths:
                path = inner
                within.add(path)
        for module in within:
            totals[module] += flops
    return totals


def _by_definition(module: object, order: dict[Any, None]) -> dict[Any, None]:
    """Yield a module and those below it, in the order of definition."""
    order[module] = None
    for _, child in defined_children(module):
        if child not in order:
            _by_definition(child, order)
    return order


def _rows(model: object, traced: Mapping[str, TracedCalls]) -> Iterator[SummaryRow]:
    owners: dict[Any, str] = {}
    places = plan_of(model).modules
    for module in _by_definition(model, {}):
        path = "" if module is model else places[module].name
        plan = plan_of(module)
        direct = [variable for variable, at in plan.places.items() if "." not in at.name]
        others = (owners.get(variable, path) for variable in direct)
        shared = next((other for other in others if other != path), "")
        owners.update((variable, path) for variable in direct if variable not in owners)
        call = traced.get(path)
        parameters = [variable for variable in plan.variables if isinstance(variable, Parameter)]
        yield SummaryRow(
            path,
            type(module).__name__,
            sum(variable.size for variable in parameters),
            sum(variable.size for variable in plan.variables if isinstance(variable, Buffer)),
            sum(variable.nbytes for variable in plan.variables),
            *(call or ("", "", 0, None)),
            shared,
            sum(variable.size for variable in parameters if variable._frozen),
        )
