"""First values of variables: `Initializer` and its kinds."""

from typing import TYPE_CHECKING, Any

from nbmodule.base.lazy import no_such
from nbmodule.base.migration import accept_aliases
from nbmodule.nn.initializers.adapters import FromFunction, InitializerLike, as_initializer
from nbmodule.nn.initializers.base import Initializer, compute_fans
from nbmodule.nn.initializers.distributions import (
    Constant,
    FirstLayerSiren,
    GlorotNormal,
    GlorotUniform,
    KaimingNormal,
    KaimingUniform,
    LecunNormal,
    Ones,
    Orthogonal,
    RandomNormal,
    Siren,
    TruncatedNormal,
    Uniform,
    Zeros,
)

__all__ = [
    "Initializer",
    "compute_fans",
    "FromFunction",
    "InitializerLike",
    "as_initializer",
    "Constant",
    "Zeros",
    "Ones",
    "RandomNormal",
    "TruncatedNormal",
    "Orthogonal",
    "Uniform",
    "GlorotUniform",
    "GlorotNormal",
    "KaimingUniform",
    "KaimingNormal",
    "LecunNormal",
    "FirstLayerSiren",
    "Siren",
]

for _value in list(globals().values()):
    if isinstance(_value, type) and issubclass(_value, Initializer):
        accept_aliases(_value)  # here, where the constructors that dataclasses make are there


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        raise no_such(__name__, name, tuple(__all__))
