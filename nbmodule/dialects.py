"""The words of neighboring frameworks, in one place: what they mean here, and what to say where they mean nothing."""

from __future__ import annotations

from collections.abc import Iterable

from nbmodule.base.paths import hint


def no_such_name(package: str, name: str, names: Iterable[str]) -> str:
    """What to tell a user who has asked a package for a name that it has not."""
    short = package.replace("nbmodule", "nb", 1)
    return f"{short} has no name {name!r}{hint(name, names)}"
