"""`nb.summary`: one row for each module of a model: its size, what it returns, how often it is called, what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.foreign import as_read_or_left, is_foreign, read
from nbmodule.base.format import count_noun, cut_middle, format_bytes, shown
from nbmodule.base.paths import hint
from nbmodule.base.signals import is_of_signal
from nbmodule.base.sockets import Shown, socket
from nbmodule.base.whole_numbers import is_whole
from nbmodule.core.boxes.variable import Buffer, Parameter
from nbmodule.core.recording.tracker import describe, describe_arguments
from nbmodule.core.running.staging import staged
from nbmodule.core.shape.building import ensure_built
from nbmodule.core.shape.holders import inside_of
from nbmodule.core.shape.hooks import register
from nbmodule.core.shape.naming import other_names
from nbmodule.core.shape.structure import structure_of
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.errors import ArgumentTypeError, PathError

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule


class SummaryRow(NamedTuple):
    """One module.

    Attributes:
        path: Dotted name, `''` for the model itself.
        class_name: Name of its class.
        parameters: Number of trained values, here and below; shared ones count once.
        buffers: Number of values that are not trained.
        bytes: Of all its variables.
        inputs: Shapes of the arguments of its first call.
        outputs: Shapes of the return of its first call.
        calls: How often it was called.
        flops: Floating-point operations of all its calls, by the compiler's cost analysis; None where that gives none.
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


class Summary(tuple[SummaryRow, ...], Shown):
    """The rows of a model, the model itself first; prints as a table, and is one in a notebook."""

    others: Mapping[str, str] = MappingProxyType({})
    """The other names of shared modules, each with their path."""

    @staticmethod
    def of(model: CoreModule, called: dict[str, list[_Seen]]) -> Summary:
        """The rows of a model and of these calls."""
        made = Summary(_rows(model, called))
        made.others = other_names(model)
        return made

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            found = [row for row in self if row.path == self.others.get(key, key)]
            if not found:
                raise PathError(f'the model has no submodule "{key}"{hint(key, [row.path for row in self])}')
            return found[0]
        if not isinstance(key, slice) and not is_whole(key):
            raise ArgumentTypeError(
                f"a row of a summary is looked up by position or by path; found {type(key).__name__}."
            )
        return tuple.__getitem__(self, key)

    def facts(self) -> tuple[str, ...]:
        """What is said of the model as a whole, its class first."""
        whole = self[0]
        flops = () if whole.flops is None else (f"{whole.flops:,.0f} FLOPs",)
        sizes = count_noun(whole.parameters, "parameter"), format_bytes(whole.bytes)
        return (whole.class_name, *sizes, *filter(None, [whole.outputs]), *flops)

    @shown
    def __repr__(self) -> str:
        head = ("module", "class", "parameters", "bytes", "output", "calls", "FLOPs")
        table = [head, *(_cells(row, name) for row, name in _folded(self))]
        widths = [max(len(row[i]) for row in table) for i in range(len(head))]
        return "\n".join(_line(row, widths) for row in table)


def _folded(rows: tuple[SummaryRow, ...]) -> Iterator[tuple[SummaryRow, str]]:
    """Rows with their names; of blocks in a row that are alike, such as `layers.0` to `layers.11`, the first, named after all."""
    while rows:
        first, size = rows[0], _size_of_block(rows)
        count = size
        if first.path.rpartition(".")[2].isdigit():
            while count < len(rows) and _are_alike(rows[:size], rows[count : count + size]):
                count += size
        last = rows[count - size].path
        yield (
            first,
            first.path if count == size else f"{first.path} … {last.rpartition('.')[2]} ({count // size} alike)",
        )
        yield from _folded(rows[1:size])
        rows = rows[count:] if first.path else ()


def _size_of_block(rows: tuple[SummaryRow, ...]) -> int:
    """How many of the rows belong to the first: itself and those below it."""
    below = rows[0].path and f"{rows[0].path}."
    return next((i for i, row in enumerate(rows) if i and not row.path.startswith(below)), len(rows))


def _are_alike(block: tuple[SummaryRow, ...], other: tuple[SummaryRow, ...]) -> bool:
    """Whether two blocks stand in one list and differ in nothing but its number."""
    if len(block) != len(other) or _size_of_block(other) != len(other):
        return False
    mine, its = block[0].path, other[0].path
    if mine.rpartition(".")[0] != its.rpartition(".")[0] or not its.rpartition(".")[2].isdigit():
        return False
    return all(a.path[len(mine) :] == b.path[len(its) :] and a[1:] == b[1:] for a, b in zip(block, other))


