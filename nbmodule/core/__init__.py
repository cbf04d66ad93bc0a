"""Boxes, frames, the one walk, modules and transforms: what everything else stands on."""

from nbmodule.core.boxes.frame import quiet
from nbmodule.tree.sockets import plug

plug("kernels", quiet)  # arithmetic on Containers shares its kernels between frames
