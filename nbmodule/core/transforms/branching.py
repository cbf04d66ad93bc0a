"""`nb.cond`, `nb.switch`, `nb.while_loop` and `nb.checkpoint`: branches carry the union of what any
of them writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import received
from nbmodule.base.format import describe_shape
from nbmodule.core.recording.parcel import StaticLeaf
from nbmodule.core.recording.taps import serving
from nbmodule.core.transforms.carried import (
    Carry,
    carried,
    extract_objects,
    insert_objects,
    output_shapes,
    packed,
    unpacked,
    values_of,
)
from nbmodule.core.transforms.mapped import step_of, written_by
from nbmodule.core.transforms.options import check_function, refuse_call_options, taken
from nbmodule.core.transforms.stacked import Stacks
from nbmodule.core.variables.call_log import Log, uncaptured
from nbmodule.core.variables.frame import Effects, Frame, framed, now, replay, take_over, write_all
from nbmodule.core.variables.traceback import shortened
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, TracerLeakError

P = ParamSpec("P")
R = TypeVar("R")


@shortened
def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: object
) -> Any:
    """Call `true_fun(*operands)` or `false_fun(*operands)`; variables that either writes are
    carried through both.

    Example:
        >>> import nbmodule as nb
        >>> hits = nb.Buffer(0)
        >>> def hit(x):
        ...     hits.value = hits + 1
        ...     return x
        >>> nb.cond(True, hit, lambda x: -x, 2.0), hits()
        (Array(2., dtype=float32, weak_type=True), Array(1, dtype=int32))
    """
    for function in (true_fun, false_fun):
        check_function("nb.cond", function, "(pred, true_fun, false_fun, *operands), two functions")
    pred = _one_value("nb.cond: the predicate", pred)
    index = jnp.asarray(pred).astype(bool).astype(jnp.int32)
    return _switched("nb.cond", index, [false_fun, true_fun], operands)


@shortened
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Call the branch of that number, clipped to the range; variables that any branch writes are
    carried through all.

    Example:
        >>> import nbmodule as nb
        >>> nb.switch(1, [lambda x: x, lambda x: x * 10], 2.0)
        Array(20., dtype=float32, weak_type=True)
    """
    if callable(branches) or not isinstance(branches, Iterable) or not branches:
        raise ArgumentTypeError(
            "nb.switch takes (index, branches, *operands), a list of one or more functions; got "
            f"{type(branches).__name__}."
        )
    for branch in branches:
        check_function("nb.switch", branch, "a list of functions")
    index = _one_value("nb.switch: the index", index)
    if not jnp.issubdtype(jnp.result_type(index), jnp.integer):
        raise ArgumentTypeError(
            f"nb.switch: the index must be an integer, got {describe_shape(index)}."
        )
    return _switched("nb.switch", index, branches, operands)


def _one_value(title: str, x: Any) -> Any:
    """Return a number or an array without axes, as JAX takes it."""
    x = x.value if isinstance(x, Variable) else received(x, title)
    if jnp.shape(x) != ():
        raise ArgumentError(f"{title} must be one value, got shape {list(jnp.shape(x))}.")
    return x


def _switched(
    title: str, index: Any, branches: Sequence[Callable[..., Any]], operands: tuple[Any, ...]
) -> Any:
    operands, objects = extract_objects(taken(title, branches[0], operands, {})[0])
    # All branches of a `switch` must return the same structure: the union of their writes.
    traced = [_branch_shapes(branch, operands, objects) for branch in branches]
    variables = list(dict.fromkeys(variable for _, _, written in traced for variable in written))

    def arm(number: int) -> Callable[..., Any]:
        def run(values: list[Any], *operands: Any) -> Any:
            def body(frame: Frame) -> Any:
                outputs = packed(branches[number](*insert_objects(operands, objects)))
                written = [frame.values[variable] for variable in variables]
                return outputs, written, _padded(traced, number, frame.effects().records)

            return framed(body, zip(variables, values))

        return run

    arms = [arm(number) for number in range(len(branches))]
    # The returns of all branches were counted for their gradients: under `jax.disable_jit` one
    # branch alone would be run.
    with nullcontext() if now.taps is None else jax.disable_jit(False):
        outputs, values, records = jax.lax.switch(index, arms, values_of(variables), *operands)
    write_all(variables, values)
    calls = Log()  # those of all branches
    for _, names, _ in traced:
        infos = names.value[1]
        calls.merge(infos, [{}] * len(infos))
    replay(Effects(((), tuple(calls.infos)), [], records), lifted="branch")
    return unpacked(outputs)


