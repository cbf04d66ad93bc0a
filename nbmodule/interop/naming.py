"""Attribute names of foreign submodules and variables."""

from __future__ import annotations

from nbmodule.api.module import Module


def attribute_name(name: str) -> str:
    """Return a name that hides nothing that a module has itself, and that no path cuts in two.

    A trailing underscore is added to the names of `nb.Module`; paths leave it out, see
    `path_name`.
    """
    name = name.replace(".", "_").replace("/", "_")
    return f"{name}_" if _is_taken(name) else name


def path_name(name: str) -> str:
    """Return the name that an attribute has in paths.

    Example:
        >>> path_name(attribute_name("v")), path_name(attribute_name("v_")), path_name("bias_")
        ('v', 'v_', 'bias_')
    """
    return name[:-1] if name.endswith("_") and _is_taken(name[:-1]) else name


def _is_taken(name: str) -> bool:
    return (
        hasattr(Module, name)
        or hasattr(Module, name.rstrip("_"))
        or name.startswith(("_nbm", "__", "_wiring", "_source"))
    )