def _cells(row: SummaryRow, name: str) -> tuple[str, ...]:
    flops = "" if row.flops is None else f"{row.flops:,.0f}"
    return (
        cut_middle(name or "(the model)", 40),
        row.class_name,
        f"{row.parameters:,}",
        f"{row.bytes:,}",
        cut_middle(row.outputs or "not called", 40),
        str(row.calls),
        flops,
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    left = (True, True, False, False, True, False, False)
    return "  ".join(c.ljust(w) if to_left else c.rjust(w) for c, w, to_left in zip(cells, widths, left)).rstrip()


def summary(model: Any, *args: Any, **kwargs: Any) -> Summary:
    """Tell of each module its parameters, bytes, output shapes, calls and FLOPs, from one call that is traced and never run.

    Args:
        model: A module, or a model of another framework as it stands.
        *args: Arguments of a call, as the framework wants them (`variables, x` for a linen module); each array may be a `jax.ShapeDtypeStruct`. Without any, only sizes are told.
        **kwargs: Keyword arguments of a call.

    Returns:
        A tuple of `SummaryRow`, the model itself first; `summary["layers.0"]` is the row of a path.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> table = nb.summary(nb.Sequential(nb.Linear(3, 4), nb.ReLU()), jnp.ones((2, 3)))
        >>> [(row.path, row.parameters, row.outputs) for row in table]
        [('', 16, 'float32[2, 4]'), ('0', 16, 'float32[2, 4]'), ('1', 0, 'float32[2, 4]')]
    """
    if is_foreign(model):
        return socket("as_it_stands")("summary", model, args, kwargs)
    ensure_built(model)
    if not args and not kwargs:
        return Summary.of(model, {})
    given, kwargs = jax.tree.map(_shape_of, (args, kwargs), is_leaf=_is_shape)
    try:
        return staged(model, given, kwargs, lambda stage: Summary.of(model, _seen(model, stage)))
    except Exception as error:
        if any(map(_is_plain_shape, args)) or kwargs.keys() & {"input_size", "input_shape"}:
            error.add_note(
                "nb.summary takes the arguments of a call: give an array, or jax.ShapeDtypeStruct((1, 28, 28), 'float32')."
            )
        raise


class _Seen(NamedTuple):
    """One call of a submodule, as shapes."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any


def _is_shape(x: object) -> bool:
    return isinstance(x, jax.ShapeDtypeStruct)


def _is_plain_shape(x: Any) -> bool:
    """Whether this is a shape as other tools take it, such as `(1, 28, 28)`."""
    return isinstance(x, (tuple, list)) and bool(x) and all(n is None or type(n) is int for n in x)


def _shape_of(x: object) -> Any:
    x = as_read_or_left(read(x, "nb.summary", "Nothing was looked at."))
    return jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, (jax.Array, np.ndarray)) else x


def _seen(model: Any, stage: Any) -> dict[str, list[_Seen]]:
    """The calls that one call of the model makes, by path: it is traced for shapes alone, and no value is computed."""
    run, arrays = _of_arrays(stage)

    def trace() -> None:
        jax.eval_shape(run, stage.values, arrays)

    if not model.built_:  # a first call makes the parts that are looked at; they are forgotten at the end
        trace()
    found: dict[str, list[_Seen]] = {}
    modules = {"": model, **{place.name: module for module, place in plan_of(model).modules.items()}}
    handles = [_notice(path, module, found) for path, module in modules.items()]
    try:
        trace()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _notice(path: str, module: CoreModule, found: dict[str, list[_Seen]]) -> Any:
    def hook(_: object, args: object, kwargs: object, outputs: object) -> None:
        found.setdefault(path, []).append(_Seen(*jax.tree.map(_shape_of, (args, kwargs, outputs))))

    return register(module, module._nbm.hooks, hook, prepend=False, with_kwargs=True)


def _flops(module: CoreModule, seen: _Seen, known: dict[Any, float | None]) -> float | None:
    """The compiler's estimate for a submodule alone; modules of one structure and one kind of arguments are looked at once."""
    key = (structure_of(module), str((seen.args, seen.kwargs)))
    if key not in known:
        known[key] = None
        try:
            lowered = staged(module, seen.args, seen.kwargs, _lowered)
            cost = lowered.cost_analysis() or {}
            known[key] = (cost[0] if isinstance(cost, (list, tuple)) else cost).get("flops")
        except Exception as error:  # a submodule that does not run alone has no figures
            if is_of_signal(error):
                raise
    return known[key]


def _lowered(stage: Any) -> Any:
    """The function for the compiler."""
    run, arrays = _of_arrays(stage)
    return jax.jit(run).lower(stage.values, arrays)


def _of_arrays(stage: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The function of the variables and of a list of arrays, and these; what is no array is fixed."""
    leaves, tree = jax.tree.flatten((stage.args, stage.kwargs))

    def run(values: list[Any], arrays: list[Any]) -> Any:
        given = iter(arrays)
        args, kwargs = jax.tree.unflatten(tree, [next(given) if _is_shape(leaf) else leaf for leaf in leaves])
        return stage.fn(values, *args, **kwargs)

    return run, [leaf for leaf in leaves if _is_shape(leaf)]


def _by_definition(model: Any) -> list[tuple[str, Any]]:
    """Paths and modules, the model first, each where its class has put it."""
    places = plan_of(model).modules
    return [("", model), *((p.name, m) for m, p in sorted(places.items(), key=lambda each: _position(model, each[1])))]


def _position(model: object, place: Any) -> tuple[int, ...]:
    """Where a place stands among its neighbors, step by step."""
    position, thing = [], model
    for step in place.path:
        name = getattr(step, "name", getattr(step, "key", getattr(step, "idx", step)))
        inside = vars(thing) if is_module(thing) else inside_of(thing)
        names = list(inside)
        position.append(names.index(name) if name in names else len(names))
        thing = inside[name] if name in names else getattr(thing, str(name), None)
    return tuple(position)


def _rows(model: Any, called: dict[str, list[_Seen]]) -> Iterator[SummaryRow]:
    known: dict[Any, float | None] = {}
    for path, module in _by_definition(model):
        boxes, calls = plan_of(module).boxes, called.get(path, [])
        costs = [cost for call in calls if (cost := _flops(module, call, known)) is not None]
        yield SummaryRow(
            path,
            type(module).__name__,
            sum(box.size for box in boxes if isinstance(box, Parameter)),
            sum(box.size for box in boxes if isinstance(box, Buffer)),
            sum(box.nbytes for box in boxes),
            describe_arguments(calls[0].args, calls[0].kwargs) if calls else "",
            describe(calls[0].outputs) if calls else "",
            len(calls),
            sum(costs) if costs else None,
        )
