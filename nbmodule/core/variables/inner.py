"""The bare object of a module, and its private state.

The state is kept apart from the attributes, so that `vars(module)` is the user's own.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from nbmodule.core.variables.clock import clock, ticks
from nbmodule.core.variables.commit import set_all


class Inner:
    """The private state of one module."""

    __slots__ = (
        "args",  # positional arguments for `_build`, from the constructor
        "building",  # (args, kwargs) of the `_build` that is under way
        "built",  # whether `_build` and `_create_variables` have run
        "compiled",  # the compiled call, once asked for
        "config",  # `Config`: the constructor's choices
        # (tick of values, weakly the container `v` that was current then, the plan, the container
        # if it is small)
        "current",
        # what interventions are set to: kept, so that a compiled function takes another number as
        # an input
        "dials",
        "given",  # variables handed to the constructor, to be used instead of fresh ones
        "home",  # where the module was made inside a trace, else None
        "hooks",
        "instead",  # what an intervention returns in place of the module's return
        "kwargs",
        "parents",  # weak references to the modules that hold this one
        "plan",  # the cached walk
        "pre_hooks",
        "released",  # with store_vars=False: the variables, until `build` has handed them out
        "results",  # (submod_rets, submod_call_order) of the last call
        "returned",  # shapes of what the first call returned, as text
        "shown",  # shapes of the first call's arguments, see `asked.py`
        "slot",  # the weak name of the module in static data
        "special",  # whether a call must take the long way
        "taken",  # boxes of other modules that `_create_variables` has taken over
        "told",  # whether it was said that the model, or a part of it, has nothing to train
        "training",
        "variables",  # what `_create_variables` returned: a nested dict of boxes
        "version",  # counts changes of structure
    )

    if TYPE_CHECKING:  # what begins as None, and is something else later
        args: tuple[Any, ...]
        kwargs: dict[str, Any]
        building: Any
        compiled: Any
        config: Any
        current: Any
        given: Any
        home: Any
        instead: Any
        plan: Any
        released: Any
        results: Any
        shown: Any
        slot: Any

    def __init__(self) -> None:
        self.args, self.kwargs = (), {}
        self.built = False
        self.building = self.compiled = self.config = self.current = self.given = self.home = (
            self.instead
        ) = self.plan = self.released = self.returned = self.shown = self.slot = None
        self.dials: dict[Any, Any] = {}
        self.hooks: dict[int, Any] = {}
        self.pre_hooks: dict[int, Any] = {}
        self.parents: list[weakref.ref[Any]] = []
        self.results = (None, None)
        self.special = True
        self.told = False
        self.taken: frozenset[Any] = frozenset()
        self.training = True
        self.variables: dict[str, Any] = {}
        self.version = 0


def switch(inners: Sequence[Inner], mode: bool) -> None:
    """Set whether modules are in training mode, as one act."""
    if inners:
        objects, names = (
            (*inners, *inners),
            (*repeat("version", len(inners)), *repeat("training", len(inners))),
        )
        values = [*(inner.version + 1 for inner in inners), *repeat(mode, len(inners))]
        set_all((*objects, clock), (*names, "structure"), (*values, next(ticks)))


def of(module: Any) -> Inner:
    """Return the private state of `module`."""
    return module._nbm


class Hull:
    """What modules are made of, and what the rooms below `Module` ask of one."""

    __slots__ = ("__dict__", "__weakref__", "_nbm")

    if TYPE_CHECKING:
        _nbm: Inner
        _short_names: dict[str, str]


living_modules: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules that were constructed, so that a message can name their variables."""
