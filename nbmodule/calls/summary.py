"""`nb.summary`: one row for each module of a model: its size, what it returns, how often it is called, what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nbmodule.base.format import cut_middle, shown
from nbmodule.calls.call import Call
from nbmodule.calls.track import track
from nbmodule.core.boxes.frame import current_log, framed
from nbmodule.core.boxes.variable import Buffer, Parameter
from nbmodule.core.running.staging import unchanged
from nbmodule.core.shape.building import ensure_built
from nbmodule.core.shape.walk import plan_of


class SummaryRow(NamedTuple):
    """One module.

    Attributes:
        path: dotted name, `''` for the model itself.
        class_name: name of its class.
        parameters: number of trained values, here and below; shared ones count once.
        buffers: number of values that are not trained.
        bytes: of all its variables.
        inputs: shapes of the arguments of its first call.
        outputs: shapes of the return of its first call.
        calls: how often it was called.
        flops: floating-point operations of all its calls, by the compiler's cost analysis; None where that gives none.
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


class Summary(tuple[SummaryRow, ...]):
    """The rows of a model, the model itself first; prints as a table."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return next(row for row in self if row.path == key)
        return tuple.__getitem__(self, key)

    @shown
    def __repr__(self) -> str:
        head = ("module", "class", "parameters", "bytes", "output", "calls", "FLOPs")
        table = [head, *map(_cells, self)]
        widths = [max(len(row[i]) for row in table) for i in range(len(head))]
        return "\n".join(_line(row, widths) for row in table)


def _cells(row: SummaryRow) -> tuple[str, ...]:
    flops = "" if row.flops is None else f"{row.flops:,.0f}"
    name = cut_middle(row.path or "(the model)", 40)
    return (
        name,
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
    """Tell of each module its parameters, bytes, output shapes, calls and FLOPs, from one call that changes nothing.

    Args:
        model: a module.
        *args: arguments of a call; each `jax.ShapeDtypeStruct` stands for an array of zeros. Without any, only sizes are told.
        **kwargs: keyword arguments of a call.

    Returns:
        A tuple of `SummaryRow`, the model itself first; `summary["layers.0"]` is the row of a path.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> table = nb.summary(nb.Sequential(nb.Linear(3, 4), nb.ReLU()), jnp.ones((2, 3)))
        >>> [(row.path, row.parameters, row.outputs) for row in table]
        [('', 16, 'float32[2, 4]'), ('0', 16, 'float32[2, 4]'), ('1', 0, 'float32[2, 4]')]
    """
    ensure_built(model)
    with unchanged([model]):
        called: dict[str, list[Call]] = {}
        if args or kwargs:
            args, kwargs = jax.tree.map(_made_up, (args, kwargs), is_leaf=lambda x: isinstance(x, jax.ShapeDtypeStruct))
            with track(model, returns=False) as calls:
                framed(lambda _: model(*args, **kwargs), log=current_log())
            calls.estimate()
            for call in calls:
                if call.kind == "call":
                    called.setdefault(call.path, []).append(call)
        return Summary(_rows(model, called))


def _made_up(x: Any) -> Any:
    return jnp.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x


def _rows(model: Any, called: dict[str, list[Call]]) -> Iterator[SummaryRow]:
    modules = [("", model), *((place.name, module) for module, place in plan_of(model).modules.items())]
    for path, module in modules:
        boxes, calls = plan_of(module).boxes, called.get(path, [])
        costs = [call.flops for call in calls if call.flops is not None]
        yield SummaryRow(
            path,
            type(module).__name__,
            sum(box.size for box in boxes if isinstance(box, Parameter)),
            sum(box.size for box in boxes if isinstance(box, Buffer)),
            sum(box.nbytes for box in boxes),
            calls[0].input_shapes if calls else "",
            calls[0].return_shapes if calls else "",
            len(calls),
            sum(costs) if costs else None,
        )
