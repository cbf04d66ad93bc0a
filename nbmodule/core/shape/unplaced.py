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

from nbmodule.base.foreign import FRAMEWORKS_APART, framework_of, is_variable
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.holders import LOOSE, PASSING, manner_of
from nbmodule.errors import StructureError

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

_MOST = 500  # things that are looked at in one iterator


def is_unplaced(value: object) -> bool:
    """Whether what `value` holds has no place: a set, a view of a dict, an iterator."""
    return manner_of(type(value)).way in (LOOSE, PASSING)


def refuse(where: str, value: Any, known: Collection[int], *, is_begun: bool = False) -> None:
    """Refuse layers and variables that only a set or an iterator holds.

    Args:
        where: What it is called, as `MLP.layers`.
        value: The set or iterator, or a dict with such keys.
        known: Ids of what is part of the model otherwise.
        is_begun: Whether the model may still become part of a greater one, which is asked then: modules that others hold are let
            pass. (Those whose constructors still run always are.)

    Raises:
        StructureError: it holds others.
    """
    kind = type(value)
    is_passing = manner_of(kind).way is PASSING
    found = _seen_in(value) if is_passing else filter(_counts, value)
    hidden = next((each for each in found if id(each) not in known and not _is_above(each, is_begun)), None)
    if hidden is None:
        return
    name = hidden.__name__ if isinstance(hidden, type) else type(hidden).__name__
    if is_passing:
        why, cure = "is used up when it is looked at", "Put `list(...)` around it."
    elif isinstance(value, dict):
        why, cure = "gives names to its values, not to its keys", "Hold layers as values, or as attributes too."
    else:
        why = "has no order" if isinstance(value, (set, frozenset)) else "gives no names to what it holds"
        cure = (
            "Hold layers in a list or a dict; a set may hold those that are attributes already, and a weakref.WeakSet takes "
            "notes of any."
        )
    raise StructureError(
        f"{where} is a {kind.__name__}, which {why}: the {name} in it would be no part of the model, neither trained nor saved. "
        f"Nothing was changed. {cure}"
    )


def _counts(thing: object) -> bool:
    return isinstance(thing, Variable) or hasattr(type(thing), "_is_module")


def _is_above(thing: Any, is_begun: bool) -> bool:
    """Whether a module is not to be part of what names it: its constructor still runs, or (`is_begun`) another holds it."""
    if isinstance(thing, type) or not hasattr(type(thing), "_is_module"):
        return False
    inner = thing._nbm
    return inner.deferred is not None or (is_begun and any(ref() is not None for ref in inner.parents))


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
_ASKING = frozenset({"isinstance", "issubclass"})


def _named(code: types.CodeType, names: dict[str, Any]) -> list[Any]:
    """The functions and classes of layers that code names, also as `nb.Linear`; not classes where it asks what a thing is."""
    found = [names[name] for name in code.co_names if name in names]
    packages = [each for each in found if isinstance(each, types.ModuleType) and each.__name__ == "nbmodule"]
    found += [getattr(package, name, None) for package in packages for name in code.co_names]
    found += [each for inner in code.co_consts if isinstance(inner, types.CodeType) for each in _named(inner, names)]
    wanted = types.FunctionType if _ASKING.intersection(code.co_names) else (types.FunctionType, type)
    return [each for each in found if isinstance(each, wanted)]


def used_besides(root: Hull, plan: Any) -> Iterator[tuple[str, Any]]:
    """Layers and variables with something to train that are no part of the model.

    A function uses them which is an attribute, or they are attributes of a class, which all its instances share, or they are of
    another framework.
    """
    known = known_to(root, plan)
    classes: dict[type, list[tuple[str, Any]]] = {}
    for module, name in ((root, ""), *((module, place.name) for module, place in plan.modules.items())):
        for attribute, value in list(vars(module).items()):
            where = ".".join(filter(None, (type(root).__name__, name, attribute)))
            for thing in value if type(value) in (list, tuple) else value.values() if type(value) is dict else (value,):
                if is_variable(thing) or framework_of(thing) not in (None, *FRAMEWORKS_APART):
                    home = type(thing).__module__.partition(".")[0]
                    yield f"{where} holds a {type(thing).__name__} of {home},", thing
            if isinstance(value, _CODE):
                found = (thing for thing in _used_by(value) if id(thing) not in known)
                yield from ((f"{where} is a function that uses a {type(thing).__name__}", thing) for thing in found)
        kind = type(module)
        if kind not in classes:
            classes[kind] = list(_of_class(kind))
        for where, thing in classes[kind]:
            if id(thing) not in known and where.rpartition(".")[2] not in vars(module):
                yield f"{where} is a {type(thing).__name__} of the class, which all its instances share,", thing


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """Layers and variables with something to train that are attributes of a class, also in a list, tuple or dict."""
    for base in kind.__mro__:
        for name, value in list(vars(base).items()):
            held = value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,)
            yield from ((f"{base.__name__}.{name}", thing) for thing in held if _counts(thing) and _trains(thing))


def _trains(thing: Any) -> bool:
    return any(box.requires_grad for box in ((thing,) if isinstance(thing, Variable) else thing.parameters()))


_CODE = (types.FunctionType, types.MethodType, functools.partial)


def _used_by(function: Any) -> Iterator[Any]:
    waiting, seen = [function], {}
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if _counts(thing):
            if _trains(thing):
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
