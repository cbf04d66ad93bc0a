"""`model.v`: containers of the arrays of a module's Parameters that stay connected to it.

The container of a module is the *current* one as long as each of its leaves is the very array that
the variable holds. Setting a leaf of a current container sets the variable. Where a part of `v` is
just what a submodule shows, the submodule's own current container is used, so `model.v.dl0 is
model.dl0.v`.

A container that is no longer current keeps its old values. Since parts are shared between
containers of different age, an old container gets its own copy of a part in the moment before the
part is changed.
"""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from nbmodule.base.jax_names import is_eager
from nbmodule.base.trees import flat
from nbmodule.core.structure.walk import Plan, is_module, plan_of
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import calling, now, warn_of_constant, write_all
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ShapeStructureError, StructureError
from nbmodule.tree.compare import structure_difference
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull


class Tie:
    """Ties one level of a module's container to the variables there."""

    __slots__ = ("embedders", "level", "module", "root")

    def __init__(self, module: Hull, level: dict[str, Any]) -> None:
        self.module = weakref.ref(module)
        self.level = level
        self.root: weakref.ref[Container] | None = (
            None  # the module's whole container, which holds this level
        )
        self.embedders: list[
            tuple[weakref.ref[Container], str]
        ] = []  # levels of other containers that hold this one

    def setting(self, container: Container, key: str, value: object) -> Any:
        """Called before `container[key] = value`; gives the value to store."""
        module = self.module()
        if module is None or not self.is_current(module):
            return value
        target = self.level.get(key)
        if target is None:
            self.part_ways(module)
            return value
        if isinstance(target, dict):
            if not isinstance(value, Mapping):
                raise StructureError(
                    f'cannot set "{key}" of the variables of {type(module).__name__} '
                    f"to a {type(value).__name__}: it holds "
                    f"several variables, {', '.join(target)}. Nothing was changed."
                )
            pairs = matched(
                target,
                value,
                title=f'cannot set "{key}" of the variables of {type(module).__name__}',
            )
            part = dict.__getitem__(container, key)
            arrays = [box.admitted(array) for _, box, array in pairs]
            for level in {
                id(level): level for chain, _, _ in pairs for level in _levels(part, chain)
            }.values():
                protect(level._link)
            write_all([box for _, box, _ in pairs], arrays)
            for (chain, _, _), array in zip(pairs, arrays):
                part._put_at(chain, array)
            return part
        # Checked before anything is detached, so that a refused value changes nothing.
        array = target.admitted(value)
        protect(self)
        target.value = array
        return array

    def deleting(self, container: Container, key: str) -> None:
        """Called before `del container[key]`: the container goes its own way from here on."""
        module = self.module()
        if module is not None and self.is_current(module):
            self.part_ways(module)

    def part_ways(self, module: Hull) -> None:
        """Let the container of `module`, and those that hold it, go their own way: they are about
        to have other keys.
        """
        for reference, _ in self.embedders:
            outer = reference()
            link = None if outer is None else outer._link
            ancestors = None if link is None else link.module()
            if link is not None and ancestors is not None and link.is_current(ancestors):
                link.part_ways(ancestors)
        forget(module)

    def is_current(self, module: Hull) -> bool:
        root = self.root() if self.root is not None else None
        return (
            root is not None
            and known_current(module) is root
            and holds(root, plan_of(module).template)
        )


def box_behind(container: Container, key: str) -> Variable | None:
    """Return the variable that would be set along with this leaf; containers of older values are
    made independent of it.
    """
    link = container._link
    if link is None:
        return None
    module = link.module()
    if module is None or not link.is_current(module):
        return None
    protect(link)
    return link.level.get(key)


def _levels(part: Container, chain: tuple[str, ...]) -> Iterator[Container]:
    """Yield the levels that lead to a leaf."""
    yield part
    for key in chain[:-1]:
        part = dict.__getitem__(part, key)
        yield part


def protect(link: Tie) -> None:
    """Give each outdated container that shares the level of `link` a copy of its own."""
    retained = []
    for reference, key in link.embedders:
        outer = reference()
        if outer is None or key not in outer or outer._link is None:
            continue
        module = outer._link.module()
        if module is not None and outer._link.is_current(module):
            protect(outer._link)
            retained.append((reference, key))
        else:
            _detach(outer, key)
    link.embedders = retained


