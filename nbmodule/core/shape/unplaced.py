"""Layers in a set or an iterator, which gives no names to what it holds: refused, and layers inside of functions: a word.

A set may name layers that have their places elsewhere in the model, and an iterator may run over data: only what would be no part
of the model counts.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.holders import LOOSE, PASSING, manner_of
from nbmodule.errors import StructureError

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

_MOST = 500  # things that are looked at in one iterator


def is_unplaced(value: object) -> bool:
    """Whether what `value` holds has no place: a set, a view of a dict, an iterator."""
    return manner_of(type(value)).way in (LOOSE, PASSING)


def refuse(where: str, value: Any, known: Collection[int]) -> None:
    """Refuse layers and variables that only a set or an iterator holds.

    Args:
        where: What it is called, as `MLP.layers`.
        value: The set or iterator, or a dict with such keys.
        known: Ids of what is part of the model otherwise.

    Raises:
        StructureError: it holds others.
    """
    kind = type(value)
    is_passing = manner_of(kind).way is PASSING
    found = _seen_in(value) if is_passing else filter(_counts, value)
    hidden = next((thing for thing in found if id(thing) not in known), None)
    if hidden is None:
        return
    name = hidden.__name__ if isinstance(hidden, type) else type(hidden).__name__
    if is_passing:
        why, cure = "is used up when it is looked at", "Put `list(...)` around it."
    elif isinstance(value, dict):
        why, cure = "gives names to its values, not to its keys", "Hold layers as values, or as attributes too."
    else:
        why = "has no order" if isinstance(value, (set, frozenset)) else "gives no names to what it holds"
        cure = "Hold layers in a list or a dict; a set may hold those that are attributes already."
    raise StructureError(
        f"{where} is a {kind.__name__}, which {why}: the {name} in it would be no part of the model, neither trained nor saved. "
        f"Nothing was changed. {cure}"
    )


def _counts(thing: object) -> bool:
    return isinstance(thing, Variable) or hasattr(type(thing), "_is_module")


def _seen_in(iterator: object) -> Iterator[Any]:
    """Layers, and classes of layers, that show in an iterator of which no step is taken."""
    waiting, seen = [iterator], {}
    while waiting and len(seen) < _MOST:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if _counts(thing) or (isinstance(thing, type) and hasattr(thing, "_is_module")):
            yield thing
        elif isinstance(thing, types.GeneratorType):
            if thing.gi_frame is not None:
                waiting += [*thing.gi_frame.f_locals.values(), *_named(thing.gi_code, thing.gi_frame.f_globals)]
        elif isinstance(thing, types.FunctionType):
            cells = (cell.cell_contents for cell in thing.__closure__ or () if cell != _EMPTY)
            waiting += [*cells, *_named(thing.__code__, thing.__globals__)]
        elif type(thing) in (list, tuple):
            waiting += list(thing)[:_MOST]  # type: ignore[call-overload]
        elif type(thing) is dict:
            waiting += list(thing.values())[:_MOST]
        elif manner_of(type(thing)).way is PASSING:
            waiting += gc.get_referents(thing)


_EMPTY = types.CellType()


def _named(code: types.CodeType, names: dict[str, Any]) -> list[Any]:
    """The functions and classes of layers that code names, also as `nb.Linear`."""
    found = [names[name] for name in code.co_names if name in names]
    packages = [each for each in found if isinstance(each, types.ModuleType) and each.__name__ == "nbmodule"]
    found += [getattr(package, name, None) for package in packages for name in code.co_names]
    found += [each for inner in code.co_consts if isinstance(inner, types.CodeType) for each in _named(inner, names)]
    return [each for each in found if isinstance(each, (types.FunctionType, type))]


def used_by_functions(root: Hull, plan: Any) -> Iterator[tuple[str, Any]]:
    """Layers and variables with something to train that a function uses which is an attribute, and that are no part of the model."""
    known = known_to(root, plan)
    for module, name in ((root, ""), *((module, place.name) for module, place in plan.modules.items())):
        for attribute, value in list(vars(module).items()):
            if isinstance(value, _CODE):
                where = ".".join(filter(None, (type(root).__name__, name, attribute)))
                yield from ((where, thing) for thing in _used_by(value) if id(thing) not in known)


_CODE = (types.FunctionType, types.MethodType, functools.partial)


def _used_by(function: Any) -> Iterator[Any]:
    waiting, seen = [function], {}
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if _counts(thing):
            boxes = (thing,) if isinstance(thing, Variable) else thing.parameters()
            if any(box.requires_grad for box in boxes):
                yield thing
        elif isinstance(thing, types.FunctionType):
            cells = (cell.cell_contents for cell in thing.__closure__ or () if cell != _EMPTY)
            waiting += [*cells, *vars(thing).values()]
        elif isinstance(thing, types.MethodType):
            waiting.append(thing.__self__)
        elif isinstance(thing, functools.partial):
            waiting += [thing.func, *thing.args, *thing.keywords.values()]


def known_to(module: Hull, plan: Any) -> set[int]:
    """Ids of all that is part of a model."""
    return {id(module), *map(id, plan.modules), *map(id, plan.places), *map(id, plan.absent)}
