"""What the rooms below ask of a model of another framework as it stands: one of PyTorch answers itself, the others are alike."""

from __future__ import annotations

from typing import Any

from nbmodule.base.foreign import framework_of
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.sockets import plug
from nbmodule.interop.standing import converted
from nbmodule.interop.standing.compiled import local
from nbmodule.interop.standing.watched import StandIn


def watched(model: object) -> StandIn:
    """What watches a model: one for all who do so at the same time, since paths are those of its stand-in."""
    known = next((known for known in local.watched if known.model is model), None)
    if known is not None:
        return known
    if framework_of(model) == "torch":
        from nbmodule.interop.torch_standing.watching import WatchedTorch

        return WatchedTorch(model)
    return StandIn(model)


def as_it_stands(verb: str, model: object, args: Args = (), kwargs: Kwargs | None = None, **options: object) -> Any:
    """What a verb that looks at a model says of one of another framework."""
    if framework_of(model) == "torch":
        from nbmodule.interop.torch_standing.verbs import VERBS

        return VERBS[verb](model, args, kwargs or {}, **options)
    return converted.VERBS[verb](model, args, kwargs or {}, **options)


plug("watched", watched)
plug("as_it_stands", as_it_stands)
