"""Methods of Container that apply a function to leaves or to parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import jax

from nbmodule.errors import ArgumentTypeError
from nbmodule.tree.arithmetic import check_structure
from nbmodule.tree.container_access import Access
from nbmodule.tree.nested import Nested


class Map(Access):
    """Functions over all leaves, or over all parts."""

    __slots__ = ()

    def _chosen(self, key_chains: Any, to_apply: bool) -> Callable[[tuple[str, ...]], bool]:
        """Give the test whether a function applies at some keys: at the given chains and below them, or everywhere else."""
        if key_chains is None:
            return lambda _: True
        asked = frozenset(self._asked(key_chains))
        return lambda keys: any(keys[:depth] in asked for depth in range(1, len(keys) + 1)) is to_apply

    def cont_map(
        self,
        fn: Callable[[Any, str], Any],
        key_chains: Any = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        map_sequences: bool = False,
        inplace: bool = False,
    ) -> Self:
        """Apply `fn(leaf, kc)` to each leaf.

        Args:
            fn: Takes a leaf and its key chain; what it returns takes the leaf's place.
            key_chains: Apply it only at these chains and below them; all by default.
            to_apply: False applies it everywhere but there.
            prune_unapplied: Drop the other leaves instead of keeping them.
            map_sequences: Apply it to the items of lists and tuples, whose chains end in `v0`, `v1`, ...
            inplace: Change this Container.

        Raises:
            PathError: if a chain does not exist.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_map(lambda x, kc: x + 1, ["a", "b/c"]).cont_to_dict()
            {'a': 2, 'b': {'c': 3, 'd': 3}}
            >>> c.cont_map(lambda x, kc: kc, "b", prune_unapplied=True).cont_to_dict()
            {'b': {'c': 'b/c', 'd': 'b/d'}}
        """
        chosen = self._chosen(key_chains, to_apply)

        def apply(leaf: Any, keys: tuple[str, ...]) -> Any:
            if map_sequences and isinstance(leaf, (list, tuple)):
                items = [apply(item, (*keys, f"v{index}")) for index, item in enumerate(leaf)]
                return type(leaf)(*items) if hasattr(leaf, "_fields") else type(leaf)(items)
            chain = "/".join(keys)
            try:
                return fn(leaf, chain)
            except Exception as error:
                error.add_note(f'This was met at "{chain}" of a Container.')
                raise

        def visit(level: Map, above: tuple[str, ...]) -> dict[str, Any]:
            mapped: dict[str, Any] = {}
            for key, value in level.items():
                keys = (*above, key)
                if isinstance(value, Map):
                    below = visit(value, keys)
                    if below or not prune_unapplied:
                        mapped[key] = value._like(below)
                elif chosen(keys):
                    mapped[key] = apply(value, keys)
                elif not prune_unapplied:
                    mapped[key] = value
            return mapped

        new = self._like(visit(self, ()))
        return self._become(new) if inplace else new

    def _become(self, new: Nested) -> Self:
        """Take over the leaves of another Container, key by key, keeping the levels that stay levels."""
        for key in [key for key in self if key not in new]:
            self._remove(key)
        for key, value in new.items():
            old = dict.get(self, key)
            if isinstance(value, Nested) and isinstance(old, Map):
                old._become(value)
            elif value is not old or key not in self:
                self._put(key, value)
        return self

    def cont_map_sub_conts(
        self,
        fn: Callable[[Any, str], Any],
        key_chains: Any = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        inplace: bool = False,
        include_self: bool = True,
    ) -> Any:
        """Apply `fn(container, kc)` to each part, from the bottom up; what it returns takes the part's place.

        Args:
            fn: Takes a part, which it may change, and its key chain, `""` for the whole.
            key_chains: Apply it only to the parts at these chains and below them; all by default.
            to_apply: False applies it everywhere but there.
            prune_unapplied: Drop what is in no part that it was applied to.
            inplace: Change this Container.
            include_self: Apply it to the whole too.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2})
            >>> c.cont_map_sub_conts(lambda part, kc: part.cont_set_at_key_chain("n", len(part))).cont_to_dict()
            {'a': 1, 'b': {'c': 2, 'n': 1}, 'n': 2}
        """
        chosen = self._chosen(key_chains, to_apply)

        def visit(level: Map, above: tuple[str, ...]) -> tuple[Any, bool]:
            applies = chosen(above) if above else include_self and (key_chains is None or not to_apply)
            parts: dict[str, Any] = {}
            for key, value in level.items():
                if isinstance(value, Map):
                    part, kept = visit(value, (*above, key))
                    if kept or not prune_unapplied:
                        parts[key] = part
                elif applies or not prune_unapplied:
                    parts[key] = value
            new = level._like(parts)
            return fn(new, "/".join(above)) if applies else new, applies or bool(parts)

        new, _ = visit(self, ())
        return self._become(new) if inplace and isinstance(new, Nested) else new

    @staticmethod
    def cont_multi_map(
        fn: Callable[[list[Any], str], Any],
        containers: list[Any],
        key_chains: Any = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        map_sequences: bool = False,
    ) -> Any:
        """Apply `fn(list_of_leaves, kc)` over Containers of one structure; any other value in the list counts for every leaf.

        Args:
            fn: Takes one leaf of each Container, and their key chain.
            containers: Containers, and values that are handed on as they are.
            key_chains: Apply it only at these chains and below them; all by default.
            to_apply: False applies it everywhere but there.
            prune_unapplied: Drop the other leaves instead of keeping those of the first Container.
            map_sequences: Apply it to the items of lists and tuples.

        Raises:
            StructureError: if the Containers differ in structure.

        Example:
            >>> a, b = nb.Container(x=1, y={"z": 2}), nb.Container(x=10, y={"z": 20})
            >>> nb.Container.cont_multi_map(lambda xs, kc: sum(xs), [a, b, 100]).cont_to_dict()
            {'x': 111, 'y': {'z': 122}}
        """
        first = check_all(containers, "cannot map over several Containers")
        is_tree = [isinstance(each, Nested) for each in containers]

        def apply(leaf: Any, chain: str) -> Any:
            keys = tuple(chain.split("/"))
            row = [each._at(keys) if tree else each for each, tree in zip(containers, is_tree, strict=True)]
            if map_sequences and isinstance(leaf, (list, tuple)):
                columns = [item for item, tree in zip(row, is_tree, strict=True) if tree]
                return jax.tree.map(lambda *items: fn(_merged(row, is_tree, items), chain), *columns)
            return fn(row, chain)

        return first.cont_map(apply, key_chains, to_apply, prune_unapplied)


def _merged(row: list[Any], is_tree: list[bool], items: tuple[Any, ...]) -> list[Any]:
    rest = iter(items)
    return [next(rest) if tree else value for value, tree in zip(row, is_tree, strict=True)]


def check_all(containers: list[Any], what: str) -> Any:
    """Give the first Container of a list, after a check that all in it have one structure.

    Raises:
        StructureError: if they differ.
        ArgumentTypeError: if there is none.
    """
    trees = [each for each in containers if isinstance(each, Nested)]
    if not trees:
        raise ArgumentTypeError(f"{what}: there is no Container in the list.")
    for tree in trees[1:]:
        check_structure(trees[0], tree, what)
    return trees[0]
