"""How a module comes by its variables: when it builds, what it draws, what it is given instead."""

from __future__ import annotations

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
from nbmodule.core.structure.linked import in_older_form, matched, v_of
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import now, write_all
from nbmodule.core.variables.layout import declared, spread
from nbmodule.core.variables.pending import Pending
from nbmodule.core.variables.placement import find_device, find_dtype, replicated
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, DeviceError, NotBuiltError

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

BUILD_MODES = ("on_init", "explicit", "on_call")
STATEFUL = ("stateful", "arg_stateful_idxs", "kwarg_stateful_idxs")


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
        choices = {item.name: getattr(self, item.name) for item in fields(self)}
        device = choices.pop("device")
        choices["devices"] = None
        name = f"{device.platform}:{device.id}" if isinstance(device, jax.Device) else None
        return _config_elsewhere, (name, choices)


def _config_elsewhere(device: str | None, choices: dict[str, Any]) -> Config:
    """Return the choices where they are unpickled; a device that is not there is JAX's default."""
    try:
        result = find_device(device)
    except DeviceError:
        result = None
    return Config(result, **choices)


PLAIN = Config()


def make_config(
    build_mode: str, device: Any, devices: object, dtype: DTypeLike | None, **choices: Any
) -> Config:
    """Check the constructor's choices."""
    if build_mode not in BUILD_MODES:
        raise ArgumentError(
            "build_mode must be 'on_init' (build at once), 'explicit' (when build() is called) or "
            "'on_call' (at the first "
            f"call); found {build_mode!r}. Nothing was made."
        )
    if device is not None and devices is not None:
        raise ArgumentError(
            "give device= (one device) or devices= (several, or a mesh), not both. Nothing was "
            "made."
        )
    placed = replicated(devices) if devices is not None else None
    choices |= {name: as_stateful_option(name, choices[name]) for name in STATEFUL}
    config = Config(find_device(device), placed, find_dtype(dtype), build_mode, **choices)
    return PLAIN if config == PLAIN else config


def as_stateful_option(name: str, provided: object) -> tuple[Any, ...]:
    """Check a list of things, or of their places among the arguments, whose changes belong to a
    compiled call.
    """
    if provided is None:
        return ()
    if not isinstance(provided, (list, tuple)):
        raise ArgumentTypeError(
            f"{name}= takes a list, as in {name}={'[obj]' if name == 'stateful' else '[[0]]'}; "
            f"found {type(provided).__name__}."
        )
    return (
        tuple(provided)
        if name == "stateful"
        else tuple(tuple(i) if isinstance(i, (list, tuple)) else (i,) for i in provided)
    )


# -- when --
def finish(module: Hull) -> None:
    """Finish a constructor: build now if that is the mode, and decide how calls go."""
    inner = module._nbm
    if inner.config is None:
        inner.config = PLAIN
    if not inner.built and inner.config.build_mode == "on_init":
        make(module, inner.args, inner.kwargs)
    settle(module)


def settle(module: Hull) -> None:
    """Decide whether calls of `module` may take the short way."""
    inner = module._nbm
    config = inner.config
    inner.special = bool(
        not inner.built
        or inner.hooks
        or inner.pre_hooks
        or inner.compiled is not None
        or inner.results[0] is not None
        or inner.results[1] is not None
        or inner.shown is None
        or config.dynamic_backend
        or not config.store_vars
        or config.compile_on_next_step
    )


def ensure_built(module: Any) -> None:
    """Before variables are looked at: a module that builds when it is made, and whose constructor
    still runs, builds now.
    """
    inner = module._nbm
    if inner.built or inner.building:
        return
    if inner.config is None or inner.config.build_mode == "on_init":
        if has_own_build(module):
            if inner.config is None:
                inner.config = PLAIN
            build(module)


def has_own_build(module: Any) -> bool:
    """Return True if the class says itself how it is built."""
    cls = type(module)
    return (
        cls._build is not cls._base_build or cls._create_variables is not cls._base_create_variables
    )


