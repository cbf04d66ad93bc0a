"""The base of all modules: ordinary attributes that hold variables and other modules, and one call
that everything goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Self, overload

from jax.typing import DTypeLike

from nbmodule.base.format import printable_repr
from nbmodule.base.kinds import DeviceLike, as_flag
from nbmodule.base.migration import accepts_aliases, field_hint
from nbmodule.core.call.capture import empty_captured
from nbmodule.core.call.entry import ConstructorSignature, HasForward, ModuleMeta, P, R
from nbmodule.core.structure import attributes, building, copying, hooks, naming, structure
from nbmodule.core.structure import state_dict as states
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.linked import set_v, v_of
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.commit import freeze
from nbmodule.core.variables.frame import birthplace
from nbmodule.core.variables.inner import (
    BareModule,
    ModuleState,
    attributes_of,
    living_modules,
    switch,
)
from nbmodule.core.variables.placement import find_device, find_dtype
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.tree.container import Container

Named = Iterator[tuple[str, Variable]]


class CoreModule(BareModule, metaclass=ModuleMeta):
    """A model, or a part of one: attributes that hold variables and other modules, and a forward.

    Define `forward`, `_forward` or `__call__`, any one of them. Variables come from
    `_create_variables`, from attributes that hold arrays, `Parameter`s and `Buffer`s, and from
    other modules, in lists, dicts and plain objects too. `Module.__init__` may be called last,
    first or not at all.

    Args:
        *args: Positional arguments for `_build`; where that is not overridden, `(device, v)`.
        device: Where variables made here are put: text such as `cpu:0`, or a `jax.Device`.
        v: Variables to use instead of fresh ones, a Container or a dict; structure and shapes must
            match.
        build_mode: `on_init` builds at once, `explicit` when `build()` is called, `on_call` at the
            first call.
        compile_on_next_step: Compile at the next call.
        store_vars: False keeps no variables in the module: `build()` returns them and each call
            must pass `v=`.
        stateful: Objects whose changes belong to the compiled call.
        arg_stateful_idxs: Positions of such objects among the arguments, as `[[0]]`.
        kwarg_stateful_idxs: Names of such objects among the keyword arguments, as `[['cont']]`.
        fallback_to_non_compiled: Whether a call that fails compiled runs eagerly, with one
            warning.
        with_partial_v: Whether `v` may name only some of the variables.
        devices: Several devices, or a `jax.sharding.Mesh`, over which the variables are replicated.
        dtype: Dtype of floating variables made here.
        dynamic_backend: Whether variables follow JAX's default device when it has changed before a
            call.
        **kwargs: Keyword arguments for `_build`; on `CoreModule` itself, attributes to set.

    Raises:
        ArgumentError: an unknown build mode, or both `device` and `devices`.
        DeviceError: an unknown device; the message names those that exist.
        StructureError: `v` does not match.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> class Scale(nb.Module):
        ...     def __init__(self):
        ...         self.factor = nb.Parameter(2.0)
        ...
        ...     def forward(self, x):
        ...         return x * self.factor
        >>> Scale()(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """

    __slots__ = ()
    __signature__ = ConstructorSignature()
    _is_module = True
    _takes_attributes = True  # in the bases themselves, keyword arguments are attributes
    _framework = ""  # that a foreign model is of
    _short_names: dict[str, str] = {}  # short names of variables in `v`, by attribute name

    # what `ModuleMeta` puts into each class; the options of a call, such as `v=`, pass the second
    # form
    if TYPE_CHECKING:

        @overload
        def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
        @overload
        def __call__(self: HasForward[..., R], *args: Any, **kwargs: Any) -> R: ...
        @overload
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in [
            name for name, item in vars(cls).items() if type(item) is MemberDescriptorType
        ]:
            delattr(cls, name)  # a module has a dict: what its slots would hold, no walk would see
        structure.register(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        module = object.__new__(cls)
        inner = ModuleState()
        inner.home = birthplace()  # pyright: ignore[reportAttributeAccessIssue]
        inner.config = building.PLAIN  # until the constructor has its choices
        object.__setattr__(module, "_nbm", inner)
        living_modules.add(module)
        return module

    def __init__(
        self,
        *args: object,
        device: DeviceLike | None = None,
        v: Mapping[str, Any] | None = None,
        build_mode: str = "on_init",
        compile_on_next_step: bool = False,
        store_vars: bool = True,
        stateful: object = None,
        arg_stateful_idxs: object = None,
        kwarg_stateful_idxs: object = None,
        fallback_to_non_compiled: bool = False,
        with_partial_v: bool = False,
        devices: object = None,
        dtype: DTypeLike | None = None,
        dynamic_backend: bool | None = None,
        **kwargs: object,
    ) -> None:
        inner, cls = self._nbm, type(self)
        if cls._build is CoreModule._build:
            device, v = _older_form(cls, args, device, v)
            args = ()
            if kwargs and not vars(cls).get("_takes_attributes"):
                names = ", ".join(kwargs)
                raise ArgumentTypeError(
                    f"{cls.__name__} takes no keyword argument {names}: Module.__init__ knows none "
                    "of that name and there is "
                    f"no _build to take it.{field_hint(cls, kwargs)}"
                )
            for name, value in kwargs.items():
                setattr(self, name, value)
            kwargs = {}
        inner.config = building.make_config(
            build_mode,
            device,
            devices,
            dtype,
            store_vars=as_flag("store_vars", store_vars),
            with_partial_v=as_flag("with_partial_v", with_partial_v),
            dynamic_backend=as_flag("dynamic_backend", dynamic_backend or False),
            stateful=stateful,
            arg_stateful_idxs=arg_stateful_idxs,
            kwarg_stateful_idxs=kwarg_stateful_idxs,
            compile_on_next_step=as_flag("compile_on_next_step", compile_on_next_step),
            fallback_to_non_compiled=as_flag("fallback_to_non_compiled", fallback_to_non_compiled),
        )
        inner.args, inner.kwargs = args, kwargs
        if v is not None and not isinstance(v, Mapping):
            raise ArgumentTypeError(
                f"v must be a Container or a dict of arrays, got {type(v).__name__}."
            )
        inner.initial_values = v
        if inner.built and v is not None:
            inner.initial_values = None
            building.use_given(self, v)

    # -- to be overridden --
    def _build(self, *args: Any, **kwargs: Any) -> Any:
        """Create layers late; override where needed.

        Its arguments come from the constructor, `build()` or the first call.
        """

    def _create_variables(
        self, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> Mapping[str, Any]:
        """Return the variables of this very module, a dict of arrays nested as deep as one likes;
        override where needed.
        """
        return {}

    # -- building --
    build = building.build

    @property
    def built_(self) -> bool:
        """True if this module and all modules below it are built."""
        return building.is_built(self)

    @property
    def build_mode(self) -> str:
        """The time at which the module is built: `on_init`, `explicit` or `on_call`."""
        return self._nbm.config.build_mode

    # -- variables --
    @property
    def v(self) -> Container:
        """The arrays of all Parameters, as a Container that stays connected until a variable
        changes elsewhere.
        """
        ensure_built(self)
        return v_of(self)

    @v.setter
    def v(self, provided: Mapping[str, Any]) -> None:
        ensure_built(self)
        set_v(self, provided)

    __setattr__ = attributes.assign
    __delattr__ = attributes.delete

    if not TYPE_CHECKING:  # a checker would take every name for one that exists

        @property
        def __dict__(self) -> dict[str, Any]:
            """The attributes; those of a module that JAX has unflattened are made now."""
            structure.make_attributes(self)
            return attributes_of(self)

        __getattr__ = attributes.missing

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._nbm.variables})

    # -- walking --
    @accepts_aliases
    def named_parameters(self, prefix: str | None = None, recursive: bool = True) -> Named:
        """Yield names and Parameters, each once, in canonical order; `recursive=False` leaves out
        those of submodules.
        """
        return naming.named_variables(self, Parameter, prefix, recursive)

    @accepts_aliases
    def named_buffers(self, prefix: str | None = None, recursive: bool = True) -> Named:
        """Yield names and Buffers, each once, in canonical order."""
        return naming.named_variables(self, Buffer, prefix, recursive)

    @accepts_aliases
    def named_tensors(self, prefix: str | None = None, recursive: bool = True) -> Named:
        """Yield names and variables of both kinds, each once, in canonical order."""
        return naming.named_variables(self, Variable, prefix, recursive)

    @accepts_aliases
    def parameters(self, recursive: bool = True) -> Iterator[Variable]:
        """Yield the Parameters, each once."""
        return (variable for _, variable in self.named_parameters(recursive=recursive))

    @accepts_aliases
    def buffers(self, recursive: bool = True) -> Iterator[Variable]:
        """Yield the Buffers, each once."""
        return (variable for _, variable in self.named_buffers(recursive=recursive))

    @accepts_aliases
    def tensors(self, recursive: bool = True) -> Iterator[Variable]:
        """Yield the variables of both kinds, each once."""
        return (variable for _, variable in self.named_tensors(recursive=recursive))

    named_children = naming.named_children

    def children(self) -> Iterator[CoreModule]:
        """Yield modules directly below this one, each once."""
        return (child for _, child in self.named_children())

    @accepts_aliases
    def named_modules(
        self, prefix: str | None = None, with_parent: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Yield `(name, module)` of this module (under `''`) and all below it, each once.

        Args:
            prefix: Put before each name.
            with_parent: Whether to yield `(name, module, parent)`, with None for this module's.
        """
        return naming.named_modules(self, prefix, with_parent)

    def modules(self, with_parent: bool = False) -> Iterator[Any]:
        """Yield this module and all modules below it, each once; with `with_parent` as `(module,
        parent)`, with None for this module's.
        """
        return (
            entry[1:] if with_parent else entry[1]
            for entry in self.named_modules(with_parent=with_parent)
        )

    # -- changing --
    @property
    def training(self) -> bool:
        """The mode of the module, True for training; see `train` and `eval`."""
        return self._nbm.training

    @training.setter
    def training(self, mode: bool) -> None:
        if self._nbm.training != as_flag("training", mode):
            switch([self._nbm], mode)

    @accepts_aliases
    def train(self, mode: bool = True, recursive: bool = True) -> Self:
        """Set training mode here and, unless `recursive=False`, in all modules below; returns the
        module.
        """
        mode = as_flag("mode of train()", mode)
        modules = self.modules() if as_flag("recursive of train()", recursive) else (self,)
        switch([m._nbm for m in modules if m._nbm.training != mode], mode)
        return self

    def eval(self) -> Self:
        """Leave training mode, here and below; returns the module."""
        return self.train(False)

    def apply(self, fn: Callable[[CoreModule], Any], *inputs: object) -> Self:
        """Call `fn` on each module, children before their parents; returns the module."""
        if inputs or not callable(fn):
            raise ArgumentTypeError(
                f"{type(self).__name__}.apply takes one function and calls it on each module, got "
                f"{type(fn).__name__}. "
                "To call the module with other variables, write model(x, v=v)."
            )
        for module in reversed(list(self.modules())):  # a list: `fn` may change the structure
            fn(module)
        return self

    def requires_grad_(self, flag: bool = True) -> Self:
        """Freeze (False) or unfreeze (True) all Parameters; a frozen one gets no gradient.

        Returns the module.
        """
        flag = as_flag("flag of requires_grad_()", flag)
        freeze([p for p in self.parameters() if p._frozen == flag], not flag)
        return self

    @accepts_aliases
    def to(self, device_or_sharding: object = None, dtype: DTypeLike | None = None) -> Self:
        """Move all variables to a device or sharding, and the floating ones to a dtype; returns the
        module.
        """
        ensure_built(self)
        location, dtype = find_device(device_or_sharding), find_dtype(dtype)
        building.move(plan_of(self).variables, location, dtype)
        return self

    @accepts_aliases
    def register_buffer(self, name: str, value: Any) -> None:
        """Make `value` (an array or a Buffer) an attribute that is not trained; None keeps the name
        free for one.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(
                f"cannot register a buffer under {name!r}: expected an attribute name."
            )
        if hasattr(self, name) and not isinstance(attributes.own_variable(self, name), Buffer):
            raise ArgumentError(
                f"cannot register the buffer {name!r}: {type(self).__name__} has an attribute of "
                "that name."
            )
        setattr(self, name, value if value is None or isinstance(value, Buffer) else Buffer(value))

    register_forward_pre_hook = hooks.register_forward_pre_hook
    register_forward_hook = hooks.register_forward_hook

    state_dict = states.state_dict
    load_state_dict = states.load_state_dict

    # -- what the last tracked call left --
    @property
    def submod_rets(self) -> Container:
        """Returns of the submodules in the last tracked call, by path, a list for each; see
        `track_submod_rets`.
        """
        return self._nbm.results[0] if self._nbm.results[0] is not None else Container()

    @property
    def submod_call_order(self) -> Container:
        """The nested order of the calls in the last tracked call; see `track_submod_call_order`."""
        return self._nbm.results[1] if self._nbm.results[1] is not None else Container()

    # -- where am I --
    top_mod = naming.top_mod
    top_v = naming.top_v
    mod_depth = naming.mod_depth
    mod_height = naming.mod_height
    sub_mods = naming.sub_mods
    v_with_top_v_key_chains = naming.v_with_top_v_key_chains
    mod_with_top_mod_key_chain = naming.mod_with_top_mod_key_chain
    get_mod_key = naming.get_mod_key
    show_v_in_top_v = naming.show_v_in_top_v
    show_mod_in_top_mod = naming.show_mod_in_top_mod
    show_structure = naming.show_structure
    show_submod_call_order = naming.show_submod_call_order

    _empty_captured = empty_captured  # where a compiled form of the module is called

    # -- copies and text --
    def __getstate__(self) -> dict[str, Any]:
        return copying.state_of(self)

    __setstate__ = copying.restore
    __deepcopy__ = copying.deep
    __copy__ = copying.shallow

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return copying.reduced(self)

    def extra_repr(self) -> str:
        """Return the text between the parentheses of `repr`; override where arguments matter."""
        return ""

    @printable_repr
    def __repr__(self) -> str:
        return naming.describe_module(self)


def _older_form(cls: type, args: tuple[Any, ...], device: object, v: object) -> tuple[Any, Any]:
    """Return device and variables from positional arguments, the older form of the constructor."""
    if len(args) > 2 or (args and isinstance(args[0], (int, float, tuple, list))):
        raise ArgumentTypeError(
            f"{cls.__name__} takes at most two arguments by position: a device, such as 'cpu:0', "
            "then variables. There is no _build to take others, got "
            f"{', '.join(type(x).__name__ for x in args)}."
            f"{field_hint(cls, getattr(cls, '__annotations__', {}))}"
        )
    if (args and device is not None) or (len(args) > 1 and v is not None):
        raise ArgumentTypeError(
            "Module.__init__ was given device or v both by position and by name."
        )
    device, v = (*args, *(device, v)[len(args) :])
    return device, v


CoreModule._base_build = CoreModule._build  # type: ignore[attr-defined]
CoreModule._base_create_variables = CoreModule._create_variables  # type: ignore[attr-defined]
structure.register(CoreModule)
