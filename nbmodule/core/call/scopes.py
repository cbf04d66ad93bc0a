"""The last stages of a call: its name scope, its record if somebody is tracking, and its hooks.

While a call is traced, the operations inside carry its name, which graphs and profiles read.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from nbmodule.base.jax_names import is_eager, source_info_util
from nbmodule.core.call.error_notes import annotate
from nbmodule.core.call.stages import ModuleCall, Remaining, Run, enter
from nbmodule.core.recording import tracker
from nbmodule.core.structure import hooks
from nbmodule.core.structure.walk import name_within, plan_of
from nbmodule.core.variables.frame import calling, now

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


def scope_of(module: CoreModule) -> Any:
    """While tracing, the name scope that graphs read: the child's own escaped name, numbered from
    its second call on.
    """
    if is_eager() or getattr(type(module), "_has_scope_already", False):
        return nullcontext()
    caller = now.stack[-1] if now.stack else None
    name = escape(own_name(module, caller))
    if caller is not None:
        count = now.counts[-1][name] = now.counts[-1].get(name, 0) + 1
        name = f"{name}#{count}" if count > 1 else name
    return source_info_util.extend_name_stack(
        name
    )  # what `jax.named_scope` enters, without a generator around it


def own_name(module: Any, caller: Any = None) -> str:
    """Return the name of `module` within the module that calls it, else within the one that holds
    it, else its class.
    """
    if caller is not None:
        # what one module alone holds has one name; only what is shared asks the walk for its first
        # one, which is dear in deep chains
        name = name_within(caller, module) if len(module._nbm.parents) < 2 else None
        if name is None:
            location = plan_of(caller).modules.get(module)
            name = location.name if location is not None else None
        if name is not None:
            return name
    for reference in module._nbm.parents:
        parent = reference()
        name = name_within(parent, module) if parent is not None else None
        if name is not None:
            return name
    return type(module).__name__


def escape(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("(", "%28").replace(")", "%29")


def observe(call: ModuleCall, stages: Remaining) -> Any:
    """Return the call in its scope; told to whoever is recording, also when it fails."""
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
                stages[0](call, stages[1:])
                if stages
                else call.run(module, *call.args, **call.kwargs)
            )  # `enter`, one call less
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
    """Return a call that is not the module's own way of being called, such as that of a foreign
    part; hooks and all.
    """
    __tracebackhide__ = True
    call = ModuleCall(module, run, args, kwargs, {})
    return observe(call, (run_hooks,) if call.has_hooks() else ())


def run_hooks(call: ModuleCall, stages: Remaining) -> Any:
    """Pre-hooks may replace the arguments, forward hooks the output."""
    __tracebackhide__ = True
    module = call.module
    call.args, call.kwargs = hooks.before(module, call.args, call.kwargs)
    return hooks.after(module, call.args, call.kwargs, enter(call, stages))
