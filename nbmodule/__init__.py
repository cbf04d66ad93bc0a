"""nbmodule: models for notebooks, on JAX. The stub beside this file lists its names, and each is
loaded when it is first asked for.

`nb.nn`, `nb.nn.functional` (also `nb.F`), `nb.optim` and `nb.errors` are packages; their names are
here too.
"""

from __future__ import annotations

from nbmodule.base.lazy import names_of_stub
from nbmodule.base.version import __version__

__getattr__, __dir__, __all__ = names_of_stub(__name__)
