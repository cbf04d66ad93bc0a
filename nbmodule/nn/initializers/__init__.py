"""First values of variables: `Initializer` and its kinds."""

from __future__ import annotations

from nbmodule.base import lazy

_HOMES = {
    "nbmodule.nn.initializers.base": "Initializer compute_fans",
    "nbmodule.nn.initializers.adapters": "FromFunction InitializerLike as_initializer",
    "nbmodule.nn.initializers.distributions": (
        "Constant Zeros Ones RandomNormal TruncatedNormal Orthogonal Uniform GlorotUniform "
        "GlorotNormal KaimingUniform KaimingNormal LecunNormal FirstLayerSiren Siren"
    ),
}
_ROOMS: dict[str, str] = {}
_ALIASES: dict[str, str] = {}

__getattr__, __dir__, __all__ = lazy.hand_on(__name__, _HOMES, _ROOMS, _ALIASES)
