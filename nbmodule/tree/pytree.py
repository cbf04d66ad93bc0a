"""A Container as a PyTree: children in canonical order, keys as the static part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

from nbmodule.tree.nested import Names, Nested, fill, set_slot


def _flatten(tree: Nested) -> tuple[tuple[Any, ...], Names]:
    names = tree._names or tree._ordered()
    if names.stored_in_order:
        return tuple(dict.values(tree)), names
    return tuple(dict.__getitem__(tree, name) for name in names), names


def _flatten_with_keys(tree: Nested) -> tuple[tuple[tuple[Any, Any], ...], Names]:
    children, names = _flatten(tree)
    return tuple(zip(map(jax.tree_util.DictKey, names), children, strict=True)), names


def register(cls: type[Nested]) -> None:
    """Make a class of Containers known to JAX."""

    def unflatten(names: Names, children: Iterable[Any]) -> Nested:
        new = cls.__new__(cls)
        if names.settings is None and names.stored_in_order:
            fill(new, names, iter(children))
            return new
        if names.settings is not None:
            set_slot(new, "_settings", names.settings)
        level = dict(zip(names, children, strict=True))
        new._take({name: level[name] for name in names.order or names})
        return new

    jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, unflatten, _flatten)
