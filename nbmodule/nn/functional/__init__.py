"""The functions behind the layers: each one inline compiled kernel, pure, over any number of
leading axes.
"""

from __future__ import annotations

from nbmodule.base import lazy
from nbmodule.nn import _FUNCTIONS as _HOMES

_ROOMS: dict[str, str] = {}
_ALIASES: dict[str, str] = {}

__getattr__, __dir__, __all__ = lazy.hand_on(__name__, _HOMES, _ROOMS, _ALIASES)
for _name in __all__:  # at once: `linear` and `dropout` are names of modules here as well
    __getattr__(_name)
