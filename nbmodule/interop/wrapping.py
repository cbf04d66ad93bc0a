"""Models of other frameworks as modules: `nb.from_flax`, `from_equinox`, `from_haiku`,
`from_keras`.

A wrapped model holds one variable for each array of the foreign one, under its path, and a `Part`
for each submodule. A call hands the variables' values to the foreign function; each submodule that
it calls passes through its part, so hooks, scopes, tracking, graphs and notes on exceptions are
those of any module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.api.module import Module
from nbmodule.base.foreign import framework_of
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.trees import nest
from nbmodule.core.call.error_notes import annotate
from nbmodule.core.call.stages import observed
from nbmodule.core.numbers import random
from nbmodule.core.structure.copying import reduced_consistently
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import EAGER, here, is_captured, now, write_all
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.interop.frameworks.function import ForeignCall, Function, Leaf, Path, Run
from nbmodule.interop.traced_calls import logged


def attribute_name(name: str) -> str:
    """Return a name that hides nothing that a module has itself, and that no path cuts in two.

    A trailing underscore is added to the names of `nb.Module`; paths leave it out, see
    `path_name`.
    """
    name = name.replace(".", "_").replace("/", "_")
    return f"{name}_" if _is_taken(name) else name


def path_name(name: str) -> str:
    """Return the name that an attribute has in paths.

    Example:
        >>> path_name(attribute_name("v")), path_name(attribute_name("v_")), path_name("bias_")
        ('v', 'v_', 'bias_')
    """
    return name[:-1] if name.endswith("_") and _is_taken(name[:-1]) else name


def _is_taken(name: str) -> bool:
    return (
        hasattr(Module, name)
        or hasattr(Module, name.rstrip("_"))
        or name.startswith(("_nbm", "__", "_wiring", "_source"))
    )


class Part(Module):
    """A submodule of a foreign model; the model around it calls it."""

    _path_name = staticmethod(path_name)

    def forward(self, *args: object, **kwargs: object) -> Any:
        raise ArgumentError(
            f"{type(self).__name__} is a part of a model of another framework and can only be "
            "called by that model. Call the whole model; `nb.track` and hooks include this part."
        )

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return reduced(self)


def reduced(part: Module) -> tuple[Any, ...]:
    """Pickle an instance of a class of `class_of`, which has no name to be imported by."""
    base = type(part).__mro__[1]
    return reduced_consistently(
        part, lambda: (_blank, (type(part).__name__, base), part.__getstate__())
    )


class TorchPart(Part):
    """A module of PyTorch, which is called by PyTorch alone."""

    _framework = "torch"


class ScopedPart(Part):
    """One that its framework gives a name scope while it is called."""

    _has_scope_already = True


class Wrapped(Part):
    """A whole foreign model as a module; made by `nb.from_flax` and its like."""

    _wiring: Wiring

    @property
    def _framework(self) -> str:
        return "torch" if self._wiring.function.framework == "torch" else ""

    def forward(self, *args: object, **kwargs: object) -> Any:
        variables = self._wiring.variables(self)
        values = {path: variable.value for path, variable in variables.items()}
        reported = functools.partial(around, self)
        call = ForeignCall(args, kwargs, reported, self.training, random.default.draw)
        outputs, new = self._wiring.function(values, call)
        changed = [path for path, value in new.items() if value is not values[path]]
        written = [variables[path] for path in changed]
        write_all(written, [variables[path].admitted(new[path]) for path in changed])
        return outputs


class Wiring:
    """The connection of a wrapped model to the foreign one, shared by copies."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.names: dict[Path, str] = {}  # of variables
        self.part_names: dict[Path, str] = {(): ""}
        self.met: set[Path] = set()  # parts whose class has been seen
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Wiring:
        copied = Wiring(self.function)
        copied.names, copied.part_names = dict(self.names), dict(self.part_names)
        copied.met = set(self.met)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_last": (None, None, None)}

    def _found(self, model: Module) -> tuple[Any, dict[Path, Any], dict[Path, Any]]:
        plan, cached = plan_of(model), self._last
        if cached[0] is not plan:
            modules = {entry.name: part for part, entry in plan.modules.items()}
            variables = {path: plan.names[name] for path, name in self.names.items()}
            parts = {
                path: modules[name] for path, name in self.part_names.items() if name in modules
            }
            cached = self._last = (plan, variables, parts)
        return cached

    def variables(self, model: Module) -> dict[Path, Any]:
        """The variables of a model by their paths in the foreign one."""
        return self._found(model)[1]

    def part_at(self, model: Module, path: Path) -> Any:
        """The part that is known at a path; the model itself at the empty one."""
        return self._found(model)[2][path] if path else model

    def part(self, model: Module, path: Path, instance: object) -> Any:
        """The part that stands for a submodule; one that was not known before joins the model."""
        class_name = type(instance).__name__
        if path not in self.part_names:
            self.attach(model, path, class_name)
        known_part = self._found(model)[2].get(path)
        if known_part is None or path in self.met:
            return known_part
        self.met.add(path)
        if type(known_part).__name__ != class_name:
            created = class_of(class_name, part_class(self.function))
            object.__setattr__(known_part, "__class__", created)
            known_part._nbm.version += 1
            clock.structure_changed()
        return known_part

    def attach(self, model: Module, path: Path, class_name: str) -> None:
        """Add a part without variables below the nearest part that is known."""
        end = next(end for end in range(len(path) - 1, -1, -1) if path[:end] in self.part_names)
        parent = model if not end else self._found(model)[2][path[:end]]
        created = class_of(class_name, part_class(self.function))()
        created._nbm.home = None
        name = attribute_name("_".join(map(str, path[end:])))
        setattr(parent, name, created)
        self.part_names[path] = f"{self.part_names[path[:end]]}.{path_name(name)}".removeprefix(".")


