"""`model.v`: containers of the arrays of a module's Parameters that stay connected to it.

The container of a module is the *current* one while each of its leaves is the very array that the
variable holds. Setting a leaf of a current container sets the variable. A level of `v` that equals
the `v` of a submodule is that container: `model.v.dl0 is model.dl0.v`.

A container that is no longer current keeps its old values. Since levels are shared between
containers of different age, an old container gets its own copy of a level before that changes.
"""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from nbmodule.base.jax_names import is_eager
from nbmodule.base.trees import flat, structure_difference
from nbmodule.core.structure.walk import Plan, is_module, plan_of
from nbmodule.core.variables.commit import clock, ticks
from nbmodule.core.variables.frame import calling, now, warn_of_constant, write_all
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ShapeStructureError, StructureError
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule


MOST_KEPT = 2**24
"""Bytes of arrays that may be kept beyond their time, to save work."""


class ContainerLink:
    """Ties one level of a module's container to the variables there."""

    __slots__ = ("level", "module", "outer", "root")

    def __init__(
        self, module: BareModule, level: dict[str, Any], root: weakref.ref[Container]
    ) -> None:
        self.module, self.level = weakref.ref(module), level
        self.root = root  # the module's container, which holds this level
        # Containers that hold this level, each with its key there.
        self.outer: list[tuple[weakref.ref[Container], str]] = []

    def current_module(self, container: Container) -> Any:
        """Return the module whose current container this level, `container`, belongs to; else
        None.
        """
        module, root = self.module(), self.root()
        if module is None:
            return None
        if root is None:  # of a large model the level alone is left, as in `model.v.block.w = x`
            is_current = holds(container, self.level)
        else:
            is_current = known_current(module) is root and holds(root, plan_of(module).template)
        return module if is_current else None

    def setting(self, container: Container, key: str, value: Any) -> Any:
        """Return the value to store by `container[key] = value`, and set the variables."""
        module, target = self.current_module(container), self.level.get(key)
        if module is None or target is None:
            self.deleting(container, key)
            return value
        if not isinstance(target, dict):
            # Checked before anything is detached, so that a refused value changes nothing.
            array = target.admitted(value)
            protect(container)
            target.value = array
            return array
        title = f'cannot set "{key}" of the variables of {type(module).__name__}'
        pairs = matched(target, value, title=title)
        arrays = [variable.admitted(array) for _, variable, array in pairs]
        part = dict.__getitem__(container, key)
        for chain, _, _ in pairs:
            protect(part._at(chain[:-1]))
        write_all([variable for _, variable, _ in pairs], arrays)
        for (chain, _, _), array in zip(pairs, arrays):
            part._put_at(chain, array)
        return part

    def deleting(self, container: Container, _: str) -> None:
        """Before the keys of a current container change, which detaches it and those around it."""
        if self.current_module(container) is not None:
            protect(container)
            clock.values = next(ticks)  # so that `v_of` compares the keys


def variable_behind(container: Container, key: str) -> Variable | None:
    """Return the variable of this leaf, and detach containers of older values from it."""
    link = container._link
    if link is None or link.current_module(container) is None:
        return None
    protect(container)
    return link.level.get(key)


def protect(container: Container) -> None:
    """Give each outdated container around a level that will change a copy of its own."""
    for reference, key in container._link.outer:
        outer = reference()
        if outer is None or dict.get(outer, key) is not container:
            continue
        if outer._link.current_module(outer) is not None:
            protect(outer)
        else:
            dict.__setitem__(outer, key, container.cont_copy())


def known_current(module: BareModule) -> Container | None:
    """Return the container last given out as `module.v`, in this frame or outside of frames."""
    if now.frame is not None:
        return now.frame.views.get(id(module), (None, None))[1]
    current = module._nbm.current
    return None if current is None else current[1]()


def remember(module: BareModule, container: Container, *, keeps: bool) -> None:
    """Make a container the current one, which the module `keeps` or its readers alone."""
    if now.frame is not None:
        now.frame.views[id(module)] = (module, container)
        return
    owned = container if keeps else None
    module._nbm.current = (clock.values, weakref.ref(container), module._nbm.plan, owned)


def holds(container: Mapping[str, Any], level: dict[str, Any]) -> bool:
    """Return True if each leaf of `container` is the very array of its variable."""
    if dict.keys(container) != level.keys():  # type: ignore[arg-type]
        return False
    for key, target in level.items():
        value = dict.__getitem__(container, key)  # type: ignore[arg-type]
        if isinstance(target, dict):
            if not isinstance(value, dict) or not holds(value, target):
                return False
        elif value is not target.value:
            return False
    return True


def v_of(module: BareModule) -> Container:
    """Return the current container of the arrays of all Parameters of `module`."""
    plan = plan_of(module)
    if now.lent is not None:  # `_create_variables` may take arrays of this `v`
        now.lent.append(module)
    if now.frame is None:
        if module._nbm.home is None and not is_eager():
            warn_of_constant(module)
        current = module._nbm.current
        if current is not None and current[0] == clock.values and current[2] is plan:
            container = current[1]()
            if container is not None:
                return container
    # A read that misses names this module.
    with nullcontext() if now.frame is None else calling(module):
        keeps = sum(variable.nbytes for variable in plan.variables) <= MOST_KEPT
        return _current(module, plan, plan.template, keeps)


def _current(module: BareModule, plan: Plan, template: dict[str, Any], keeps: bool) -> Container:
    """Return the current container of a module, the known one or a new one."""
    container = known_current(module)
    if container is None or not holds(container, template):
        container = _build(module, plan, template, keeps)
    remember(module, container, keeps=keeps)
    return container


