"""Records of models: what a module is made of, and what its variables are.

Nothing is drawn from a stream for them, and nothing is computed but statistics of what is visible.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nbmodule.base.format import describe_shape
from nbmodule.core.call.module import CoreModule
from nbmodule.core.call.stages import first_shapes
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.linked import known_current
from nbmodule.core.structure.naming import defined_children
from nbmodule.core.structure.walk import aliases, held, plan_of
from nbmodule.core.variables.array_behavior import describe_device
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.graphs import Source
from nbmodule.tree.container import Container
from nbmodule.views.arrays.values import placement_of
from nbmodule.views.builders.pytrees import array_card, measured, pytree_record, register_record
from nbmodule.views.records.findings import equal_findings, frozen_findings, with_findings
from nbmodule.views.records.records import (
    ArrayCard,
    Finding,
    ModuleRow,
    ModuleTree,
    VariableRow,
    VariableTree,
)

MOST_LINES = 60


class Lines(NamedTuple):
    """A stretch of code.

    Attributes:
        place: `model.py:12`, or `cell [3] line 12`.
        first: Number of its first line.
        left_out: Lines that do not fit.
    """

    place: str
    first: int
    text: str
    left_out: int = 0


@functools.lru_cache(512)
def source_of(cls: Any) -> Lines | None:
    """Give the code that a call of a module runs; None where it cannot be read.

    Example:
        >>> lines = source_of(nb.Linear)
        >>> lines.place.partition(":")[0], lines.text.startswith("def ")
        ('linear.py', True)
    """
    run = inspect.unwrap(getattr(cls, "_run", cls))
    code = getattr(run, "__code__", None)
    if code is None:
        return None
    place = Source(code.co_filename, code.co_firstlineno).place
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return Lines(place, code.co_firstlineno, "")
    text = textwrap.dedent("".join(lines)).splitlines()
    return Lines(place, first, "\n".join(text[:MOST_LINES]), max(0, len(text) - MOST_LINES))


# -- what a model is made of --
def module_tree(module: CoreModule) -> ModuleTree:
    """Make the record of a module: a row for each module below it, in the order of definition.

    Example:
        >>> import nbmodule as nb
        >>> tree = module_tree(nb.Sequential(nb.Linear(3, 2), nb.ReLU()))
        >>> [(row.path, row.class_name, row.parameters) for row in tree.rows], tree.mode
        ([('0', 'Linear', 8), ('1', 'ReLU', 0)], 'train')
    """
    ensure_built(module)
    all_variables = plan_of(module).variables
    modes = {child.training for child in module.modules()}
    rows, (parameters, buffers) = list(_rows(module)), _total(all_variables)
    tree = ModuleTree(
        type(module).__name__,
        rows,
        parameters,
        sum(variable.nbytes for variable in all_variables),
        buffers,
        device=_devices(all_variables),
        mode="mixed train/eval" if len(modes) > 1 else "train" if modes.pop() else "eval",
        variables=_own_variables(module),
    )
    return with_findings(tree, _suspects(module, rows))


def _suspects(module: CoreModule, rows: list[ModuleRow]) -> list[Finding]:
    """Return the faults that the variables of a model tell of."""
    places = [(location.name, variable) for variable, location in plan_of(module).places.items()]
    at = {row.path: k for k, row in enumerate(rows)}
    variables = ((name, variable, at.get(name.rpartition(".")[0])) for name, variable in places)
    return [*frozen_findings(rows, places), *equal_findings(variables)]


def _rows(model: CoreModule) -> Iterator[ModuleRow]:
    """Yield a row for each module and list below a model.

    A module that is held in several places is looked into where it has its name, under which calls,
    graphs and variables show it.
    """
    places = plan_of(model).places
    names = {model: "", **{module: at.name for module, at in plan_of(model).modules.items()}}
    known: dict[CoreModule, set[Variable]] = {}

    def held_by(module: CoreModule) -> set[Variable]:
        """Return the variables of a module and of all below; each is looked into once."""
        if module not in known:
            known[module] = set(_own(module))
            for _, child in defined_children(module):
                known[module] |= held_by(child)
        return known[module]

    def below(holder: CoreModule, prefix: str) -> Iterator[ModuleRow]:
        listed: set[str] = set()
        children = list(defined_children(holder))
        for name, child in children:
            steps = name.split(".")
            for level in range(1, len(steps)):
                group = ".".join(steps[:level])
                if group not in listed:
                    listed.add(group)
                    inside = [held_by(x) for other, x in children if other.startswith(f"{group}.")]
                    count = f"{len(inside)} modules"
                    total = _total(set().union(*inside))
                    yield ModuleRow(prefix + group, count, "", *total, "list")
            path = prefix + name
            row = _module_row(child, path, _total(held_by(child)))
            if names[child] != path:
                shared = names[child] or "the model itself"
                yield row._replace(shared_with=shared)
                continue
            tied = (places[v].name for v, own in _own(child).items() if v in places)
            tied = (first for first in tied if first.rpartition(".")[0] != path)
            yield row._replace(shared_with=next(tied, None))
            yield from below(child, f"{path}.")

    return below(model, "")


def _module_row(module: CoreModule, path: str, total: tuple[int, int]) -> ModuleRow:
    cls, code = type(module), source_of(type(module))
    doc = vars(cls).get("__doc__")  # what a class inherits says what another one does
    brief = getattr(module, "brief", module.extra_repr)
    inputs, returned = first_shapes(module)
    return ModuleRow(
        path,
        cls.__name__,
        brief(),
        *total,
        input_shapes=inputs,
        output_shapes=returned,
        training=module.training,
        built=module._nbm.built,
        doc=inspect.cleandoc(doc).partition("\n")[0] if doc else None,
        source=None if code is None else code.place,
        variables=_own_variables(module),
        arguments=module.extra_repr(),
    )


def _total(held: Iterable[Variable]) -> tuple[int, int]:
    """Count trained values and buffers."""
    trained = sum(variable.size for variable in held if isinstance(variable, Parameter))
    return trained, sum(isinstance(variable, Buffer) for variable in held)


def _devices(all_variables: Any) -> str:
    names = sorted({describe_device(variable) for variable in all_variables})
    return names[0] if len(names) == 1 else f"{len(names)} devices" if names else ""


def _own(module: object) -> dict[Variable, str]:
    """The variables of a module that no module below it holds, with their names in it."""
    names: dict[Variable, str] = {}
    for name, part in held(module):
        if isinstance(part, Variable) and not part.is_released:
            names.setdefault(part, name)
    return names


def _own_variables(module: object) -> tuple[str, ...]:
    return tuple(f"{name} {describe_shape(variable)}" for variable, name in _own(module).items())


# -- what its numbers are --
def variable_tree(module: CoreModule) -> VariableTree:
    """Make the record of a module's `v`; shared parameters are marked with their other name.

    Example:
        >>> import nbmodule as nb
        >>> [(row.path, row.keys, row.shape) for row in variable_tree(nb.Linear(3, 2)).rows]
        [('bias', ('b',), (2,)), ('weight', ('w',), (2, 3))]
    """
    ensure_built(module)
    places, others = plan_of(module).places, {}
    for alias, variable in aliases(module):
        if alias != places[variable].name:
            others.setdefault(variable, alias)
    parameters = parameters_of(module)
    rows = [
        VariableRow(
            places[variable].name,
            "parameter",
            variable.shape,
            str(variable.dtype),
            variable.nbytes,
            describe_device(variable),
            placement_of(variable.sharding)[1],
            not variable.requires_grad,
            others.get(variable),
            keys=places[variable].chain,
        )
        for variable in parameters
    ]
    tree = measured(VariableTree("v", rows, root="model.v"), list(map(_value, parameters)))
    named = ((row.path, variable, k) for k, (row, variable) in enumerate(zip(rows, parameters)))
    return with_findings(tree, equal_findings(named))


def _value(variable: Variable) -> Any:
    return None if variable.is_pending and variable._pending.draw is None else variable.value


def container_record(container: Container) -> VariableTree:
    """Make the record of a Container: of the model's variables, if it is a current `v`, else of a
    PyTree.
    """
    module = module_of(container)
    if module is None:
        return pytree_record(container, "Container")
    return variable_tree(module)


def module_of(container: Container) -> CoreModule | None:
    """The module whose current `v` a Container is."""
    link = container._link
    module = None if link is None else link.current_module(container)
    return module if module is not None and known_current(module) is container else None


def parameters_of(module: CoreModule) -> list[Parameter]:
    """Return the parameters of a module, one for each row of the record of its `v`."""
    return [variable for variable in plan_of(module).places if isinstance(variable, Parameter)]


def variable_card(variable: Variable) -> ArrayCard:
    """Make the record of one variable."""
    return array_card(variable.value, type(variable).__name__)


register_record(Container, container_record)
register_record(Variable, variable_card)