def around(
    model: Wrapped, path: Path, instance: object, run: Run, args: Args, kwargs: Kwargs
) -> Any:
    """The call of the model or a submodule, seen as the call of its part."""
    part = model._wiring.part(model, path, instance) if path else model
    if part is None:
        return run(*args, **kwargs)
    if now.tracker is not None and not is_captured():
        return logged(part, run, args, kwargs)
    if now.busy or here() != EAGER or part._nbm.hooks or part._nbm.pre_hooks:
        return observed(part, lambda _, *args, **kwargs: run(*args, **kwargs), args, kwargs)
    try:
        return run(*args, **kwargs)
    except Exception as error:
        annotate(error, part, args, kwargs)
        raise


# -- from the pair to a module --
def wrap(function: Function, *, copied: bool = True) -> Wrapped:
    """The module around a function and its variables.

    Args:
        function: The foreign model.
        copied: False for a module that is only inspected, and holds the very arrays. Otherwise a
            step that donates its variables must not delete arrays of the other model.
    """
    model = class_of(function.name, Wrapped)()
    model._wiring = wiring = Wiring(function)
    variables = {
        path: leaf if isinstance(leaf, Variable) else _variable(leaf, copied)
        for path, leaf in function.variables.items()
    }
    # Each part stands before those below it.
    tree = nest({path: {} for path in function.parts} | variables)
    created: dict[Path, Any] = {}

    def fill(owner: object, tree: dict[Any, Any], path: Path) -> None:
        for step, subtree in tree.items():
            setattr(owner, attribute_name(str(step)), built(subtree, (*path, step)))

    def built(subtree: object, path: Path) -> Any:
        if not isinstance(subtree, dict):
            return subtree
        if path in function.parts:
            kind = function.parts[path]
            name = kind if isinstance(kind, str) else kind.__name__
            part = created[path] = class_of(name, part_class(function))()
            fill(part, subtree, path)
            return part
        items = {step: built(x, (*path, step)) for step, x in subtree.items()}
        if items and all(isinstance(step, int) for step in items):
            return [items.get(i) for i in range(max(items) + 1)]
        return {str(step).replace(".", "_").replace("/", "_"): item for step, item in items.items()}

    fill(model, tree, ())
    plan = plan_of(model)
    wiring.names = {path: plan.places[variable].name for path, variable in variables.items()}
    names = {id(part): entry.name for part, entry in plan.modules.items()}
    known = [(path, id(part)) for path, part in created.items() if id(part) in names]
    wiring.part_names |= {path: names[number] for path, number in known}
    vars(function).pop("variables", None)  # the arrays are those of the module now
    return model.eval() if function.is_resting else model


def _variable(leaf: Leaf, copied: bool) -> Variable:
    value = jnp.copy(leaf.value) if copied else leaf.value
    return Parameter(value) if leaf.trained else Buffer(value)


def part_class(function: Function) -> type[Part]:
    """The base of the parts of a model."""
    if function.framework == "torch":
        return TorchPart
    return ScopedPart if function.scopes_its_parts else Part


@functools.cache
def class_of(name: str, base: type) -> Any:
    """The class of parts that stand for modules of a foreign class."""
    return type(Module)(name, (base,), {"__module__": base.__module__, "__doc__": base.__doc__})


def _blank(name: str, base: type) -> Any:
    class_name = class_of(name, base)
    return class_name.__new__(class_name)


# -- from each framework --
def from_equinox(
    model: object, state: object = None, *, call: Callable[..., Any] | None = None
) -> Wrapped:
    """Wrap an Equinox model as a module: floating arrays become parameters, other arrays and its
    state buffers.

    Training, tracking, graphs, displays and files work as with any module, and `to_equinox()` hands
    an Equinox model back. `eval()` calls it in inference mode.

    Args:
        model: An `eqx.Module`; it is left as it is.
        state: The `eqx.nn.State` of a model that has one; it is passed as last argument, and what
            comes back is kept.
        call: How the model is called, from `(model, *args)`. Equinox models take single examples:
            under `nb.vmap` or with `call=lambda model, x: nb.vmap(model)(x)` they take batches.

    Raises:
        MissingDependencyError: Equinox is not installed.
        ArgumentTypeError: `model` is something else.

    Example:
        >>> import equinox as eqx
        >>> model = nb.from_equinox(eqx.nn.MLP(2, 1, 8, 1, key=jax.random.key(0)))
        >>> [name for name, _ in model.named_parameters()]
        ['layers.0.bias', 'layers.0.weight', 'layers.1.bias', 'layers.1.weight']
        >>> nb.vmap(model)(jnp.ones((5, 2))).shape
        (5, 1)
    """
    from nbmodule.interop.frameworks.equinox import EquinoxFunction

    return wrap(EquinoxFunction(model, state, call))


