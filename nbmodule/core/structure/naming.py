"""Names of variables and modules, as lazy generators over the one walk, the text of a module, and
its position: parent, path, and its part of the variables.

A module notes weakly which modules hold it; of several, the first one counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from nbmodule.base.format import describe_shape, printable, printable_lines
from nbmodule.base.interpreter import allow
from nbmodule.base.kinds import is_whole
from nbmodule.base.paths import closest, match
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.holders import attributes, is_branch
from nbmodule.core.structure.linked import is_level_of_v, v_of
from nbmodule.core.structure.walk import held, is_module, module_aliases, name_within, plan_of
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.tree.container import Container
from nbmodule.tree.printing import container_text, wants_color

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule

SMALLEST_GROUP = 3
"""Layers of a list that read alike are written once."""
GLOB = frozenset("*?[")
MOST_NAMES = 10_000
"""Names of modules that a path is compared with; nested sharing has too many."""


def joined(prefix: str | None, name: str) -> str:
    """Return a dotted name below a prefix."""
    return ".".join(filter(None, ((prefix or "").removesuffix("."), name)))


def named_variables(
    module: BareModule, cls: type[Variable], prefix: str | None, recursive: bool
) -> Iterator[tuple[str, Variable]]:
    """Yield names and variables of this class, each once."""
    ensure_built(module)
    for variable, location in plan_of(module).places.items():
        if isinstance(variable, cls) and (recursive or location.owner in (None, module)):
            yield joined(prefix, location.name), variable


def named_children(module: BareModule) -> Iterator[tuple[str, Any]]:
    """Yield names and modules directly below, each once."""
    ensure_built(module)
    for child, location in plan_of(module).modules.items():
        if location.owner is None or location.owner is module:
            yield location.name, child


def named_modules(
    module: BareModule, prefix: str | None, with_parent: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield names and modules, the root first; optionally with parents."""
    ensure_built(module)
    below = [(p.name, child, p.owner or module) for child, p in plan_of(module).modules.items()]
    for name, part, parent in [("", module, None), *below]:
        yield (joined(prefix, name), part, parent)[: 3 if with_parent else 2]


# Text
def describe_module(module: Any, ancestors: tuple[int, ...] = ()) -> str:
    """Return the tree of children in the order of their definition; no array is read."""
    name, held = type(module).__name__, (*vars(module).values(), *module._nbm.variables.values())
    frozen = [variable._frozen for variable in held if isinstance(variable, Parameter)]
    words = [module.extra_repr(), "frozen" if frozen and all(frozen) else ""]
    extra = ", ".join(filter(None, words))
    if id(module) in ancestors:  # a cycle
        return f"{name}(...)"
    allow(len(ancestors))
    inside = (*ancestors, id(module))
    texts = [(path, describe_module(child, inside)) for path, child in defined_children(module)]
    return _block(f"{name}({extra}", [f"({path}): {text}" for path, text in _folded(texts)], ")")


