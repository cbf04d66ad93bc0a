"""A place in a nested value is one tuple of JAX key entries; this file spells it, sorts it and
finds it again.

The tuple is the truth and has three spellings, each made for one use:

- `dotted`: `layers.0.weight`, the name of a parameter;
- `chain`: `layers/v0/weight`, the key chain in a `Container`;
- `keystr`: `.layers[0].weight`, what JAX prints for a PyTree leaf.

Only the tuple can be taken apart without doubt: a spelling is read back by comparing it with the
places that exist (`find`).
"""

from __future__ import annotations

import bisect
import difflib
import fnmatch
import re
from collections.abc import Iterable
from typing import Any

from jax.tree_util import GetAttrKey, SequenceKey

Path = tuple[Any, ...]

_LIST_ITEM = re.compile(r"v([0-9]+)")


def link(entry: Any) -> str:
    """Give the one key that an entry becomes in a key chain.

    Example:
        >>> from jax.tree_util import GetAttrKey, SequenceKey
        >>> link(GetAttrKey("_linear")), link(SequenceKey(3))
        ('linear', 'v3')
    """
    if isinstance(entry, GetAttrKey):
        name = entry.name
        return name[1:] if name.startswith("_") and len(name) > 1 else name
    if isinstance(entry, SequenceKey):
        return f"v{entry.idx}"
    return str(entry_of(entry))


def entry_of(key: object) -> Any:
    """The name or number of a JAX key entry, of an optimizer's or framework's own kind too.

    Example:
        >>> from jax.tree_util import GetAttrKey, SequenceKey
        >>> entry_of(GetAttrKey("weight")), entry_of(SequenceKey(3))
        ('weight', 3)
    """
    names = [name for name in ("name", "key", "idx") if hasattr(key, name)]
    return getattr(key, names[0]) if names else str(key)


def entry_text(key: Any) -> str:
    """An entry in a dotted name."""
    return str(entry_of(key)).lstrip(".")


def natural(name: str) -> tuple[str, int, str]:
    """Give what sorts one key of a chain: as text, but list items by their number, so that `v2`
    comes before `v10`.

    Example:
        >>> sorted(["v10", "w", "v2", "b"], key=natural)
        ['b', 'v2', 'v10', 'w']
    """
    item = _LIST_ITEM.fullmatch(name)
    return ("v", int(item[1]), name) if item else (name, -1, name)


def sort_names(names: Iterable[str]) -> list[str]:
    """Sort the keys of one level into the canonical order, at the speed of a plain sort.

    Example:
        >>> sort_names({"v10": 0, "v9": 0, "a": 0})
        ['a', 'v9', 'v10']
    """
    names = sorted(names)
    first, last = bisect.bisect_left(names, "v"), bisect.bisect_left(names, "w")
    if last - first > 1:
        names[first:last] = sorted(names[first:last], key=natural)
    return names


def match(pattern: str | Iterable[str], name: str) -> bool:
    """Tell whether a name fits a glob, or any of several; `*` also runs over dots and slashes.

    Example:
        >>> (
        ...     match("blocks.*", "blocks.0.norm"),
        ...     match("blocks.?", "blocks.10"),
        ...     match(["head", "stem"], "head"),
        ... )
        (True, False, True)
    """
    patterns = (pattern,) if isinstance(pattern, str) else pattern
    return any(fnmatch.fnmatchcase(name, item) for item in patterns)


def closest(name: str, names: Iterable[str]) -> str | None:
    """Give the name most like the one that was asked for, or None if none is alike.

    Example:
        >>> closest("encoder.lin.weight", ["decoder.weight", "encoder.linear.weight"])
        'encoder.linear.weight'
    """
    names = [item for item in names if isinstance(item, str)]
    folded = (item for item in names if item.casefold() == name.casefold())
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return next(folded, near[0] if near else None)


def hint(name: str, names: Iterable[str]) -> str:
    """End a message about a name that does not exist with the closest one that does.

    Example:
        >>> "no such layer" + hint("haed", ["head", "stem"])
        'no such layer; the closest name is "head".'
    """
    near = closest(name, names)
    return "." if near is None else f'; the closest name is "{near}".'
