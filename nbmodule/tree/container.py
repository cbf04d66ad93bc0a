"""Container: a dict of dicts whose leaves are arrays, or anything; a PyTree.

The methods stand in a chain of classes, one file for each kind of work: `Nested` (storage),
`LookupMethods`, `MapMethods`, `ChainMethods`, `CombineMethods`, `ComparisonMethods`, `FileMethods`,
`PrintMethods`. `Container` adds the constructor, places and operators.

Unless `inplace=True` is given, a method returns a new Container and shares the arrays. `key_chains`
may be a list, a dict (its chains count) or one string; chains that do not exist raise `PathError`
and nothing is changed.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Self

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentTypeError, AttributePathError
from nbmodule.tree.arithmetic import left, right
from nbmodule.tree.mapping import attribute_of_leaves, indexed, set_indexed
from nbmodule.tree.nested import DEFAULT, UNSET, Nested, Settings, register_container, set_slot
from nbmodule.tree.printing import PrintMethods, container_text, mime_bundle

_ABSENT = object()


class Container(PrintMethods):
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
        key_length_limit: Longer keys are shown with their middle cut out.
        alphabetical_keys: Keep the keys sorted; otherwise they stay in the order in which they
            came.
        **kwargs: Further items.

    Raises:
        StructureError: if two entries would have one place, or a dict contains itself.

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
        key_length_limit: int | None = None,
        alphabetical_keys: bool = True,
        **kwargs: object,
    ) -> None:
        settings = Settings(print_limit, print_indent, key_length_limit, alphabetical_keys)
        if settings != DEFAULT:
            set_slot(self, "_settings", settings)
        supplied = self._mapping_from(dict_in)
        self._take(dict(self._admit({**supplied, **kwargs} if kwargs else supplied)))

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        register_container(cls)

    # Places
    def __getitem__(self, location: object) -> Any:
        keys = self._keys_of(location)
        return self._at(keys) if keys is not None else indexed(self, location)

    def __setitem__(self, location: Any, value: Any) -> None:
        keys = self._keys_of(location)
        self._put_at(keys, value) if keys is not None else set_indexed(self, location, value)

    def __delitem__(self, location: object) -> None:
        keys = self._keys_of(location)
        if keys is None:
            raise ArgumentTypeError(
                f"only a key or a key chain can be deleted, not an index of type "
                f"{type(location).__name__}."
            )
        self._remove_at(keys)

    def __contains__(self, location: object) -> bool:
        """Return True if there is such a key or key chain, or such a part: the same object, or one
        with the same leaves.
        """
        if isinstance(location, Nested):
            return self._holds(location) or self.cont_find_sub_container(location) is not False
        return self._has(location)

    def __getattr__(self, name: str) -> Any:
        if name in UNSET:
            return super().__getattr__(name)
        value = dict.get(self, name, _ABSENT)
        return value if value is not _ABSENT else attribute_of_leaves(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in UNSET or (name.startswith("__") and name.endswith("__")):
            set_slot(self, name, value)
        else:
            self._put_at((name,), value)

    def __delattr__(self, name: str) -> None:
        if not dict.__contains__(self, name):
            raise AttributePathError(
                f'{type(self).__name__} has no key "{name}"{hint(name, dict.keys(self))}'
            )
        self._remove_at((name,))

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
    __neg__, __pos__ = left(operator.neg), left(operator.pos)
    __invert__, __abs__ = left(operator.invert), left(operator.abs)
    # A dict would merge in place here.
    __ior__ = left(operator.or_)

    # Copies
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = self._like({})
        memo[id(self)] = new
        new._take({key: copy.deepcopy(value, memo) for key, value in self.items()})
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._settings, dict(self.items()))

    def cont_deep_copy(self) -> Self:
        """Copy all levels and all leaves, arrays too.

        Example:
            >>> c = nb.Container(a=jnp.ones(2))
            >>> d = c.cont_deep_copy()
            >>> d.a is c.a, bool((d.a == c.a).all())
            (False, True)
        """
        return copy.deepcopy(self)

    # Displays
    def __repr__(self) -> str:
        return container_text(self)

    __str__ = __repr__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return the forms a notebook can choose from: text of at most 60 lines, and what the
        display socket adds.
        """
        return mime_bundle(self)


def _restore(cls: type[Container], settings: Settings, level: dict[str, Any]) -> Container:
    return cls._from_dict(level, settings)


register_container(Container)
