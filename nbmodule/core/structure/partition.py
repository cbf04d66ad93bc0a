"""`model.partition(...)`: a model as a definition and dicts of arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.format import printable_repr
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.structure import Structure, rebuild, structure_of
from nbmodule.core.structure.walk import plan_of
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
                    f"a definition takes dicts from key path to array, got {type(part).__name__}."
                )
            provided |= part
        keys = [str(key) for key in self._structure.keys]
        surplus = sorted(provided.keys() - set(keys))
        missing = [key for key in keys if key not in provided]
        if surplus:
            raise UnexpectedKeysError(f"the model has no variables {', '.join(surplus)}.")
        if missing:
            raise MissingKeysError(f"leaves are missing: {', '.join(missing)}.")
        return rebuild(self._structure, [provided[key] for key in keys])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and self._structure is other._structure

    def __hash__(self) -> int:
        return hash(self._structure)

    @printable_repr
    def __repr__(self) -> str:
        cls = self._structure.objects[0][1]
        return f"Definition({cls.__name__}, {len(self._structure.keys)} leaves)"


jax.tree_util.register_static(Definition)


def partition(module: Hull, *filters: Filter) -> tuple[Any, ...]:
    """Split a model; see `Module.partition`."""
    for item in filters:
        if not isinstance(item, type) and not callable(item):
            raise ArgumentTypeError(
                f"partition takes types and predicates, got {type(item).__name__}."
            )
    ensure_built(module)
    structure, plan = structure_of(module), plan_of(module)
    parts: list[dict[str, Any]] = [{} for _ in range(len(filters) + 1)]

    def first_filter(obj: object) -> int | None:
        matches = (isinstance(obj, f) if isinstance(f, type) else bool(f(obj)) for f in filters)
        return next((i for i, is_match in enumerate(matches) if is_match), None)

    # Each module is asked once; the outermost match holds for all below it.
    numbers: dict[Any, int | None] = {None: first_filter(module)}
    for child, location in plan.modules.items():
        outer = numbers[location.owner]
        numbers[child] = first_filter(child) if outer is None else outer
    for key, (box, location) in zip(structure.keys, plan.places.items()):
        number = numbers[location.owner]
        number = first_filter(box) if number is None else number
        parts[len(filters) if number is None else number][str(key)] = box.value
    return (Definition(structure), *parts)
