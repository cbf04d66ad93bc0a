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
from nbmodule.core.variables.commit import clock
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

    __slots__ = ("embedders", "level", "module", "root")

    def __init__(self, module: BareModule, level: dict[str, Any], root: list[Any]) -> None:
        self.module, self.level = weakref.ref(module), level
        self.root = root  # one weak reference: to the module's container, which holds this level
        # Levels of other containers that hold this one, with its key there.
        self.embedders: list[tuple[weakref.ref[Container], str]] = []

    def setting(self, container: Container, key: str, value: object) -> Any:
        """Return the value to store by `container[key] = value`, and set the variables."""
        module = self.current_module(container)
        if module is None:
            return value
        target = self.level.get(key)
        if target is None:
            self.deleting(container, key)
            return value
        if not isinstance(target, dict):
            # Checked before anything is detached, so that a refused value changes nothing.
            array = target.admitted(value)
            protect(self)
            target.value = array
            return array
        title = f'cannot set "{key}" of the variables of {type(module).__name__}'
        if not isinstance(value, Mapping):
            raise StructureError(
                f"{title} to a {type(value).__name__}: it holds several variables, "
                f"{', '.join(target)}."
            )
        pairs = matched(target, value, title=title)
        part = dict.__getitem__(container, key)
        arrays = [variable.admitted(array) for _, variable, array in pairs]
        _protect_all(part)
        write_all([variable for _, variable, _ in pairs], arrays)
        for (chain, _, _), array in zip(pairs, arrays):
            part._put_at(chain, array)
        return part

    def deleting(self, container: Container, key: str) -> None:
        """Before `del container[key]`, detach the container from its module, and those that hold
        it: they will have other keys.
        """
        module = self.current_module(container)
        if module is None:
            return
        for reference, _ in self.embedders:
            outer = reference()
            if outer is not None and outer._link is not None:
                outer._link.deleting(outer, key)
        if now.frame is not None:
            now.frame.views.pop(id(module), None)
        else:
            module._nbm.current = None

    def current_module(self, container: Container) -> Any:
        """Return the module whose current container this level, `container`, belongs to; else
        None.
        """
        module, root = self.module(), self.root[0]() if self.root else None
        if module is None:
            return None
        if root is not None:
            is_current = known_current(module) is root and holds(root, plan_of(module).template)
        else:  # of a large model the level alone is left, as in `model.v.block.w = x`
            _, reference, plan, _ = module._nbm.current or (None,) * 4
            is_same = reference in self.root and plan is plan_of(module)
            is_current = is_same and holds(container, self.level)
        return module if is_current else None


def variable_behind(container: Container, key: str) -> Variable | None:
    """Return the variable of this leaf, and detach containers of older values from it."""
    link = container._link
    if link is None or link.current_module(container) is None:
        return None
    protect(link)
    return link.level.get(key)


def _protect_all(part: Container) -> None:
    """Protect a level, and all levels in it."""
    protect(part._link)
    for value in part.values():
        if isinstance(value, Container):
            _protect_all(value)


def protect(link: ContainerLink) -> None:
    """Give each outdated container that shares the level of `link` a copy of its own."""
    current = []
    for reference, key in link.embedders:
        outer = reference()
        if outer is None or key not in outer or outer._link is None:
            continue
        if outer._link.current_module(outer) is not None:
            protect(outer._link)
            current.append((reference, key))
        else:  # it gets a copy of the level; without its link it sets no variable
            outer_link, outer._link = outer._link, None
            outer._put(key, dict.__getitem__(outer, key).cont_copy())
            outer._link = outer_link
    link.embedders = current


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
        container = known_current(module)
        keeps = sum(variable.nbytes for variable in plan.variables) <= MOST_KEPT
        if container is None or not holds(container, plan.template):
            return build_whole(module, plan, plan.template, keeps)
    remember(module, container, keeps=keeps)
    return container


def build_whole(module: BareModule, plan: Plan, template: dict[str, Any], keeps: bool) -> Container:
    """Return a new container of a module, tied to its variables, as the current one."""
    root: list[Any] = []
    container = build_level(module, plan, template, keeps, root)
    root.append(weakref.ref(container))
    remember(module, container, keeps=keeps)
    return container


def build_level(
    module: BareModule, plan: Plan, level: dict[str, Any], keeps: bool, root: list[Any]
) -> Container:
    """Return one level of `v`: arrays, levels, and containers of submodules."""
    leaves: dict[str, Any] = {}
    for key, target in level.items():
        if not isinstance(target, dict):
            leaves[key] = target.value
            continue
        submodule = embedded(plan).get(id(target))
        if submodule is None:
            leaves[key] = build_level(module, plan, target, keeps, root)
            continue
        part = known_current(submodule)
        if part is None or not holds(part, target):
            part = build_whole(submodule, plan, target, keeps)
        leaves[key] = part
    container = Container._from_dict(leaves)
    container._link = ContainerLink(module, level, root)
    for key, part in leaves.items():
        if isinstance(part, Container):
            part._link.embedders.append((weakref.ref(container), key))
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
