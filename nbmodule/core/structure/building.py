"""Build a module: when, with which new variables, and with which given ones."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from nbmodule.base.kinds import DeviceLike
from nbmodule.base.trees import flat, nest
from nbmodule.core.structure.linked import matched, v_of, write_pairs
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.commit import Pending, clock, ticks
from nbmodule.core.variables.frame import during, now, write_all
from nbmodule.core.variables.placement import declared, find_device, find_dtype, replicated, spread
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, DeviceError, NotBuiltError

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule

BUILD_MODES = ("on_init", "explicit", "on_call")
# Options that every call of a module takes, before those of its forward.
STATEFUL = ("stateful", "arg_stateful_idxs", "kwarg_stateful_idxs")
TRACKING = (
    *("track_submod_rets", "submod_depth", "submods_to_track", "track_submod_call_order"),
    *("expected_submod_rets", "replace_submod_rets"),
)
OPTIONS = frozenset(("v", *TRACKING, *STATEFUL))


@dataclass(frozen=True)
class Config:
    """The constructor's choices; what is not a variable."""

    device: Any = None
    devices: Any = None
    dtype: Any = None
    build_mode: str = "on_init"
    store_vars: bool = True
    with_partial_v: bool = False
    dynamic_backend: bool = False
    stateful: tuple[Any, ...] = ()
    arg_stateful_idxs: tuple[Any, ...] = ()
    kwarg_stateful_idxs: tuple[Any, ...] = ()
    compile_on_next_step: bool = False
    fallback_to_non_compiled: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Config:
        return replace(self, stateful=deepcopy(self.stateful, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        """Devices cannot be pickled: one goes by its name, and where variables were spread they are
        not again.
        """
        device = self.device
        name = f"{device.platform}:{device.id}" if isinstance(device, jax.Device) else None
        return _config_elsewhere, (name, [getattr(self, item.name) for item in fields(self)[2:]])


def _config_elsewhere(device: str | None, choices: list[Any]) -> Config:
    """Return the choices where they are unpickled; an absent device becomes JAX's default."""
    try:
        return Config(find_device(device), None, *choices)
    except DeviceError:
        return Config(None, None, *choices)


PLAIN = Config()


def make_config(
    build_mode: str, device: Any, devices: object, dtype: DTypeLike | None, **choices: Any
) -> Config:
    """Check the constructor's choices."""
    if build_mode not in BUILD_MODES:
        raise ArgumentError(
            "build_mode must be 'on_init' (build at once), 'explicit' (when build() is called) or "
            f"'on_call' (at the first call), got {build_mode!r}."
        )
    if device is not None and devices is not None:
        raise ArgumentError("give either device= (one) or devices= (several, or a mesh).")
    sharding = replicated(devices) if devices is not None else None
    choices |= {name: as_stateful_option(name, choices[name]) for name in STATEFUL}
    config = Config(find_device(device), sharding, find_dtype(dtype), build_mode, **choices)
    return PLAIN if config == PLAIN else config


def as_stateful_option(name: str, provided: object) -> tuple[Any, ...]:
    """Check a list of stateful objects, or of their positions among the arguments."""
    if provided is None:
        return ()
    if not isinstance(provided, (list, tuple)):
        example = "[obj]" if name == "stateful" else "[[0]]"
        raise ArgumentTypeError(
            f"{name}= takes a list, as in {name}={example}, got {type(provided).__name__}."
        )
    if name == "stateful":
        return tuple(provided)
    return tuple(tuple(i) if isinstance(i, (list, tuple)) else (i,) for i in provided)


# When
def finish(module: BareModule) -> None:
    """Finish a constructor: build now if that is the mode, and decide how calls go."""
    inner = module._nbm
    if not inner.built and inner.config.build_mode == "on_init":
        make(module, inner.args, inner.kwargs)
    settle(module)


def settle(module: BareModule) -> None:
    """Decide whether calls of `module` may go directly to its forward."""
    inner = module._nbm
    config = inner.config
    is_tracked = any(result is not None for result in inner.results)
    has_extras = inner.hooks or inner.pre_hooks or inner.compiled is not None
    must_act = config.dynamic_backend or config.compile_on_next_step or not config.store_vars
    is_new = not inner.built or inner.first_arguments is None
    inner.special = bool(is_new or is_tracked or has_extras or must_act)


def ensure_built(module: Any) -> None:
    """Before variables are read, build a module whose constructor still runs."""
    inner = module._nbm
    # While it builds, a module may read its own variables.
    if inner.built or inner.building or not has_own_build(module):
        return
    if inner.config.build_mode == "on_init":
        build(module)


def has_own_build(module: Any) -> bool:
    """Return True if the class defines how it is built."""
    cls = type(module)
    return (
        cls._build is not cls._base_build or cls._create_variables is not cls._base_create_variables
    )


def build_for_call(module: BareModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Build at a first call."""
    inner = module._nbm
    if inner.built or inner.building:
        return
    if inner.config.build_mode == "explicit":
        raise NotBuiltError(
            f"{type(module).__name__} is not built: it was made with build_mode='explicit'. "
            "Call its build() first, or make it with build_mode='on_init' or 'on_call'."
        )
    if inner.config.build_mode == "on_call":
        build(module, *args, from_call=True, **kwargs)
    else:
        finish(module)


def build(
    self: Any,
    *args: object,
    from_call: bool = False,
    device: DeviceLike | None = None,
    dtype: DTypeLike | None = None,
    dynamic_backend: bool | None = None,
    **kwargs: object,
) -> Any:
    """Make the variables now; returns `v` when there are variables, else True.

    An `on_call` module that has not been called stays unbuilt and False is returned: its shapes
    are not known yet.

    Args:
        self: The module.
        *args: Handed to `_build`.
        from_call: Whether this is the first call of an `on_call` module.
        device: Device for the variables, instead of the constructor's.
        dtype: Dtype for the variables, instead of the constructor's.
        dynamic_backend: Whether variables follow JAX's default device.
        **kwargs: Handed to `_build`.
    """
    inner = self._nbm
    if inner.config.build_mode == "on_call" and not from_call and not inner.built:
        return False
    changes = {"device": find_device(device), "dtype": find_dtype(dtype)}
    changes["dynamic_backend"] = dynamic_backend
    changes = {name: value for name, value in changes.items() if value is not None}
    inner.config = replace(inner.config, **changes)
    if not inner.built:
        if inner.config.build_mode == "on_init" and not (args or kwargs):
            args, kwargs = inner.args, inner.kwargs
        make(self, args, kwargs)
    settle(self)
    variables = inner.released
    if inner.config.store_vars and now.frame is None:
        variables = v_of(self)
    return variables if variables else True


def make(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run `_build` and `_create_variables` once; while a function is traced, with real values."""
    inner, config, cls = module._nbm, module._nbm.config, type(module)
    is_plain = config.devices is None and config.store_vars
    if is_plain and inner.initial_values is None and not has_own_build(module):
        inner.built = True
        return
    if now.keep is not None:
        now.keep(module)
    inner.building = args, kwargs
    try:
        # A module that outlives the trace in which it is built needs real values.
        outlives = now.outside or inner.home is None
        with during(outside=outlives), jax.ensure_compile_time_eval():
            if cls._build is not cls._base_build:
                module._build(*args, **kwargs)
            if cls._create_variables is not cls._base_create_variables:
                inner.variables = create(module)
                inner.changed()
            if config.devices is not None:
                move(plan_of(module).variables, config.devices, None)
            if inner.initial_values is not None:
                provided, inner.initial_values = inner.initial_values, None
                use_given(module, provided)
        inner.built = True
    finally:
        inner.building = None
    if not config.store_vars:
        _release(module)
    inner.changed()


# What
def create(module: Any) -> dict[str, Any]:
    """Return variables for what `_create_variables` returns.

    Arrays of another module's `v` are recognized by identity: their variables are shared.
    """
    config = module._nbm.config
    options = {"device": config.device, "dev": config.device, "dtype": config.dtype}
    # Users write `_create_variables(self)` and `(self, device, dtype)` alike.
    parameters = inspect.signature(module._create_variables).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    names = {"device", "dtype"} if inspect.Parameter.VAR_KEYWORD in kinds else set(parameters)
    lenders = [module]
    with during(lent=lenders):
        created = module._create_variables(**{n: x for n, x in options.items() if n in names})
    if not isinstance(created, Mapping):
        raise ArgumentTypeError(
            f"{type(module).__name__}._create_variables must return a dict or a Container of "
            f"arrays, got {type(created).__name__}."
        )
    lent = {
        id(variable._value): variable
        for lender in lenders
        for variable in plan_of(lender).variables
        if not variable.is_pending
    }
    variables = {name: _variable_for(module, name, x, lent) for name, x in created.items()}
    shared = set(lent.values())
    module._nbm.borrowed = frozenset(
        variable for _, variable in flat(variables) if variable in shared
    )
    return variables


def _variable_for(module: BareModule, name: str, value: Any, lent: dict[int, Variable]) -> Any:
    title = f"{type(module).__name__}._create_variables:"
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{title} names must be text, got {name!r}.")
    if isinstance(value, Mapping):
        return {key: _variable_for(module, key, part, lent) for key, part in value.items()}
    if id(value) in lent and not isinstance(value, Variable):
        return lent[id(value)]
    if isinstance(value, Variable):
        variable, is_new = value, value.is_pending and id(value) not in lent
    elif isinstance(value, (jax.Array, np.ndarray, np.generic, int, float, complex)):
        variable, is_new = Parameter(value), True
    else:
        raise ArgumentTypeError(
            f"{title} {name!r} must be an array or a nested dict of arrays, got "
            f"{type(value).__name__}."
        )
    if is_new:
        move((variable,), module._nbm.config.device, module._nbm.config.dtype)
    return variable


def move(variables: Sequence[Variable], location: Any, dtype: DTypeLike | None) -> None:
    """Move variables to a device or sharding, and cast floating ones; pending draws stay
    pending.
    """
    move_each(variables, [location] * len(variables), dtype)


def move_each(
    variables: Sequence[Variable], locations: Sequence[Any], dtype: DTypeLike | None = None
) -> None:
    """Move each variable to its location, all as one act; see `move`."""
    calls, moved, values = declared(variables, locations), [], []
    for variable, location in zip(variables, locations, strict=True):
        is_cast = jnp.issubdtype(variable.dtype, jnp.floating) and dtype != variable.dtype
        new_dtype = dtype if is_cast else None
        if variable.is_pending:
            draw = _moved_draw(variable._pending, location, new_dtype)
            calls.append((setattr, variable, "_pending", draw))
            continue
        value = _moved(variable.value, location, new_dtype)
        if value is not variable.value:
            moved.append(variable)
            values.append(value)
    write_all(moved, values, calls)


def _moved_draw(old: Pending, location: Any, dtype: DTypeLike | None) -> Pending:
    draw = old.draw
    if dtype is not None and draw is not None:
        draw = functools.partial(lambda draw: jnp.asarray(draw()).astype(dtype), draw)
    device = old.device if location is None else location
    return replace(old, draw=draw, dtype=dtype or old.dtype, device=device)


def _moved(value: Array, location: object, dtype: DTypeLike | None) -> Any:
    if dtype is not None:
        value = value.astype(dtype)
    if location is None:
        return value
    put = spread if isinstance(location, jax.NamedSharding) else jax.device_put
    return put(value, location)


def use_given(module: BareModule, provided: Mapping[str, Any]) -> None:
    """Set variables that were given to the constructor; parts of unbuilt children wait there."""
    plan = plan_of(module)
    remaining = dict(flat(provided))
    for child, location in plan.modules.items():
        if child._nbm.built:
            continue
        depth = len(location.chain)
        chains = [chain for chain in remaining if chain[:depth] == location.chain]
        if chains:
            child._nbm.initial_values = nest(
                {chain[depth:]: remaining.pop(chain) for chain in chains}
            )
    title = f"cannot use v= for {type(module).__name__}"
    partial = module._nbm.config.with_partial_v
    pairs = matched(plan.template, nest(remaining), title=title, partial=partial)
    write_pairs(pairs, narrow=False)


def _release(module: BareModule) -> None:
    """Keep only the shapes of the variables of a module made with store_vars=False."""
    # A copy: the container itself would set variables that have no value any more.
    module._nbm.released = v_of(module).cont_copy()
    plan = plan_of(module)
    for variable in plan.variables:
        if isinstance(variable, Parameter):
            variable.release()
    for part in (module, *plan.modules):
        part._nbm.current = None
        part._nbm.changed()
    clock.values = next(ticks)


def is_built(module: BareModule) -> bool:
    """Return True if the module and all modules below it are built."""
    ensure_built(module)
    return module._nbm.built and all(child._nbm.built for child in plan_of(module).modules)