def _folded(texts: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Join three and more equal neighbors of one list: `(layers.0-11): 12 x Block(...)`."""

    def run_of(numbered: tuple[int, tuple[str, str]]) -> tuple[Any, ...]:
        """Return a key that agrees for neighbors in one list that read alike."""
        place, (path, text) = numbered
        stem, _, last = path.rpartition(".")
        return (stem, int(last) - place, text) if last.isdigit() else (path,)

    for _, run in groupby(enumerate(texts), run_of):
        alike = [pair for _, pair in run]
        if len(alike) < SMALLEST_GROUP:
            yield from alike
        else:
            (path, text), (end, _) = alike[0], alike[-1]
            yield f"{path}-{end.rpartition('.')[2]}", f"{len(alike)} x {text}"


def defined_children(obj: object) -> Iterator[tuple[str, Any]]:
    """Children in the order of their definition; those in lists and dicts as `list.0`."""
    return ((name, part) for name, part in held(obj, in_order=False) if is_module(part))


def depths(root: BareModule) -> dict[Any, int]:
    """Return the depth of each module below `root`, which has depth 0."""
    result = {root: 0}
    for module, location in plan_of(root).modules.items():
        result[module] = result[root if location.owner is None else location.owner] + 1
    return result


def entries_of(option: str, provided: object) -> list[Any]:
    """Return names of submodules as a list; one alone will do."""
    if isinstance(provided, str) or is_module(provided):
        return [provided]
    if not isinstance(provided, Iterable):
        raise ArgumentTypeError(
            f"{option} takes submodules or their paths, one or several, got "
            f"{type(provided).__name__}."
        )
    return list(provided)


def find_modules(root: BareModule, entry: object) -> list[Any]:
    """Return modules below `root`, or itself: by identity, dotted path, key or glob (`blocks.*`).

    A shared module goes by each of its names.

    Raises:
        PathError: There is none.
        ArgumentTypeError: The entry is neither a module nor text.
    """
    if is_module(entry):
        if entry is not root and entry not in plan_of(root).modules:
            raise PathError(
                f"{type(entry).__name__} is not part of {type(root).__name__}. A copy, or a module "
                "that was replaced, is a different module."
            )
        return [entry]
    if not isinstance(entry, str):
        raise ArgumentTypeError(
            f"a submodule must be a module or a path, got {type(entry).__name__}."
        )
    modules = modules_named(root, entry)
    if not modules:
        locations = plan_of(root).modules.values()
        names = [*(p.name for p in locations), *map(key_of, locations)]
        near = closest(entry, names)
        raise PathError(
            f'{type(root).__name__} has no submodule "{entry}"'
            + (f'; the closest path is "{near}".' if near else ".")
        )
    return modules


def modules_named(root: BareModule, entry: str) -> list[Any]:
    """Return modules below `root` by dotted path, key or glob, in order, under any of their
    names.
    """
    # All names at once: a shared module goes by any of them.
    spelled = [(name, module) for name, module, _ in islice(module_aliases(root), MOST_NAMES)]
    named = {module for name, module in spelled if entry in (name, as_key(name))}
    chosen = named or {module for name, module in spelled if match(entry, name)}
    return [module for module in plan_of(root).modules if module in chosen]


def other_names(root: BareModule) -> dict[str, str]:
    """Return the other names of shared modules, each with the name in the plan."""
    modules = plan_of(root).modules
    return {
        name: modules[module].name
        for name, module, _ in islice(module_aliases(root), MOST_NAMES)
        if module in modules and modules[module].name != name
    }


def key_of(location: Any) -> str:
    """Return the key of a submodule in `submod_rets`: `dl0__l0`, `layers__0`."""
    return as_key(location.name)


def as_key(name: str) -> str:
    """Return a dotted name as one key of a Container."""
    return "__".join(part.removeprefix("_") for part in name.split("."))


def tree_repr(tree: object) -> str:
    """Write a model, or any nested data, with all attributes; arrays as `float32[3, 4]`, and none
    of them is copied.

    Example:
        >>> import nbmodule as nb
        >>> print(nb.tree_repr(nb.Linear(3, 2)))
        Linear(
          in_features = 3
          out_features = 2
          with_bias = True
          weight = Parameter float32[2, 3]
          bias = Parameter float32[2]
        )
    """
    return printable_lines(_text(tree, ()))


def _text(obj: Any, ancestors: tuple[int, ...]) -> str:
    if isinstance(obj, Variable):
        frozen = ", frozen" if obj._frozen else ""
        return f"{type(obj).__name__} {describe_shape(obj)}{frozen}"
    if isinstance(obj, (jax.Array, np.ndarray)):
        return describe_shape(obj)
    if id(obj) in ancestors:
        return f"{type(obj).__name__}(...)"
    inside = (*ancestors, id(obj))
    allow(len(inside))
    if isinstance(obj, Mapping):
        return _block("{", [f"{key!r}: {_text(value, inside)}" for key, value in obj.items()], "}")
    if isinstance(obj, (list, tuple)):
        opening, closing = "()" if isinstance(obj, tuple) else "[]"
        lines = [_text(value, inside) for value in obj]
        is_short = all(len(line) < 20 and "\n" not in line and "[" not in line for line in lines)
        joint = f"{opening}{', '.join(lines)}{closing}"
        return joint if is_short else _block(opening, lines, closing)
    if is_module(obj) or is_branch(obj):
        attrs = vars(obj) | obj._nbm.variables if is_module(obj) else attributes(obj)
        shown = ((name, value) for name, value in attrs.items() if name != "_nbm")
        lines = [f"{name} = {_text(value, inside)}" for name, value in shown]
        return _block(f"{type(obj).__name__}(", lines, ")")
    name = getattr(obj, "__qualname__", None)
    return name if name is not None else repr(obj)


def _block(opening: str, lines: list[str], closing: str) -> str:
    if not lines:
        return opening + closing
    return "\n".join([opening, *("  " + line.replace("\n", "\n  ") for line in lines), closing])


# -- the position of a module in its model --
# Functions take the module as `self`, since they are the methods of `Module`.
def checked_depth(depth: object, name: str = "depth") -> int | None:
    """Return a number of levels, or None for all of them."""
    if depth is not None and (not is_whole(depth) or depth < 0):
        raise ArgumentError(f"{name} must be None or at least 0 (levels), got {depth!r}.")
    return None if depth is None else int(depth)


def parent_of(module: BareModule) -> Any:
    """Return the module that holds `module`, or None for a root."""
    for parent in [reference() for reference in module._nbm.parents]:
        if parent is not None and parent is not module and name_within(parent, module) is not None:
            return parent
    return None


def line_of(module: BareModule, depth: int | None = None) -> list[Any]:
    """Return the modules from `depth` levels up (None: the root) down to `module`."""
    line = [module]
    while depth is None or len(line) <= depth:
        parent = parent_of(line[0])
        if parent is None or parent in line:
            break
        line.insert(0, parent)
    return line


def step_name(parent: BareModule, child: BareModule) -> str:
    """Return the name of a child below the module that holds it, as part of a key."""
    return as_key(name_within(parent, child) or "")


def _steps(line: list[Any]) -> list[str]:
    """Return the name of each module of a line below the one before."""
    return [step_name(parent, child) for parent, child in zip(line, line[1:])]


def top_mod(self: Any, depth: int | None = None) -> Any:
    """Return the module `depth` levels above this one; None means the root. A root is its own."""
    return line_of(self, checked_depth(depth))[0]


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


def sub_mods(
    self: Any, *, show_v: bool = True, depth: int | None = None, flatten_key_chains: bool = False
) -> Any:
    """Return the modules below this one, nested, `depth` levels down (None: all); at the bottom
    their variables, or `''`; depth 0 is `v`.
    """
    ensure_built(self)
    if checked_depth(depth) == 0 and show_v and not flatten_key_chains:
        return v_of(self)
    children: dict[Any, list[Any]] = {}
    for child, location in plan_of(self).modules.items():
        children.setdefault(location.owner or self, []).append(child)
    return _flattened(_sub_mods(self, children, show_v, depth), flatten_key_chains)


def _sub_mods(
    module: BareModule, children: dict[Any, list[Any]], show_v: bool, depth: int | None
) -> Any:
    if depth == 0 or module not in children:
        return v_of(module).cont_copy() if show_v else ""
    inside = (children, show_v, None if depth is None else depth - 1)
    return Container({step_name(module, x): _sub_mods(x, *inside) for x in children[module]})


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
        variables, tree = set(plan_of(self).variables), Container()
        for variable, where in plan.places.items():
            if variable in variables and isinstance(variable, Parameter):
                tree._put_at(where.chain, variable.value)
    return _flattened(tree, flatten_key_chains)


def mod_with_top_mod_key_chain(
    self: Any, *, depth: int | None = None, flatten_key_chain: bool = False
) -> Any:
    """Return the names from the module `depth` levels above down to this one, as a list, or as one
    key; depth 0 is the own name.
    """
    depth = checked_depth(depth)
    line = line_of(self)
    names = [type(line[0]).__name__, *_steps(line)]
    if depth == 0:
        return names[-1]
    names = names[0 if depth is None else -(depth + 1) :]
    return "__".join(names) if flatten_key_chain else names


def get_mod_key(self: Any) -> str:
    """Return the path of this module from the root, `dl0__l0`; for a root the name of its class."""
    return "__".join(_steps(line_of(self))) or type(self).__name__


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
        _print_about(self, " is a root and has all of its variables itself.")
        return
    local = v_with_top_v_key_chains(self, depth=depth)
    show_marked(top_v(self, depth), local.cont_all_key_chains())


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
        _print_about(self, " is a root and has no parent.")
        return
    line = line_of(self, checked_depth(upper_depth, "upper_depth"))
    down = checked_depth(lower_depth, "lower_depth")
    down = None if down is None else down + len(line) - 1
    tree = sub_mods(line[0], show_v=False, depth=down)
    separator = "__" if flatten_key_chains else "/"
    tree, local = _flattened(tree, flatten_key_chains), separator.join(_steps(line))
    chains = tree.cont_all_key_chains() if isinstance(tree, Container) else []
    show_marked(tree, {local, *(c for c in chains if c.startswith(local + separator))})


def show_structure(self: Any) -> None:
    """Show this module and those below it, by name and class."""
    ensure_built(self)
    modules, levels = plan_of(self).modules, depths(self)
    if not modules:
        _print_about(self, " has no submodules.")
        return
    print(printable(type(self).__name__))
    for child, location in modules.items():
        name = step_name(location.owner or self, child)
        print("    " * levels[child] + printable(f"{name}: {type(child).__name__}"))


def show_submod_call_order(self: Any) -> None:
    """Show the order of the calls in the last tracked call."""
    order = self.submod_call_order
    if not order.keys():
        _print_about(self, ": no calls yet; run model(x, track_submod_call_order=True).")
        return
    show_marked(order, ())


def _print_about(module: BareModule, text: str) -> None:
    print(printable(type(module).__name__ + text))
