"""`nb.from_torch` and `to_torch`: models of PyTorch as modules of the same layout, and state dicts with PyTorch's names."""

from nbmodule.interop.torch_layers.convert import Conversion, from_torch
from nbmodule.interop.torch_layers.names import laid_out_otherwise, to_torch
from nbmodule.tree.sockets import plug

__all__ = ["Conversion", "from_torch", "to_torch"]

plug("laid_out_otherwise", laid_out_otherwise)
