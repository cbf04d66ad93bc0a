"""Named variables and modules, as lazy generators over the one walk, and the text of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jax.typing import DTypeLike

from nbmodule.base.depth import allow
from nbmodule.base.paths import closest, match
from nbmodule.core.boxes.placement import find_place_and_dtype
from nbmodule.core.boxes.variable import Buffer, Parameter, Variable
from nbmodule.core.shape.building import ensure_built, move
from nbmodule.core.shape.holders import inside_of, is_branch
from nbmodule.core.shape.walk import is_module, listed_items, plan_of
from nbmodule.errors import ArgumentTypeError, PathError

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

PARAMETERS, BUFFERS, TENSORS = (Parameter,), (Buffer,), (Variable,)


SMALLEST_GROUP = 3
"""Layers of a list that read alike are written once."""


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


def find_modules(root: Hull, entry: object) -> list[Any]:
    """Modules below `root` by identity, by dotted path or by a glob such as `blocks.*`."""
    if is_module(entry):
        return [entry]
    if not isinstance(entry, str):
        raise ArgumentTypeError(f"a submodule is named by itself or by its path; found {type(entry).__name__}.")
    modules = plan_of(root).modules
    names = {place.name: module for module, place in modules.items()}
    keys = {key_of(place): module for module, place in modules.items()}
    found = [keys[entry]] if entry in keys else [module for name, module in names.items() if match(entry, name)]
    if not found:
        near = closest(entry, [*names, *keys])
        raise PathError(
            f'{type(root).__name__} has no submodule "{entry}"' + (f'; the closest path is "{near}".' if near else ".")
        )
    return found


def key_of(place: Any) -> str:
    """The key of a submodule in `submod_rets`: `dl0__l0`, `layers__0`."""
    return "__".join(part.removeprefix("_") for part in place.name.split("."))
