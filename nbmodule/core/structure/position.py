"""The position of a module in its model: parent, path, and its part of the variables.

A module notes weakly which modules hold it; of several, the first one counts. Functions take the
module as `self`, since they are the methods of `Module`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nbmodule.base.format import printable
from nbmodule.base.kinds import is_whole
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.linked import is_level_of_v, v_of
from nbmodule.core.structure.naming import as_key, depths
from nbmodule.core.structure.walk import name_within, plan_of
from nbmodule.errors import ArgumentError
from nbmodule.tree.container import Container
from nbmodule.tree.printing import container_text, wants_color

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull


def _depth(depth: object, name: str = "depth") -> int | None:
    if depth is not None and (not is_whole(depth) or depth < 0):
        raise ArgumentError(
            f"{name} counts levels and must be None or a number of at least 0, got {depth!r}."
        )
    return None if depth is None else int(depth)


def parent_of(module: Hull) -> Any:
    """Return the module that holds `module`, or None for a root."""
    for reference in list(module._nbm.parents):
        parent = reference()
        if parent is not None and parent is not module:
            if name_within(parent, module) is not None:
                return parent
    return None


def line_of(module: Hull, depth: int | None = None) -> list[Any]:
    """Return the modules from `depth` levels up (None: the root) down to `module`."""
    line = [module]
    while depth is None or len(line) <= depth:
        parent = parent_of(line[0])
        if parent is None or parent in line:
            break
        line.insert(0, parent)
    return line


def step_name(parent: Hull, child: Hull) -> str:
    """Return the name of a child below the module that holds it, as part of a key."""
    return as_key(name_within(parent, child) or "")


def path_key(line: list[Any]) -> str:
    return "__".join(step_name(parent, child) for parent, child in zip(line, line[1:]))


def top_mod(self: Any, depth: int | None = None) -> Any:
    """Return the module `depth` levels above this one; None means the root. A root is its own."""
    return line_of(self, _depth(depth))[0]


def top_v(self: Any, depth: int | None = None, flatten_key_chains: bool = False) -> Container:
    """Return the variables of the module `depth` levels above this one."""
    return _flattened(v_of(top_mod(self, depth)), flatten_key_chains)


def mod_depth(self: Any) -> int:
    """Return the number of levels from the root down to this module."""
    return len(line_of(self)) - 1


def mod_height(self: Any) -> int:
    """Return the number of levels of modules below this one."""
    ensure_built(self)
    return max(depths(self).values())


def _children(module: Hull) -> dict[Any, list[Any]]:
    """Return the children of this module and of each below it."""
    result: dict[Any, list[Any]] = {}
    for child, location in plan_of(module).modules.items():
        result.setdefault(location.owner or module, []).append(child)
    return result


def sub_mods(
    self: Any, *, show_v: bool = True, depth: int | None = None, flatten_key_chains: bool = False
) -> Any:
    """Return the modules below this one, nested, `depth` levels down (None: all); at the bottom
    their variables, or `''`; depth 0 is `v`.
    """
    ensure_built(self)
    if _depth(depth) == 0 and show_v and not flatten_key_chains:
        return v_of(self)
    return _flattened(_sub_mods(self, _children(self), show_v, depth), flatten_key_chains)


def _sub_mods(module: Hull, children: dict[Any, list[Any]], show_v: bool, depth: int | None) -> Any:
    if depth == 0 or module not in children:
        return v_of(module).cont_copy() if show_v else ""
    nested = None if depth is None else depth - 1
    result = {}
    for child in children[module]:
        result[step_name(module, child)] = _sub_mods(child, children, show_v, nested)
    return Container(result)


def v_with_top_v_key_chains(
    self: Any, *, depth: int | None = None, flatten_key_chains: bool = False
) -> Container:
    """Return the variables of this module under their chains in the module `depth` levels above.

    Where they are one level of the upper `v`, that level is this module's own, connected `v`.
    """
    top = top_mod(self, depth)
    plan = plan_of(top)
    location = plan.modules.get(self)
    if top is self:
        tree = v_of(self)
    elif location is not None and is_level_of_v(plan, self):
        tree = Container()
        tree._put_at(location.chain, v_of(self))
    else:
        boxes = set(plan_of(self).boxes)
        tree = Container()
        for box, where in plan.places.items():
            if box in boxes and _has_chain(plan.template, where.chain):
                tree._put_at(where.chain, box.value)
    return _flattened(tree, flatten_key_chains)


def _has_chain(template: object, chain: tuple[str, ...]) -> bool:
    for key in chain:
        if not isinstance(template, dict) or key not in template:
            return False
        template = template[key]
    return True


def mod_with_top_mod_key_chain(
    self: Any, *, depth: int | None = None, flatten_key_chain: bool = False
) -> Any:
    """Return the names from the module `depth` levels above down to this one, as a list, or as one
    key; depth 0 is the own name.
    """
    depth = _depth(depth)
    line = line_of(self)
    names = [type(line[0]).__name__] + [
        step_name(parent, child) for parent, child in zip(line, line[1:])
    ]
    if depth == 0:
        return names[-1]
    names = names if depth is None else names[-(depth + 1) :]
    return "__".join(names) if flatten_key_chain else names


def get_mod_key(self: Any) -> str:
    """Return the path of this module from the root, `dl0__l0`; for a root the name of its class."""
    return path_key(line_of(self)) or type(self).__name__


def _flattened(tree: object, flatten: bool) -> Any:
    return tree.cont_flatten_key_chains() if flatten and isinstance(tree, Container) else tree


# Display
def show_marked(tree: object, marked: Iterable[str]) -> None:
    """Print a tree with parts of it marked by a sign at the start of the line; in color on a
    terminal.
    """
    if not isinstance(tree, Container):
        print(tree)
        return
    print(container_text(tree, marked=marked, color=wants_color(sys.stdout)))


def show_v_in_top_v(self: Any, *, depth: int | None = None) -> None:
    """Show the variables of the module `depth` levels above, with this module's own part marked."""
    if parent_of(self) is None:
        print(printable(f"{type(self).__name__} is a root: all of its variables are its own."))
        return
    local = v_with_top_v_key_chains(self, depth=depth)
    marked = set(local.cont_all_key_chains())
    show_marked(top_v(self, depth), marked)


