"""The last stages: the call in its scope, recorded if somebody is tracking, and its hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbmodule.core.boxes.frame import calling, now
from nbmodule.core.recording import tracker
from nbmodule.core.running.notes import annotate
from nbmodule.core.running.scopes import scope_of
from nbmodule.core.running.stages import ModuleCall, Run, Way, go_on
from nbmodule.core.shape import hooks

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule


def observe(call: ModuleCall, way: Way) -> Any:
    """The call in its scope; told to whoever is recording, also when it fails."""
    __tracebackhide__ = True
    module = call.module
    recording = now.tracker is not None
    if recording:
        call.args, call.kwargs = now.tracker.given(module, call.args, call.kwargs)
    arguments = call.args, call.kwargs
    index = tracker.begin(module, arguments) if recording else -1
    scope = scope_of(module)
    if now.frame is not None and len(now.stack) == now.frame.base and module._nbm.home is None:
        now.frame.touched.setdefault(module)
    try:
        with calling(module), scope:
            outputs = (
                way[0](call, way[1:]) if way else call.run(module, *call.args, **call.kwargs)
            )  # `go_on`, one call less
            if recording:
                outputs = now.tracker.replaced(module, arguments[0], outputs)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if recording:
            tracker.fail(index, error)
        if isinstance(error, Exception):
            annotate(error, module, *arguments)
        raise
    if recording:
        tracker.end(index, module, arguments, outputs)
    return outputs


def observed(module: CoreModule, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that is not the module's own way of being called, such as that of a foreign part; hooks and all."""
    __tracebackhide__ = True
    call = ModuleCall(module, run, args, kwargs, {})
    return observe(call, (run_hooks,) if call.has_hooks() else ())


def run_hooks(call: ModuleCall, way: Way) -> Any:
    """Pre-hooks may replace the arguments, forward hooks the output."""
    __tracebackhide__ = True
    module = call.module
    call.args, call.kwargs = hooks.before(module, call.args, call.kwargs)
    return hooks.after(module, call.args, call.kwargs, go_on(call, way))
