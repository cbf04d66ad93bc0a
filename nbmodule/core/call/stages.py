"""A module call as stages: the call, its options, and the stages that it needs.

A stage takes the call and the remaining stages, does its part, and enters the next one by `enter`.
A call has only the stages that it needs, so options that are not used cost no nested Python call:
models may be deep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nbmodule.core.structure.building import STATEFUL
from nbmodule.core.variables.frame import EAGER, here

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

TRACKING = (
    "track_submod_rets",
    "submod_depth",
    "submods_to_track",
    "track_submod_call_order",
    "expected_submod_rets",
    "replace_submod_rets",
)
OPTIONS = frozenset(("v", *TRACKING, *STATEFUL))

Run = Callable[..., Any]
Remaining = tuple[Callable[["ModuleCall", Any], Any], ...]
"""The stages of a call that are still to run."""
Stages = tuple[tuple[Callable[["ModuleCall"], Any], Callable[["ModuleCall", Any], Any]], ...]
"""Pairs of a predicate and the stage that a call enters if the predicate holds."""


def has_captured(module: CoreModule) -> bool:
    """Return True if the module holds returns or a call order of an earlier call."""
    return any(result is not None for result in module._nbm.results)


class ModuleCall:
    """One call of a module."""

    __slots__ = ("args", "kwargs", "module", "options", "run", "v")

    def __init__(
        self,
        module: CoreModule,
        run: Run,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: dict[str, Any],
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.module, self.run, self.args, self.kwargs = module, run, args, kwargs
        self.options, self.v = options, v

    # Predicates, each of which decides about one stage.

    def is_captured(self) -> bool:
        """Return True if the call has an option about its submodules."""
        options = self.options
        return bool(options) and any(
            (value := options.get(name)) is not None and value is not False for name in TRACKING
        )

    def was_captured(self) -> bool:
        """Return True if an earlier call had such an option, and this one has not."""
        return has_captured(self.module) and not self.is_captured()

    def is_compiled(self) -> bool:
        """Return True if the call runs compiled; inside a transform it is part of that trace."""
        inner = self.module._nbm
        return (inner.compiled is not None or inner.config.compile_on_next_step) and here() == EAGER

    def has_variables(self) -> bool:
        """Return True if the call has variables, `v=`."""
        return self.v is not None

    def is_observed(self) -> bool:
        """Return True: every call is."""
        return True

    def has_hooks(self) -> bool:
        """Return True if the module has hooks."""
        inner = self.module._nbm
        return bool(inner.hooks or inner.pre_hooks)


def take_options(
    module: Any, kwargs: dict[str, Any], names: frozenset[str] = OPTIONS
) -> dict[str, Any]:
    """Move the options of a call out of `kwargs`; names that forward has itself stay there."""
    forward_names = type(module)._own_parameters
    options = {}
    for name in names.intersection(kwargs):
        if name not in forward_names or (name == "v" and isinstance(kwargs[name], Mapping)):
            options[name] = kwargs.pop(name)
    return options


def stages_of(call: ModuleCall, stages: Stages) -> Remaining:
    """Return the stages that this call needs."""
    return tuple([stage for is_needed, stage in stages if is_needed(call)])


def enter(call: ModuleCall, stages: Remaining) -> Any:
    """Enter the next stage; the last one is the user's forward."""
    __tracebackhide__ = True
    if stages:
        return stages[0](call, stages[1:])
    return call.run(call.module, *call.args, **call.kwargs)
