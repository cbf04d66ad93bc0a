"""Named variables and modules, as lazy generators over the one walk, and the text of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from jax.typing import DTypeLike

from nbmodule.base.depth import allow
from nbmodule.base.paths import closest, match
from nbmodule.core.structure.branches import contents_of, is_branch
from nbmodule.core.structure.building import ensure_built, move
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
"""Names of shared modules that a pattern is compared with; nested sharing has too many names."""


def joined(prefix: str | None, name: str) -> str:
    if not prefix:
        return name
    prefix = prefix.removesuffix(".")
    return f"{prefix}.{name}" if name else prefix


def named_variables(
    module: Hull, kinds: tuple[type, ...], prefix: str | None, recursive: bool
) -> Iterator[tuple[str, Variable]]:
    ensure_built(module)
    for box, location in plan_of(module).places.items():
        if isinstance(box, kinds) and (recursive or location.owner in (None, module)):
            yield joined(prefix, location.name), box


def named_children(module: Hull) -> Iterator[tuple[str, Any]]:
    ensure_built(module)
    for child, location in plan_of(module).modules.items():
        if location.owner is None or location.owner is module:
            yield location.name, child


def named_modules(module: Hull, prefix: str | None, with_parent: bool) -> Iterator[tuple[Any, ...]]:
    ensure_built(module)
    yield (joined(prefix, ""), module, None) if with_parent else (joined(prefix, ""), module)
    for child, location in plan_of(module).modules.items():
        name = joined(prefix, location.name)
        yield (name, child, location.owner or module) if with_parent else (name, child)


def move_all(module: Hull, location: Any, dtype: DTypeLike | None) -> Any:
    """Move all variables, or none if the device or dtype makes no sense."""
    ensure_built(module)
    location, dtype = find_place_and_dtype(location, dtype)
    move(plan_of(module).boxes, location, dtype)
    return module


# -- text --
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
    """Three and more neighbors of one list that read alike are one: `(layers.0-11): 12 x
    Block(...)`.
    """
    k = 0
    while k < len(texts):
        path, text = texts[k]
        stem, dot, first = path.rpartition(".")
        end = k + 1
        while (
            end < len(texts)
            and first.isdigit()
            and texts[end] == (f"{stem}{dot}{int(first) + end - k}", text)
        ):
            end += 1
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
    """For each module below `root` how many levels down it is."""
    result = {root: 0}
    for module, location in plan_of(root).modules.items():
        result[module] = result[location.owner if location.owner is not None else root] + 1
    return result


def entries_of(option: str, provided: object) -> list[Any]:
    """What names submodules, as a list: one of them alone will do."""
    if isinstance(provided, str) or is_module(provided):
        return [provided]
    if not isinstance(provided, Iterable):
        raise ArgumentTypeError(
            f"{option} names submodules by themselves or by their paths, one or several; found "
            f"{type(provided).__name__}."
        )
    return list(provided)


def find_modules(root: Hull, entry: object) -> list[Any]:
    """Return modules below `root`, or itself, by identity, by dotted path, by key or by a glob such
    as `blocks.*`.

    A shared module goes by each of its names.

    Raises:
        PathError: there is none.
        ArgumentTypeError: what is given is no name.
    """
    if is_module(entry):
        if entry is not root and entry not in plan_of(root).modules:
            raise PathError(
                f"{type(entry).__name__} is no part of {type(root).__name__}: a module is named by "
                "itself as it stands in the model, "
                "and a copy of it, or what has taken its place, is another one."
            )
        return [entry]
    if not isinstance(entry, str):
        raise ArgumentTypeError(
            f"a submodule is named by itself or by its path; found {type(entry).__name__}."
        )
    result = modules_named(root, entry)
    if not result:
        modules = plan_of(root).modules
        near = closest(
            entry,
            [location.name for location in modules.values()]
            + [key_of(location) for location in modules.values()],
        )
        raise PathError(
            f'{type(root).__name__} has no submodule "{entry}"'
            + (f'; the closest path is "{near}".' if near else ".")
        )
    return result


def modules_named(root: Hull, entry: str) -> list[Any]:
    """Return modules below `root` by dotted path, by key or by a glob, in their order; each under
    any of its names.
    """
    modules = plan_of(root).modules
    for spell in (lambda location: location.name, key_of):
        result = [module for module, location in modules.items() if spell(location) == entry]
        if result:
            return result
    result = [*_at(root, entry, ".", str), *_at(root, entry, "__", _without_underscore)]
    if result:
        return [module for module in modules if any(module is second for second in result[:1])]
    others = other_names(root) if GLOB.intersection(entry) else {}
    fitting = {local for second, local in others.items() if match(entry, second)}
    return [
        module
        for module, location in modules.items()
        if location.name in fitting or match(entry, location.name)
    ]


def _at(obj: object, remaining: str, between: str, spell: Callable[[str], str]) -> Iterator[Any]:
    """Yield the modules to which a path leads, step by step."""
    for item in items(obj):
        name = spell(item.name)
        if name == remaining and is_module(item.value):
            yield item.value
        elif remaining.startswith(name + between):
            yield from _at(item.value, remaining[len(name + between) :], between, spell)


def other_names(root: Hull) -> dict[str, str]:
    """Of shared modules the other names, each with the one under which the module is listed."""
    modules = plan_of(root).modules
    named = (
        (name, modules[module].name)
        for name, module, _ in islice(module_aliases(root), MOST_NAMES)
        if module in modules
    )
    return {name: local for name, local in named if name != local}


def _without_underscore(name: str) -> str:
    return name.removeprefix("_")


def key_of(location: Any) -> str:
    """Return the key of a submodule in `submod_rets`: `dl0__l0`, `layers__0`."""
    return as_key(location.name)


def as_key(name: str) -> str:
    """Return a dotted name as one key of a Container."""
    return "__".join(map(_without_underscore, name.split(".")))
