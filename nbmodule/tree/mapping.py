"""Functions over all leaves of a Container, or over all its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import jax

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentTypeError, AttributePathError
from nbmodule.tree.arithmetic import check_structure
from nbmodule.tree.leaf import at_index, set_at_index
from nbmodule.tree.lookup import LookupMethods, asked_keys
from nbmodule.tree.nested import Kind, Nested, is_of_class


class MapMethods(LookupMethods):
    """Apply functions to all leaves or parts."""

    __slots__ = ()

    def cont_map(
        self,
        fn: Callable[[Any, str], Any],
        key_chains: object = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        map_sequences: bool = False,
        inplace: bool = False,
    ) -> Self:
        """Apply `fn(leaf, kc)` to each leaf.

        Args:
            fn: A function of a leaf and its key chain; it returns the new leaf.
            key_chains: Chains to apply it at and below; all by default.
            to_apply: False applies it everywhere else.
            prune_unapplied: Whether to drop the other leaves.
            map_sequences: Whether to apply it to the items of lists and tuples, whose chains end in
                `v0`, `v1`, ...
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
        chosen = choice(self, key_chains, to_apply)

        def apply(leaf: object, keys: tuple[str, ...]) -> Any:
            if map_sequences and isinstance(leaf, (list, tuple)):
                items = [apply(item, (*keys, f"v{index}")) for index, item in enumerate(leaf)]
                return type(leaf)(*items) if hasattr(leaf, "_fields") else type(leaf)(items)
            chain = "/".join(keys)
            try:
                return fn(leaf, chain)
            except Exception as error:
                error.add_note(f'This was met at "{chain}" of a Container.')
                raise

        def visit(level: Nested, prefix: tuple[str, ...]) -> dict[str, Any]:
            mapped: dict[str, Any] = {}
            for key, value in level.items():
                keys = (*prefix, key)
                if isinstance(value, MapMethods):
                    inner = visit(value, keys)
                    if inner or not prune_unapplied:
                        mapped[key] = value._like(inner)
                elif chosen(keys):
                    mapped[key] = apply(value, keys)
                elif not prune_unapplied:
                    mapped[key] = value
            return mapped

        new = self._like(visit(self, ()))
        return take_over(self, new) if inplace else new

    def cont_map_sub_conts(
        self,
        fn: Callable[[Any, str], Any],
        key_chains: object = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        inplace: bool = False,
        include_self: bool = True,
    ) -> Any:
        """Replace each part by `fn(container, kc)`, from the bottom up.

        Args:
            fn: A function of a part, which it may change, and its key chain, `""` for the whole.
            key_chains: Chains to apply it at and below; all by default.
            to_apply: False applies it everywhere else.
            prune_unapplied: Whether to drop leaves outside of these parts.
            inplace: Change this Container.
            include_self: Whether to apply it to the whole too.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2})
            >>> c.cont_map_sub_conts(
            ...     lambda part, kc: part.cont_set_at_key_chain("n", len(part))
            ... ).cont_to_dict()
            {'a': 1, 'b': {'c': 2, 'n': 1}, 'n': 2}
        """
        chosen = choice(self, key_chains, to_apply)

        def visit(level: Nested, prefix: tuple[str, ...]) -> tuple[Any, bool]:
            applies = chosen(prefix) and (include_self or bool(prefix))
            parts: dict[str, Any] = {}
            for key, value in level.items():
                if isinstance(value, MapMethods):
                    part, retained = visit(value, (*prefix, key))
                    if retained or not prune_unapplied:
                        parts[key] = part
                elif applies or not prune_unapplied:
                    parts[key] = value
            new = level._like(parts)
            return fn(new, "/".join(prefix)) if applies else new, applies or bool(parts)

        new, _ = visit(self, ())
        return take_over(self, new) if inplace and isinstance(new, MapMethods) else new

    @staticmethod
    def cont_multi_map(
        fn: Callable[[list[Any], str], Any],
        containers: list[Any],
        key_chains: object = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        map_sequences: bool = False,
    ) -> Any:
        """Apply `fn(list_of_leaves, kc)` over Containers of one structure; other values in the list
        are passed to every call.

        Args:
            fn: A function of a list with one leaf of each Container, and their key chain.
            containers: Containers, and values to pass to every call.
            key_chains: Chains to apply it at and below; all by default.
            to_apply: False applies it everywhere else.
            prune_unapplied: Whether to drop the other leaves, which are else those of the first
                Container.
            map_sequences: Whether to apply it to the items of lists and tuples.

        Raises:
            StructureError: if the Containers differ in structure.

        Example:
            >>> a, b = nb.Container(x=1, y={"z": 2}), nb.Container(x=10, y={"z": 20})
            >>> nb.Container.cont_multi_map(lambda xs, kc: sum(xs), [a, b, 100]).cont_to_dict()
            {'x': 111, 'y': {'z': 122}}
        """
        trees = [container for container in containers if isinstance(container, MapMethods)]
        if not trees:
            raise ArgumentTypeError("there is no Container in the list.")
        for tree in trees[1:]:
            check_structure(trees[0], tree, "cannot map over several Containers")

        def apply(leaf: object, chain: str) -> Any:
            keys = chain.split("/")
            row = [x._at(keys) if isinstance(x, MapMethods) else x for x in containers]
            if not map_sequences or not isinstance(leaf, (list, tuple)):
                return fn(row, chain)
            # Each item of the sequences is a leaf; other values count for every item.
            columns = [
                value if isinstance(x, MapMethods) else jax.tree.map(lambda _, v=value: v, leaf)
                for x, value in zip(containers, row)
            ]
            return jax.tree.map(lambda *items: fn(list(items), chain), *columns)

        return trees[0].cont_map(apply, key_chains, to_apply, prune_unapplied)


