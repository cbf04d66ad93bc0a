"""The functions behind the layers: each one inline compiled kernel, pure, over any number of
leading axes.
"""

from __future__ import annotations

from nbmodule.base.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
for _name in __all__:  # at once: `linear` and `dropout` are names of modules here as well
    __getattr__(_name)
