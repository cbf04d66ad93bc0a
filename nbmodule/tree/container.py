"""Container: a dict of dicts whose leaves are arrays, or anything; a PyTree.

The methods live in mixins, one idea in each file; here is what makes them one class: how it is made, reached, indexed, copied,
shown, and flattened.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import jax

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentTypeError, AttributePathError
from nbmodule.tree.container_arrays import Arrays
from nbmodule.tree.container_files import Files
from nbmodule.tree.container_many import Many
from nbmodule.tree.container_show import Show
from nbmodule.tree.leaves import at_index, set_at_index
from nbmodule.tree.level import UNSET, Names, fill, set_slot
from nbmodule.tree.nested import Nested
from nbmodule.tree.operators import Operators
from nbmodule.tree.properties import is_of_class
from nbmodule.tree.settings import DEFAULT, Settings, settings_from


class Container(Operators, Many, Arrays, Files, Show):
    """A dict of dicts whose leaves are arrays, or anything.

    A place is reached as `c.a.b`, `c["a/b"]`, `c["a.b"]` or `c["a", "b"]`; setting one makes the levels on the way. Any other
    index goes to all leaves: `c[0]`, `c[:, 1]`, `c[mask]`. Operators work leaf by leaf, with numbers, arrays and Containers of
    the same structure; comparisons give a Container too (ask it `cont_all_true()`), and so a Container has no hash. As with
    any dict, `bool(c)` tells whether there is a key.

    Attributes are looked up among the methods, then among the keys, then as an attribute that all leaves have: `c.shape`,
    `c.mean(axis=0)`. A key that is called like a method is reached as `c["items"]`.

    Args:
        dict_in: A mapping or pairs. Mappings in it become Containers (Containers stay the same objects). A key with `/` or `.`
            makes levels; other keys count by their text; two entries for one place are an error.
        print_limit: Arrays with more elements are shown as type, dtype and shape; None shows all.
        print_indent: Spaces for each level of the text.
        print_line_spacing: Empty lines after each line of the text.
        key_length_limit: Longer keys are shown with their middle cut out.
        default_key_color: The color of keys on a terminal.
        keyword_color_dict: Other colors, for keys that contain a certain text.
        alphabetical_keys: Keep the keys sorted; otherwise they stay in the order in which they came.
        rebuild_child_containers: Copy Containers in `dict_in`, with these settings.
        types_to_iteratively_nest: Sequences of these types become levels with the keys `it_0`, `it_1`, ...
        **kwargs: Further items.

    Raises:
        StructureError: if two entries would lie in one place, or a dict contains itself.

    Example:
        >>> c = nb.Container(a=jnp.ones(2), b={"c": jnp.zeros((2, 3))})
        >>> c["b/d"] = 5
        >>> c
        {
            a: Array([1., 1.], dtype=float32),
            b: {
                c: Array([[0., 0., 0.],
                          [0., 0., 0.]], dtype=float32),
                d: 5
            }
        }
        >>> (c * 2).a.sum()
        Array(4., dtype=float32)
    """

    __slots__ = ()

    def __init__(
        self,
        dict_in: Mapping[Any, Any] | Iterable[Any] | None = None,
        *,
        print_limit: int | None = 10,
        print_indent: int = 4,
        print_line_spacing: int = 0,
        key_length_limit: int | None = None,
        default_key_color: str = "green",
        keyword_color_dict: Mapping[str, str] | None = None,
        alphabetical_keys: bool = True,
        rebuild_child_containers: bool = False,
        types_to_iteratively_nest: Iterable[type] | None = None,
        **kwargs: Any,
    ) -> None:
        settings = settings_from(
            {
                "print_limit": print_limit,
                "print_indent": print_indent,
                "print_line_spacing": print_line_spacing,
                "key_length_limit": key_length_limit,
                "default_key_color": default_key_color,
                "keyword_color_dict": keyword_color_dict,
                "alphabetical_keys": alphabetical_keys,
                "rebuild_child_containers": rebuild_child_containers,
                "types_to_iteratively_nest": types_to_iteratively_nest,
            }
        )
        if settings is not DEFAULT:
            set_slot(self, "_settings", settings)
        given = self._mapping_from(dict_in)
        self._fill({**given, **kwargs} if kwargs else given)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _register(cls)

    # Places
    def __getitem__(self, place: Any) -> Any:
        keys = self._keys_of(place)
        return self._at(keys) if keys is not None else self._indexed(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        keys = self._keys_of(place)
        if keys is not None:
            self._put_at(keys, value)
        else:
            self._set_indexed(place, value)

    def __delitem__(self, place: Any) -> None:
        keys = self._keys_of(place)
        if keys is None:
            raise ArgumentTypeError(
                f"only a key or a key chain can be deleted, not an index of type {type(place).__name__}."
            )
        self._remove_at(keys)

    def __contains__(self, place: Any) -> bool:
        """Tell whether there is such a key or key chain, or such a part: the same object, or one with the same leaves."""
        if isinstance(place, Nested):
            return self._holds(place) or self.cont_contains_sub_container(place)
        keys = self._keys_of(place)
        return keys is not None and self._at(keys, _ABSENT) is not _ABSENT

    def __getattr__(self, name: str) -> Any:
        if name in UNSET:
            return super().__getattr__(name)
        self._ready()
        value = dict.get(self, name, _ABSENT)
        if value is not _ABSENT:
            return value
        if is_of_class(self, name):
            return object.__getattribute__(self, name)
        if not name.startswith("_"):
            mapped = self._mapped(name)
            if mapped is not None:
                return mapped
        names = [] if name.startswith("_") else list(dict.keys(self))
        raise AttributePathError(f'{type(self).__name__} has no method or key "{name}"{hint(name, names)}')

    def __setattr__(self, name: str, value: Any) -> None:
        if name in UNSET or (name.startswith("__") and name.endswith("__")):
            set_slot(self, name, value)
        else:
            self._put_at((name,), value)

    def __delattr__(self, name: str) -> None:
        if not dict.__contains__(self, name) and self._pending is None:
            raise AttributePathError(f'{type(self).__name__} has no key "{name}"{hint(name, dict.keys(self))}')
        self._remove_at((name,))

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *(key for key in self.keys() if key.isidentifier())})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._chains(levels=True))

    # All leaves
    def _mapped(self, name: str) -> Self | Callable[..., Any] | None:
        """Give an attribute of all leaves, or a function that calls it on all leaves; None if a leaf lacks it."""
        leaves = list(self.cont_to_iterator_values())
        if not leaves or not all(hasattr(leaf, name) for leaf in leaves):
            return None
        mapped = self.cont_map(lambda leaf, _: getattr(leaf, name))
        if not all(map(callable, mapped.cont_to_iterator_values())):
            return mapped

        def call(*args: Any, **kwargs: Any) -> Any:
            """Call the method of this name of every leaf."""
            return mapped.cont_map(lambda method, _: method(*args, **kwargs))

        call.__name__ = call.__qualname__ = name
        return call

    def _indexed(self, index: Any) -> Self:
        if isinstance(index, Nested):
            return self.cont_multi_map(lambda pair, _: at_index(*pair), [self, index])
        return self.cont_map(lambda leaf, _: at_index(leaf, index))

    def _set_indexed(self, index: Any, value: Any) -> None:
        parts = [self, index, value]
        changed = self.cont_multi_map(lambda three, _: set_at_index(*three), parts)
        for chain, leaf in changed.cont_to_iterator():
            self[chain] = leaf

    # Copies
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = self._like({})
        memo[id(self)] = new
        new._take({key: copy.deepcopy(value, memo) for key, value in self.items()})
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._settings, dict(self.items()))


_ABSENT = object()


def _restore(cls: type[Container], settings: Settings, level: dict[str, Any]) -> Container:
    return cls._from_dict(level, settings)


# The PyTree: children in canonical order, keys as the static part
def _flatten(container: Container) -> tuple[tuple[Any, ...], Names]:
    names = container._names or container._ordered()
    if names.stored_in_order:
        return tuple(dict.values(container)), names
    return tuple(dict.__getitem__(container, name) for name in names), names


def _flatten_with_keys(container: Container) -> tuple[tuple[tuple[Any, Any], ...], Names]:
    children, names = _flatten(container)
    return tuple(zip(map(jax.tree_util.DictKey, names), children, strict=True)), names


def _register(cls: type[Container]) -> None:
    def unflatten(names: Names, children: Iterable[Any]) -> Container:
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


_register(Container)
