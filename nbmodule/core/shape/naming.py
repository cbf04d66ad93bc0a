"""Named variables and modules, as lazy generators over the one walk, and the text of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from jax.typing import DTypeLike

from nbmodule.base.depth import allow
from nbmodule.base.paths import closest, match
from nbmodule.core.boxes.placement import find_place_and_dtype
from nbmodule.core.boxes.variable import Buffer, Parameter, Variable
from nbmodule.core.shape.building import ensure_built, move
from nbmodule.core.shape.holders import inside_of, is_branch
from nbmodule.core.shape.walk import is_module, items, listed_items, module_aliases, plan_of
from nbmodule.errors import ArgumentTypeError, PathError

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

PARAMETERS, BUFFERS, TENSORS = (Parameter,), (Buffer,), (Variable,)


SMALLEST_GROUP = 3
"""Layers of a list that read alike are written once."""
GLOB = frozenset("*?[")
MOST_NAMES = 10_000
"""Names of shared modules that a pattern is compared with: parts that share parts have more of them than there is time for."""


def joined(prefix: str | None, name: str) -> str:
    if not prefix:
        return name
    prefix = prefix.removesuffix(".")
    return f"{prefix}.{name}" if name else prefix


def named_variables(
    module: Hull, kinds: tuple[type, ...], prefix: str | None, recursive: bool
) -> Iterator[tuple[str, Variable]]:
    ensure_built(module)
    for box, place in plan_of(module).places.items():
        if isinstance(box, kinds) and (recursive or place.owner in (None, module)):
            yield joined(prefix, place.name), box


def named_children(module: Hull) -> Iterator[tuple[str, Any]]:
    ensure_built(module)
    for child, place in plan_of(module).modules.items():
        if place.owner is None or place.owner is module:
            yield place.name, child


def named_modules(module: Hull, prefix: str | None, with_parent: bool) -> Iterator[tuple[Any, ...]]:
    ensure_built(module)
    yield (joined(prefix, ""), module, None) if with_parent else (joined(prefix, ""), module)
    for below, place in plan_of(module).modules.items():
        name = joined(prefix, place.name)
        yield (name, below, place.owner or module) if with_parent else (name, below)


def move_all(module: Hull, place: Any, dtype: DTypeLike | None) -> Any:
    """Move all variables, or none if the device or dtype makes no sense."""
    ensure_built(module)
    place, dtype = find_place_and_dtype(place, dtype)
    move(plan_of(module).boxes, place, dtype)
    return module


# -- text --------------------------------------------------------------------------------------------
def describe_module(module: Any, above: tuple[int, ...] = ()) -> str:
    """The tree of children in the order of their definition; shapes of no array are touched."""
    name, extra = type(module).__name__, module.extra_repr()
    if id(module) in above:
        return f"{name}(...)"
    allow(len(above))
    children = list(defined_children(module))
    if not children:
        return f"{name}({extra})"
    texts = [(path, describe_module(child, (*above, id(module)))) for path, child in children]
    lines = [f"  ({path}): " + text.replace("\n", "\n  ") for path, text in _folded(texts)]
    return "\n".join([f"{name}({extra}", *lines, ")"])


def _folded(texts: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Three and more neighbors of one list that read alike are one: `(layers.0-11): 12 x Block(...)`."""
    k = 0
    while k < len(texts):
        path, text = texts[k]
        stem, dot, first = path.rpartition(".")
        end = k + 1
        while end < len(texts) and first.isdigit() and texts[end] == (f"{stem}{dot}{int(first) + end - k}", text):
            end += 1
        if end - k < SMALLEST_GROUP:
            yield path, text
            k += 1
        else:
            yield f"{path}-{int(first) + end - k - 1}", f"{end - k} x {text}"
            k = end


