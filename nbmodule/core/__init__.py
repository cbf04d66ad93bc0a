"""Boxes, frames, the one walk, modules and transforms: what everything else stands on."""

from nbmodule.base.sockets import plug
from nbmodule.core.variables.frame import quiet

plug("kernels", quiet)  # arithmetic on Containers shares its kernels between frames
