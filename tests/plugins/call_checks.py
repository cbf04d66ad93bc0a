"""Check shapes and dtypes at each call of a function whose signature names them.

jaxtyping's import hook puts this checker around the functions of a room. It hands over two forms of
each: one that is called before the function, with the arguments alone, and one that is called
afterwards, with arguments and result. Only the second is checked, so that a wrong input meets the
function's own error. Functions without a shape in their signature are left as they are: their
annotations are pyright's business.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from beartype import BeartypeConf, beartype

if TYPE_CHECKING:
    from collections.abc import Callable

# The packages whose functions take arrays. Elsewhere a wrapper would only hide the caller of a warning from
# the line it names.
PACKAGES = ("nbmodule.nn", "nbmodule.optim")
CHECKED = beartype(
    conf=BeartypeConf(is_pep484_tower=True)
)  # an int will do where a float is asked for
SHAPE = re.compile(r"\b(?:Float|Int|UInt|Bool|Num|Inexact|Integer|Real|Complex|Shaped|Key)\[")


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the form with a result, if its signature names shapes."""
    hints = getattr(function, "__annotations__", {})
    is_before_the_call = hints.get("return", Any) is Any
    if is_before_the_call or not any(SHAPE.search(str(hint)) for hint in hints.values()):
        return function
    return CHECKED(function)
