"""`model.partition(...)`: a model as a definition and dicts of arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.format import shown
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.structure import Structure, rebuild, structure_of
from nbmodule.core.structure.walk import Plan, plan_of
from nbmodule.errors import ArgumentTypeError, MissingKeysError, UnexpectedKeysError

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

Filter = type | Callable[[Any], Any]


class Definition:
    """The static part of a model; called with the leaves it builds the model again.

    Example:
        >>> import nbmodule as nb
        >>> definition, leaves = nb.Linear(2, 3).partition()
        >>> definition(leaves)
        Linear(in_features=2, out_features=3, with_bias=True)
    """

    __slots__ = ("_structure",)

    def __init__(self, structure: Structure) -> None:
        self._structure = structure

    def __call__(self, *leaves: Mapping[str, Any]) -> Any:
        provided: dict[str, Any] = {}
        for part in leaves:
            if not isinstance(part, Mapping):
                raise ArgumentTypeError(
                    "a definition is called with dicts from key path to array; found "
                    f"{type(part).__name__}. Nothing was made."
                )
            provided |= part
        keys = [str(key) for key in self._structure.keys]
        surplus = sorted(provided.keys() - set(keys))
        missing = [key for key in keys if key not in provided]
        if surplus:
            raise UnexpectedKeysError(
                f"the model has no variables {', '.join(surplus)}. Nothing was made."
            )
        if missing:
            raise MissingKeysError(f"leaves are missing: {', '.join(missing)}. Nothing was made.")
        return rebuild(self._structure, [provided[key] for key in keys])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and self._structure is other._structure

    def __hash__(self) -> int:
        return hash(self._structure)

    @shown
    def __repr__(self) -> str:
        cls = self._structure.objects[0][1]
        return f"Definition({cls.__name__}, {len(self._structure.keys)} leaves)"


jax.tree_util.register_static(Definition)


def partition(module: Hull, *filters: Filter) -> tuple[Any, ...]:
    """Split a model; see `Module.partition`."""
    for chosen in filters:
        if not isinstance(chosen, type) and not callable(chosen):
            raise ArgumentTypeError(
                f"partition takes types and predicates; found {type(chosen).__name__}. Nothing was "
                "split."
            )
    ensure_built(module)
    structure, plan = structure_of(module), plan_of(module)
    parts: list[dict[str, Any]] = [{} for _ in range(len(filters) + 1)]
    matches = _Matches(filters)
    for key, (box, location) in zip(structure.keys, plan.places.items()):
        line = [*_modules_above(module, plan, location), box]
        parts[next((match for obj in line if (match := matches(obj)) is not None), len(filters))][
            str(key)
        ] = box.value
    return (Definition(structure), *parts)


class _Matches:
    """The first filter that a box or module satisfies, asked once for each."""

    def __init__(self, filters: tuple[Filter, ...]) -> None:
        self.filters = filters
        self.known: dict[int, int | None] = {}

    def __call__(self, obj: object) -> int | None:
        if id(obj) not in self.known:
            self.known[id(obj)] = next(
                (i for i, chosen in enumerate(self.filters) if _satisfies(obj, chosen)), None
            )
        return self.known[id(obj)]


def _satisfies(obj: object, chosen: Filter) -> bool:
    return isinstance(obj, chosen) if isinstance(chosen, type) else bool(chosen(obj))


def _modules_above(root: object, plan: Plan, location: Any) -> list[Any]:
    """Return modules on the way from the root to a place, outermost first."""
    line, owner = [], location.owner
    while owner is not None and owner is not root:
        line.append(owner)
        owner = plan.modules[owner].owner
    return [root, *reversed(line)]
