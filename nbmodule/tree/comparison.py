"""Compare Containers: what differs, whether they are identical, where one is part of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nbmodule.base.trees import shape_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, NotIdenticalError
from nbmodule.tree.arithmetic import structure_of
from nbmodule.tree.leaf import is_array, same_value
from nbmodule.tree.many import CombineMethods, as_containers
from nbmodule.tree.nested import Nested

_ABSENT = object()


class ComparisonMethods(CombineMethods):
    """Compare Containers."""

    __slots__ = ()

    @staticmethod
    def cont_diff(
        *containers: object,
        mode: str = "all",
        diff_keys: str | Sequence[str] = "diff",
        detect_key_diffs: bool = True,
        detect_value_diffs: bool = True,
        detect_shape_diffs: bool = True,
    ) -> Any:
        """Lay Containers over each other: equal leaves stay, where they differ the values stand
        side by side.

        A leaf that differs becomes `{diff_0: ..., diff_1: ...}`, one entry for each Container;
        those that are equal among three or more share one, `{"diff_0, 2": ..., diff_1: ...}`. A key
        that only one has becomes `{diff_1: value}`. Values are equal if type, dtype, shape and
        elements are; NaN equals NaN.

        Args:
            *containers: Containers and dicts to compare.
            mode: `"all"`, `"diff_only"` or `"same_only"`.
            diff_keys: The beginning of the keys, or a list with one key for each Container.
            detect_key_diffs: False takes a key that not all have from those that have it.
            detect_value_diffs: False compares shapes only.
            detect_shape_diffs: False does not look at shapes.

        Example:
            >>> a, b = nb.Container(x=1, y={"z": 2}), nb.Container(x=1, y={"z": 3}, w=4)
            >>> nb.Container.cont_diff(a, b).cont_to_dict()
            {'w': {'diff_1': 4}, 'x': 1, 'y': {'z': {'diff_0': 2, 'diff_1': 3}}}
            >>> nb.Container.cont_diff(a, b, mode="same_only").cont_to_dict()
            {'x': 1}
        """
        if mode not in _MODES:
            raise ArgumentError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}.")
        if not isinstance(diff_keys, str) and len(diff_keys) != len(containers):
            raise ArgumentError(
                f"diff_keys names {len(diff_keys)} Containers; there are {len(containers)}."
            )
        trees = as_containers(containers, "compare")
        detected = detect_key_diffs, detect_value_diffs, detect_shape_diffs
        difference = Overlay(mode, diff_keys, *detected)
        return trees[0]._like(difference.of_levels(list(enumerate(trees))))

    @staticmethod
    def cont_structural_diff(*containers: object, **options: Any) -> Any:
        """Compare keys and shapes only; see `cont_diff`.

        Example:
            >>> a, b = nb.Container(x=jnp.ones(2), y=1), nb.Container(x=jnp.zeros(2), y=2)
            >>> nb.Container.cont_structural_diff(a, b, mode="diff_only")
            {}
        """
        return ComparisonMethods.cont_diff(*containers, detect_value_diffs=False, **options)

    @staticmethod
    def cont_identical(
        containers: Sequence[Any],
        same_arrays: bool = True,
        arrays_equal: bool = True,
        partial: bool = False,
        *,
        check_types: bool = True,
        check_shapes: bool = True,
    ) -> bool:
        """Return True if Containers have the same chains and the same leaves.

        Args:
            containers: Containers and dicts to compare.
            same_arrays: Arrays must be the very same objects.
            arrays_equal: Leaves must be equal; for arrays this matters where they need not be the
                same.
            partial: Compare the chains that all have; there must be one.
            check_types: A leaf must be of one type in all; arrays of JAX and NumPy are of one.
            check_shapes: Arrays must have one shape.

        Example:
            >>> x = jnp.ones(2)
            >>> a, b, c = nb.Container(x=x), nb.Container(x=x), nb.Container(x=jnp.ones(2))
            >>> nb.Container.cont_identical([a, b]), nb.Container.cont_identical([a, c])
            (True, False)
            >>> nb.Container.cont_identical([a, c], same_arrays=False)
            True
        """
        trees = as_containers(containers, "compare")
        if partial:
            chains = trees[0].cont_all_key_chains()
            common = [c for c in chains if all(tree.cont_has_key_chain(c) for tree in trees)]
            if not common:
                return False
            trees = [tree.cont_at_key_chains(common) for tree in trees]
        first, *others = trees

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

        leaves = first.cont_to_flat_list()
        return all(
            structure_of(first) == structure_of(other)
            and all(map(same, leaves, other.cont_to_flat_list()))
            for other in others
        )

    @staticmethod
    def cont_identical_structure(
        containers: Sequence[Any],
        check_types: bool = True,
        check_shapes: bool = True,
        partial: bool = False,
    ) -> bool:
        """Return True if Containers have the same chains, and leaves of the same types and shapes;
        see `cont_identical`.

        Example:
            >>> a, b, c = (
            ...     nb.Container(x=jnp.ones(2)),
            ...     nb.Container(x=jnp.zeros(2)),
            ...     nb.Container(x=jnp.ones(3)),
            ... )
            >>> (
            ...     nb.Container.cont_identical_structure([a, b]),
            ...     nb.Container.cont_identical_structure([a, c]),
            ... )
            (True, False)
        """
        return ComparisonMethods.cont_identical(
            containers,
            same_arrays=False,
            arrays_equal=False,
            partial=partial,
            check_types=check_types,
            check_shapes=check_shapes,
        )

    @staticmethod
    def cont_identical_array_shapes(containers: Sequence[Any]) -> bool:
        """Return True if Containers have as many arrays, of the same shapes, whatever their chains.

        Example:
            >>> a, b = (
            ...     nb.Container(x=jnp.ones(2), y=jnp.ones(3)),
            ...     nb.Container(p=jnp.ones(3), q=jnp.ones(2)),
            ... )
            >>> nb.Container.cont_identical_array_shapes([a, b])
            True
        """
        shapes = [
            sorted(tuple(leaf.shape) for leaf in tree.cont_to_iterator_values() if is_array(leaf))
            for tree in as_containers(containers, "compare")
        ]
        return all(shape == shapes[0] for shape in shapes)

    @staticmethod
    def cont_assert_identical(
        containers: Sequence[Any],
        same_arrays: bool = True,
        arrays_equal: bool = True,
        partial: bool = False,
        **options: Any,
    ) -> None:
        """Raise an error that shows the difference, unless `cont_identical` with the same
        arguments.

        Raises:
            NotIdenticalError: a `StructureError` and an `AssertionError`.

        Example:
            >>> nb.Container.cont_assert_identical([nb.Container(x=1), nb.Container(x=2)])
            Traceback (most recent call last):
            nbmodule.errors.NotIdenticalError: the Containers are not identical:
            {
                x: {
                    diff_0: 1,
                    diff_1: 2
                }
            }
        """
        if not ComparisonMethods.cont_identical(
            containers, same_arrays, arrays_equal, partial, **options
        ):
            _raise_difference(
                "the Containers are not identical", containers, arrays_equal or same_arrays
            )

    @staticmethod
    def cont_assert_identical_structure(containers: Sequence[Any], **options: Any) -> None:
        """Raise an error that shows the difference, unless `cont_identical_structure` with the same
        arguments.

        Raises:
            NotIdenticalError: a `StructureError` and an `AssertionError`.

        Example:
            >>> nb.Container.cont_assert_identical_structure([nb.Container(x=1), nb.Container(x=2)])
        """
        if not ComparisonMethods.cont_identical_structure(containers, **options):
            _raise_difference("the Containers differ in structure", containers, False)

    def cont_find_sub_container(self, sub_cont: object, partial: bool = False) -> str | bool:
        """Return the key chain of the part that is identical to a Container (`""` for the whole),
        or False.

        Args:
            sub_cont: The part to find; arrays must be the same objects.
            partial: Also find a part that has more chains.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> (
            ...     c.cont_find_sub_container(nb.Container(c=2, d=3)),
            ...     c.cont_find_sub_container(nb.Container(c=9)),
            ... )
            ('b', False)
        """
        return _find(
            self, sub_cont, lambda pair: ComparisonMethods.cont_identical(pair, partial=partial)
        )

    def cont_find_sub_structure(
        self, sub_struc: object, check_shapes: bool = True, partial: bool = False
    ) -> str | bool:
        """Return the key chain of the part that has the structure of a Container (`""` for the
        whole), or False.

        Example:
            >>> c = nb.Container(a=1, b={"c": jnp.ones(2)})
            >>> c.cont_find_sub_structure(nb.Container(c=jnp.zeros(2)))
            'b'
        """
        options = {"check_shapes": check_shapes, "partial": partial}
        return _find(
            self, sub_struc, lambda x: ComparisonMethods.cont_identical_structure(x, **options)
        )

    def cont_contains_sub_container(self, sub_cont: object, partial: bool = False) -> bool:
        """Return True if a part is identical to a Container; see `cont_find_sub_container`.

        Example:
            >>> nb.Container(a={"b": 1}).cont_contains_sub_container(nb.Container(b=1))
            True
        """
        return self.cont_find_sub_container(sub_cont, partial) is not False

    def cont_contains_sub_structure(self, sub_cont: object, **options: Any) -> bool:
        """Return True if a part has the structure of a Container; see `cont_find_sub_structure`.

        Example:
            >>> nb.Container(a={"b": 1}).cont_contains_sub_structure(nb.Container(b=2))
            True
        """
        return self.cont_find_sub_structure(sub_cont, **options) is not False


@dataclass
class Overlay:
    """One comparison of several Containers; a row is (number of the Container, its value)."""

    mode: str
    diff_keys: str | Sequence[str]
    detect_key_diffs: bool
    detect_value_diffs: bool
    detect_shape_diffs: bool

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
        if all(isinstance(value, ComparisonMethods) for value in values):
            level = self.of_levels(rows)
            return level if level or (self.mode != "diff_only" and not any(values)) else _ABSENT
        groups = self.groups(rows)
        if len(groups) == 1:
            return _ABSENT if self.mode == "diff_only" else values[0]
        if self.mode == "same_only":
            return _ABSENT
        return {self.key([number for number, _ in group]): own(group[0][1]) for group in groups}

    def equal(self, one: object, other: object) -> bool:
        """Return True if two leaves count as equal: by value, by shape, or by neither."""
        if isinstance(one, ComparisonMethods) or isinstance(other, ComparisonMethods):
            return one is other
        is_shaped = self.detect_shape_diffs and (is_array(one) or is_array(other))
        if is_shaped and shape_of(one) != shape_of(other):
            return False
        return not self.detect_value_diffs or same_value(one, other)

    def groups(self, rows: list[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
        """Put the rows with equal values together."""
        groups: list[list[tuple[int, Any]]] = []
        for row in rows:
            group = next((group for group in groups if self.equal(group[0][1], row[1])), [])
            if not group:
                groups.append(group)
            group.append(row)
        return groups

    def key(self, numbers: list[int]) -> str:
        """Return the key under which the value of some Containers stands."""
        if isinstance(self.diff_keys, str):
            return f"{self.diff_keys}_{', '.join(map(str, numbers))}"
        return self.diff_keys[numbers[0]]


def own(value: object) -> Any:
    """Copy the levels of a part, so that a difference can be changed without changing what was
    compared.
    """
    return value.cont_copy() if isinstance(value, ComparisonMethods) else value


_MODES = ("all", "diff_only", "same_only")


def _find(container: Nested, expected: Any, fits: Callable[[list[Any]], bool]) -> str | bool:
    expected = container._admit(expected)
    if not isinstance(expected, ComparisonMethods):
        raise ArgumentTypeError(f"expected a Container, got {type(expected).__name__}.")
    chains = expected.cont_all_key_chains(include_empty=True)
    for place in ("", *container._chains(levels=True)):
        part = container._at(place.split("/") if place else ())
        if part is expected:
            return place
        if not chains or not isinstance(part, ComparisonMethods):
            continue
        if all(map(part.cont_has_key_chain, chains)) and fits([part, expected]):
            return place
    return False


def _raise_difference(what: str, containers: Sequence[Any], values: bool) -> None:
    shown = ComparisonMethods.cont_diff(*containers, mode="diff_only", detect_value_diffs=values)
    text = "; the values are equal, but the arrays are not the same objects, or differ in type"
    raise NotIdenticalError(what + (f":\n{shown}" if shown else text))
