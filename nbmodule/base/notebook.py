"""The notebook that runs this code, if there is one. IPython is never imported to find out."""

from __future__ import annotations

import sys
from typing import Any


def running_shell() -> Any:
    """Return the shell of IPython that runs this code; None outside of IPython."""
    # another thread may be importing IPython: then the name is not there yet
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def running_kernel() -> Any:
    """Return the kernel of a notebook; None outside of one."""
    return getattr(running_shell(), "kernel", None)


def names_of_notebook() -> dict[str, Any]:
    """Return the variables of the notebook by name; none outside of one."""
    return getattr(running_shell(), "user_ns", {})


def running_request() -> dict[str, Any]:
    """Return the request that the kernel answers now, of which the running cell is a part."""
    parent_of = getattr(running_shell(), "get_parent", dict)
    return parent_of() or {}


def running_execution() -> str:
    """Return the identifier of the running execution of a notebook cell; '' outside of one."""
    return str(running_request().get("header", {}).get("msg_id", ""))


def running_cell_id() -> str | None:
    """Name the running cell; None without a notebook, or where its front end does not say."""
    cell = running_request().get("metadata", {}).get("cellId")
    return str(cell) if cell else None
