"""Calls of a module beyond a bare method call.

`Module.__call__` calls the forward directly where nothing else is needed. Otherwise the options are
taken out of the arguments, the module is built, and the call enters the stages that it needs:
capture of its submodules, compiled form, variables, scope and record, hooks, and the user's
forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.base.foreign import as_read_or_left
from nbmodule.base.jax_names import is_eager
from nbmodule.core.call.capture import capture_submodules, forget_captured
from nbmodule.core.call.compiling import INSIDE, run_compiled
from nbmodule.core.call.example_inputs import remember, remember_return
from nbmodule.core.call.stages import (
    OPTIONS,
    ModuleCall,
    Run,
    Stages,
    enter,
    stages_of,
    take_options,
)
from nbmodule.core.call.variables import check_variables
from nbmodule.core.structure.building import STATEFUL, build_for_call, move, settle
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.frame import EAGER, here, now, warn_of_constant
from nbmodule.core.variables.placement import default_device
from nbmodule.errors import ArgumentError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

AROUND: Stages = (
    (ModuleCall.is_captured, capture_submodules),
    (ModuleCall.was_captured, forget_captured),
)
STAGES: Stages = (*AROUND, (ModuleCall.is_compiled, run_compiled), *INSIDE)


def call(module: CoreModule, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `module` through its stages."""
    __tracebackhide__ = True
    if any(isinstance(x, np.ndarray) for x in args):
        args = tuple(map(as_read_or_left, args))
    if kwargs:
        kwargs = {name: as_read_or_left(x) for name, x in kwargs.items()}
    options = take_options(module, kwargs) if kwargs and not OPTIONS.isdisjoint(kwargs) else {}
    this = ModuleCall(module, run, args, kwargs, options, options.pop("v", None))
    if module._nbm.special:
        prepare(module, args, kwargs)
    check_variables(this)
    if this.v is None and now.frame is None and module._nbm.home is None and not is_eager():
        if plan_of(module).boxes:
            warn_of_constant(module)
    stages = stages_of(this, STAGES)
    outputs = stages[0](this, stages[1:])
    if module._nbm.returned is None:
        remember_return(module, outputs)
    return outputs


def call_beside(
    module: Any,
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: frozenset[str] = OPTIONS,
) -> Any:
    """Call `run`, a compiled form of `module`, and apply the options of the call around it."""
    __tracebackhide__ = True
    kwargs = dict(kwargs)
    options = take_options(module, kwargs, type(module)._asked_by_name & names)
    for name in STATEFUL:
        if options.get(name):
            raise ArgumentError(
                f"{name} belongs to model.compile(); nb.jit({type(module).__name__}) would lose "
                "these changes. Compile the module by model.compile(), or keep in a module what "
                "changes."
            )
    if module._nbm.special:
        prepare(module, args, kwargs)
    this = ModuleCall(module, run, args, kwargs, options)
    stages = stages_of(this, AROUND)
    return enter(this, (*stages, lambda call, _: run(*call.args, **call.kwargs)))


def prepare(module: CoreModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Build at the first call, and follow JAX's default device with `dynamic_backend`."""
    inner = module._nbm
    if now.keep is not None:
        now.keep(module)
    if not inner.built:
        build_for_call(module, args, kwargs)
        settle(module)
    if inner.shown is None:
        if not now.stack:
            plan_of(module)  # raises Python's limit of recursion for a deep model
        remember(module, args, kwargs)
    if inner.config is not None and inner.config.dynamic_backend and here() == EAGER:
        device = default_device()
        boxes = [box for box in plan_of(module).boxes if box.sharding.device_set != {device}]
        move(boxes, device, None)
