"""A call on its way: what is called, with what, what was asked of it, and the stages that are still
ahead.

A stage takes the call and the rest of its way, does its part, and enters the next by `go_on`. Only
the stages that a call asks for are on its way, so what is not asked for costs no call within a
call: models may be deep.
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
Way = tuple[Callable[["ModuleCall", Any], Any], ...]
Stages = tuple[tuple[Callable[["ModuleCall"], Any], Callable[["ModuleCall", Any], Any]], ...]


def has_captured(module: CoreModule) -> bool:
    """Return True if what an earlier call was asked for is still there."""
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
        self.options = options
        """What was asked of this call by name, `v` apart."""
        self.v = v

    # What it asks for: each of these decides of one stage.

    def is_captured(self) -> bool:
        """Return True if anything about submodules is asked of this call."""
        requested = self.options
        return bool(requested) and any(
            requested.get(name) is not None and requested[name] is not False for name in TRACKING
        )

    def was_captured(self) -> bool:
        """Return True if an earlier call was asked, and this one is not."""
        return has_captured(self.module) and not self.is_captured()

    def is_compiled(self) -> bool:
        """Return True if the call is to be compiled; inside a transform it is part of what is being
        traced.
        """
        inner = self.module._nbm
        return (inner.compiled is not None or inner.config.compile_on_next_step) and here() == EAGER

    def has_variables(self) -> bool:
        """Return True if it is given variables, `v=`."""
        return self.v is not None

    def is_observed(self) -> bool:
        """Return True: every call is."""
        return True

    def has_hooks(self) -> bool:
        """Return True if hooks of the module run around its forward."""
        inner = self.module._nbm
        return bool(inner.hooks or inner.pre_hooks)


def take_options(
    module: Any, kwargs: dict[str, Any], names: frozenset[str] = OPTIONS
) -> dict[str, Any]:
    """Move the options of the call out of `kwargs`; names that forward itself has stay with it."""
    local = type(module)._own_parameters
    options = {}
    for name in names.intersection(kwargs):
        if name not in local or (name == "v" and isinstance(kwargs[name], Mapping)):
            options[name] = kwargs.pop(name)
    return options


def way_of(call: ModuleCall, stages: Stages) -> Way:
    """Return the stages that this call asks for."""
    return tuple([stage for is_asked_for, stage in stages if is_asked_for(call)])


def go_on(call: ModuleCall, stages: Way) -> Any:
    """Enter the next stage; behind the last one is the user's forward."""
    __tracebackhide__ = True
    return (
        stages[0](call, stages[1:]) if stages else call.run(call.module, *call.args, **call.kwargs)
    )
