"""The stage that gives a call its variables: those of `v=`, in a frame around the rest of the way;
else the module's own.
"""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.core.call.stages import ModuleCall, Remaining, enter
from nbmodule.core.recording import tracker
from nbmodule.core.structure.linked import matched
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.frame import (
    Frame,
    framed,
    is_captured,
    now,
    take_over,
    write_all,
)
from nbmodule.core.variables.record import Log
from nbmodule.errors import ArgumentTypeError, NotBuiltError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


def give_variables(call: ModuleCall, stages: Remaining) -> Any:
    """Return the rest of the call under the given variables; what it writes into others is written
    outside.
    """
    __tracebackhide__ = True
    module = call.module
    what = f"cannot call {type(module).__name__} with v="
    provided: Any = call.v
    pairs = matched(
        plan_of(module).template, provided, what=what, partial=module._nbm.config.with_partial_v
    )
    values = [
        (box, jax.lax.stop_gradient(array) if box._frozen else array) for _, box, array in pairs
    ]

    def body(frame: Frame) -> tuple[Any, list[tuple[Any, Any]]]:
        outputs = enter(call, stages)
        refuse_later(module, outputs)
        return outputs, [(box, frame.values[box]) for box in frame.written]

    log = tracker.current_log()
    separate = (
        Log() if log is not None and not is_captured() else None
    )  # in a raw transform: its values must not come out
    outputs, written = framed(body, values, log=separate or log)
    if separate is not None:
        take_over(tuple(separate.infos), separate.values)
    write_all([box for box, _ in written], [value for _, value in written])
    return outputs


def refuse_later(module: CoreModule, outputs: object) -> None:
    """Refuse a forward that only begins: it would go on when the variables of the call are gone."""
    if not isinstance(outputs, (GeneratorType, CoroutineType, AsyncGeneratorType)):
        return
    if not isinstance(outputs, AsyncGeneratorType):
        outputs.close()
    cls = {GeneratorType: "a generator", CoroutineType: "async"}.get(
        type(outputs), "an async generator"
    )
    raise ArgumentTypeError(
        f"cannot call {type(module).__name__} with v=: its forward is {cls}, and goes on after the "
        "call, when the variables "
        "given for it are gone. Nothing was computed. Set them (`model.v = variables`), or let a "
        "plain forward compute and "
        "wait, or yield, around it."
    )


def check_variables(call: ModuleCall) -> None:
    """Refuse a call for which there are none."""
    module = call.module
    if call.v is None and not module._nbm.config.store_vars and not has_values(module):
        raise NotBuiltError(
            f"{type(module).__name__} was made with store_vars=False and keeps no variables: pass "
            "them at the call, as in "
            "model(x, v=variables). `model.build()` returned them. Nothing was computed."
        )


def has_values(module: CoreModule) -> bool:
    """Return True if a frame gives values to a module that keeps none itself."""
    frame, released = now.frame, plan_of(module).released
    while frame is not None and released:
        if any(box in frame.values for box in released):
            return True
        frame = frame.outside
    return not released
