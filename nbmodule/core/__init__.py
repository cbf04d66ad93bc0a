"""Variables, frames, the one walk, modules and transforms: the base of all other packages."""

from nbmodule.base.sockets import plug
from nbmodule.core.variables.frame import quiet

plug("kernels", quiet)  # arithmetic on Containers shares its kernels between frames
