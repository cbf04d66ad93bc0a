"""Lines of a user's code: JAX is told which files are not his, ours and those that check annotations around it."""

from __future__ import annotations

import os
from importlib.util import find_spec

from nbmodule.base.folder import PACKAGE
from nbmodule.base.jax_names import line_of_user, source_info_util

__all__ = ["line_of_user"]

source_info_util.register_exclusion(PACKAGE)
for _checker in ("jaxtyping", "beartype", "typeguard"):
    _found = find_spec(_checker)
    for _folder in (_found.submodule_search_locations or ()) if _found else ():
        source_info_util.register_exclusion(_folder + os.sep)