def defined_children(thing: object, prefix: str = "", seen: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Children in the order of their definition; those in lists and dicts as `list.0`."""
    if id(thing) in seen:
        return
    if not is_module(thing):
        pairs = [(str(key), value) for key, value in inside_of(thing).items()]
    else:
        listed = getattr(type(thing), "_listed", None)
        pairs = [(name, value) for name, value in vars(thing).items() if name != listed]
        pairs += [(item.name, item.value) for item in listed_items(thing, listed)] if listed else []
    for key, value in pairs:
        if is_module(value):
            yield prefix + key, value
        elif not isinstance(value, Variable) and not isinstance(value, (str, bytes)) and is_branch(value):
            yield from defined_children(value, f"{prefix}{key}.", (*seen, id(thing)))


def depths(root: Hull) -> dict[Any, int]:
    """For each module below `root` how many levels down it is."""
    found = {root: 0}
    for module, place in plan_of(root).modules.items():
        found[module] = found[place.owner if place.owner is not None else root] + 1
    return found


def entries_of(option: str, given: object) -> list[Any]:
    """What names submodules, as a list: one of them alone will do."""
    if isinstance(given, str) or is_module(given):
        return [given]
    if not isinstance(given, Iterable):
        raise ArgumentTypeError(
            f"{option} names submodules by themselves or by their paths, one or several; found {type(given).__name__}."
        )
    return list(given)


def find_modules(root: Hull, entry: object) -> list[Any]:
    """Modules below `root`, or itself, by identity, by dotted path, by key or by a glob such as `blocks.*`.

    A shared module goes by each of its names.

    Raises:
        PathError: there is none.
        ArgumentTypeError: what is given is no name.
    """
    if is_module(entry):
        if entry is not root and entry not in plan_of(root).modules:
            raise PathError(
                f"{type(entry).__name__} is no part of {type(root).__name__}: a module is named by itself as it stands in the model, "
                "and a copy of it, or what has taken its place, is another one."
            )
        return [entry]
    if not isinstance(entry, str):
        raise ArgumentTypeError(f"a submodule is named by itself or by its path; found {type(entry).__name__}.")
    found = modules_named(root, entry)
    if not found:
        modules = plan_of(root).modules
        near = closest(
            entry, [place.name for place in modules.values()] + [key_of(place) for place in modules.values()]
        )
        raise PathError(
            f'{type(root).__name__} has no submodule "{entry}"' + (f'; the closest path is "{near}".' if near else ".")
        )
    return found


def modules_named(root: Hull, entry: str) -> list[Any]:
    """Modules below `root` by dotted path, by key or by a glob, in their order; each under any of its names."""
    modules = plan_of(root).modules
    for spell in (lambda place: place.name, key_of):
        found = [module for module, place in modules.items() if spell(place) == entry]
        if found:
            return found
    found = [*_at(root, entry, ".", str), *_at(root, entry, "__", _without_underscore)]
    if found:
        return [module for module in modules if any(module is other for other in found[:1])]
    others = other_names(root) if GLOB.intersection(entry) else {}
    fitting = {own for other, own in others.items() if match(entry, other)}
    return [module for module, place in modules.items() if place.name in fitting or match(entry, place.name)]


def _at(thing: object, rest: str, between: str, spell: Callable[[str], str]) -> Iterator[Any]:
    """The modules to which a path leads, step by step."""
    for item in items(thing):
        name = spell(item.name)
        if name == rest and is_module(item.value):
            yield item.value
        elif rest.startswith(name + between):
            yield from _at(item.value, rest[len(name + between) :], between, spell)


def other_names(root: Hull) -> dict[str, str]:
    """Of shared modules the other names, each with the one under which the module is listed."""
    modules = plan_of(root).modules
    named = (
        (name, modules[module].name)
        for name, module, _ in islice(module_aliases(root), MOST_NAMES)
        if module in modules
    )
    return {name: own for name, own in named if name != own}


def _without_underscore(name: str) -> str:
    return name.removeprefix("_")


def key_of(place: Any) -> str:
    """The key of a submodule in `submod_rets`: `dl0__l0`, `layers__0`."""
    return "__".join(map(_without_underscore, place.name.split(".")))
