"""Chains of an older form: the layers of a `Sequential` stood directly below it, `v0/w`, where `submodules/v0/w` stands now.

Files, checkpoints and Containers of that form are taken wherever arrays are given by chain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

LEVEL = "submodules"
Key = TypeVar("Key", str, tuple[str, ...])
T = TypeVar("T")


def in_older_form(chain: Key) -> Key:
    """The chain without the level of a Sequential.

    Example:
        >>> in_older_form("encoder/submodules/v0/w"), in_older_form(("submodules", "v0", "w"))
        ('encoder/v0/w', ('v0', 'w'))
    """
    if isinstance(chain, str):
        return "/".join(key for key in chain.split("/") if key != LEVEL)
    return tuple(key for key in chain if key != LEVEL)


def in_present_form(found: Mapping[Key, T], wanted: Collection[Key]) -> dict[Key, T]:
    """`found` under the chains that are wanted, where it differs from them in that level only.

    Example:
        >>> in_present_form({"v0/w": 1, "b": 2}, ["submodules/v0/w", "b"])
        {'submodules/v0/w': 1, 'b': 2}
    """
    known = set(wanted)
    if all(chain in known for chain in found):
        return dict(found)
    short: dict[Key, list[Key]] = {}
    for chain in wanted:
        short.setdefault(in_older_form(chain), []).append(chain)
    renamed = {}
    for chain, value in found.items():
        candidates = [chain] if chain in known else short.get(in_older_form(chain), [])
        renamed[candidates[0] if len(candidates) == 1 else chain] = value
    return renamed if len(renamed) == len(found) else dict(found)
