"""The entry that every call of a module goes through, and how its class is made: which function is
the forward.

`Module.__call__` calls the forward directly where nothing else is needed. Otherwise the options are
taken out of the arguments, the module is built, and the call enters the stages that it needs:
capture of its submodules, compiled form, variables, scope and record, hooks, and the user's
forward.
"""

from __future__ import annotations

import difflib
import inspect
from abc import ABCMeta
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import jax
import jax.core
import numpy as np

from nbmodule.base.foreign import as_read_or_left, is_native
from nbmodule.base.jax_names import is_eager
from nbmodule.base.migration import is_ours
from nbmodule.core.call.capture import capture_submodules, empty_captured
from nbmodule.core.call.compiling import run_compiled
from nbmodule.core.call.stages import (
    ModuleCall,
    annotate,
    check_variables,
    has_captured,
    inner_stages,
    prepare,
)
from nbmodule.core.recording.tracker import describe
from nbmodule.core.structure import building
from nbmodule.core.structure.building import OPTIONS, STATEFUL, TRACKING
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.options import parameters_of
from nbmodule.core.variables.commit import clock, ticks
from nbmodule.core.variables.frame import EAGER, gate, here, now, warn_of_constant
from nbmodule.core.variables.traceback import shorten
from nbmodule.errors import MissingMethodError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

FORWARDS = ("__call__", "forward", "_forward")
DERIVED = ("__call__", "_run", "_own_parameters", "_call_options")
"""Attributes that `resolve_forward` derives for each class from its forwards."""
_dict_of: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
_LOOKED_AT = (jax.core.Tracer, np.ndarray)
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """For type checkers: a module whose calls take what its `forward` takes and give what that
    gives.
    """

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class ConstructorSignature:
    """The arguments of `__init__`, for `inspect.signature`, `help` and Shift+Tab, which meet
    `*args, **kwargs` before it.

    Of an object it gives those of its call: since Python 3.13 they are looked for in the dict of
    its class, see `ModuleMeta`.
    """

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is not None:
            return inspect.signature(instance.__call__)
        _, *parameters = inspect.signature(owner.__init__).parameters.values()
        return inspect.Signature(parameters)


class ModuleMeta(ABCMeta):
    """Builds a module when its whole constructor has run, and notices when a class is given another
    forward.

    It is an `ABCMeta`, so that a class of modules may be abstract. Type checkers do not see its
    `__call__`: they would take its arguments for those of each constructor.
    """

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: object
    ) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        # The entry takes the name `__call__`, so a forward of that name is kept under another.
        if "__call__" in namespace:
            type.__setattr__(cls, "_user_call", namespace["__call__"])
        if namespace.get("__hash__", cls) is None:
            type.__setattr__(cls, "__hash__", object.__hash__)
        resolve_forward(cls)

    @property
    def __dict__(cls) -> Mapping[str, Any]:  # type: ignore[override]
        """The attributes as they were written; what carries a class elsewhere (cloudpickle,
        autoreload) gets nothing derived.
        """
        return MappingProxyType(
            {name: value for name, value in _dict_of(cls).items() if name not in DERIVED}
        )

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            module = super().__call__(*args, **kwargs)
            building.finish(module)
            return module

    def __setattr__(cls, name: str, value: Any) -> None:
        if (
            name == "__hash__" and value is None
        ):  # a dataclass with `eq=True`: modules stay hashable by identity
            return
        super().__setattr__("_user_call" if name == "__call__" else name, value)
        if name in FORWARDS or name == "_user_call":
            resolve_forward(cls)
        clock.flags = clock.structure = next(ticks)


def resolve_forward(cls: Any) -> None:
    """Find the forward of a class, under any of its three names, and put the entry in front of it;
    below it too.
    """
    run = _find_forward(cls)
    type.__setattr__(cls, "_run", run)
    type.__setattr__(cls, "__call__", entry(run))
    local = OPTIONS.intersection(parameter.name for parameter in parameters_of(run))
    type.__setattr__(cls, "_own_parameters", local)
    type.__setattr__(cls, "_call_options", OPTIONS - local - {"v"})
    for child in type.__subclasses__(cls):
        resolve_forward(child)


def _find_forward(cls: type) -> Callable[..., Any]:
    for kind_ in cls.__mro__:
        attrs = vars(kind_)
        for name in FORWARDS:
            result = attrs.get(
                "_user_call" if name == "__call__" and isinstance(kind_, ModuleMeta) else name
            )
            if callable(result):
                return result
    return no_forward


