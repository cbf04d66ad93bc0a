"""Room for deep nesting: modules in modules, or levels in levels, beyond what Python lets functions
call each other.

Python stops at a thousand calls within each other, to keep a runaway recursion from using up the
stack of the machine. A chain of a thousand modules is no runaway. So whoever meets deep nesting
asks here for more room, once, as much as the nesting needs and at most what the stack bears: each
call that goes through C takes about a kilobyte of it. The limit is never lowered again, since the
deep thing is there to stay, and other threads may be in the middle of it.
"""

from __future__ import annotations

import sys

SHALLOW = 100
"""Levels for which there is room without asking."""
_CALLS = 5
"""Calls within each other for one level: a module's entry, what surrounds it, and its forward."""
_BYTES = 1400
"""Of the stack for one call through C, with some to spare (measured: 1,000)."""


def allow(levels: int) -> None:
    """Let things be nested that deep, as far as the stack bears it; beyond that Python's own limit
    says no.

    Example:
        >>> allow(3)
    """
    if levels <= SHALLOW:
        return
    expected = min(1000 + _CALLS * levels, _most())
    if sys.getrecursionlimit() < expected:
        sys.setrecursionlimit(expected)


def _most() -> int:
    """As many calls as the stack bears."""
    try:
        import resource
    except (
        ImportError
    ):  # Windows, where the stack of a program is fixed when it is built, and small
        return 0
    size = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return (8 << 20 if size == resource.RLIM_INFINITY else size) // _BYTES
