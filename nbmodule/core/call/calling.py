"""What happens when a module is called.

The short way, in `Module.__call__`, is a bare method call. Everything else goes through the stages
below, each in a file of its own: the options are taken out of the arguments and the module is
built; then, as far as this call asks for them, its submodules are captured, it is compiled, it is
given variables, it is observed in its scope, and its hooks run around the user's forward.
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
STAGES: Stages = (
    *AROUND,
    (ModuleCall.is_compiled, run_compiled),
    *INSIDE,  # variables, observe, hooks
)


def call(module: CoreModule, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `module` with all that may belong to it."""
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
    if module._nbm.returned is not None:
        return stages[0](this, stages[1:])
    outputs = stages[0](this, stages[1:])
    remember_return(module, outputs)
    return outputs


def call_beside(
    module: Any,
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: frozenset[str] = OPTIONS,
) -> Any:
    """Call `run`, a compiled form of `module`, which does not see what is asked for by name: that
    is done around it.
    """
    __tracebackhide__ = True
    kwargs = dict(kwargs)
    options = take_options(module, kwargs, type(module)._asked_by_name & names)
    for name in STATEFUL:
        if options.get(name):
            raise ArgumentError(
                f"{name} names what model.compile() is to carry; nb.jit({type(module).__name__}) "
                "would lose it. Compile the module by "
                "model.compile(), or keep in a module what changes. Nothing was computed."
            )
    if module._nbm.special:
        prepare(module, args, kwargs)
    this = ModuleCall(module, run, args, kwargs, options)
    return enter(
        this, (*stages_of(this, AROUND), lambda call, stages: run(*call.args, **call.kwargs))
    )


def prepare(module: CoreModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Build if this is the first call, and follow JAX's default device if asked to."""
    inner = module._nbm
    if now.keep is not None:
        now.keep(module)
    if not inner.built:
        build_for_call(module, args, kwargs)
        settle(module)
    if inner.shown is None:
        if not now.stack:
            plan_of(module)  # makes room, if what is about to be called is deep
        remember(module, args, kwargs)
    if inner.config is not None and inner.config.dynamic_backend and here() == EAGER:
        device = default_device()
        move(
            [box for box in plan_of(module).boxes if box.sharding.device_set != {device}],
            device,
            None,
        )