def no_forward(self: object, *args: Any, **kwargs: Any) -> Any:
    """Call the module: run its forward, with hooks, tracking and the variables that are asked for.

    If forward itself has a parameter of one of these names (`v` in attention), a Container or dict
    given as `v=` is variables and anything else is forward's.

    Args:
        self: The module.
        *args: Positional arguments of forward.
        v: Variables for this call only, in every submodule; a Container or a dict.
        stateful: Objects whose changes belong to the compiled call.
        arg_stateful_idxs: Positions of such objects among the arguments, as `[[0]]`.
        kwarg_stateful_idxs: Names of such objects among the keyword arguments, as `[['cont']]`.
        track_submod_rets: Whether to keep what each submodule returns, in `submod_rets`.
        submod_depth: How many levels are tracked, counted from this module.
        submods_to_track: The modules, or their paths, that are tracked.
        track_submod_call_order: Whether to keep the order of the calls, in `submod_call_order`.
        expected_submod_rets: Returns to compare with; the first submodule that differs raises.
        replace_submod_rets: Returns to put in place of those of submodules, by path: arrays or
            functions.
        **kwargs: Keyword arguments of forward.

    Raises:
        MissingMethodError: the class defines none of `forward`, `_forward` and `__call__`.
    """
    cls = type(self)
    local = [name for base in cls.__mro__ if not is_ours(base) for name in vars(base)]
    near = (
        ["call"] if hasattr(self, "call") else difflib.get_close_matches("forward", local, 1, 0.75)
    )
    raise MissingMethodError(
        f"{cls.__name__} cannot be called: it defines none of forward, _forward and __call__. "
        f"Define one of them{f': rename its {near[0]} to forward' if near else ''}."
    )


def _with_options() -> inspect.Signature:
    """Return `(self, *args, v=None, ..., **kwargs)`, the options that every call takes."""
    local, args, kwargs = inspect.signature(no_forward).parameters.values()
    defaults = {"track_submod_rets": False, "track_submod_call_order": False}
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name))
        for name in ("v", *STATEFUL, *TRACKING)
    ]
    return inspect.Signature([local, args, *options, kwargs])


no_forward.__signature__ = _with_options()  # type: ignore[attr-defined]


def entry(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `__call__` of a class whose forward is `run`.

    With nothing asked for it is a bare method call.
    """

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # `super().forward` and `super()(x)` run inside a call that has its stages already.
        if type(self)._run is not run:  # reached through super()
            return run(self, *args, **kwargs)
        try:
            if kwargs or self._nbm.special or (gate.open and now.busy):
                return call(self, args, kwargs)
            # Traced and NumPy arguments need scopes or conversion; others take the short way.
            for x in args:
                if isinstance(x, _LOOKED_AT) and not is_native(x):
                    return call(self, args, kwargs)
        except Exception as error:
            shorten(error)
            raise
        try:
            return run(self, *args)
        except Exception as error:
            annotate(error, self, args, kwargs)
            shorten(error)
            raise

    __call__.__doc__ = run.__doc__
    __call__.__wrapped__ = run  # type: ignore[attr-defined]
    return __call__


# -- calls beyond a bare method call --
def call(module: CoreModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `module` through the stages that the call needs."""
    if any(isinstance(x, np.ndarray) for x in args):
        args = tuple(map(as_read_or_left, args))
    if kwargs:
        kwargs = {name: as_read_or_left(x) for name, x in kwargs.items()}
    this, inner = ModuleCall.of(module, args, kwargs), module._nbm
    if inner.special:
        prepare(module, args, this.kwargs)
    check_variables(this)
    if this.v is None and now.frame is None and inner.home is None and not is_eager():
        if plan_of(module).variables:
            warn_of_constant(module)
    stages = inner_stages(this)
    # Inside a transform the call is a part of that trace.
    if (inner.compiled is not None or inner.config.compile_on_next_step) and here() == EAGER:
        stages = (run_compiled, *stages)
    if this.is_captured():
        stages = (capture_submodules, *stages)
    elif has_captured(module):
        empty_captured(module)
    outputs = stages[0](this, stages[1:])
    if inner.returned is None:
        inner.returned = describe(outputs)
    return outputs
