"""Connect the verbs that view a model to those for models of other frameworks, unconverted."""

from __future__ import annotations

from typing import Any

from nbmodule.base.foreign import framework_of
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.interop.native import VERBS, StandIn, local


def watched(model: object) -> StandIn:
    """Return what tracks a model: one object for all blocks that track it at the same time."""
    for stand_in in local.watched:
        if stand_in.model is model:
            return stand_in
    if framework_of(model) == "torch":
        from nbmodule.interop.torch_native.track import WatchedTorch

        return WatchedTorch(model)
    return StandIn(model)


def run_verb(
    verb: str, model: object, args: Args = (), kwargs: Kwargs | None = None, **options: object
) -> Any:
    """Run a verb such as `summary` on a model of another framework."""
    if framework_of(model) == "torch":
        from nbmodule.interop.torch_native import views

        return views.VERBS[verb](model, args, kwargs or {}, **options)
    return VERBS[verb](model, args, kwargs or {}, **options)