def show_mod_in_top_mod(
    self: Any,
    *,
    upper_depth: int | None = None,
    lower_depth: int | None = None,
    flatten_key_chains: bool = False,
) -> None:
    """Show the modules around this one, `upper_depth` levels up and `lower_depth` down, with this
    one marked.
    """
    if parent_of(self) is None:
        print(printable(f"{type(self).__name__} is a root: there is no module above it."))
        return
    line = line_of(self, _depth(upper_depth, "upper_depth"))
    down = (
        None if lower_depth is None else (_depth(lower_depth, "lower_depth") or 0) + len(line) - 1
    )
    tree = sub_mods(line[0], show_v=False, depth=down)
    local = "/".join(step_name(parent, child) for parent, child in zip(line, line[1:]))
    if flatten_key_chains:
        tree, local = _flattened(tree, True), local.replace("/", "__")
    chains = tree.cont_all_key_chains() if isinstance(tree, Container) else []
    inside = {
        chain for chain in chains if chain == local or chain.startswith((local + "/", local + "__"))
    }
    show_marked(tree, inside | {local})


def show_structure(self: Any) -> None:
    """Show this module and those below it, by name and class."""
    ensure_built(self)
    children = _children(self)
    if not children:
        print(printable(f"{type(self).__name__} has no modules below it."))
        return
    print("\n".join(map(printable, [type(self).__name__, *_structure(self, children, "    ")])))


def _structure(module: Hull, children: dict[Any, list[Any]], indent: str) -> Iterator[str]:
    for child in children.get(module, ()):
        yield f"{indent}{step_name(module, child)}: {type(child).__name__}"
        yield from _structure(child, children, indent + "    ")


def show_submod_call_order(self: Any) -> None:
    """Show the order of the calls in the last tracked call."""
    order = self.submod_call_order
    if not order.keys():
        print(
            printable(
                f"{type(self).__name__}: no calls yet; run model(x, track_submod_call_order=True)."
            )
        )
        return
    show_marked(order, set())
