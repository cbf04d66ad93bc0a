"""Models of other frameworks, one file for each.

A converter speaks in `(function, variables)`: `unpack(foreign)` gives the pair, `pack(function, variables)` builds a foreign
model. No module of nbmodule is seen here.
"""

from nbmodule.interop.frameworks.function import Function, Leaf, framework_of, need

__all__ = ["Function", "Leaf", "framework_of", "need"]