def from_flax(
    model: object,
    variables: object = None,
    *example: object,
    rngs: tuple[str, ...] = (),
    **kwargs: object,
) -> Wrapped:
    """Wrap a Flax model, of NNX or of linen, as a module.

    Of an NNX model `nnx.Param` becomes a parameter, everything else (statistics, random streams) a
    buffer, and `eval()` calls it in inference mode. Of a linen model `params` become parameters and
    other collections buffers, which a call may change.

    Args:
        model: An `nnx.Module`, or a linen `nn.Module`; it is left as it is.
        variables: Of a linen model, what `init` gave.
        *example: Arguments of a call of a linen model, by shape: parts without variables are then
            known before the first call.
        rngs: Names of the streams that a linen model draws from, such as `('dropout',)`; keys come
            from the default stream.
        **kwargs: Keyword arguments of that call.

    Raises:
        MissingDependencyError: Flax is not installed.
        ArgumentTypeError: `model` is something else, or variables are missing.

    Example:
        >>> from flax import nnx
        >>> model = nb.from_flax(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
        >>> [name for name, _ in model.named_parameters()], model(jnp.ones((5, 2))).shape
        (['bias', 'kernel'], (5, 3))
    """
    class_name = framework_of(model)
    if class_name == "flax_nnx":
        from nbmodule.interop.frameworks.flax_nnx import NnxFunction

        if variables is not None or rngs:
            raise ArgumentTypeError(
                "nb.from_flax: an NNX model holds its variables; pass only the model."
            )
        return wrap(NnxFunction(model))
    if class_name != "flax_linen":
        raise ArgumentTypeError(
            f"nb.from_flax takes an nnx.Module or a linen nn.Module; got {type(model).__name__}."
        )
    from nbmodule.interop.frameworks.flax_linen import LinenFunction

    wrapped = wrap(LinenFunction(model, variables, rngs))
    if example or kwargs:
        meet_parts(wrapped, example, kwargs)
    return wrapped


def meet_parts(wrapped: Wrapped, args: Args, kwargs: Kwargs) -> None:
    """Find out, without computing anything, which parts a call with such arguments meets."""
    wiring = wrapped._wiring
    values = {path: variable.value for path, variable in wiring.variables(wrapped).items()}
    leaves, tree = jax.tree.flatten((args, kwargs))
    arrays = {i: x for i, x in enumerate(leaves) if hasattr(x, "shape") and hasattr(x, "dtype")}

    def meet(path: Path, instance: object, run: Run, args: Args, kwargs: Kwargs) -> Any:
        wiring.part(wrapped, path, instance)
        return run(*args, **kwargs)

    def look(arrays: dict[int, Any]) -> Any:
        filled = [arrays.get(i, leaf) for i, leaf in enumerate(leaves)]
        args, kwargs = jax.tree.unflatten(tree, filled)
        call = ForeignCall(args, kwargs, meet, True, lambda: jax.random.key(0))
        return jax.tree.leaves(wiring.function(values, call)[0])

    jax.eval_shape(look, arrays)


def from_haiku(
    transformed: object, params: Mapping[str, Any], state: object = None, *, with_rng: bool = False
) -> Wrapped:
    """Wrap what `hk.transform` gave as a module: parameters by module, state as buffers.

    Args:
        transformed: Of `hk.transform` or `hk.transform_with_state`.
        params: What its `init` gave.
        state: The second thing that `init` gave, for `hk.transform_with_state`.
        with_rng: Whether each call is given a random key, from the default stream.

    Raises:
        MissingDependencyError: Haiku is not installed.
        ArgumentTypeError: `transformed` is something else, or its state is missing.

    Example:
        >>> import haiku as hk
        >>> net = hk.transform(lambda x: hk.nets.MLP([4, 1])(x))
        >>> model = nb.from_haiku(net, net.init(jax.random.key(0), jnp.ones((1, 2))))
        >>> [name for name, _ in model.named_parameters()]
        ['mlp.linear_0.b', 'mlp.linear_0.w', 'mlp.linear_1.b', 'mlp.linear_1.w']
    """
    from nbmodule.interop.frameworks.haiku import HaikuFunction

    return wrap(HaikuFunction(transformed, params, state, with_rng))


def from_keras(model: object) -> Wrapped:
    """Wrap a built Keras model as a module; Keras must run on its JAX backend.

    Trainable variables become parameters, others (statistics, seeds) buffers. `eval()` calls it
    with `training=False`.

    Args:
        model: A `keras.Model` or `keras.Layer`; it is left as it is.

    Raises:
        MissingDependencyError: Keras is not installed.
        ArgumentError: Keras runs on another backend, or the model is not built.
    """
    from nbmodule.interop.frameworks.keras import KerasFunction

    return wrap(KerasFunction(model))
