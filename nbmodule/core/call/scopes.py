"""The last stages of a call: its name scope, its record for trackers, and its hooks.

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
    """Return the name scope of a traced call: the child's escaped name, numbered from its second
    call on.
    """
    if is_eager() or getattr(type(module), "_has_scope_already", False):
        return nullcontext()
    caller = now.stack[-1] if now.stack else None
    name = escape_scope(own_name(module, caller))
    if caller is not None:
        count = now.counts[-1][name] = now.counts[-1].get(name, 0) + 1
        name = f"{name}#{count}" if count > 1 else name
    # As `jax.named_scope` does, without a generator.
    return source_info_util.extend_name_stack(name)


def own_name(module: Any, caller: Any = None) -> str:
    """Return the name of `module` within its caller, else within its parent, else its class."""
    if caller is not None:
        # Only a shared module has several names, of which the plan has the first one; asking the
        # plan is dear in deep chains.
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


def escape_scope(name: str) -> str:
    """Escape the characters that separate scopes."""
    return name.replace("%", "%25").replace("/", "%2F").replace("(", "%28").replace(")", "%29")


def observe(call: ModuleCall, stages: Remaining) -> Any:
    """Run the call in its scope, and record it for trackers, also when it fails."""
    __tracebackhide__ = True
    module = call.module
    is_recorded = now.tracker is not None
    if is_recorded:
        call.args, call.kwargs = now.tracker.given(module, call.args, call.kwargs)
    arguments = call.args, call.kwargs
    index = tracker.begin(module, arguments) if is_recorded else -1
    scope = scope_of(module)  # named within the caller, so before `calling`
    if now.frame is not None and len(now.stack) == now.frame.base and module._nbm.home is None:
        now.frame.touched.setdefault(module)
    try:
        with calling(module), scope:
            if stages:  # as `enter`, one Python call less
                outputs = stages[0](call, stages[1:])
            else:
                outputs = call.run(module, *call.args, **call.kwargs)
            if is_recorded:
                outputs = now.tracker.replaced(module, arguments[0], outputs)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if is_recorded:
            tracker.fail(index, error)
        if isinstance(error, Exception):
            annotate(error, module, *arguments)
        raise
    if is_recorded:
        tracker.end(index, module, arguments, outputs)
    return outputs


def observed(module: CoreModule, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run another function than the forward of a module as a call of it, with hooks and record."""
    __tracebackhide__ = True
    call = ModuleCall(module, run, args, kwargs, {})
    return observe(call, (run_hooks,) if call.has_hooks() else ())


def run_hooks(call: ModuleCall, stages: Remaining) -> Any:
    """Run pre-hooks, which may replace the arguments, and forward hooks, which may the output."""
    __tracebackhide__ = True
    module = call.module
    call.args, call.kwargs = hooks.run_before(module, call.args, call.kwargs)
    return hooks.run_after(module, call.args, call.kwargs, enter(call, stages))
