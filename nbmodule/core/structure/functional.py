"""The functional way: a model as a definition and dicts of arrays, and state that is passed in and
out as a plain dict.

`model.partition(...)` splits a model and its definition builds it again. `StateEntry` marks a value
as state where a model is written. `export_state` takes the entries out: what is left of the model
holds keys, is static there, and passes any JAX transform; the values are in the dict.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from nbmodule.base.format import printable_repr
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.copying import shared_values
from nbmodule.core.structure.holders import is_branch
from nbmodule.core.structure.structure import Structure, rebuild, structure_of
from nbmodule.core.structure.walk import is_module, items, plan_of
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import (
    ArgumentTypeError,
    MissingKeysError,
    NotExportedError,
    PathError,
    StructureError,
    UnexpectedKeysError,
)

Filter = type | Callable[[Any], Any]


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class Definition:
    """The static part of a model; called with the leaves it builds the model again.

    Example:
        >>> import nbmodule as nb
        >>> definition, leaves = nb.Linear(2, 3).partition()
        >>> definition(leaves)
        Linear(in_features=2, out_features=3, with_bias=True)
    """

    _structure: Structure

    def __call__(self, *leaves: Mapping[str, Any]) -> Any:
        provided: dict[str, Any] = {}
        for part in leaves:
            if not isinstance(part, Mapping):
                raise ArgumentTypeError(
                    f"a definition takes dicts from key paths to arrays, got {type(part).__name__}."
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

    @printable_repr
    def __repr__(self) -> str:
        cls = self._structure.objects[0][0]
        return f"Definition({cls.__name__}, {len(self._structure.keys)} leaves)"


def partition(self: Any, *filters: Filter) -> tuple[Any, ...]:
    """Split the model into `(definition, leaves of filter 1, ..., rest)`, each a dict from key
    path to array.

    A filter is a type or a predicate on variables and modules. The outermost match decides, the
    first filter on a tie. `definition(*leaves)` builds the model again.

    Example:
        >>> import nbmodule as nb
        >>> definition, weights, rest = nb.BatchNorm1d(2).partition(nb.Parameter)
        >>> list(weights), list(rest)
        (['.bias', '.weight'], ['.running_mean', '.running_var'])
    """
    for item in filters:
        if not isinstance(item, type) and not callable(item):
            raise ArgumentTypeError(
                f"partition takes types and predicates, got {type(item).__name__}."
            )
    ensure_built(self)
    structure, plan = structure_of(self), plan_of(self)
    parts: list[dict[str, Any]] = [{} for _ in range(len(filters) + 1)]

    def first_filter(obj: object) -> int | None:
        matches = (isinstance(obj, f) if isinstance(f, type) else bool(f(obj)) for f in filters)
        return next((i for i, is_match in enumerate(matches) if is_match), None)

    # Each module is tested once; the outermost match holds for all below it.
    numbers: dict[Any, int | None] = {None: first_filter(self)}
    for child, location in plan.modules.items():
        outer = numbers[location.owner]
        numbers[child] = first_filter(child) if outer is None else outer
    for key, (variable, location) in zip(structure.keys, plan.places.items()):
        number = numbers[location.owner]
        number = first_filter(variable) if number is None else number
        parts[len(filters) if number is None else number][str(key)] = variable.value
    return (Definition(structure), *parts)


# -- state --
class StateEntry:
    """A value that is state: `export_state` replaces it by a key.

    Args:
        value: The initial value, an array or a PyTree.

    Example:
        >>> import nbmodule as nb
        >>> nb.export_state({"a": 1, "b": nb.StateEntry(0)})
        ({'a': 1, 'b': StateKey("['b']")}, {StateKey("['b']"): 0})
    """

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: object) -> None:
        self.value = value.value if isinstance(value, Variable) else value

    def __hash__(self) -> int:
        raise NotExportedError(
            "a StateEntry is not a key: call `model, state = nb.export_state(model)` first, and "
            "use the exported model, whose attributes are the keys of `state`."
        )

    def __eq__(self, other: object) -> bool:
        return self is other

    @printable_repr
    def __repr__(self) -> str:
        return f"StateEntry({self.value!r})"


jax.tree_util.register_pytree_with_keys(
    StateEntry,
    lambda entry: (((jax.tree_util.GetAttrKey("value"), entry.value),), None),
    lambda _, leaves: StateEntry(*leaves),
    lambda entry: ((entry.value,), None),
)


@jax.tree_util.register_static
@dataclass(frozen=True, order=True, repr=False)
class StateKey:
    """The key of a piece of state: the path at which its entry was.

    Example:
        >>> import nbmodule as nb
        >>> nb.StateKey(".stats.first") == nb.StateKey(".stats.first")
        True
    """

    key: str

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise ArgumentTypeError(f"a StateKey takes a str, got {type(self.key).__name__}.")

    @printable_repr
    def __repr__(self) -> str:
        return f'StateKey("{self.key}")'


def export_state(tree: object) -> tuple[Any, dict[StateKey, Any]]:
    """Take the state out of a model or any PyTree of models: gives `(tree with keys, state)`. The
    input is untouched.

    Entries become keys, one for each entry however often it is shared. Stateful layers of the
    library (BatchNorm, Dropout with a `key` of its own) are exported as well: afterwards they are
    called as `y, state = layer(x, state)`. Random streams that a model holds are exported too:
    `key, state = stream.draw(state)`. A second export gives `{}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> model, state = nb.export_state(nb.BatchNorm1d(2))
        >>> y, state = model(jnp.ones((4, 2)), state)
        >>> sorted(state)
        [StateKey(".running_mean"), StateKey(".running_var")]
    """
    exporter = _Exporter()
    leaves, structure = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda x: is_module(x) or isinstance(x, (StateEntry, StateKey))
    )
    created = [exporter.exported(leaf, jax.tree_util.keystr(path)) for path, leaf in leaves]
    return jax.tree.unflatten(structure, created), exporter.state


class _Exporter:
    def __init__(self) -> None:
        self.state: dict[StateKey, Any] = {}
        # By the id of an entry or variable, which must live as long as its id is a key.
        self.keys: dict[int, tuple[Any, StateKey]] = {}
        self.visited: set[int] = set()

    def exported(self, leaf: Any, path: str) -> Any:
        if is_module(leaf):
            ensure_built(leaf)
        elif not isinstance(leaf, StateEntry):
            return leaf
        self.find(leaf, path)
        keys = {number: key for number, (_, key) in self.keys.items()}
        return copy.deepcopy(leaf, shared_values(leaf) | keys if is_module(leaf) else keys)

    def find(self, obj: Any, path: str, *, is_state: bool = False) -> None:
        """Give a key to each piece of state in an object."""
        if is_state or isinstance(obj, StateEntry):
            if id(obj) not in self.keys:
                key = StateKey(path)
                self.keys[id(obj)], self.state[key] = (obj, key), obj.value
        elif (is_module(obj) or is_branch(obj)) and id(obj) not in self.visited:
            self.visited.add(id(obj))
            names = getattr(type(obj), "_state_names", ())
            for item in items(obj):
                is_state = isinstance(item.value, Variable) and item.name in names
                item_path = path + jax.tree_util.keystr((item.key,))
                self.find(item.value, item_path, is_state=is_state)


def update_state(
    state: Mapping[StateKey, Any], mutation: Mapping[StateKey, Any]
) -> dict[StateKey, Any]:
    """Return a copy of `state` with some entries changed.

    Raises:
        PathError: the mutation has a key that the state has not.

    Example:
        >>> import nbmodule as nb
        >>> key = nb.StateKey(".count")
        >>> nb.update_state({key: 0}, {key: 1})
        {StateKey(".count"): 1}
    """
    for key in mutation:
        if key not in state:
            raise PathError(f"the state has no entry {key!r}.")
    return {**state, **mutation}


def merge_states(*states: Mapping[StateKey, Any]) -> dict[StateKey, Any]:
    """Return one state out of several that have no key in common.

    Raises:
        StructureError: two of them have a key in common.

    Example:
        >>> import nbmodule as nb
        >>> nb.merge_states({nb.StateKey(".a"): 1}, {nb.StateKey(".b"): 2})
        {StateKey(".a"): 1, StateKey(".b"): 2}
    """
    merged: dict[StateKey, Any] = {}
    for state in states:
        common = [key for key in state if key in merged]
        if common:
            raise StructureError(
                f"cannot merge the states: {', '.join(map(repr, common))} is in more than one of "
                "them."
            )
        merged |= state
    return merged
