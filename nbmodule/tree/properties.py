"""Attributes that a class itself gives, when reading one of them fails.

Where a property raises `AttributeError`, Python forgets that error and asks `__getattr__` for the
property. A class that answers there must not call the property missing: what is missing lies inside
of it.
"""

from __future__ import annotations


def is_of_class(thing: object, name: str) -> bool:
    """Whether the class of `thing` has that attribute; if so, `object.__getattribute__(thing,
    name)` meets its own error again.

    Example:
        >>> is_of_class(1, "real"), is_of_class(1, "rael")
        (True, False)
    """
    return any(name in vars(cls) for cls in type(thing).__mro__)
