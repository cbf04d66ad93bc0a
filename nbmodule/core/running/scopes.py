"""Name scopes: while a call is traced, the operations inside carry its name, which graphs, profiles and searches read."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from nbmodule.base.jax_names import is_eager, source_info_util
from nbmodule.core.boxes.frame import now
from nbmodule.core.shape.walk import name_within, plan_of

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule


def scope_of(module: CoreModule) -> Any:
    """While tracing, the name scope that graphs read: the child's own escaped name, numbered from its second call on."""
    if is_eager() or getattr(type(module), "_has_scope_already", False):
        return nullcontext()
    caller = now.stack[-1] if now.stack else None
    name = escape(own_name(module, caller))
    if caller is not None:
        count = now.counts[-1][name] = now.counts[-1].get(name, 0) + 1
        name = f"{name}#{count}" if count > 1 else name
    return source_info_util.extend_name_stack(name)  # what `jax.named_scope` enters, without a generator around it


def own_name(module: Any, caller: Any = None) -> str:
    """The name of `module` within the module that calls it, else within the one that holds it, else its class."""
    if caller is not None:
        # what one module alone holds has one name; only what is shared asks the walk for its first one, which is dear in deep chains
        name = name_within(caller, module) if len(module._nbm.parents) < 2 else None
        if name is None:
            place = plan_of(caller).modules.get(module)
            name = place.name if place is not None else None
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
