"""Named variables and modules, as lazy generators over the one walk, and the text of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from jax.typing import DTypeLike

from nbmodule.base.interpreter import allow
from nbmodule.base.paths import closest, match
from nbmodule.core.structure.building import ensure_built, move
from nbmodule.core.structure.holders import contents_of, is_branch
from nbmodule.core.structure.walk import is_module, items, listed_items, module_aliases, plan_of
from nbmodule.core.variables.placement import find_place_and_dtype
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentTypeError, PathError

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

PARAMETERS, BUFFERS, TENSORS = (Parameter,), (Buffer,), (Variable,)


SMALLEST_GROUP = 3
"""Layers of a list that read alike are written once."""
GLOB = frozenset("*?[")
MOST_NAMES = 10_000
"""Names of shared modules that a glob is compared with; nested sharing has too many."""


def joined(prefix: str | None, name: str) -> str:
    """Return a dotted name below a prefix."""
    return ".".join(filter(None, ((prefix or "").removesuffix("."), name)))


def named_variables(
    module: Hull, types: tuple[type, ...], prefix: str | None, recursive: bool
) -> Iterator[tuple[str, Variable]]:
    """Yield names and variables of these types, each once."""
    ensure_built(module)
    for box, location in plan_of(module).places.items():
        if isinstance(box, types) and (recursive or location.owner in (None, module)):
            yield joined(prefix, location.name), box


def named_children(module: Hull) -> Iterator[tuple[str, Any]]:
    """Yield names and modules directly below."""
    ensure_built(module)
    for child, location in plan_of(module).modules.items():
        if location.owner is None or location.owner is module:
            yield location.name, child


def named_modules(module: Hull, prefix: str | None, with_parent: bool) -> Iterator[tuple[Any, ...]]:
    """Yield names and modules, the root first; optionally with parents."""
    ensure_built(module)
    entries: list[tuple[Any, ...]] = [(joined(prefix, ""), module, None)]
    for child, location in plan_of(module).modules.items():
        entries.append((joined(prefix, location.name), child, location.owner or module))
    yield from (entry if with_parent else entry[:2] for entry in entries)


def move_all(module: Hull, location: Any, dtype: DTypeLike | None) -> Any:
    """Move all variables, or none if the device or dtype makes no sense."""
    ensure_built(module)
    location, dtype = find_place_and_dtype(location, dtype)
    move(plan_of(module).boxes, location, dtype)
    return module


# Text
def describe_module(module: Any, ancestors: tuple[int, ...] = ()) -> str:
    """Return the tree of children in the order of their definition; no array is read."""
    name, extra = type(module).__name__, module.extra_repr()
    if id(module) in ancestors:
        return f"{name}(...)"
    allow(len(ancestors))
    children = list(defined_children(module))
    if not children:
        return f"{name}({extra})"
    texts = [(path, describe_module(child, (*ancestors, id(module)))) for path, child in children]
    lines = [f"  ({path}): " + text.replace("\n", "\n  ") for path, text in _folded(texts)]
    return "\n".join([f"{name}({extra}", *lines, ")"])


def _folded(texts: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Join three and more equal neighbors of one list: `(layers.0-11): 12 x Block(...)`."""
    k = 0
    while k < len(texts):
        path, text = texts[k]
        stem, dot, first = path.rpartition(".")
        end = k + 1
        if first.isdigit():
            number = int(first) + 1
            while texts[end : end + 1] == [(f"{stem}{dot}{number}", text)]:
                end, number = end + 1, number + 1
        if end - k < SMALLEST_GROUP:
            yield path, text
            k += 1
        else:
            yield f"{path}-{int(first) + end - k - 1}", f"{end - k} x {text}"
            k = end


