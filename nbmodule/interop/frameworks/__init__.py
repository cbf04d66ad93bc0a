"""One file for each framework.

A converter speaks in `(function, variables)`: `unpack(foreign)` gives the pair, `pack(function,
variables)` builds a foreign model. No module of nbmodule is seen here.
"""
