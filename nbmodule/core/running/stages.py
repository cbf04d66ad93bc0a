"""A call on its way: what is called, with what, what was asked of it, and the stages that are still ahead.

A stage takes the call and the rest of its way, does its part, and enters the next by `go_on`. Only the stages that a call asks
for are on its way, so what is not asked for costs no call within a call: models may be deep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule

Run = Callable[..., Any]
Way = tuple[Callable[["ModuleCall", Any], Any], ...]
Stages = tuple[tuple[Callable[["ModuleCall"], Any], Callable[["ModuleCall", Any], Any]], ...]


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


def way_of(call: ModuleCall, stages: Stages) -> Way:
    """The stages that this call asks for."""
    return tuple([stage for is_asked_for, stage in stages if is_asked_for(call)])


def go_on(call: ModuleCall, way: Way) -> Any:
    """Enter the next stage; behind the last one is the user's forward."""
    __tracebackhide__ = True
    return way[0](call, way[1:]) if way else call.run(call.module, *call.args, **call.kwargs)