def build_for_call(module: Hull, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The build that a first call asks for."""
    inner = module._nbm
    if inner.built or inner.building:
        return
    config = inner.config or PLAIN
    if config.build_mode == "explicit":
        raise NotBuiltError(
            f"{type(module).__name__} is not built: it was made with build_mode='explicit'. "
            "Nothing was computed. "
            "Call its build() first, or make it with build_mode='on_init' or 'on_call'."
        )
    if config.build_mode == "on_call":
        build(module, *args, from_call=True, **kwargs)
    else:
        finish(module)


def build(
    module: Hull,
    *args: object,
    from_call: bool = False,
    device: DeviceLike | None = None,
    dtype: DTypeLike | None = None,
    dynamic_backend: bool | None = None,
    **kwargs: object,
) -> Any:
    """Make the variables; see `Module.build`."""
    inner = module._nbm
    if inner.config is None:
        inner.config = PLAIN
    if inner.config.build_mode == "on_call" and not from_call and not inner.built:
        return False
    change_config(
        inner, device=find_device(device), dtype=find_dtype(dtype), dynamic_backend=dynamic_backend
    )
    if not inner.built:
        local = inner.config.build_mode == "on_init" and not (args or kwargs)
        make(module, *((inner.args, inner.kwargs) if local else (args, kwargs)))
    settle(module)
    variables = (
        inner.released
        if not inner.config.store_vars
        else v_of(module)
        if now.frame is None
        else None
    )
    return variables if variables is not None and variables.keys() else True


def make(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run `_build` and `_create_variables`, once; while a function is being traced, with values of
    their own.
    """
    inner, cls = module._nbm, type(module)
    if (
        cls._build is cls._base_build
        and cls._create_variables is cls._base_create_variables
        and inner.given is None
    ):
        if inner.config.devices is None and inner.config.store_vars:
            inner.built = True
            return
    if now.keep is not None:
        now.keep(module)
    inner.building, before = (args, kwargs), now.outside
    now.outside = before or inner.home is None
    try:
        # A module that outlives the trace in which it is built needs real values.
        with jax.ensure_compile_time_eval():
            _build_now(module, args, kwargs)
        inner.built = True
    finally:
        inner.building, now.outside = None, before
    if not inner.config.store_vars:
        _release(module)
    inner.version += 1
    clock.structure_changed()


def change_config(inner: Any, **changes: Any) -> None:
    """Put later choices over those of the constructor; None changes nothing."""
    changes = {
        name: value
        for name, value in changes.items()
        if value is not None and value != getattr(inner.config, name)
    }
    if changes:
        inner.config = replace(inner.config, **changes)


def _build_now(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    inner, config, cls = module._nbm, module._nbm.config, type(module)
    if cls._build is not cls._base_build:
        module._build(*args, **kwargs)
    if cls._create_variables is not cls._base_create_variables:
        inner.variables = create(module)
        inner.version += 1
        clock.structure_changed()
    if config.devices is not None:
        move(plan_of(module).boxes, config.devices, None)
    if inner.given is not None:
        provided, inner.given = inner.given, None
        use_given(module, provided)


# -- what --
def create(module: Any) -> dict[str, Any]:
    """Call `_create_variables` and make boxes of what it returns; arrays of another module's `v`
    are that module's boxes.
    """
    config = module._nbm.config
    expected = {"device": config.device, "dev": config.device, "dtype": config.dtype}
    try:
        # Users write `_create_variables(self)` and `(self, device, dtype)` alike.
        names = inspect.signature(module._create_variables).parameters
    except (TypeError, ValueError):
        names = {}
    takes_all = (
        any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values()) if names else False
    )
    before = now.lent
    try:
        now.lent = []
        created = module._create_variables(
            **{
                name: value
                for name, value in expected.items()
                if name in names or (takes_all and name != "dev")
            }
        )
        if not isinstance(created, Mapping):
            raise ArgumentTypeError(
                f"{type(module).__name__}._create_variables must return a dict or a Container of "
                "arrays; it returned "
                f"{type(created).__name__}. The module has no variables yet."
            )
        lenders = [module, *now.lent]
    finally:
        now.lent = before
    # An array of another module is recognized by identity, so variables can be shared.
    lent = {
        id(box._value): box
        for lender in lenders
        for box in plan_of(lender).boxes
        if not box.is_pending
    }
    boxes = {name: _boxed(module, name, value, lent) for name, value in created.items()}
    cached = set(lent.values())
    module._nbm.taken = frozenset(box for _, box in flat(boxes) if box in cached)
    return boxes


def _boxed(module: Hull, name: str, value: Any, lent: dict[int, Variable]) -> Any:
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"{type(module).__name__}._create_variables: names must be text, found {name!r}. The "
            "module has no variables yet."
        )
    if isinstance(value, Mapping):
        return {key: _boxed(module, key, part, lent) for key, part in value.items()}
    if isinstance(value, Variable):
        box, local = value, value.is_pending and id(value) not in lent
    elif id(value) in lent:
        return lent[id(value)]
    elif isinstance(value, (jax.Array, np.ndarray, np.generic, int, float, complex)):
        box, local = Parameter(value), True
    else:
        raise ArgumentTypeError(
            f"{type(module).__name__}._create_variables: {name!r} must be an array or a nested "
            "dict of arrays; found "
            f"{type(value).__name__}. The module has no variables yet."
        )
    if local:
        move((box,), module._nbm.config.device, module._nbm.config.dtype)
    return box


