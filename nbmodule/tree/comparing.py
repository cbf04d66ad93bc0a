"""Several Containers compared: what differs, whether they are identical, where one lies in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbmodule.errors import ArgumentError, ArgumentTypeError, NotIdenticalError
from nbmodule.tree.converting import to_iterator_values
from nbmodule.tree.difference import Overlay, equality
from nbmodule.tree.leaves import is_array, same_value
from nbmodule.tree.looking_up import all_key_chains, at_key_chains, has_key_chain
from nbmodule.tree.mapping import choice
from nbmodule.tree.nested import Nested

_ABSENT = object()
_MODES = ("all", "diff_only", "same_only")


def diff(
    containers: Sequence[Any],
    mode: str = "all",
    diff_keys: str | Sequence[str] = "diff",
    detect_key_diffs: bool = True,
    detect_value_diffs: bool = True,
    detect_shape_diffs: bool = True,
) -> Any:
    """Lay Containers over each other: equal leaves stay, where they differ the values stand side by side."""
    if mode not in _MODES:
        raise ArgumentError(f"mode is one of {', '.join(_MODES)}; found {mode!r}.")
    if not isinstance(diff_keys, str) and len(diff_keys) != len(containers):
        raise ArgumentError(f"diff_keys names {len(diff_keys)} Containers; there are {len(containers)}.")
    first = _trees(containers)[0]
    equal = equality(detect_value_diffs, detect_shape_diffs)
    rows = list(enumerate(first._admit(each) for each in containers))
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
        common = [chain for chain in all_key_chains(trees[0]) if all(has_key_chain(tree, chain) for tree in trees)]
        if not common:
            return False
        trees = [at_key_chains(tree, common) for tree in trees]
    first, *others = trees
    leaves = choice(first, key_chains, to_apply)

    def same(one: Any, other: Any) -> bool:
        if is_array(one) != is_array(other):
            return not check_types
        if not is_array(one):
            return (not check_types or type(one) is type(other)) and (not arrays_equal or same_value(one, other))
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
    """Tell whether Containers have the same chains, and leaves of the same types and shapes; see `cont_identical`."""
    return identical(containers, False, False, partial, check_types, check_shapes, key_chains, to_apply)


def identical_array_shapes(containers: Sequence[Any]) -> bool:
    """Tell whether Containers have as many arrays, of the same shapes, whatever their chains."""
    shapes = [
        sorted(tuple(leaf.shape) for leaf in to_iterator_values(tree) if is_array(leaf)) for tree in _trees(containers)
    ]
    return all(each == shapes[0] for each in shapes)


def assert_identical(
    containers: Sequence[Any], same_arrays: bool, arrays_equal: bool, partial: bool, **options: Any
) -> None:
    """Raise an error that shows the difference, unless `cont_identical` with the same arguments."""
    if not identical(containers, same_arrays, arrays_equal, partial, **options):
        _raise_difference("the Containers are not identical", containers, arrays_equal or same_arrays)


def assert_identical_structure(
    containers: Sequence[Any], check_types: bool, check_shapes: bool, partial: bool, **options: Any
) -> None:
    """Raise an error that shows the difference, unless `cont_identical_structure` with the same arguments."""
    if not identical_structure(containers, check_types, check_shapes, partial, **options):
        _raise_difference("the Containers differ in structure", containers, False)


# One in another


def find_sub_container(container: Nested, sub_cont: object, partial: bool) -> str | bool:
    """Give the key chain of the part that is identical to a Container (`""` for the whole), or False."""
    return _find(container, sub_cont, lambda pair: identical(pair, partial=partial))


def find_sub_structure(container: Nested, sub_struc: object, check_shapes: bool, partial: bool) -> str | bool:
    """Give the key chain of the part that has the structure of a Container (`""` for the whole), or False."""
    return _find(
        container,
        sub_struc,
        lambda pair: identical_structure(pair, check_shapes=check_shapes, partial=partial),
    )


def _find(container: Nested, wanted: Any, fits: Callable[[list[Any]], bool]) -> str | bool:
    wanted = container._admit(wanted)
    if not isinstance(wanted, Nested):
        raise ArgumentTypeError(f"a Container is looked for, not {type(wanted).__name__}.")
    chains = all_key_chains(wanted, include_empty=True)

    def visit(level: Nested, above: str) -> str | bool:
        if level is wanted or (
            chains and all(has_key_chain(level, chain) for chain in chains) and fits([level, wanted])
        ):
            return above
        for key, value in level.items():
            if isinstance(value, Nested):
                found = visit(value, f"{above}/{key}" if above else key)
                if found is not False:
                    return found
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
    above: tuple[str, ...],
) -> bool:
    if first._ordered() != other._ordered():
        return False
    for key, value in first.items():
        match, keys = dict.__getitem__(other, key), (*above, key)
        if isinstance(value, Nested) or isinstance(match, Nested):
            if not (
                isinstance(value, Nested) and isinstance(match, Nested) and _agree(value, match, same, leaves, keys)
            ):
                return False
        elif leaves(keys) and not same(value, match):
            return False
    return True


def _trees(containers: Sequence[Any]) -> list[Any]:
    first = next((each for each in containers if isinstance(each, Nested)), None)
    if first is None:
        raise ArgumentTypeError("there is no Container to compare.")
    for each in containers:
        if not isinstance(each, Mapping):
            raise ArgumentTypeError(f"only Containers and dicts can be compared, not {type(each).__name__}.")
    return [first._admit(each) for each in containers]


def _raise_difference(what: str, containers: Sequence[Any], values: bool) -> None:
    shown = diff(containers, mode="diff_only", detect_value_diffs=values)
    text = (
        f":\n{shown}" if shown else "; the values are equal, but the arrays are not the same objects, or differ in type"
    )
    raise NotIdenticalError(what + text)
