"""`nb.shard`: lay the variables of a model out on a mesh, for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nbmodule.core.numbers import random
from nbmodule.core.structure.building import ensure_built, move_each
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentTypeError
from nbmodule.scale.mesh import as_mesh
from nbmodule.scale.sharding_rules import Decision, RuledVariable, as_rules

Model = TypeVar("Model")


def shard(model: Model, mesh: Mesh, rules: object = None, *, optimizer: Any = None) -> Model:
    """Lay the variables of a model out on a mesh; they keep that layout from then on.

    `nb.jit` brings what it writes out in the same layout, an optimizer's state is made in that of
    its variables, and a value from elsewhere (`load_weights`, `model.v = ...`, a checkpoint) is
    laid out when it is set. Work is split and gradients are reduced by the compiler. All variables
    are checked before the first is moved.

    Args:
        model: A module; it is changed in place.
        mesh: A `jax.sharding.Mesh`, as `nb.make_mesh` gives one.
        rules: A dict from globs of variable names to `PartitionSpec`s, a preset
            (`nb.data_parallel()`, `nb.fsdp()`, `nb.tensor_parallel()`), or a list of these, applied
            in order. Other variables are kept whole on each device. None is
            `nb.data_parallel()`.
        optimizer: One that has taken steps with this model already; its state is laid out anew. A
            fresh one needs nothing.

    Returns:
        The model.

    Raises:
        PathError: a rule fits no variable; the message names the closest one.
        ShapeError: an axis is not divided by the devices.
        ArgumentError: the mesh has no axis of that name.

    Example:
        >>> mesh = nb.make_mesh(data=1)
        >>> model = nb.shard(
        ...     nb.Sequential(nb.Linear(4, 8)), mesh, {"*.weight": jax.P(None, "data")}
        ... )
        >>> model[0].weight.sharding.spec, model[0].bias.sharding.spec
        (P(None, 'data'), P())
    """
    if not is_module(model):
        raise ArgumentTypeError(f"nb.shard lays out a module, got {type(model).__name__}.")
    ensure_built(model)
    mesh = as_mesh(mesh)
    leaves = list(ruled_variables(model))
    decisions = {leaf.name: Decision() for leaf in leaves}
    for rule in as_rules(rules):
        rule(leaves, decisions, mesh)
    places = {
        leaf.variable: NamedSharding(mesh, shortest(decisions[leaf.name].spec)) for leaf in leaves
    }
    if optimizer is not None:
        places |= places_of_state(optimizer, model, mesh, places)
    stream = random.default.state  # a compiled step may have left it on another mesh
    if not stream.is_pending and len(stream.sharding.device_set) > 1:
        places[stream] = NamedSharding(mesh, PartitionSpec())
    move_each(tuple(places), tuple(places.values()))
    return model


def shortest(spec: PartitionSpec | None) -> PartitionSpec:
    """Drop unsplit axes at the end of a spec, as JAX does for outputs of compiled code."""
    parts = list(spec or ())
    while parts and parts[-1] is None:
        parts.pop()
    return PartitionSpec(*parts)


def ruled_variables(model: Any) -> Iterator[RuledVariable]:
    """Yield the variables of a model as rules see them."""
    plan = plan_of(model)
    for variable, location in plan.places.items():
        holder = plan.modules[location.owner].owner if location.owner in plan.modules else None
        yield RuledVariable(location.name, variable, location.owner or model, holder or model)


def places_of_state(
    optimizer: Any, model: Any, mesh: Mesh, places: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Return the sharding of optimizer state: that of its variables; counters are replicated."""
    by_chain = {location.chain: variable for variable, location in plan_of(model).places.items()}
    whole = NamedSharding(mesh, PartitionSpec())
    named = dict(optimizer._state_variables())
    owners = {variable: variable_of(chain, variable, by_chain) for chain, variable in named.items()}
    # Variables of other classes call a function at each step.
    stored = [x for x in plan_of(optimizer).variables if type(x) in (Buffer, Parameter)]
    return {variable: places.get(owners.get(variable), whole) for variable in stored}


def variable_of(
    chain: tuple[str, ...], state: Variable, by_chain: dict[tuple[str, ...], Variable]
) -> Variable | None:
    """Return the variable of an array of state: its chain ends that of the array."""
    candidates = (by_chain.get(chain[start:]) for start in range(len(chain)))
    return next((x for x in candidates if x is not None and x.shape == state.shape), None)
