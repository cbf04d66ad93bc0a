"""A place in a nested value is one tuple of JAX key entries; this file spells it, sorts it and finds it again.

The tuple is the truth and has three spellings, each made for one use:

- `dotted`: `layers.0.weight`, the name of a parameter;
- `chain`: `layers/v0/weight`, the key chain in a `Container`;
- `keystr`: `.layers[0].weight`, what JAX prints for a PyTree leaf.

Only the tuple can be taken apart without doubt: a spelling is read back by comparing it with the places that exist (`find`).
"""

from __future__ import annotations

import bisect
import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from nbmodule.errors import PathError, StructureError

Path = tuple[Any, ...]

_LIST_ITEM = re.compile(r"v([0-9]+)")
_MANY_NAMES = 400


def dotted(path: Path) -> str:
    """Spell a place with dots, as parameters are named.

    Example:
        >>> from jax.tree_util import GetAttrKey, SequenceKey
        >>> dotted((GetAttrKey("layers"), SequenceKey(0), GetAttrKey("weight")))
        'layers.0.weight'
    """
    return ".".join(_plain(entry) for entry in path)


def chain(path: Path) -> str:
    """Spell a place as a key chain: list items are `v0`, `v1`, ..., attribute names lose one leading underscore.

    Example:
        >>> from jax.tree_util import DictKey, GetAttrKey, SequenceKey
        >>> chain((GetAttrKey("_layers"), SequenceKey(0), DictKey("_x")))
        'layers/v0/_x'
    """
    return "/".join(link(entry) for entry in path)


def keystr(path: Path) -> str:
    """Spell a place as JAX does.

    Example:
        >>> from jax.tree_util import DictKey, GetAttrKey, SequenceKey
        >>> keystr((GetAttrKey("layers"), SequenceKey(0), DictKey("w")))
        ".layers[0]['w']"
    """
    return jax.tree_util.keystr(tuple(path))


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
    return _plain(entry)


def _plain(entry: Any) -> str:
    if isinstance(entry, GetAttrKey):
        return entry.name
    if isinstance(entry, SequenceKey):
        return str(entry.idx)
    if isinstance(entry, (DictKey, FlattenedIndexKey)):
        return str(entry.key)
    return str(entry)


def natural(name: str) -> tuple[str, int, str]:
    """Give what sorts one key of a chain: as text, but list items by their number, so that `v2` comes before `v10`.

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


def sort_key(path: Any) -> tuple[tuple[str, int, str], ...]:
    """Give what sorts places, or single entries, into the canonical order.

    The order is that of the key chains, level by level: so a walk over attributes and the `Container` made from it agree
    leaf by leaf. Names that differ only in a leading underscore would share a chain and are ordered by their full text.

    Example:
        >>> from jax.tree_util import SequenceKey
        >>> sorted([(SequenceKey(10),), (SequenceKey(2),)], key=sort_key)
        [(SequenceKey(idx=2),), (SequenceKey(idx=10),)]
    """
    entries = path if isinstance(path, tuple) else (path,)
    return tuple((*natural(link(entry))[:2], _plain(entry)) for entry in entries)


def unique_names(paths: Sequence[Path], spell: Callable[[Path], str]) -> list[str]:
    """Spell many places and make sure that no two share a name.

    Raises:
        StructureError: if two places would get the same spelling; both are named.

    Example:
        >>> from jax.tree_util import GetAttrKey
        >>> unique_names([(GetAttrKey("a"),), (GetAttrKey("_b"),)], chain)
        ['a', 'b']
    """
    owners: dict[str, Path] = {}
    for path in paths:
        name = spell(path)
        other = owners.setdefault(name, path)
        if other is not path:
            raise StructureError(
                f'two places would both be called "{name}": {keystr(other)} and {keystr(path)}. Rename one of them.'
            )
    return list(owners)


def find(paths: Iterable[Path], text: str) -> Path:
    """Find the place that a text means, in any of the three spellings, among the places that exist.

    Raises:
        PathError: if no place has that spelling (the closest name is given) or if several have.

    Example:
        >>> from jax.tree_util import GetAttrKey, SequenceKey
        >>> place = (GetAttrKey("layers"), SequenceKey(0))
        >>> find([place], "layers.0") == find([place], "layers/v0") == find([place], ".layers[0]") == place
        True
    """
    paths = list(paths)
    found = [path for path in paths if text in (dotted(path), chain(path), keystr(path))]
    places = dict.fromkeys(found)
    if len(places) == 1:
        return found[0]
    if places:
        listed = ", ".join(keystr(path) for path in places)
        raise PathError(f'"{text}" could mean {len(places)} places: {listed}. Use one of these spellings.')
    spell = keystr if text[:1] in (".", "[") else chain if "/" in text else dotted
    raise PathError(f'there is no place "{text}"{hint(text, map(spell, paths))}')


def match(pattern: str | Iterable[str], name: str) -> bool:
    """Tell whether a name fits a glob, or any of several; `*` also runs over dots and slashes.

    Example:
        >>> match("blocks.*", "blocks.0.norm"), match("blocks.?", "blocks.10"), match(["head", "stem"], "head")
        (True, False, True)
    """
    patterns = (pattern,) if isinstance(pattern, str) else pattern
    return any(fnmatch.fnmatchcase(name, each) for each in patterns)


def closest(name: str, names: Iterable[str]) -> str | None:
    """Give the name most like the one that was asked for, or None if none is alike.

    Example:
        >>> closest("encoder.lin.weight", ["decoder.weight", "encoder.linear.weight"])
        'encoder.linear.weight'
    """
    names = [each for each in names if isinstance(each, str)]
    if not names:
        return None
    folded = name.casefold()
    for each in names:
        if each.casefold() == folded:
            return each
    if len(names) > _MANY_NAMES:  # difflib compares every pair of letters: keep the names of like length and ending
        tail = re.split(r"[./]", name)[-1]
        alike = [each for each in names if each.endswith(tail)] or names
        names = sorted(alike, key=lambda each: abs(len(each) - len(name)))[:_MANY_NAMES]
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return found[0] if found else None


def hint(name: str, names: Iterable[str]) -> str:
    """End a message about a name that does not exist with the closest one that does.

    Example:
        >>> "no such layer" + hint("haed", ["head", "stem"])
        'no such layer; the closest name is "head".'
    """
    near = closest(name, names)
    return "." if near is None else f'; the closest name is "{near}".'
