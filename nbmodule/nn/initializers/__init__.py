"""First values of variables: `Initializer` and its kinds."""

from __future__ import annotations

from nbmodule.base.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