def defined_children(
    obj: object, prefix: str = "", visited: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Children in the order of their definition; those in lists and dicts as `list.0`."""
    if id(obj) in visited:
        return
    if not is_module(obj):
        pairs = [(str(key), value) for key, value in contents_of(obj).items()]
    else:
        listed = getattr(type(obj), "_listed", None)
        path_name = getattr(type(obj), "_path_name", str)
        pairs = [(path_name(name), value) for name, value in vars(obj).items() if name != listed]
        pairs += [(item.name, item.value) for item in listed_items(obj, listed)] if listed else []
    for key, value in pairs:
        if is_module(value):
            yield prefix + key, value
        elif (
            not isinstance(value, Variable)
            and not isinstance(value, (str, bytes))
            and is_branch(value)
        ):
            yield from defined_children(value, f"{prefix}{key}.", (*visited, id(obj)))


def depths(root: Hull) -> dict[Any, int]:
    """Return the depth of each module below `root`, which has depth 0."""
    result = {root: 0}
    for module, location in plan_of(root).modules.items():
        result[module] = result[root if location.owner is None else location.owner] + 1
    return result


def entries_of(option: str, provided: object) -> list[Any]:
    """Return names of submodules as a list; one alone will do."""
    if isinstance(provided, str) or is_module(provided):
        return [provided]
    if not isinstance(provided, Iterable):
        raise ArgumentTypeError(
            f"{option} takes submodules or their paths, one or several, got "
            f"{type(provided).__name__}."
        )
    return list(provided)


def find_modules(root: Hull, entry: object) -> list[Any]:
    """Return modules below `root`, or itself: by identity, dotted path, key or glob (`blocks.*`).

    A shared module goes by each of its names.

    Raises:
        PathError: There is none.
        ArgumentTypeError: The entry is neither a module nor text.
    """
    if is_module(entry):
        if entry is not root and entry not in plan_of(root).modules:
            raise PathError(
                f"{type(entry).__name__} is no part of {type(root).__name__}. A copy of a "
                "submodule, or a module that was replaced, is another one."
            )
        return [entry]
    if not isinstance(entry, str):
        raise ArgumentTypeError(
            f"a submodule must be given as a module or a path, got {type(entry).__name__}."
        )
    modules = modules_named(root, entry)
    if not modules:
        locations = plan_of(root).modules.values()
        names = [spell(location) for spell in (_name_of, key_of) for location in locations]
        near = closest(entry, names)
        raise PathError(
            f'{type(root).__name__} has no submodule "{entry}"'
            + (f'; the closest path is "{near}".' if near else ".")
        )
    return modules


def modules_named(root: Hull, entry: str) -> list[Any]:
    """Return modules below `root` by dotted path, key or glob, in order, under any of their
    names.
    """
    modules = plan_of(root).modules
    for spell in (_name_of, key_of):
        matches = [module for module, location in modules.items() if spell(location) == entry]
        if matches:
            return matches
    matches = [*_at(root, entry, ".", str), *_at(root, entry, "__", _without_underscore)]
    if matches:
        return [module for module in modules if module is matches[0]]
    others = other_names(root) if GLOB.intersection(entry) else {}
    listed = {name for alias, name in others.items() if match(entry, alias)}
    return [
        module
        for module, location in modules.items()
        if location.name in listed or match(entry, location.name)
    ]


def _at(obj: object, path: str, separator: str, spell: Callable[[str], str]) -> Iterator[Any]:
    """Yield the modules to which a path leads, step by step."""
    for item in items(obj):
        name = spell(item.name)
        if name == path and is_module(item.value):
            yield item.value
        elif path.startswith(name + separator):
            yield from _at(item.value, path[len(name + separator) :], separator, spell)


def other_names(root: Hull) -> dict[str, str]:
    """Return the other names of shared modules, each with the name in the plan."""
    modules = plan_of(root).modules
    named = (
        (name, modules[module].name)
        for name, module, _ in islice(module_aliases(root), MOST_NAMES)
        if module in modules
    )
    return {alias: name for alias, name in named if alias != name}


def _without_underscore(name: str) -> str:
    return name.removeprefix("_")


def _name_of(location: Any) -> str:
    return location.name


def key_of(location: Any) -> str:
    """Return the key of a submodule in `submod_rets`: `dl0__l0`, `layers__0`."""
    return as_key(location.name)


def as_key(name: str) -> str:
    """Return a dotted name as one key of a Container."""
    return "__".join(map(_without_underscore, name.split(".")))