def _branch_shapes(
    branch: Callable[..., Any], operands: Any, objects: list[Any]
) -> tuple[Any, StaticLeaf, list[Variable]]:
    def run(*operands: object) -> Any:
        outputs, effects = carried(branch, insert_objects(operands, objects), {})
        return outputs, effects.values, effects.records, StaticLeaf(effects.names)

    with serving(None):
        shapes = output_shapes(run, *operands)
    written = [variable for slot in shapes[3].value[0] if (variable := slot()) is not None]
    return shapes[2], shapes[3], written


def _padded(traced: list[Any], chosen: int, records: list[Any]) -> list[Any]:
    """Return the records of the chosen branch, and zeros for the others, each with a mark."""
    padded: list[Any] = []
    for number, (shapes, _, _) in enumerate(traced):
        part = (
            records
            if number == chosen
            else jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        )
        padded += [{**record, "ran": jnp.asarray(number == chosen)} for record in part]
    return padded


@shortened
def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: object
) -> Any:
    """Repeat `body_fun` while `cond_fun` holds; variables that the body writes are carried from
    one iteration to the next.

    The number of iterations is unknown while tracing, so calls of submodules in the body are
    recorded without what they return. A module in `init_val` that the body returns stays that
    module, and
    keeps what the body writes.

    Raises:
        TracerLeakError: `cond_fun` writes a variable.

    Example:
        >>> import nbmodule as nb
        >>> turns = nb.Buffer(0)
        >>> def double(x):
        ...     turns.value = turns + 1
        ...     return 2 * x
        >>> nb.while_loop(lambda x: x < 100, double, 3), turns()
        (Array(192, dtype=int32, weak_type=True), Array(6, dtype=int32))
    """
    for function in (cond_fun, body_fun):
        check_function("nb.while_loop", function, "two functions of the state first")
    carry = Carry(taken("nb.while_loop", body_fun, (init_val,), {})[0][0])
    body = functools.partial(
        step_of, lambda value, _: (body_fun(value), None), carry, Stacks([None], [0], {})
    )

    def test(state: Any) -> Any:
        def run(frame: Frame) -> Any:
            answer = cond_fun(carry.opened(state[0]))
            if frame.written:
                raise TracerLeakError(
                    "nb.while_loop: the condition writes a variable; only the body may."
                )
            return answer.value if isinstance(answer, Variable) else answer

        return framed(run, zip(variables, state[1]))

    def trial(variables: list[Variable]) -> StaticLeaf:
        state = carry.arrays, values_of(variables)
        return output_shapes(body(variables), state, (None, None))[1][2]

    variables, calls = carry.settled(lambda: written_by(trial))
    with serving(None):
        value, values = jax.lax.while_loop(
            test,
            lambda state: body(variables)(state, (None, None))[0],
            (carry.arrays, values_of(variables)),
        )
    write_all(variables, values)
    take_over(uncaptured(calls), [{} for _ in calls], "while_loop", asked=False)
    return carry.opened(value)


def checkpoint(
    fn: Callable[P, R],
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | tuple[int, ...] = (),
) -> Callable[P, R]:
    """Make a function whose inner values are computed again in the backward pass and not stored;
    see `jax.checkpoint`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.grad(nb.checkpoint(lambda x: jnp.sin(x) ** 2))(0.0)
        Array(0., dtype=float32, weak_type=True)
    """
    check_function("nb.checkpoint", fn)

    @functools.wraps(fn, updated=())
    @shortened
    def rematerialized(*args: Any, **kwargs: Any) -> Any:
        refuse_call_options("nb.checkpoint", fn, kwargs)
        others = {i % len(args) for i in np.ravel(static_argnums).tolist()} if args else ()
        args, kwargs = taken("nb.checkpoint", fn, args, kwargs, others)
        (arrays, array_kwargs), objects = extract_objects((args, kwargs))

        def inner(*args: Any, **kwargs: Any) -> Any:
            return carried(fn, *insert_objects((args, kwargs), objects))

        again = jax.checkpoint(
            inner, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums
        )
        outputs, effects = again(*arrays, **array_kwargs)
        replay(effects)
        return unpacked(outputs)

    return rematerialized
