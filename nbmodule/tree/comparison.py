"""Compare Containers: what differs, whether they are identical, where one is part of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbmodule.errors import ArgumentError, ArgumentTypeError, NotIdenticalError
from nbmodule.tree.compare import shape_of
from nbmodule.tree.converting import to_iterator_values
from nbmodule.tree.leaves import is_array, same_value
from nbmodule.tree.looking_up import all_key_chains, at_key_chains, has_key_chain
from nbmodule.tree.mapping import choice
from nbmodule.tree.nested import Nested

_ABSENT = object()


class Overlay:
    """One comparison of several Containers; a row is (number of the Container, its value)."""

    def __init__(
        self,
        mode: str,
        diff_keys: str | Sequence[str],
        detect_key_diffs: bool,
        equal: Callable[[Any, Any], bool],
    ) -> None:
        self.mode = mode
        self.diff_keys = diff_keys
        self.detect_key_diffs = detect_key_diffs
        self.equal = equal

    def of_levels(self, rows: list[tuple[int, Any]]) -> dict[str, Any]:
        """Compare levels key by key; keys of which nothing is to be shown are left out."""
        keys = dict.fromkeys(key for _, level in rows for key in level)
        results = {}
        for key in keys:
            present = [(number, level[key]) for number, level in rows if key in level]
            result = self.of_values(present, complete=len(present) == len(rows))
            if result is not _ABSENT:
                results[key] = result
        return results

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
    """Give a part levels of its own, so that a difference can be changed without changing what was
    compared.
    """
    return (
        value._like({key: own(part) for key, part in value.items()})
        if isinstance(value, Nested)
        else value
    )


def equality(values: bool, shapes: bool) -> Callable[[Any, Any], bool]:
    """Give the test whether two leaves count as equal: by value, by shape, or by neither."""

    def equal(one: object, other: object) -> bool:
        if isinstance(one, Nested) or isinstance(other, Nested):
            return one is other
        if shapes and (is_array(one) or is_array(other)) and shape_of(one) != shape_of(other):
            return False
        return not values or same_value(one, other)

    return equal


_MODES = ("all", "diff_only", "same_only")


def diff(
    containers: Sequence[Any],
    mode: str = "all",
    diff_keys: str | Sequence[str] = "diff",
    detect_key_diffs: bool = True,
    detect_value_diffs: bool = True,
    detect_shape_diffs: bool = True,
) -> Any:
    """Lay Containers over each other: equal leaves stay, where they differ the values stand side by
    side.
    """
    if mode not in _MODES:
        raise ArgumentError(f"mode is one of {', '.join(_MODES)}; found {mode!r}.")
    if not isinstance(diff_keys, str) and len(diff_keys) != len(containers):
        raise ArgumentError(
            f"diff_keys names {len(diff_keys)} Containers; there are {len(containers)}."
        )
    first = _trees(containers)[0]
    equal = equality(detect_value_diffs, detect_shape_diffs)
    rows = list(enumerate(first._admit(container) for container in containers))
    difference = Overlay(mode, diff_keys, detect_key_diffs, equal)
    return first._like(difference.of_levels(rows))


def identical(
    containers: Sequence[Any],
    same_arrays: bool = True,
    arrays_equal: bool = True,
    partial: bool = False,
    check_types: bool = True,
    check_shapes: bool = True,
    key_chains: object = None,
    to_apply: bool = True,
) -> bool:
    """Tell whether Containers have the same chains and the same leaves."""
    trees = _trees(containers)
    if partial:
        common = [
            chain
            for chain in all_key_chains(trees[0])
            if all(has_key_chain(tree, chain) for tree in trees)
        ]
        if not common:
            return False
        trees = [at_key_chains(tree, common) for tree in trees]
    first, *others = trees
    leaves = choice(first, key_chains, to_apply)

    def same(one: Any, other: Any) -> bool:
        if is_array(one) != is_array(other):
            return not check_types
        if not is_array(one):
            return (not check_types or type(one) is type(other)) and (
                not arrays_equal or same_value(one, other)
            )
        if check_shapes and one.shape != other.shape:
            return False
        return one is other if same_arrays else not arrays_equal or same_value(one, other)

    return all(_agree(first, other, same, leaves, ()) for other in others)


def identical_structure(
    containers: Sequence[Any],
    check_types: bool = True,
    check_shapes: bool = True,
    partial: bool = False,
    key_chains: object = None,
    to_apply: bool = True,
) -> bool:
    """Tell whether Containers have the same chains, and leaves of the same types and shapes; see
    `cont_identical`.
    """
    return identical(
        containers, False, False, partial, check_types, check_shapes, key_chains, to_apply
    )


def identical_array_shapes(containers: Sequence[Any]) -> bool:
    """Tell whether Containers have as many arrays, of the same shapes, whatever their chains."""
    shapes = [
        sorted(tuple(leaf.shape) for leaf in to_iterator_values(tree) if is_array(leaf))
        for tree in _trees(containers)
    ]
    return all(shape == shapes[0] for shape in shapes)


def assert_identical(
    containers: Sequence[Any], same_arrays: bool, arrays_equal: bool, partial: bool, **options: Any
) -> None:
    """Raise an error that shows the difference, unless `cont_identical` with the same arguments."""
    if not identical(containers, same_arrays, arrays_equal, partial, **options):
        _raise_difference(
            "the Containers are not identical", containers, arrays_equal or same_arrays
        )


def assert_identical_structure(
    containers: Sequence[Any], check_types: bool, check_shapes: bool, partial: bool, **options: Any
) -> None:
    """Raise an error that shows the difference, unless `cont_identical_structure` with the same
    arguments.
    """
    if not identical_structure(containers, check_types, check_shapes, partial, **options):
        _raise_difference("the Containers differ in structure", containers, False)


# One in another


def find_sub_container(container: Nested, sub_cont: object, partial: bool) -> str | bool:
    """Give the key chain of the part that is identical to a Container (`""` for the whole), or
    False.
    """
    return _find(container, sub_cont, lambda pair: identical(pair, partial=partial))


def find_sub_structure(
    container: Nested, sub_struc: object, check_shapes: bool, partial: bool
) -> str | bool:
    """Give the key chain of the part that has the structure of a Container (`""` for the whole), or
    False.
    """
    return _find(
        container,
        sub_struc,
        lambda pair: identical_structure(pair, check_shapes=check_shapes, partial=partial),
    )


def _find(container: Nested, expected: Any, fits: Callable[[list[Any]], bool]) -> str | bool:
    expected = container._admit(expected)
    if not isinstance(expected, Nested):
        raise ArgumentTypeError(f"a Container is looked for, not {type(expected).__name__}.")
    chains = all_key_chains(expected, include_empty=True)

    def visit(level: Nested, prefix: str) -> str | bool:
        if level is expected or (
            chains
            and all(has_key_chain(level, chain) for chain in chains)
            and fits([level, expected])
        ):
            return prefix
        for key, value in level.items():
            if isinstance(value, Nested):
                result = visit(value, f"{prefix}/{key}" if prefix else key)
                if result is not False:
                    return result
        return False

    return visit(container, "")


def contains(container: Nested, place: object) -> bool:
    """`place in container`: a key, a key chain, or a part."""
    if isinstance(place, Nested):
        return container._holds(place) or find_sub_container(container, place, False) is not False
    keys = container._keys_of(place)
    return keys is not None and container._at(keys, _ABSENT) is not _ABSENT


def _agree(
    first: Nested,
    other: Nested,
    same: Callable[[Any, Any], bool],
    leaves: Callable[[tuple[str, ...]], bool],
    prefix: tuple[str, ...],
) -> bool:
    if first._ordered() != other._ordered():
        return False
    for key, value in first.items():
        match, keys = dict.__getitem__(other, key), (*prefix, key)
        if isinstance(value, Nested) or isinstance(match, Nested):
            if not (
                isinstance(value, Nested)
                and isinstance(match, Nested)
                and _agree(value, match, same, leaves, keys)
            ):
                return False
        elif leaves(keys) and not same(value, match):
            return False
    return True


def _trees(containers: Sequence[Any]) -> list[Any]:
    first = next((container for container in containers if isinstance(container, Nested)), None)
    if first is None:
        raise ArgumentTypeError("there is no Container to compare.")
    for container in containers:
        if not isinstance(container, Mapping):
            raise ArgumentTypeError(
                f"only Containers and dicts can be compared, not {type(container).__name__}."
            )
    return [first._admit(container) for container in containers]


def _raise_difference(what: str, containers: Sequence[Any], values: bool) -> None:
    shown = diff(containers, mode="diff_only", detect_value_diffs=values)
    text = (
        f":\n{shown}"
        if shown
        else "; the values are equal, but the arrays are not the same objects, or differ in type"
    )
    raise NotIdenticalError(what + text)
