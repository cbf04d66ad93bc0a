"""What counts as a whole number in an argument: Python's own and NumPy's, which `len`, `argmax` and
settings from files give.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number; True and False are none.

    Example:
        >>> is_whole(3), is_whole(np.int64(3)), is_whole(True), is_whole(3.0)
        (True, True, False, False)
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Whether it is a number on the line, whole or not, of Python or NumPy; True and False are
    none.

    Example:
        >>> is_real(0.5), is_real(np.float32(0.5)), is_real(True), is_real("0.5")
        (True, True, False, False)
    """
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