def move(boxes: Sequence[Variable], location: Any, dtype: DTypeLike | None) -> None:
    """Put variables on a device or sharding, and (floating ones only) into a dtype; what is pending
    stays so.
    """
    move_each(boxes, [location] * len(boxes), dtype)


def move_each(
    boxes: Sequence[Variable], places: Sequence[Any], dtype: DTypeLike | None = None
) -> None:
    """As `move`, with a place for each variable; all of them move at the same moment."""
    pairs = list(zip(boxes, places, strict=True))
    waiting = [(box, location) for box, location in pairs if box.is_pending]
    draws = [_moved_draw(box._pending, location, _cast(box, dtype)) for box, location in waiting]
    remaining = [(box, location) for box, location in pairs if not box.is_pending]
    moved = [
        (box, box.value, _moved(box.value, location, _cast(box, dtype)))
        for box, location in remaining
    ]
    changed = [(box, new) for box, old, new in moved if new is not old]
    write_all(
        [box for box, _ in changed],
        [new for _, new in changed],
        [box for box, _ in waiting],
        draws,
        declared(boxes, places),
    )


def _cast(box: Variable, dtype: object) -> Any:
    """Return the dtype that a variable is to be cast to, if any."""
    return (
        dtype
        if dtype is not None and jnp.issubdtype(box.dtype, jnp.floating) and box.dtype != dtype
        else None
    )


def _moved_draw(old: Pending, location: Any, dtype: DTypeLike | None) -> Pending:
    draw: Any = old.draw
    if dtype is not None and draw is not None:
        drawn = draw
        draw = lambda: jnp.asarray(drawn()).astype(dtype)  # noqa: E731 - a draw has no name
    return Pending(
        draw,
        old.shape,
        dtype or old.dtype,
        location if location is not None else old.device,
        old.follows,
    )


def _moved(value: Array, location: object, dtype: DTypeLike | None) -> Any:
    if dtype is not None:
        value = value.astype(dtype)
    if location is not None:
        value = (spread if isinstance(location, jax.NamedSharding) else jax.device_put)(
            value, location
        )
    return value


def use_given(module: Hull, provided: Mapping[str, Any]) -> None:
    """Take over variables that were handed to the constructor; parts of children that are not built
    yet wait there.
    """
    plan = plan_of(module)
    remaining = dict(flat(provided))
    for child, location in plan.modules.items():
        if not child._nbm.built:
            depth = len(location.chain)
            part = {
                chain[depth:]: remaining.pop(chain)
                for chain in list(remaining)
                if chain[:depth] == location.chain
            }
            older = in_older_form(location.chain)
            part |= {
                chain[len(older) :]: remaining.pop(chain)
                for chain in list(remaining)
                if chain[: len(older)] == older != ()
            }
            if part:
                child._nbm.given = nest(part)
    config = module._nbm.config or PLAIN
    expected = {
        location.chain: box for box, location in plan.places.items() if isinstance(box, Parameter)
    }
    title = f"cannot use v= for {type(module).__name__}"
    pairs = matched(nest(expected), nest(remaining), title=title, partial=config.with_partial_v)
    write_all([box for _, box, _ in pairs], [box.admitted(array) for _, box, array in pairs])


def _release(module: Hull) -> None:
    """Keep only the shapes of the variables of a module made with store_vars=False."""
    module._nbm.released = v_of(module).cont_copy()
    plan = plan_of(module)
    for box in plan.boxes:
        if isinstance(box, Parameter):
            box.release()
    for part in (module, *plan.modules):
        part._nbm.current = None
        part._nbm.version += 1
    clock.structure_changed()
    clock.value_changed()


def is_built(module: Hull) -> bool:
    """Return True if the module and all modules below it are built."""
    ensure_built(module)
    return module._nbm.built and all(child._nbm.built for child in plan_of(module).modules)
