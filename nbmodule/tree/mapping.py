"""Functions over all leaves of a Container, or over all its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentTypeError, AttributePathError
from nbmodule.tree.arithmetic import check_structure
from nbmodule.tree.converting import to_iterator, to_iterator_values
from nbmodule.tree.leaves import at_index, set_at_index
from nbmodule.tree.looking_up import asked_keys
from nbmodule.tree.nested import Kind, Nested
from nbmodule.tree.properties import is_of_class


def choice(
    container: Nested, key_chains: object, to_apply: bool
) -> Callable[[tuple[str, ...]], bool]:
    """Give the test whether a function applies at some keys: at the given chains and below them, or
    everywhere else.
    """
    if key_chains is None:
        return lambda _: True
    requested = frozenset(asked_keys(container, key_chains))
    return lambda keys: (
        any(keys[:depth] in requested for depth in range(1, len(keys) + 1)) is to_apply
    )


def map_leaves(
    container: Kind,
    fn: Callable[[Any, str], Any],
    key_chains: object = None,
    to_apply: bool = True,
    prune_unapplied: bool = False,
    map_sequences: bool = False,
    inplace: bool = False,
) -> Kind:
    """Apply `fn(leaf, kc)` to each leaf."""
    chosen = choice(container, key_chains, to_apply)

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
            if isinstance(value, Nested):
                inner = visit(value, keys)
                if inner or not prune_unapplied:
                    mapped[key] = value._like(inner)
            elif chosen(keys):
                mapped[key] = apply(value, keys)
            elif not prune_unapplied:
                mapped[key] = value
        return mapped

    new = container._like(visit(container, ()))
    return take_over(container, new) if inplace else new


def take_over(container: Kind, new: Nested) -> Kind:
    """Take over the leaves of another Container, key by key, keeping the levels that stay levels."""
    for key in [key for key in container if key not in new]:
        container._remove(key)
    for key, value in new.items():
        old = dict.get(container, key)
        if isinstance(value, Nested) and isinstance(old, Nested):
            take_over(old, value)
        elif value is not old or key not in container:
            container._put(key, value)
    return container


def map_sub_conts(
    container: Nested,
    fn: Callable[[Any, str], Any],
    key_chains: object,
    to_apply: bool,
    prune_unapplied: bool,
    inplace: bool,
    include_self: bool,
) -> Any:
    """Apply `fn(container, kc)` to each part, from the bottom up; what it returns takes the part's
    place.
    """
    chosen = choice(container, key_chains, to_apply)

    def visit(level: Nested, prefix: tuple[str, ...]) -> tuple[Any, bool]:
        applies = (
            chosen(prefix) if prefix else include_self and (key_chains is None or not to_apply)
        )
        parts: dict[str, Any] = {}
        for key, value in level.items():
            if isinstance(value, Nested):
                part, retained = visit(value, (*prefix, key))
                if retained or not prune_unapplied:
                    parts[key] = part
            elif applies or not prune_unapplied:
                parts[key] = value
        new = level._like(parts)
        return fn(new, "/".join(prefix)) if applies else new, applies or bool(parts)

    new, _ = visit(container, ())
    return take_over(container, new) if inplace and isinstance(new, Nested) else new


def multi_map(
    fn: Callable[[list[Any], str], Any],
    containers: list[Any],
    key_chains: object = None,
    to_apply: bool = True,
    prune_unapplied: bool = False,
    map_sequences: bool = False,
) -> Any:
    """Apply `fn(list_of_leaves, kc)` over Containers of one structure; any other value in the list
    counts for every leaf.
    """
    first = check_all(containers, "cannot map over several Containers")
    is_tree = [isinstance(container, Nested) for container in containers]

    def apply(leaf: object, chain: str) -> Any:
        keys = tuple(chain.split("/"))
        row = [
            container._at(keys) if tree else container
            for container, tree in zip(containers, is_tree, strict=True)
        ]
        if map_sequences and isinstance(leaf, (list, tuple)):
            columns = [item for item, tree in zip(row, is_tree, strict=True) if tree]
            return jax.tree.map(lambda *items: fn(_merged(row, is_tree, items), chain), *columns)
        return fn(row, chain)

    return map_leaves(first, apply, key_chains, to_apply, prune_unapplied)


def _merged(row: list[Any], is_tree: list[bool], items: tuple[Any, ...]) -> list[Any]:
    remaining = iter(items)
    return [next(remaining) if tree else value for value, tree in zip(row, is_tree, strict=True)]


def check_all(containers: list[Any], what: str) -> Any:
    """Give the first Container of a list, after a check that all in it have one structure.

    Raises:
        StructureError: if they differ.
        ArgumentTypeError: if there is none.
    """
    trees = [container for container in containers if isinstance(container, Nested)]
    if not trees:
        raise ArgumentTypeError(f"{what}: there is no Container in the list.")
    for tree in trees[1:]:
        check_structure(trees[0], tree, what)
    return trees[0]


# What all leaves have


def attribute_of_leaves(container: Nested, name: str) -> Any:
    """Give an attribute that all leaves have: their values of it, or a function that calls it on
    all leaves.

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
    leaves = list(to_iterator_values(container))
    if not leaves or not all(hasattr(leaf, name) for leaf in leaves):
        return None
    mapped = map_leaves(container, lambda leaf, _: getattr(leaf, name))
    if not all(map(callable, to_iterator_values(mapped))):
        return mapped

    def call(*args: object, **kwargs: object) -> Any:
        """Call the method of this name of every leaf."""
        return map_leaves(mapped, lambda method, _: method(*args, **kwargs))

    call.__name__ = call.__qualname__ = name
    return call


def indexed(container: Kind, index: object) -> Kind:
    """Give what each leaf has at an index; a Container of the same structure holds an index for
    each.
    """
    if isinstance(index, Nested):
        return multi_map(lambda pair, _: at_index(*pair), [container, index])
    return map_leaves(container, lambda leaf, _: at_index(leaf, index))


def set_indexed(container: Nested, index: object, value: object) -> None:
    """Set the elements of each leaf at an index."""
    changed = multi_map(lambda three, _: set_at_index(*three), [container, index, value])
    for chain, leaf in to_iterator(changed):
        container._put_at(container._chain(chain), leaf)