def _detach(outer: Container, key: str) -> None:
    """Let a level hold a copy of what it shares, past its own link."""
    link = outer._link
    # Without its link a container stores the copy and sets no variable.
    outer._link = None
    try:
        outer._put(key, dict.__getitem__(outer, key).cont_copy())
    finally:
        outer._link = link


def known_current(module: Hull) -> Container | None:
    """Return the container last given out as `module.v`, in the frame that is open or outside all
    frames.
    """
    if now.frame is not None:
        return now.frame.views.get(id(module), (None, None))[1]
    current = module._nbm.current
    return None if current is None else current[1]()


def remember(module: Hull, container: Container) -> None:
    if now.frame is not None:
        now.frame.views[id(module)] = (module, container)
    else:
        plan = module._nbm.plan
        retained = (
            container if plan is None or plan.is_light else None
        )  # large arrays are held by whoever has read them
        module._nbm.current = (clock.values, weakref.ref(container), plan, retained)


def forget(module: Hull) -> None:
    """The container given out last is on its own from now on."""
    if now.frame is not None:
        now.frame.views.pop(id(module), None)
    else:
        module._nbm.current = None


def holds(container: Mapping[str, Any], level: dict[str, Any]) -> bool:
    """Return True if each leaf of `container` is the very array that the variable at its place
    holds.
    """
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


def v_of(module: Hull) -> Container:
    """Return the current container of the arrays of all Parameters of `module`."""
    plan = plan_of(module)
    if now.lent is not None:
        now.lent.append(module)
    if now.frame is None:
        if module._nbm.home is None and not is_eager():
            warn_of_constant(module)
        current = module._nbm.current
        if current is not None and current[0] == clock.values and current[2] is plan:
            container = current[1]()
            if container is not None:
                return container
    with (
        nullcontext() if now.frame is None else calling(module)
    ):  # a read that misses names this module
        container = known_current(module)
        if container is None or not holds(container, plan.template):
            container = build_whole(module, plan, plan.template)
    remember(module, container)
    return container


def set_roots(container: Container, root: weakref.ref[Container], module: Hull) -> None:
    for part in dict.values(container):
        if isinstance(part, Container) and part._link is not None and part._link.module() is module:
            part._link.root = root
            set_roots(part, root, module)


def build_whole(module: Hull, plan: Plan, template: dict[str, Any]) -> Container:
    """Return the container of a module, whose levels know that they are its."""
    container = build_level(module, plan, template)
    container._link.root = weakref.ref(container)
    set_roots(container, weakref.ref(container), module)
    return container


def part_of(submodule: Hull, plan: Plan, level: dict[str, Any]) -> Container:
    """Return the current container of a submodule whose `v` is this level of the root's; the
    submodule is not walked for it.
    """
    container = known_current(submodule)
    if container is None or not holds(container, level):
        container = build_whole(submodule, plan, level)
        remember(submodule, container)
    return container


def build_level(module: Hull, plan: Plan, level: dict[str, Any]) -> Container:
    """Return one level of `v`, made of arrays, of levels, and of the containers of submodules."""
    leaves: dict[str, Any] = {}
    for key, target in level.items():
        if not isinstance(target, dict):
            leaves[key] = target.value
            continue
        submodule = embedded(plan).get(id(target))
        if submodule is None:
            leaves[key] = build_level(module, plan, target)
        else:
            leaves[key] = part_of(submodule, plan, target)
    container = Container._from_dict(leaves)
    container._link = Tie(module, level)
    for key, part in leaves.items():
        if isinstance(part, Container):
            part._link.embedders.append((weakref.ref(container), key))
    return container


def embedded(plan: Plan) -> dict[int, Any]:
    """Submodules whose own `v` is exactly a part of the root's, by the `id` of that level of the
    template.
    """
    if plan.embedded is None:
        plan.embedded = {}
        for submodule, location in plan.modules.items():
            part: Any = plan.template
            for key in location.chain:
                part = part.get(key) if isinstance(part, dict) else None
            if isinstance(part, dict) and (
                submodule not in plan.partial or _same_boxes(part, plan_of(submodule).template)
            ):
                plan.embedded[id(part)] = submodule
    return plan.embedded


