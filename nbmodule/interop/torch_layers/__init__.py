"""`nb.from_torch` and `to_torch`: models of PyTorch as modules of the same layout, and state dicts
with PyTorch's names.
"""

from nbmodule.interop.torch_layers.convert import from_torch
from nbmodule.interop.torch_layers.states import StateMatch, to_torch

__all__ = ["StateMatch", "from_torch", "to_torch"]
