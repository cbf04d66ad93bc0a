"""Container: a dict of dicts whose leaves are arrays, or anything; a PyTree.

Here are its doors. The work is done by plain functions over the storage (`nested`): `cont_x` asks
the function `x`, found in `converting`, `looking_up`, `mapping`, `chains`, `many`, `arrays`,
`comparison`, `files` or `text`.

Unless `inplace=True` is given, a method returns a new Container and shares the arrays. `key_chains`
may be a list, a dict (its chains count) or one string; chains that do not exist raise `PathError`
and nothing is changed.
"""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from nbmodule.tree import (
    arrays,
    chains,
    comparison,
    converting,
    files,
    looking_up,
    many,
    mapping,
    text,
)
from nbmodule.tree.arithmetic import left, operate, right, unary
from nbmodule.tree.nested import UNSET, Nested, register, set_slot
from nbmodule.tree.settings import DEFAULT, Settings, settings_from

_ABSENT = object()


class Container(Nested):
    """A dict of dicts whose leaves are arrays, or anything.

    A place is reached as `c.a.b`, `c["a/b"]`, `c["a.b"]` or `c["a", "b"]`; setting one makes the
    levels on the way. Any other index goes to all leaves: `c[0]`, `c[:, 1]`, `c[mask]`. Operators
    work leaf by leaf, with numbers, arrays and Containers of the same structure; comparisons give a
    Container too (ask it `cont_all_true()`), and so a Container has no hash. As with any dict,
    `bool(c)` tells whether there is a key.

    Attributes are looked up among the methods, then among the keys, then as an attribute that all
    leaves have: `c.shape`, `c.mean(axis=0)`. A key that is called like a method is reached as
    `c["items"]`.

    Args:
        dict_in: A mapping or pairs. Mappings in it become Containers (Containers stay the same
            objects). A key with `/` or `.` makes levels; other keys count by their text; two
            entries for one place are an error.
        print_limit: Arrays with more elements are shown as type, dtype and shape; None shows all.
        print_indent: Spaces for each level of the text.
        print_line_spacing: Empty lines after each line of the text.
        key_length_limit: Longer keys are shown with their middle cut out.
        default_key_color: The color of keys on a terminal.
        keyword_color_dict: Other colors, for keys that contain a certain text.
        alphabetical_keys: Keep the keys sorted; otherwise they stay in the order in which they
            came.
        rebuild_child_containers: Copy Containers in `dict_in`, with these settings.
        types_to_iteratively_nest: Sequences of these types become levels with the keys `it_0`,
            `it_1`, ...
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
        **kwargs: object,
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
        supplied = self._mapping_from(dict_in)
        self._fill({**supplied, **kwargs} if kwargs else supplied)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        register(cls)

    # Places
    def __getitem__(self, place: object) -> Any:
        keys = self._keys_of(place)
        return self._at(keys) if keys is not None else mapping.indexed(self, place)

    def __setitem__(self, place: Any, value: Any) -> None:
        keys = self._keys_of(place)
        self._put_at(keys, value) if keys is not None else mapping.set_indexed(self, place, value)

    def __delitem__(self, place: object) -> None:
        looking_up.delete(self, place)

    def __contains__(self, place: object) -> bool:
        """Tell whether there is such a key or key chain, or such a part: the same object, or one
        with the same leaves.
        """
        return comparison.contains(self, place)

    def __getattr__(self, name: str) -> Any:
        if name in UNSET:
            return super().__getattr__(name)
        value = dict.get(self, name, _ABSENT)
        return value if value is not _ABSENT else mapping.attribute_of_leaves(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in UNSET or (name.startswith("__") and name.endswith("__")):
            set_slot(self, name, value)
        else:
            self._put_at((name,), value)

    def __delattr__(self, name: str) -> None:
        looking_up.delete_attribute(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *(key for key in self.keys() if key.isidentifier())})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._chains(levels=True))

    # Operators, leaf by leaf. `c += x` makes a new Container, as with arrays. `|` is logic and not
    # the union of dicts, which is `cont_combine`.
    __array_ufunc__ = None  # NumPy then leaves `array * container` to the Container
    # `==` gives a Container, so there is no equality to hash by.
    __hash__ = None  # type: ignore[assignment]

    __add__, __radd__ = left(operator.add), right(operator.add)
    __sub__, __rsub__ = left(operator.sub), right(operator.sub)
    __mul__, __rmul__ = left(operator.mul), right(operator.mul)
    __truediv__, __rtruediv__ = left(operator.truediv), right(operator.truediv)
    __floordiv__, __rfloordiv__ = left(operator.floordiv), right(operator.floordiv)
    __mod__, __rmod__ = left(operator.mod), right(operator.mod)
    __pow__, __rpow__ = left(operator.pow), right(operator.pow)
    __matmul__, __rmatmul__ = left(operator.matmul), right(operator.matmul)
    __and__, __rand__ = left(operator.and_), right(operator.and_)
    __or__, __ror__ = left(operator.or_), right(operator.or_)
    __xor__, __rxor__ = left(operator.xor), right(operator.xor)
    __lshift__, __rlshift__ = left(operator.lshift), right(operator.lshift)
    __rshift__, __rrshift__ = left(operator.rshift), right(operator.rshift)
    __eq__, __ne__ = left(operator.eq), left(operator.ne)
    __lt__, __le__ = left(operator.lt), left(operator.le)
    __gt__, __ge__ = left(operator.gt), left(operator.ge)
    __neg__, __pos__ = unary(operator.neg), unary(operator.pos)
    __invert__, __abs__ = unary(operator.invert), unary(operator.abs)
    # A dict would merge in place here.
    __ior__ = left(operator.or_)

    def __divmod__(self, other: object) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Any, Any]:
        return other // self, other % self

    def __round__(self, digits: int | None = None) -> Any:
        return operate(lambda x: round(x) if digits is None else round(x, digits), self)

    # Copies
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return converting.deep_copy(self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._settings, dict(self.items()))

    # Lists, dicts and iterators, and back
    def cont_to_dict(self) -> dict[str, Any]:
        """Give plain nested dicts with the same leaves.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        return converting.to_dict(self)

    def cont_to_flat_list(self) -> list[Any]:
        """List all leaves in canonical order, the order of `jax.tree.leaves`.

        Example:
            >>> nb.Container(b={"c": 2}, a=1).cont_to_flat_list()
            [1, 2]
        """
        return converting.to_flat_list(self)

    def cont_from_flat_list(self, flat_list: Iterable[Any]) -> Self:
        """Give a Container of this structure with other leaves, in the order of
        `cont_to_flat_list`.

        Raises:
            StructureError: if there are more or fewer values than leaves.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_from_flat_list([3, 4]).cont_to_dict()
            {'a': 3, 'b': {'c': 4}}
        """
        return converting.from_flat_list(self, flat_list)

    def cont_to_nested_list(self) -> list[Any]:
        """Give nested lists of the leaves, without the keys.

        Example:
            >>> nb.Container(a=1, b={"c": 2, "d": 3}).cont_to_nested_list()
            [1, [2, 3]]
        """
        return converting.to_nested_list(self)

    def cont_to_iterator(
        self, leaf_keys_only: bool = False, include_empty: bool = False
    ) -> Iterator[tuple[str, Any]]:
        """Go through the leaves with their key chains.

        Args:
            leaf_keys_only: Give the last key instead of the chain.
            include_empty: Give empty levels too.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator())
            [('a', 1), ('b/c', 2)]
        """
        return converting.to_iterator(self, leaf_keys_only, include_empty)

    def cont_to_iterator_keys(
        self, leaf_keys_only: bool = False, include_empty: bool = False
    ) -> Iterator[str]:
        """Go through the key chains of the leaves.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator_keys(leaf_keys_only=True))
            ['a', 'c']
        """
        return converting.to_iterator_keys(self, leaf_keys_only, include_empty)

    def cont_to_iterator_values(self, include_empty: bool = False) -> Iterator[Any]:
        """Go through the leaves.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator_values())
            [1, 2]
        """
        return converting.to_iterator_values(self, include_empty)

    @property
    def cont_max_depth(self) -> int:
        """The number of keys in the longest chain.

        Example:
            >>> nb.Container(a=1, b={"c": {"d": 2}}).cont_max_depth
            3
        """
        return converting.max_depth(self)

    def cont_deep_copy(self) -> Self:
        """Copy all levels and all leaves, arrays too.

        Example:
            >>> c = nb.Container(a=jnp.ones(2))
            >>> d = c.cont_deep_copy()
            >>> d.a is c.a, bool((d.a == c.a).all())
            (False, True)
        """
        return copy.deepcopy(self)

    def cont_copy(self) -> Self:
        """Copy all levels; the leaves are shared.

        Example:
            >>> c = nb.Container(a={"b": jnp.ones(2)})
            >>> d = c.cont_copy()
            >>> d.a is c.a, d.a.b is c.a.b
            (False, True)
        """
        return looking_up.copy_levels(self)

    # Looking up
    def cont_at_key_chain(self, key_chain: str, ignore_key_errors: bool = False) -> Any:
        """Give the leaf or the part at a key chain; a missing one raises, or gives None if errors
        are ignored.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2})
            >>> c.cont_at_key_chain("b/c"), c.cont_at_key_chain("x", ignore_key_errors=True)
            (2, None)
        """
        return looking_up.at_key_chain(self, key_chain, ignore_key_errors)

    def cont_at_key_chains(self, key_chains: object, ignore_key_errors: bool = False) -> Self:
        """Give the Container of only those key chains.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_at_key_chains(["a", "b/c"]).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        return looking_up.at_key_chains(self, key_chains, ignore_key_errors)

    def cont_at_keys(self, keys: str | Iterable[str], containing: bool = False) -> Self:
        """Give the Container of the leaves below certain keys, at whatever level these are.

        Args:
            keys: One key or several.
            containing: Take any key that contains one of `keys` as a part of its text.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_at_keys("c").cont_to_dict(), c.cont_at_keys(["b"]).cont_to_dict()
            ({'b': {'c': 2}}, {'b': {'c': 2, 'd': 3}})
        """
        return looking_up.at_keys(self, keys, containing)

    def cont_all_key_chains(self, include_empty: bool = False) -> list[str]:
        """List the key chains of all leaves; of empty levels too, if asked.

        Example:
            >>> nb.Container(a=1, b={"c": 2, "d": {}}).cont_all_key_chains()
            ['a', 'b/c']
        """
        return looking_up.all_key_chains(self, include_empty)

    def cont_key_chains_containing(self, text: str, include_empty: bool = False) -> list[str]:
        """List the key chains that contain a text.

        Example:
            >>> nb.Container(a_sub=1, b={"c": 2, "d_sub": 3}).cont_key_chains_containing("sub")
            ['a_sub', 'b/d_sub']
        """
        return looking_up.key_chains_containing(self, text, include_empty)

    def cont_has_key(self, text: str) -> bool:
        """Tell whether there is such a key at any level; a chain is looked for at any level too.

        Example:
            >>> c = nb.Container(a={"b": {"c": 1}})
            >>> c.cont_has_key("b"), c.cont_has_key("b/c"), c.cont_has_key("a/c")
            (True, True, False)
        """
        return looking_up.has_key(self, text)

    def cont_has_key_chain(self, key_chain: str) -> bool:
        """Tell whether there is a leaf or a part at this key chain.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2})
            >>> c.cont_has_key_chain("b/c"), c.cont_has_key_chain("c")
            (True, False)
        """
        return looking_up.has_key_chain(self, key_chain)

    def cont_if_exists(self, key_chain: str) -> Any:
        """Give what is at a key chain, or None.

        Example:
            >>> nb.Container(a=1).cont_if_exists("b") is None
            True
        """
        return looking_up.at_key_chain(self, key_chain, ignore_key_errors=True)

    # Setting
    def cont_set_at_key_chain(self, key_chain: str, val: object, inplace: bool = False) -> Self:
        """Set a leaf or a part; missing levels are made.

        Example:
            >>> nb.Container(a=1).cont_set_at_key_chain("b/c", 2).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        return looking_up.set_at_key_chain(self, key_chain, val, inplace)

    def cont_set_at_key_chains(self, target_dict: Mapping[str, Any], inplace: bool = False) -> Self:
        """Set all leaves of a dict, nested or with key chains as keys; other leaves stay.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_set_at_key_chains({"a": 4, "b": {"d": 5}}).cont_to_dict()
            {'a': 4, 'b': {'c': 2, 'd': 5}}
        """
        return looking_up.set_all(self, target_dict, inplace, must_exist=False)

    def cont_overwrite_at_key_chain(
        self, key_chain: str, val: object, inplace: bool = False
    ) -> Self:
        """Set a leaf or a part that exists already.

        Raises:
            PathError: if it does not exist.

        Example:
            >>> nb.Container(a=1).cont_overwrite_at_key_chain("a", 2).a
            2
        """
        return looking_up.overwrite_at_key_chain(self, key_chain, val, inplace)

    def cont_overwrite_at_key_chains(
        self, target_dict: Mapping[str, Any], inplace: bool = False
    ) -> Self:
        """Set all leaves of a dict; each must exist already.

        Raises:
            PathError: if one does not exist; nothing was changed.

        Example:
            >>> nb.Container(a=1, b=2).cont_overwrite_at_key_chains({"b": 3}).cont_to_dict()
            {'a': 1, 'b': 3}
        """
        return looking_up.set_all(self, target_dict, inplace, must_exist=True)

    def cont_create_if_absent(self, key_chain: str, val: object, inplace: bool = False) -> Self:
        """Set a leaf or a part where there is none yet.

        Example:
            >>> nb.Container(a=1).cont_create_if_absent("a", 5).cont_create_if_absent("b", 6).cont_to_dict()
            {'a': 1, 'b': 6}
        """
        return looking_up.create_if_absent(self, key_chain, val, inplace)

    # Dropping
    def cont_prune_key_chain(self, key_chain: str, inplace: bool = False) -> Self:
        """Drop a leaf or a part, and the levels that are empty without it.

        Example:
            >>> nb.Container(a=1, b={"c": {"d": 2}}).cont_prune_key_chain("b/c/d").cont_to_dict()
            {'a': 1}
        """
        return looking_up.prune_key_chains(self, [key_chain], inplace)

    def cont_prune_key_chains(self, key_chains: object, inplace: bool = False) -> Self:
        """Drop several leaves or parts, and the levels that are empty without them.

        Example:
            >>> nb.Container(a=1, b={"c": 2, "d": 3}).cont_prune_key_chains(["a", "b/c"]).cont_to_dict()
            {'b': {'d': 3}}
        """
        return looking_up.prune_key_chains(self, key_chains, inplace)

    def cont_prune_keys(self, keys: str | Iterable[str], inplace: bool = False) -> Self:
        """Drop certain keys with all below them, at every level, and the levels that are empty
        without them.

        Example:
            >>> nb.Container(a=1, b={"c": 2, "d": 3}, c=4).cont_prune_keys(["a", "c"]).cont_to_dict()
            {'b': {'d': 3}}
        """
        return looking_up.prune_keys(self, keys, inplace)

    def cont_prune_empty(self, keep_nones: bool = False) -> Self:
        """Drop empty levels, and leaves that are None unless these are to be kept.

        Example:
            >>> nb.Container(a=1, b={"c": {}, "d": None}).cont_prune_empty().cont_to_dict()
            {'a': 1}
        """
        return looking_up.prune_empty(self, keep_nones)

    # A function for all leaves, or for all parts
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
            fn: Takes a leaf and its key chain; what it returns takes the leaf's place.
            key_chains: Apply it only at these chains and below them; all by default.
            to_apply: False applies it everywhere but there.
            prune_unapplied: Drop the other leaves instead of keeping them.
            map_sequences: Apply it to the items of lists and tuples, whose chains end in `v0`,
                `v1`, ...
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
        return mapping.map_leaves(
            self, fn, key_chains, to_apply, prune_unapplied, map_sequences, inplace
        )

    def cont_map_sub_conts(
        self,
        fn: Callable[[Any, str], Any],
        key_chains: object = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        inplace: bool = False,
        include_self: bool = True,
    ) -> Any:
        """Apply `fn(container, kc)` to each part, from the bottom up; what it returns takes the
        part's place.

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
        return mapping.map_sub_conts(
            self, fn, key_chains, to_apply, prune_unapplied, inplace, include_self
        )

    @staticmethod
    def cont_multi_map(
        fn: Callable[[list[Any], str], Any],
        containers: list[Any],
        key_chains: object = None,
        to_apply: bool = True,
        prune_unapplied: bool = False,
        map_sequences: bool = False,
    ) -> Any:
        """Apply `fn(list_of_leaves, kc)` over Containers of one structure; any other value in the
        list counts for every leaf.

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
        return mapping.multi_map(
            fn, containers, key_chains, to_apply, prune_unapplied, map_sequences
        )

    # Names
    def cont_flatten_key_chains(
        self,
        include_empty: bool = False,
        above_height: int | None = None,
        below_depth: int | None = None,
    ) -> Self:
        """Join the keys of each chain into one, as `a__b__c`.

        Args:
            include_empty: Keep empty levels.
            above_height: Keep this many levels at the bottom.
            below_depth: Keep this many levels at the top.

        Example:
            >>> c = nb.Container(a=1, b={"c": {"d": 2}})
            >>> c.cont_flatten_key_chains().cont_to_dict()
            {'a': 1, 'b__c__d': 2}
            >>> c.cont_flatten_key_chains(above_height=1).cont_to_dict()
            {'a': 1, 'b__c': {'d': 2}}
            >>> c.cont_flatten_key_chains(below_depth=1).cont_to_dict()
            {'a': 1, 'b': {'c__d': 2}}
        """
        return chains.flatten_key_chains(self, include_empty, above_height, below_depth)

    @staticmethod
    def cont_flatten_key_chain(
        key_chain: str,
        replacement: str = "__",
        above_height: int | None = None,
        below_depth: int | None = None,
    ) -> str:
        """Join the keys of one chain.

        Args:
            key_chain: The chain.
            replacement: Stands between the keys that are joined.
            above_height: Keep this many keys at the end.
            below_depth: Keep this many keys at the beginning.

        Example:
            >>> nb.Container.cont_flatten_key_chain("a/b/c"), nb.Container.cont_flatten_key_chain("a/b/c", "-", below_depth=1)
            ('a__b__c', 'a/b-c')
        """
        return chains.flatten_key_chain(key_chain, replacement, above_height, below_depth)

    def cont_format_key_chains(self, format_fn: Callable[[str], str]) -> Self:
        """Rename each leaf: `format_fn` takes its key chain and gives the new one.

        Example:
            >>> nb.Container(_a=1, b={"_c": 2}).cont_format_key_chains(lambda kc: kc.replace("_", "")).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        return chains.format_key_chains(self, format_fn)

    def cont_restructure_key_chains(
        self, keychain_mapping: Mapping[str, str], keep_orig: bool = True, replace: bool = True
    ) -> Self:
        """Give leaves or parts other key chains.

        Args:
            keychain_mapping: From old to new key chain.
            keep_orig: Keep what is not named; else start from nothing.
            replace: Take the old chains away; else they stay too.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_restructure_key_chains({"a": "A", "b/c": "B/C"}).cont_to_dict()
            {'A': 1, 'B': {'C': 2}, 'b': {'d': 3}}
            >>> c.cont_restructure_key_chains({"b": "x/y"}, keep_orig=False).cont_to_dict()
            {'x': {'y': {'c': 2, 'd': 3}}}
        """
        return chains.restructure_key_chains(self, keychain_mapping, keep_orig, replace)

    def cont_prune_keys_from_key_chains(
        self,
        absolute: str | Iterable[str] | None = None,
        containing: str | Iterable[str] | None = None,
    ) -> Self:
        """Take levels out and keep what is below them.

        Args:
            absolute: The keys to take out of all chains.
            containing: Take out keys that contain one of these texts.

        Example:
            >>> c = nb.Container(a=1, net={"w": 2, "layer": {"b": 3}})
            >>> c.cont_prune_keys_from_key_chains("net").cont_to_dict()
            {'a': 1, 'layer': {'b': 3}, 'w': 2}
        """
        return chains.prune_keys_from_key_chains(self, absolute, containing)

    def cont_sort_by_key(self) -> Self:
        """Give the same with the keys of all levels sorted, also where they were kept in their own
        order.

        Example:
            >>> list(nb.Container(b=1, a=2, alphabetical_keys=False).cont_sort_by_key())
            ['a', 'b']
        """
        return self._with_settings(alphabetical_keys=True)

    # Cuts
    def cont_cutoff_at_depth(self, depth_cutoff: int, inplace: bool = False) -> Self:
        """Keep this many levels: parts that lie deeper become empty.

        Example:
            >>> c = nb.Container(a=1, b={"c": {"d": 2}})
            >>> c.cont_cutoff_at_depth(1).cont_to_dict(), c.cont_cutoff_at_depth(2).cont_to_dict()
            ({'a': 1, 'b': {}}, {'a': 1, 'b': {'c': {}}})
        """
        return chains.cutoff_at_depth(self, depth_cutoff, inplace)

    def cont_cutoff_at_height(self, height_cutoff: int, inplace: bool = False) -> Self:
        """Cut this many levels away from below: parts that are at most so deep become empty.

        Example:
            >>> c = nb.Container(a={"c": 1}, b={"c": {"d": 2}})
            >>> c.cont_cutoff_at_height(1).cont_to_dict()
            {'a': {}, 'b': {'c': {}}}
        """
        return chains.cutoff_at_height(self, height_cutoff, inplace)

    # Slices
    def cont_slice_keys(
        self, key_slice: str | slice | Mapping[int, str | slice], all_depths: bool = False
    ) -> Self:
        """Keep a range of keys.

        Args:
            key_slice: `"b:d"` keeps the keys from b to d, d and all that begins with it included; a
                slice counts the keys; a dict gives one of these for each depth, the first level
                being 0.
            all_depths: Apply it at every level.

        Example:
            >>> c = nb.Container(a=1, b=2, c={"a": 3, "b": 4}, d=5)
            >>> c.cont_slice_keys("b:c").cont_to_dict(), c.cont_slice_keys({1: slice(1)}).cont_to_dict()
            ({'b': 2, 'c': {'a': 3, 'b': 4}}, {'a': 1, 'b': 2, 'c': {'a': 3}, 'd': 5})
        """
        return chains.slice_keys(self, key_slice, all_depths)

    def cont_slice_via_key(self, slice_key: str) -> Any:
        """Put in the place of each part that has a certain key what it has there.

        Example:
            >>> c = nb.Container(a={"x": 1, "y": 2}, b={"c": {"x": 3}})
            >>> c.cont_slice_via_key("x").cont_to_dict()
            {'a': 1, 'b': {'c': 3}}
        """
        return chains.slice_via_key(self, slice_key)

    # One of many, and many of one
    @staticmethod
    def cont_list_join(containers: Sequence[Any]) -> Any:
        """Join leaves that are lists.

        Example:
            >>> nb.Container.cont_list_join([nb.Container(a=[1, 2]), nb.Container(a=[3])]).a
            [1, 2, 3]
        """
        return many.list_join(containers)

    @staticmethod
    def cont_list_stack(containers: Sequence[Any], axis: int = 0) -> Any:
        """Make each leaf the list of the Containers' leaves.

        Args:
            containers: Containers of one structure.
            axis: Where the new list lies: 0 is outermost; 1 makes a list for each item of the
                leaves, and so on.

        Example:
            >>> a, b = nb.Container(x=[1, 2]), nb.Container(x=[3, 4])
            >>> nb.Container.cont_list_stack([a, b], 0).x, nb.Container.cont_list_stack([a, b], 1).x
            ([[1, 2], [3, 4]], [[1, 3], [2, 4]])
        """
        return many.list_stack(containers, axis)

    def cont_unstack_conts(
        self, axis: int = 0, keepdims: bool = False, dim_size: int | None = None
    ) -> list[Any]:
        """Take the leaves apart along an axis, into as many Containers as it is long.

        Args:
            axis: The axis.
            keepdims: Keep the axis, with length 1.
            dim_size: Its length; found out if not given.

        Raises:
            ShapeError: if the leaves are not equally long.

        Example:
            >>> [each.a.tolist() for each in nb.Container(a=jnp.array([[1, 2], [3, 4]])).cont_unstack_conts(0)]
            [[1, 2], [3, 4]]
        """
        return many.unstack_conts(self, axis, keepdims, dim_size)

    @staticmethod
    def cont_reduce(containers: Sequence[Any], fn: Callable[..., Any]) -> Any:
        """Make one leaf of the leaves at each chain; `fn` takes their list, or two of them at a
        time.

        Example:
            >>> nb.Container.cont_reduce([nb.Container(a=1), nb.Container(a=2)], sum).a
            3
            >>> nb.Container.cont_reduce([nb.Container(a=1), nb.Container(a=2)], lambda a, b: a - b).a
            -1
        """
        return many.reduce(containers, fn)

    @staticmethod
    def cont_concat(containers: Sequence[Any], axis: int = 0) -> Any:
        """Join arrays along an axis that they have.

        Example:
            >>> nb.Container.cont_concat([nb.Container(a=jnp.ones(2)), nb.Container(a=jnp.zeros(1))], 0).a
            Array([1., 1., 0.], dtype=float32)
        """
        return many.concat(containers, axis)

    @staticmethod
    def cont_combine(*containers: object) -> Any:
        """Join Containers of different structure; where two have a leaf at one chain, the
        right-most wins.

        Example:
            >>> a, b = nb.Container(x=1, y={"z": 2}), nb.Container(x=3, y={"w": 4})
            >>> nb.Container.cont_combine(a, b).cont_to_dict()
            {'x': 3, 'y': {'w': 4, 'z': 2}}
        """
        return many.combine(*containers)

    # Arrays
    @property
    def cont_shape(self) -> list[int | None]:
        """The leading sizes that the arrays share; None where they differ.

        Example:
            >>> nb.Container(a=jnp.ones((2, 3)), b=jnp.ones((2, 4, 5))).cont_shape
            [2, None]
        """
        return arrays.shared_shape(self)

    @property
    def cont_shapes(self) -> Self:
        """The shape of each array; None for other leaves.

        Example:
            >>> nb.Container(a=jnp.ones((2, 3)), b="text").cont_shapes.cont_to_dict()
            {'a': (2, 3), 'b': None}
        """
        return arrays.shapes(self)

    @property
    def cont_num_arrays(self) -> int:
        """The number of leaves that are arrays.

        Example:
            >>> nb.Container(a=jnp.ones(2), b={"c": np.ones(3), "d": "text"}).cont_num_arrays
            2
        """
        return arrays.num_arrays(self)

    @property
    def cont_size_ordered_arrays(self) -> Self:
        """The arrays under flat keys (`a__b`), the smallest first.

        Example:
            >>> list(nb.Container(a=jnp.ones(4), b={"c": jnp.ones(2)}).cont_size_ordered_arrays)
            ['b__c', 'a']
        """
        return arrays.size_ordered_arrays(self)

    @property
    def cont_dev(self) -> str | None:
        """The name of the device that all arrays lie on; None if there is no one such device.

        Example:
            >>> nb.Container(a=jnp.ones(2)).cont_dev
            'cpu:0'
        """
        return arrays.device(self)

    def cont_duplicate_array_keychains(self) -> tuple[tuple[str, ...], ...]:
        """List the groups of chains that hold one and the same array.

        Example:
            >>> x = jnp.ones(2)
            >>> nb.Container(a=x, b={"c": x, "d": jnp.ones(2)}).cont_duplicate_array_keychains()
            (('a', 'b/c'),)
        """
        return arrays.duplicate_array_keychains(self)

    def to_numpy(self) -> Self:
        """Give the same with NumPy arrays; leaves that are no arrays stay.

        Example:
            >>> nb.Container(a=jnp.ones(2), b="text").to_numpy().cont_to_dict()
            {'a': array([1., 1.], dtype=float32), 'b': 'text'}
        """
        return arrays.to_numpy(self)

    # Truth
    def cont_as_bools(self, assert_is_bool: bool = False) -> Self:
        """Turn each leaf into True or False; an array is true if all its elements are.

        Args:
            assert_is_bool: Raise where a leaf is not boolean already.

        Example:
            >>> nb.Container(a=jnp.array([1, 0]), b={"c": [], "d": True}).cont_as_bools().cont_to_dict()
            {'a': False, 'b': {'c': False, 'd': True}}
        """
        return arrays.as_bools(self, assert_is_bool)

    def cont_all_true(self, assert_is_bool: bool = False) -> bool:
        """Tell whether all elements of all leaves are true, as after a comparison.

        Example:
            >>> c = nb.Container(a=jnp.array([1, 2]), b={"c": 3})
            >>> (c == c).cont_all_true(), (c > 1).cont_all_true()
            (True, False)
        """
        return arrays.all_true(self, assert_is_bool)

    def cont_all_false(self, assert_is_bool: bool = False) -> bool:
        """Tell whether no element of any leaf is true.

        Example:
            >>> (nb.Container(a=jnp.array([1, 2])) > 5).cont_all_false()
            True
        """
        return arrays.all_false(self, assert_is_bool)

    # Several compared
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
            *containers: What to compare.
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
        return comparison.diff(
            containers, mode, diff_keys, detect_key_diffs, detect_value_diffs, detect_shape_diffs
        )

    @staticmethod
    def cont_structural_diff(
        *containers: object,
        mode: str = "all",
        diff_keys: str | Sequence[str] = "diff",
        detect_key_diffs: bool = True,
        detect_shape_diffs: bool = True,
    ) -> Any:
        """Compare keys and shapes only; see `cont_diff`.

        Example:
            >>> a, b = nb.Container(x=jnp.ones(2), y=1), nb.Container(x=jnp.zeros(2), y=2)
            >>> nb.Container.cont_structural_diff(a, b, mode="diff_only")
            {}
        """
        return comparison.diff(
            containers, mode, diff_keys, detect_key_diffs, False, detect_shape_diffs
        )

    @staticmethod
    def cont_identical(
        containers: Sequence[Any],
        same_arrays: bool = True,
        arrays_equal: bool = True,
        partial: bool = False,
        *,
        check_types: bool = True,
        check_shapes: bool = True,
        key_chains: object = None,
        to_apply: bool = True,
    ) -> bool:
        """Tell whether Containers have the same chains and the same leaves.

        Args:
            containers: What to compare.
            same_arrays: Arrays must be the very same objects.
            arrays_equal: Leaves must be equal; for arrays this matters where they need not be the
                same.
            partial: Compare the chains that all have; there must be one.
            check_types: A leaf must be of one type in all; arrays of JAX and NumPy are of one.
            check_shapes: Arrays must have one shape.
            key_chains: Compare the leaves at these chains and below them only; the chains must
                agree everywhere.
            to_apply: False compares the leaves everywhere but there.

        Example:
            >>> x = jnp.ones(2)
            >>> a, b, c = nb.Container(x=x), nb.Container(x=x), nb.Container(x=jnp.ones(2))
            >>> nb.Container.cont_identical([a, b]), nb.Container.cont_identical([a, c])
            (True, False)
            >>> nb.Container.cont_identical([a, c], same_arrays=False)
            True
        """
        return comparison.identical(
            containers,
            same_arrays,
            arrays_equal,
            partial,
            check_types,
            check_shapes,
            key_chains,
            to_apply,
        )

    @staticmethod
    def cont_identical_structure(
        containers: Sequence[Any],
        check_types: bool = True,
        check_shapes: bool = True,
        partial: bool = False,
        *,
        key_chains: object = None,
        to_apply: bool = True,
    ) -> bool:
        """Tell whether Containers have the same chains, and leaves of the same types and shapes;
        see `cont_identical`.

        Example:
            >>> a, b, c = nb.Container(x=jnp.ones(2)), nb.Container(x=jnp.zeros(2)), nb.Container(x=jnp.ones(3))
            >>> nb.Container.cont_identical_structure([a, b]), nb.Container.cont_identical_structure([a, c])
            (True, False)
        """
        return comparison.identical_structure(
            containers, check_types, check_shapes, partial, key_chains, to_apply
        )

    @staticmethod
    def cont_identical_array_shapes(containers: Sequence[Any]) -> bool:
        """Tell whether Containers have as many arrays, of the same shapes, whatever their chains.

        Example:
            >>> a, b = nb.Container(x=jnp.ones(2), y=jnp.ones(3)), nb.Container(p=jnp.ones(3), q=jnp.ones(2))
            >>> nb.Container.cont_identical_array_shapes([a, b])
            True
        """
        return comparison.identical_array_shapes(containers)

    @staticmethod
    def cont_assert_identical(
        containers: Sequence[Any],
        same_arrays: bool = True,
        arrays_equal: bool = True,
        partial: bool = False,
        **options: object,
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
        comparison.assert_identical(containers, same_arrays, arrays_equal, partial, **options)

    @staticmethod
    def cont_assert_identical_structure(
        containers: Sequence[Any],
        check_types: bool = True,
        check_shapes: bool = True,
        partial: bool = False,
        **options: object,
    ) -> None:
        """Raise an error that shows the difference, unless `cont_identical_structure` with the same
        arguments.

        Raises:
            NotIdenticalError: a `StructureError` and an `AssertionError`.

        Example:
            >>> nb.Container.cont_assert_identical_structure([nb.Container(x=1), nb.Container(x=2)])
        """
        comparison.assert_identical_structure(
            containers, check_types, check_shapes, partial, **options
        )

    # One in another
    def cont_find_sub_container(self, sub_cont: object, partial: bool = False) -> str | bool:
        """Give the key chain of the part that is identical to a Container (`""` for the whole), or
        False.

        Args:
            sub_cont: What to look for; arrays must be the same objects.
            partial: Also find a part that has more chains.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_find_sub_container(nb.Container(c=2, d=3)), c.cont_find_sub_container(nb.Container(c=9))
            ('b', False)
        """
        return comparison.find_sub_container(self, sub_cont, partial)

    def cont_find_sub_structure(
        self, sub_struc: object, check_shapes: bool = True, partial: bool = False
    ) -> str | bool:
        """Give the key chain of the part that has the structure of a Container (`""` for the
        whole), or False.

        Example:
            >>> c = nb.Container(a=1, b={"c": jnp.ones(2)})
            >>> c.cont_find_sub_structure(nb.Container(c=jnp.zeros(2)))
            'b'
        """
        return comparison.find_sub_structure(self, sub_struc, check_shapes, partial)

    def cont_contains_sub_container(self, sub_cont: object, partial: bool = False) -> bool:
        """Tell whether a part is identical to a Container; see `cont_find_sub_container`.

        Example:
            >>> nb.Container(a={"b": 1}).cont_contains_sub_container(nb.Container(b=1))
            True
        """
        return comparison.find_sub_container(self, sub_cont, partial) is not False

    def cont_contains_sub_structure(
        self, sub_cont: object, check_shapes: bool = True, partial: bool = False
    ) -> bool:
        """Tell whether a part has the structure of a Container; see `cont_find_sub_structure`.

        Example:
            >>> nb.Container(a={"b": 1}).cont_contains_sub_structure(nb.Container(b=2))
            True
        """
        return comparison.find_sub_structure(self, sub_cont, check_shapes, partial) is not False

    # Files
    def cont_to_disk_as_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Write an HDF5 file: a group for each level, a dataset for each leaf.

        Args:
            path: The file. It appears whole or not at all.

        Raises:
            ArgumentTypeError: if a leaf is neither an array nor a number; no file was written.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     nb.Container(a=jnp.ones(2)).cont_to_disk_as_hdf5(f"{folder}/c.h5")
            ...     nb.Container.cont_from_disk_as_hdf5(f"{folder}/c.h5").a
            Array([1., 1.], dtype=float32)
        """
        files.to_disk_as_hdf5(self, path)

    @staticmethod
    def cont_from_disk_as_hdf5(path: str | os.PathLike[str]) -> Any:
        """Read an HDF5 file; see `cont_to_disk_as_hdf5`.

        Raises:
            FileFormatError: if the file is damaged or no such file.
        """
        return files.from_disk_as_hdf5(Container, path)

    def cont_to_disk_as_json(
        self, path: str | os.PathLike[str], *, arrays: str | None = None
    ) -> None:
        """Write a JSON file of numbers, text, lists, True, False and None.

        Args:
            path: The file. It appears whole or not at all; missing folders are made.
            arrays: `"text"` writes an array as text with dtype, shape and elements, which is read
                back as text. By default arrays are refused, since JSON would not give them back
                (`cont_to_disk_as_hdf5` does).

        Raises:
            ArgumentTypeError: if a leaf cannot be written; no file was written.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     nb.Container(lr=0.1, net={"sizes": [3, 2]}).cont_to_disk_as_json(f"{folder}/c.json")
            ...     nb.Container.cont_from_disk_as_json(f"{folder}/c.json").cont_to_dict()
            {'lr': 0.1, 'net': {'sizes': [3, 2]}}
        """
        files.to_disk_as_json(self, path, arrays=arrays)

    @staticmethod
    def cont_from_disk_as_json(path: str | os.PathLike[str]) -> Any:
        """Read a JSON file; its objects become levels.

        Raises:
            FileFormatError: if the file is no JSON, or holds something else than an object, or one
                key twice.
        """
        return files.from_disk_as_json(Container, path)

    def cont_save(self, path: str | os.PathLike[str], format: str | None = None) -> None:
        """Write a file as `"hdf5"` or `"json"`; by default its ending decides.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     nb.Container(a=1).cont_save(f"{folder}/c.json", "json")
            ...     nb.Container.cont_load(f"{folder}/c.json", "json").a
            1
        """
        files.save(self, path, format)

    @staticmethod
    def cont_load(path: str | os.PathLike[str], format: str | None = None) -> Any:
        """Read a file that is `"hdf5"` or `"json"`; by default its ending decides."""
        return files.load(Container, path, format)

    # Displays
    def __repr__(self) -> str:
        return text.container_text(self)

    __str__ = __repr__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Give the forms a notebook can choose from: text of at most 60 lines, and what the display
        socket adds.
        """
        return text.mime_bundle(self, include, exclude)

    def cont_show(self) -> None:
        """Show the Container: richly in a notebook, in color on a terminal, else as text.

        Example:
            >>> nb.Container(a=1).cont_show()
            {
                a: 1
            }
        """
        text.show(self)

    def cont_show_sub_container(self, sub_cont_or_keychain: object) -> None:
        """Show the whole with one part marked, by a sign at the start of its lines.

        Args:
            sub_cont_or_keychain: The key chain of the part, or a Container that is identical to it.

        Raises:
            PathError: if there is no such part.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_show_sub_container("b")
              {
                  a: 1,
            >     b: {
            >         c: 2
            >     }
              }
        """
        text.show_sub_container(self, sub_cont_or_keychain)

    def cont_with_print_limit(self, print_limit: int | None, inplace: bool = False) -> Self:
        """Show arrays of up to so many elements with their values; None shows all.

        Example:
            >>> nb.Container(a=jnp.ones(3)).cont_with_print_limit(2)
            {
                a: (<class ArrayImpl> dtype=float32 shape=[3])
            }
        """
        return self._with_settings(inplace, print_limit=print_limit)

    def cont_with_print_indent(self, print_indent: int, inplace: bool = False) -> Self:
        """Move each level in by so many spaces.

        Example:
            >>> nb.Container(a={"b": 1}).cont_with_print_indent(2)
            {
              a: {
                b: 1
              }
            }
        """
        return self._with_settings(inplace, print_indent=print_indent)

    def cont_with_key_length_limit(
        self, key_length_limit: int | None, inplace: bool = False
    ) -> Self:
        """Show longer keys with their middle cut out.

        Example:
            >>> nb.Container(encoder_weight=1).cont_with_key_length_limit(7)
            {
                enc…ght: 1
            }
        """
        return self._with_settings(inplace, key_length_limit=key_length_limit)


def _restore(cls: type[Container], settings: Settings, level: dict[str, Any]) -> Container:
    return cls._from_dict(level, settings)


register(Container)