def _build(
    module: BareModule,
    plan: Plan,
    level: dict[str, Any],
    keeps: bool,
    root: weakref.ref[Container] | None = None,
) -> Container:
    """Return one level of `v`, tied to its variables: arrays, levels, containers of submodules."""
    container = Container.__new__(Container)
    root, leaves = root or weakref.ref(container), {}
    for key, target in level.items():
        if not isinstance(target, dict):
            leaves[key] = target.value
            continue
        submodule = embedded(plan).get(id(target))
        if submodule is None:
            part = _build(module, plan, target, keeps, root)
        else:
            part = _current(submodule, plan, target, keeps)
        link = part._link
        link.outer = [pair for pair in link.outer if pair[0]() is not None]
        link.outer.append((weakref.ref(container), key))
        leaves[key] = part
    container._take(leaves)
    container._link = ContainerLink(module, level, root)
    return container


def embedded(plan: Plan) -> dict[int, Any]:
    """Return submodules whose `v` is a level of the root's, by the `id` of that level."""
    if plan.embedded is None:
        plan.embedded = {}
        for submodule, location in plan.modules.items():
            part: Any = plan.template
            for key in location.chain:
                part = part.get(key) if isinstance(part, dict) else None
            if isinstance(part, dict) and (
                not plan.has_sharing or _are_same(part, plan_of(submodule).template)
            ):
                plan.embedded[id(part)] = submodule
    return plan.embedded


def is_level_of_v(plan: Plan, submodule: object) -> bool:
    """Return True if the `v` of a submodule is a level of the root's `v`."""
    return any(module is submodule for module in embedded(plan).values())


def _are_same(a: Any, b: Any) -> bool:
    if not isinstance(a, dict) or not isinstance(b, dict):
        return a is b
    return a.keys() == b.keys() and all(_are_same(value, b[key]) for key, value in a.items())


# Matching given containers with variables
def matched(
    template: dict[str, Any], provided: Mapping[str, Any], *, title: str, partial: bool = False
) -> list[tuple[tuple[str, ...], Variable, Any]]:
    """Pair each variable with the array given for it.

    Args:
        template: Nested dict of variables.
        provided: Nested mapping of arrays.
        title: The beginning of the error message.
        partial: Whether variables may be missing in `provided`.

    Raises:
        StructureError: Chains are missing or unexpected, or (the list shows it) of another shape.
    """
    if not isinstance(provided, Mapping):
        fix = " `v` is the name of all variables of a model: name the attribute otherwise."
        raise StructureError(
            f"{title}: expected a Container or a dict of arrays, got {type(provided).__name__}."
            f"{fix if is_module(provided) or isinstance(provided, Variable) else ''}"
        )
    # Chains are compared, not levels, so that the message lists every difference at once.
    variables = dict(flat(template))
    arrays = in_present_form(dict(flat(provided)), variables)
    if partial:
        variables = {chain: x for chain, x in variables.items() if chain in arrays}
    same_chains = arrays.keys() == variables.keys()
    if not same_chains or any(_shape_of(x) != variables[c].shape for c, x in arrays.items()):
        by_text = [{"/".join(c): x for c, x in leaves.items()} for leaves in (variables, arrays)]
        cls = ShapeStructureError if same_chains else StructureError
        raise cls(f"{title}: the structures differ.\n{structure_difference(*by_text)}")
    return [
        (chain, variables[chain], array.value if isinstance(array, Variable) else array)
        for chain, array in arrays.items()
    ]


def _shape_of(array: object) -> tuple[int, ...] | None:
    """Return the shape of an array or a number; None of anything else."""
    if isinstance(array, numbers.Number):
        return ()
    shape = getattr(array, "shape", None)
    return None if shape is None else tuple(shape)


def set_v(module: BareModule, provided: Mapping[str, Any]) -> None:
    """Set all variables of a module, or none; each keeps its dtype."""
    title = f"cannot set the variables of {type(module).__name__}"
    # `v - grads * lr` makes floats of integer parameters, whose gradients are zeros.
    write_pairs(matched(plan_of(module).template, provided, title=title), narrow=True)


def write_pairs(pairs: list[tuple[tuple[str, ...], Variable, Any]], *, narrow: bool) -> None:
    """Write arrays to matched variables; all are checked before the first is written."""
    arrays = [variable.admitted(array, narrow=narrow) for _, variable, array in pairs]
    write_all([variable for _, variable, _ in pairs], arrays)


LEVEL = "submodules"
Key = TypeVar("Key", str, tuple[str, ...])
T = TypeVar("T")


def in_older_form(chain: Key) -> Key:
    """Return the chain without the level of a Sequential.

    Example:
        >>> in_older_form("encoder/submodules/v0/w"), in_older_form(("submodules", "v0", "w"))
        ('encoder/v0/w', ('v0', 'w'))
    """
    if isinstance(chain, str):
        return "/".join(key for key in chain.split("/") if key != LEVEL)
    return tuple(key for key in chain if key != LEVEL)


def in_present_form(leaves: Mapping[Key, T], expected: Collection[Key]) -> dict[Key, T]:
    """Return `leaves` under the expected chains, where these differ in that level only.

    Example:
        >>> in_present_form({"v0/w": 1, "b": 2}, ["submodules/v0/w", "b"])
        {'submodules/v0/w': 1, 'b': 2}
    """
    chains = set(expected)
    if all(chain in chains for chain in leaves):
        return dict(leaves)
    present = {in_older_form(chain): chain for chain in expected}
    renamed = {
        chain if chain in chains else present.get(in_older_form(chain), chain): value
        for chain, value in leaves.items()
    }
    return renamed if len(renamed) == len(leaves) else dict(leaves)
