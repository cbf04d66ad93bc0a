"""The bare object of a module, and its private state.

The state is kept apart from the attributes, so that `vars(module)` is the user's own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nbmodule.core.variables.commit import clock, make_calls, structure_tick


@dataclass(slots=True, eq=False)
class ModuleState:
    """The private state of one module."""

    args: tuple[Any, ...] = ()  # positional arguments for `_build`, from the constructor
    building: Any = None  # (args, kwargs) of the `_build` that is running
    built: bool = False  # whether `_build` and `_create_variables` have run
    compiled: Any = None  # the compiled call, once asked for
    config: Any = None  # `Config`: the constructor's choices
    # (tick of values, weakly the container `v` then, the walk, the container if it is small)
    current: Any = None
    # values of interventions, kept so that a compiled function takes another number as an input
    dials: dict[Any, Any] = field(default_factory=dict)
    initial_values: Any = None  # passed to the constructor, in place of fresh ones
    home: Any = None  # where the module was made inside a trace, else None
    hooks: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    parents: list[weakref.ref[Any]] = field(default_factory=list)  # the modules that hold this one
    plan: Any = None  # the cached walk
    pre_hooks: list[Any] = field(default_factory=list)
    released: Any = None  # with store_vars=False: the variables, until `build` has returned them
    results: Any = (None, None)  # (submod_rets, submod_call_order) of the last call
    returned: Any = None  # shapes of the first call's return, as text
    first_arguments: Any = None  # shapes of the first call's arguments, see `stages.remember`
    slot: Any = None  # the weak name of the module in static data
    special: bool = True  # whether a call must take the slow path through the stages
    borrowed: frozenset[Any] = frozenset()  # variables of others in `_create_variables`
    is_snapshot: bool = False  # whether it was copied to be pickled
    has_warned: bool = False  # that nothing here, or in a part, is trained
    training: bool = True
    variables: dict[str, Any] = field(default_factory=dict)  # those of `_create_variables`, nested
    version: int = 0  # counts changes of structure

    def changed(self) -> None:
        """Note that the module has another attribute, mode or hook."""
        self.version += 1
        clock.structure_changed()


def switch(inners: Sequence[ModuleState], mode: bool) -> None:
    """Set whether modules are in training mode, as one act."""
    if inners:
        versions = [(setattr, inner, "version", inner.version + 1) for inner in inners]
        modes = [(setattr, inner, "training", mode) for inner in inners]
        make_calls([*versions, *modes, structure_tick()])


class BareModule:
    """The layout of modules, as the layers below `Module` know it."""

    __slots__ = ("__dict__", "__weakref__", "_nbm", "_waiting")

    if TYPE_CHECKING:
        _nbm: ModuleState
        _waiting: Any  # until the attributes are made, see `structure.rebuild`
        _short_names: dict[str, str]


attributes_of: Callable[[Any], dict[str, Any]] = vars(BareModule)["__dict__"].__get__
"""Return the attributes that a module has, without making those for which it waits."""

living_modules: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules that were constructed, so that a message can name their variables."""
