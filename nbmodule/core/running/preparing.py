"""The first stages, which change the call itself: its options are taken out of its arguments, and the module is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nbmodule.core.boxes.frame import EAGER, here, now
from nbmodule.core.boxes.placement import default_device
from nbmodule.core.running.asked import remember
from nbmodule.core.shape.building import STATEFUL, build_for_call, move, settle
from nbmodule.core.shape.walk import plan_of

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule

TRACKING = (
    "track_submod_rets",
    "submod_depth",
    "submods_to_track",
    "track_submod_call_order",
    "expected_submod_rets",
    "replace_submod_rets",
)
OPTIONS = frozenset(("v", *TRACKING, *STATEFUL))


def take_options(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Move the options of the call out of `kwargs`; names that forward itself has stay with it."""
    own = type(module)._own_parameters
    options = {}
    for name in OPTIONS.intersection(kwargs):
        if name not in own or (name == "v" and isinstance(kwargs[name], Mapping)):
            options[name] = kwargs.pop(name)
    return options


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
        move([box for box in plan_of(module).boxes if box.sharding.device_set != {device}], device, None)
