"""The stage that gives a call its variables: those of `v=`, in a frame around the other stages."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.core.call.stages import ModuleCall, Remaining, enter
from nbmodule.core.recording import tracker
from nbmodule.core.structure.linked import matched
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.call_log import Log
from nbmodule.core.variables.frame import (
    Frame,
    framed,
    is_captured,
    now,
    take_over,
    write_all,
)
from nbmodule.errors import ArgumentTypeError, NotBuiltError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


def give_variables(call: ModuleCall, stages: Remaining) -> Any:
    """Run the call with the given variables; writes into other variables are committed outside."""
    __tracebackhide__ = True
    module, v = call.module, call.v
    title = f"cannot call {type(module).__name__} with v="
    is_partial = module._nbm.config.with_partial_v
    pairs = matched(plan_of(module).template, v, title=title, partial=is_partial)  # type: ignore
    values = [
        (box, jax.lax.stop_gradient(array) if box._frozen else array) for _, box, array in pairs
    ]

    def body(frame: Frame) -> tuple[Any, list[tuple[Any, Any]]]:
        outputs = enter(call, stages)
        _refuse_deferred(module, outputs)
        return outputs, [(box, frame.values[box]) for box in frame.written]

    # In a raw transform the recorded values must not come out: they go to a log of their own.
    log = tracker.current_log()
    separate = Log() if log is not None and not is_captured() else None
    outputs, written = framed(body, values, log=separate or log)
    if separate is not None:
        take_over(tuple(separate.infos), separate.values)
    write_all([box for box, _ in written], [value for _, value in written])
    return outputs


_DEFERRED = {
    GeneratorType: "a generator",
    CoroutineType: "async",
    AsyncGeneratorType: "an async generator",
}


def _refuse_deferred(module: CoreModule, outputs: object) -> None:
    """Refuse a forward that continues after the call, when its variables are gone."""
    if not isinstance(outputs, tuple(_DEFERRED)):
        return
    if not isinstance(outputs, AsyncGeneratorType):
        outputs.close()  # type: ignore[attr-defined]
    raise ArgumentTypeError(
        f"cannot call {type(module).__name__} with v=: its forward is {_DEFERRED[type(outputs)]} "
        "and continues after the call, when these variables are gone. Set them (`model.v = "
        "variables`), or let a plain forward compute, and wait or yield around it."
    )


def check_variables(call: ModuleCall) -> None:
    """Refuse a call without variables."""
    module = call.module
    if call.v is None and not module._nbm.config.store_vars and not _has_values(module):
        raise NotBuiltError(
            f"{type(module).__name__} was made with store_vars=False and keeps no variables: call "
            "model(x, v=variables) with those that model.build() returned."
        )


def _has_values(module: CoreModule) -> bool:
    """Return True if a frame holds values for a module that keeps none itself."""
    frame, released = now.frame, plan_of(module).released
    while frame is not None and released:
        if any(box in frame.values for box in released):
            return True
        frame = frame.outside
    return not released
