"""One file for each framework.

A `Function` calls a foreign model on the values of its variables; `pack(function, variables)`
builds a foreign model. No module of nbmodule is known here.
"""