def is_level_of_v(plan: Plan, submodule: Any) -> bool:
    """Return True if the `v` of a submodule is exactly one level of the root's `v`."""
    return any(second is submodule for second in embedded(plan).values())


def _same_boxes(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        _same_boxes(x, y) if isinstance(x, dict) and isinstance(y, dict) else x is y
        for x, y in zip(a.values(), map(b.get, a))
    )


# -- from given containers to variables --
def matched(
    template: dict[str, Any],
    provided: Mapping[str, Any],
    *,
    title: str,
    partial: bool = False,
    shapes: bool = True,
) -> list[tuple[tuple[str, ...], Variable, Any]]:
    """Pair each variable with the array given for it, or say how the two structures differ.

    Args:
        template: Nested dict of boxes.
        provided: Nested mapping of arrays.
        title: The beginning of the error message.
        partial: Whether variables may be missing in `provided`.
        shapes: Whether shapes must agree.

    Raises:
        StructureError: chains are missing or unexpected, or (the list shows it) of another shape.
    """
    if not isinstance(provided, Mapping):
        is_part = is_module(provided) or isinstance(provided, Variable)
        cure = (
            " `v` is the name of all variables of a model: call the attribute otherwise, such as "
            "`value`."
            if is_part
            else ""
        )
        raise StructureError(
            f"{title}: a Container or a dict of arrays is wanted, found {type(provided).__name__}. "
            f"Nothing was changed.{cure}"
        )
    required, result = dict(flat(template)), dict(flat(provided))
    result = in_present_form(result, required)
    agree = (result.keys() <= required.keys()) if partial else (result.keys() == required.keys())
    if agree and shapes:
        agree = all(_shape_of(array) == required[chain].shape for chain, array in result.items())
    if not agree:
        expected = {
            "/".join(chain): box
            for chain, box in required.items()
            if not partial or chain in result
        }
        difference = structure_difference(
            expected, {"/".join(chain): array for chain, array in result.items()}
        )
        cls = ShapeStructureError if result.keys() == required.keys() else StructureError
        raise cls(f"{title}: the structures differ.\n{difference}\nNothing was changed.")
    return [
        (chain, required[chain], array.value if isinstance(array, Variable) else array)
        for chain, array in result.items()
    ]


def _shape_of(array: Any) -> tuple[int, ...] | None:
    """Return the shape of an array or a number; None of anything else."""
    if isinstance(array, numbers.Number):
        return ()
    shape = getattr(array, "shape", None)
    return None if shape is None else tuple(shape)


def set_v(module: Hull, provided: Mapping[str, Any]) -> None:
    """`module.v = given`: all or nothing."""
    pairs = matched(
        plan_of(module).template,
        provided,
        title=f"cannot set the variables of {type(module).__name__}",
    )
    # `v - grads * lr` makes floats of integer parameters, whose gradients are zeros: each variable
    # keeps its dtype.
    # All values are checked before the first is written.
    admitted = [(box, box.admitted(array, narrow=True)) for _, box, array in pairs]
    write_all([box for box, _ in admitted], [array for _, array in admitted])


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


def in_present_form(result: Mapping[Key, T], expected: Collection[Key]) -> dict[Key, T]:
    """`result` under the chains that are wanted, where it differs from them in that level only.

    Example:
        >>> in_present_form({"v0/w": 1, "b": 2}, ["submodules/v0/w", "b"])
        {'submodules/v0/w': 1, 'b': 2}
    """
    cached = set(expected)
    if all(chain in cached for chain in result):
        return dict(result)
    short: dict[Key, list[Key]] = {}
    for chain in expected:
        short.setdefault(in_older_form(chain), []).append(chain)
    renamed = {}
    for chain, value in result.items():
        candidates = [chain] if chain in cached else short.get(in_older_form(chain), [])
        renamed[candidates[0] if len(candidates) == 1 else chain] = value
    return renamed if len(renamed) == len(result) else dict(result)
