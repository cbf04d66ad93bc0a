"""Laying several Containers over each other: equal values stay, different ones stand side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbmodule.tree.compare import shape_of
from nbmodule.tree.leaves import is_array, same_value
from nbmodule.tree.nested import Nested

_ABSENT = object()


class Overlay:
    """One comparison of several Containers; a row is (number of the Container, its value)."""

    def __init__(
        self, mode: str, diff_keys: str | Sequence[str], detect_key_diffs: bool, equal: Callable[[Any, Any], bool]
    ) -> None:
        self.mode = mode
        self.diff_keys = diff_keys
        self.detect_key_diffs = detect_key_diffs
        self.equal = equal

    def of_levels(self, rows: list[tuple[int, Any]]) -> dict[str, Any]:
        """Compare levels key by key; keys of which nothing is to be shown are left out."""
        keys = dict.fromkeys(key for _, level in rows for key in level)
        found = {}
        for key in keys:
            present = [(number, level[key]) for number, level in rows if key in level]
            result = self.of_values(present, complete=len(present) == len(rows))
            if result is not _ABSENT:
                found[key] = result
        return found

    def of_values(self, rows: list[tuple[int, Any]], complete: bool) -> Any:
        """Compare what several have at one key."""
        if not complete:
            if self.mode == "same_only":
                return _ABSENT
            if self.detect_key_diffs:
                return {self.key([number]): own(value) for number, value in rows}
            if len(rows) == 1:
                return own(rows[0][1]) if self.mode == "all" else _ABSENT
        values = [value for _, value in rows]
        if all(isinstance(value, Nested) for value in values):
            level = self.of_levels(rows)
            return level if level or (self.mode != "diff_only" and not any(values)) else _ABSENT
        groups = self.groups(rows)
        if len(groups) == 1:
            return _ABSENT if self.mode == "diff_only" else values[0]
        if self.mode == "same_only":
            return _ABSENT
        return {self.key([number for number, _ in group]): own(group[0][1]) for group in groups}

    def groups(self, rows: list[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
        """Put the rows with equal values together."""
        groups: list[list[tuple[int, Any]]] = []
        for row in rows:
            for group in groups:
                if self.equal(group[0][1], row[1]):
                    group.append(row)
                    break
            else:
                groups.append([row])
        return groups

    def key(self, numbers: list[int]) -> str:
        """Give the key under which the value of some Containers stands."""
        if isinstance(self.diff_keys, str):
            return f"{self.diff_keys}_{', '.join(map(str, numbers))}"
        return self.diff_keys[numbers[0]]


def own(value: object) -> Any:
    """Give a part levels of its own, so that a difference can be changed without changing what was compared."""
    return value._like({key: own(part) for key, part in value.items()}) if isinstance(value, Nested) else value


def equality(values: bool, shapes: bool) -> Callable[[Any, Any], bool]:
    """Give the test whether two leaves count as equal: by value, by shape, or by neither."""

    def equal(one: object, other: object) -> bool:
        if isinstance(one, Nested) or isinstance(other, Nested):
            return one is other
        if shapes and (is_array(one) or is_array(other)) and shape_of(one) != shape_of(other):
            return False
        return not values or same_value(one, other)

    return equal
