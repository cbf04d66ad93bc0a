"""`nb.vmap` and `nb.scan`: variables are shared by all rows, or carried from step to step; records
come out stacked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

from nbmodule.core.recording.parcel import StaticLeaf
from nbmodule.core.recording.taps import handing_on, lifted, serving
from nbmodule.core.structure.walk import name_in_plan
from nbmodule.core.transforms.carried import (
    Carry,
    extract_objects,
    insert_objects,
    output_shapes,
    packed,
    unpacked,
    values_of,
)
from nbmodule.core.transforms.options import check_function, refuse_call_options, taken
from nbmodule.core.transforms.stacked import Stacks
from nbmodule.core.variables.frame import Effects, Frame, framed, now, replay, write_all
from nbmodule.core.variables.traceback import shortened
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, BatchedWriteError

P = ParamSpec("P")
R = TypeVar("R")


def vmap(
    fn: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    *,
    split_streams: bool = True,
) -> Callable[P, R]:
    """Map a function over an axis of its arguments; variables are shared by all rows.

    A module given with `in_axes` None is used as it is; with an axis, its variables are stacked and
    each row gets its own. Writes of the rows (BatchNorm's statistics, the stream of a Dropout) go
    into the stack; `nb.stack` makes one. A module whose axes are given leaf by
    leaf is copied.

    Args:
        fn: The function for one row.
        in_axes: As in `jax.vmap`.
        out_axes: As in `jax.vmap`.
        axis_name: As in `jax.vmap`; collectives such as `jax.lax.pmean` take it.
        axis_size: As in `jax.vmap`.
        spmd_axis_name: As in `jax.vmap`.
        split_streams: Whether random streams give each row numbers of its own (they move on once
            either way).

    Raises:
        BatchedWriteError: a variable would be written with one value for each row.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> model = nb.Module(scale=nb.Parameter(2.0))
        >>> nb.vmap(lambda x: x * model.scale)(jnp.arange(3.0))
        Array([0., 2., 4.], dtype=float32)
    """
    check_function("nb.vmap", fn)

    @functools.wraps(fn, updated=())
    @shortened
    def mapped(*args: Any, **kwargs: Any) -> Any:
        refuse_call_options("nb.vmap", fn, kwargs)
        axes = list(in_axes) if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(axes) != len(args):
            raise ArgumentError(
                f"nb.vmap: in_axes has {len(axes)} items, expected one for each of {len(args)} "
                "arguments."
            )
        shared = [i for i, axis in enumerate(axes) if axis is None]
        args, kwargs = taken("nb.vmap", fn, args, kwargs, shared)
        arrays, objects = extract_objects([args[i] for i in shared])
        # Random streams need a name of the axis; one with a space meets none of the user's.
        name = axis_name if axis_name is not None else f"nbmodule axis {_depth()}"
        full = list(args)
        for i, argument in zip(shared, arrays):
            full[i] = argument
        stacks = Stacks(full, axes, kwargs)

        inner = _row_of(fn, stacks, objects, (name,) if split_streams else ())

        def run(out: object, zeros: list[Any] | None = None) -> Any:
            in_spec, out_spec = (tuple(axes), 0, 0), (out_axes, out, 0, None, stacks.out_axes, None)
            along = {"axis_name": name, "axis_size": axis_size, "spmd_axis_name": spmd_axis_name}
            return jax.vmap(inner, in_axes=in_spec, out_axes=out_spec, **along)(
                tuple(full), kwargs, zeros
            )

        size = _size(full, axes, kwargs, axis_size)
        try:
            zeros = lifted(lambda: output_shapes(lambda: run(None)), size)
            with serving(None):
                outputs, values, records, names, members, numbers = run(None, zeros)
        # JAX has no class for this error; only its message names `out_axes`.
        except ValueError as error:
            written = _batched(run) if "out_axes" in str(error) else []
            if not written:
                raise
            raise _refusal(written) from error
        also = stacks.written_by_all(numbers.value, members)
        replay(Effects(names.value, values, records), also, lifted=f"vmap {size}")
        return unpacked(outputs)

    return mapped


def _row_of(
    fn: Callable[..., Any], stacks: Stacks, objects: list[Any], axes: tuple[Any, ...]
) -> Callable[..., Any]:
    """Return the function for one row, which returns its effects too."""

    def inner(args: tuple[Any, ...], kwargs: dict[str, Any], zeros: list[Any] | None) -> Any:
        def body(frame: Frame) -> Any:
            members, before = stacks.row(args, kwargs)
            outputs = packed(fn(*insert_objects(members[0], objects), **members[1]))
            effects = frame.effects()
            names = StaticLeaf(effects.names)
            return outputs, effects.values, effects.records, names, *stacks.written(before)

        with handing_on(zeros):
            return framed(body, axes=axes)

    return inner


def _depth() -> int:
    depth, frame = 0, now.frame
    while frame is not None:
        depth, frame = depth + 1, frame.outside
    return depth


def _size(args: list[Any], axes: list[Any], kwargs: object, size: int | None) -> int:
    if size is not None:
        return size
    mapped = [(argument, axis) for argument, axis in zip(args, axes) if isinstance(axis, int)]
    sizes = (x.shape[axis] for tree, axis in (*mapped, (kwargs, 0)) for x in jax.tree.leaves(tree))
    return next(sizes, 0)


def _batched(run: Callable[[Any], Any]) -> list[Variable]:
    """Return the variables that were written with a batched value: each is tried alone."""
    try:
        shapes = output_shapes(lambda: run(0))
    except ValueError:
        return []
    names, batched = shapes[3].value[0], []
    for i, name in enumerate(names):
        try:
            output_shapes(lambda i=i: run([None if j == i else 0 for j in range(len(names))]))
        except ValueError:
            batched.append(name())
    return [variable for variable in batched if variable is not None]


def _refusal(variables: list[Variable]) -> BatchedWriteError:
    written = ", ".join(map(name_in_plan, variables))
    return BatchedWriteError(
        f"nb.vmap: {written} would be written with one value for each row, and it holds only one. "
        "Average over the axis before writing (give axis_name='rows' and write "
        "jax.lax.pmean(value, 'rows')), call the module on the whole batch, or pass a stacked "
        "copy (nb.stack makes one) as a mapped argument, with a row for each."
    )


# -- scan --
@shortened
def scan(
    f: Callable[..., Any],
    init: object,
    xs: object = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Run `f(carry, x)` over the leading axis of `xs`; variables that `f` writes are carried from
    step to step.

    A module among `xs` is a stack of layers: each step gets one layer, and its writes go into the
    stack; `nb.stack` makes one. A module in the carry
    that each step returns stays that module, and keeps what the steps write; where a step returns
    another one, the module of `init` is left as it was.

    Args:
        f: Returns `(carry, y)`.
        init: The first carry.
        xs: Arrays with a leading axis, or None with `length`.
        length: Number of steps, where `xs` does not tell.
        reverse: Whether to go from the last step to the first.
        unroll: As in `jax.lax.scan`.

    Returns:
        The last carry, and each `y`, stacked.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> seen = nb.Buffer(0.0)
        >>> def add(carry, x):
        ...     seen.value = seen + x
        ...     return carry + x, carry
        >>> nb.scan(add, 0.0, jnp.arange(3.0))[0], seen()
        (Array(3., dtype=float32), Array(3., dtype=float32))
    """
    check_function("nb.scan", f, "a function of the carry and an item first")
    (init, xs), _ = taken("nb.scan", f, (init, xs), {})
    state, stacks = Carry(init), Stacks([xs], [0], {})

    body = functools.partial(step_of, f, state, stacks)

    def shapes(variables: list[Variable]) -> Any:
        return output_shapes(
            lambda s, x: jax.lax.scan(body(variables), s, x, length, reverse),
            (state.arrays, values_of(variables)),
            (xs, None),
        )

    # JAX wants the structure of the carry before the body runs: the body is first traced alone, for
    # the variables that it writes.
    variables, _ = state.settled(lambda: written_by(lambda variables: shapes(variables)[1][2]))
    count = _size([xs], [0], {}, length)
    zeros = lifted(lambda: shapes(variables), count)
    with serving(None):
        (carry, values), (ys, records, names, members, numbers) = jax.lax.scan(
            body(variables),
            (state.arrays, values_of(variables)),
            (xs, zeros),
            length,
            reverse,
            unroll,
        )
    stacked, rows = stacks.written_by_all(numbers.value, members)
    write_all([*variables, *stacked], [*values, *rows])
    replay(Effects(((), names.value[1]), [], records), lifted=f"scan {count}")
    return state.opened(carry), unpacked(ys)


def step_of(
    f: Callable[..., Any], state: Carry, stacks: Stacks, variables: list[Variable]
) -> Callable[..., Any]:
    """Return one step of a scan that carries these variables."""

    def step(carried: Any, row: Any) -> Any:
        (carry, values), (x, zeros) = carried, row

        def run(frame: Frame) -> Any:
            ((members,), _), before = stacks.row([x], {})
            new, y = f(state.opened(carry), members)
            new, y = state.closed(new), packed(y)
            effects = frame.effects()
            carried_values = [frame.values[variable] for variable in variables]
            # Alike in all steps: under `jax.disable_jit` a branch is plain Python, and one step
            # writes what another does not.
            written = dict.fromkeys((*variables, *frame.written))
            names = StaticLeaf((tuple(variable.slot for variable in written), effects.names[1]))
            return (new, carried_values), (y, effects.records, names, *stacks.written(before))

        with handing_on(zeros):
            return framed(run, zip(variables, values))

    return step


def written_by(
    trial: Callable[[list[Variable]], StaticLeaf],
) -> tuple[list[Variable], tuple[Any, ...]]:
    """Return the variables that a body writes, and its calls: tried until no new variable appears,
    since one write may lead to another.
    """
    variables: list[Variable] = []
    while True:
        ids = {*map(id, variables), id(None)}  # the slot of a variable that is gone gives None
        with serving(None):
            slots, calls = trial(variables).value
        new = [variable for slot in slots if id(variable := slot()) not in ids]
        if not new:
            return variables, calls
        variables = variables + new