def choice(
    container: Nested, key_chains: object, to_apply: bool
) -> Callable[[tuple[str, ...]], bool]:
    """Return a predicate on keys: whether they are at or below the given chains, or everywhere
    else.
    """
    if key_chains is None:
        return lambda _: True
    requested = frozenset(asked_keys(container, key_chains))
    return lambda keys: (
        any(keys[:depth] in requested for depth in range(1, len(keys) + 1)) is to_apply
    )


def take_over(container: Kind, new: Nested) -> Kind:
    """Copy the leaves of another Container into this one, key by key."""
    for key in [key for key in container if key not in new]:
        container._remove(key)
    for key, value in new.items():
        old = dict.get(container, key)
        if isinstance(value, MapMethods) and isinstance(old, MapMethods):
            take_over(old, value)
        elif value is not old or key not in container:
            container._put(key, value)
    return container


# Attributes that all leaves have


def attribute_of_leaves(container: Nested, name: str) -> Any:
    """Return an attribute of all leaves as a Container, or a function that calls a method of all
    leaves.

    Raises:
        AttributePathError: if a leaf lacks it.
    """
    if is_of_class(container, name):
        return object.__getattribute__(container, name)
    if not name.startswith("_"):
        mapped = _mapped(container, name)
        if mapped is not None:
            return mapped
    names = [] if name.startswith("_") else list(dict.keys(container))
    raise AttributePathError(
        f'{type(container).__name__} has no method or key "{name}"{hint(name, names)}'
    )


def _mapped(container: Kind, name: str) -> Kind | Callable[..., Any] | None:
    leaves = list(container.cont_to_iterator_values())
    if not leaves or not all(hasattr(leaf, name) for leaf in leaves):
        return None
    mapped = container.cont_map(lambda leaf, _: getattr(leaf, name))
    if not all(map(callable, mapped.cont_to_iterator_values())):
        return mapped

    def call(*args: object, **kwargs: object) -> Any:
        """Call the method of every leaf."""
        return mapped.cont_map(lambda method, _: method(*args, **kwargs))

    call.__name__ = call.__qualname__ = name
    return call


def indexed(container: Kind, index: object) -> Kind:
    """Index each leaf; a Container of the same structure has an index for each."""
    if isinstance(index, MapMethods):
        return MapMethods.cont_multi_map(lambda pair, _: at_index(*pair), [container, index])
    return container.cont_map(lambda leaf, _: at_index(leaf, index))


def set_indexed(container: Nested, index: object, value: object) -> None:
    """Set the elements of each leaf at an index."""
    changed = MapMethods.cont_multi_map(
        lambda three, _: set_at_index(*three), [container, index, value]
    )
    for chain, leaf in changed.cont_to_iterator():
        container._put_at(container._chain(chain), leaf)
