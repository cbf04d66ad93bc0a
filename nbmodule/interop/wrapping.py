"""Models of other frameworks as modules: `nb.from_flax`, `from_equinox`, `from_haiku`,
`from_keras`.

A wrapped model holds one variable for each array of the foreign one, under its path, and a `Part`
for each submodule. A call hands the variables' values to the foreign function; each submodule that
it calls passes through its part, so hooks, scopes, tracking, graphs and notes on exceptions are
those of any module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.api.module import Module
from nbmodule.base.foreign import framework_of
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.trees import nest, separated
from nbmodule.core.call.stages import observed
from nbmodule.core.numbers import random
from nbmodule.core.structure.copying import reduced_consistently
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.frame import is_captured, now, write_all
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.graphs.reading.trace import is_array
from nbmodule.interop.frameworks.equinox import EquinoxFunction
from nbmodule.interop.frameworks.flax_linen import PARAMS, LinenFunction
from nbmodule.interop.frameworks.flax_nnx import NnxFunction
from nbmodule.interop.frameworks.function import ForeignCall, Function, Leaf, Path, Run, text_of
from nbmodule.interop.frameworks.haiku import HaikuFunction
from nbmodule.interop.frameworks.keras import KerasFunction
from nbmodule.interop.traced_calls import logged
from nbmodule.nn.containers import Sequential


def attribute_name(name: str) -> str:
    """Return a name that hides nothing that a module has itself, and that no path cuts in two.

    A trailing underscore is added to the names of `nb.Module`; paths leave it out, see
    `path_name`.
    """
    name = _key(name)
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
        or name.startswith(("_nbm", "__", "_foreign", "_source"))
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
    kind: Any = type(part)
    names = kind.__name__, kind.__mro__[1], kind._framework, kind._has_scope_already
    return reduced_consistently(part, lambda: (_blank, names, part.__getstate__()))


class Wrapped(Part):
    """A whole foreign model as a module; made by `nb.from_flax` and its like."""

    _foreign: Function

    def foreign_variables(self) -> dict[Path, Variable]:
        """The variables by their paths in the foreign model."""
        return {path: at(self, path) for path in self._foreign.paths}

    def forward(self, *args: object, **kwargs: object) -> Any:
        def around_part(path: Path, instance: object, run: Run, args: Args, kwargs: Kwargs) -> Any:
            return around(self, path, instance, run, args, kwargs) if path else run(*args, **kwargs)

        variables = self.foreign_variables()
        values = {path: variable.value for path, variable in variables.items()}
        call = ForeignCall(args, kwargs, around_part, self.training, random.default.draw)
        outputs, new = self._foreign(values, call)
        changed = [path for path, value in new.items() if value is not values[path]]
        written = [variables[path] for path in changed]
        write_all(written, [variables[path].admitted(new[path]) for path in changed])
        return outputs


def at(module: Any, path: Iterable[Any]) -> Any:
    """Return the part or variable at a path of the foreign model, None if there is none."""
    for step in path:
        try:
            if isinstance(module, Mapping):
                module = module.get(step, module.get(_key(step)))
            elif isinstance(module, (list, tuple, Sequential)):
                module = module[int(step) if str(step).isdigit() else step]
            else:
                module = getattr(module, attribute_name(str(step)))
        except (AttributeError, KeyError, IndexError):
            return None
    return module


def part_at(model: Wrapped, path: Path, class_name: str) -> Part | None:
    """Return the part for a submodule of that class; None where the user has put something else.

    One that was not known before joins the model, with the parts above it.
    """
    created = part_class(class_name, model._foreign)
    for end in range(1, len(path) + 1):
        if at(model, path[:end]) is None:
            kind = created if end == len(path) else part_class("Module", model._foreign)
            part = kind()
            part._nbm.home = None
            setattr(at(model, path[: end - 1]), attribute_name(str(path[end - 1])), part)
    part = at(model, path)
    if not isinstance(part, Part):
        return None
    if path and type(part) is not created:  # its class was guessed
        object.__setattr__(part, "__class__", created)
        part._nbm.version += 1
        clock.structure_changed()
    return part


def around(
    model: Wrapped, path: Path, instance: object, run: Run, args: Args, kwargs: Kwargs
) -> Any:
    """The call of the model or a submodule, seen as the call of its part."""
    part = part_at(model, path, type(instance).__name__)
    if part is None:
        return run(*args, **kwargs)
    if now.tracker is not None and not is_captured():
        return logged(part, run, args, kwargs)
    return observed(part, lambda _, *args, **kwargs: run(*args, **kwargs), args, kwargs)


# -- from the pair to a module --
def wrap(
    function: Function, variables: Mapping[Path, Leaf | Variable] | None = None, copied: bool = True
) -> Wrapped:
    """The module around a function and its variables.

    Args:
        function: The foreign model.
        variables: In place of the function's own.
        copied: False for a module that is only inspected, and holds the very arrays. Otherwise a
            step that donates its variables must not delete arrays of the other model.
    """
    model = part_class(function.name, function, Wrapped)()
    model._foreign = function
    given = function.variables if variables is None else variables
    known = {
        path: leaf if isinstance(leaf, Variable) else _variable(leaf, copied)
        for path, leaf in given.items()
    }
    function.paths = tuple(known)
    vars(function).pop("variables", None)  # the arrays are those of the module now

    def fill(owner: object, tree: dict[Any, Any], path: Path) -> None:
        for step, subtree in tree.items():
            setattr(owner, attribute_name(str(step)), built(subtree, (*path, step)))

    def built(subtree: object, path: Path) -> Any:
        if not isinstance(subtree, dict):
            return subtree
        if path in function.parts:
            kind = function.parts[path]
            part = part_class(getattr(kind, "__name__", kind), function)()
            fill(part, subtree, path)
            return part
        items = {step: built(x, (*path, step)) for step, x in subtree.items()}
        if items and all(isinstance(step, int) for step in items):
            return [items.get(i) for i in range(max(items) + 1)]
        return {_key(step): item for step, item in items.items()}

    # Each part stands before those below it.
    fill(model, nest({path: {} for path in function.parts} | known), ())
    for path, variable in known.items():
        if at(model, path) is not variable:
            raise ArgumentError(
                f'{function.name} has two variables that would be called "{text_of(path)}".'
            )
    return model.eval() if function.is_resting else model


def _key(step: object) -> str:
    return str(step).replace(".", "_").replace("/", "_")


def _variable(leaf: Leaf, copied: bool) -> Variable:
    value = jnp.copy(leaf.value) if copied else leaf.value
    return Parameter(value) if leaf.trained else Buffer(value)


def part_class(name: str, function: Function, base: type[Part] = Part) -> Any:
    """Return the class of parts of a model that stand for modules of a foreign class."""
    framework = "torch" if function.framework == "torch" else ""  # whose layouts differ
    return class_of(name, base, framework, function.scopes_its_parts and base is Part)


@functools.cache
def class_of(name: str, base: type, framework: str, has_scope: bool) -> Any:
    """Return a class of parts; `has_scope` if its framework gives each call a name scope."""
    attributes = {"_framework": framework, "_has_scope_already": has_scope}
    attributes |= {"__module__": base.__module__, "__doc__": base.__doc__}
    return type(Module)(name, (base,), attributes)


def _blank(*names: Any) -> Any:
    class_name = class_of(*names)
    return class_name.__new__(class_name)


# -- from each framework --
FUNCTIONS: dict[str | None, Callable[[Any], Function]] = {
    "equinox": EquinoxFunction,
    "flax_nnx": NnxFunction,
    "flax_linen": LinenFunction,
    "haiku": HaikuFunction,
    "keras": KerasFunction,
}


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
        variables: Of a linen model, the return of `init`.
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
    framework = framework_of(model)
    if framework == "flax_nnx":
        if variables is not None or rngs:
            raise ArgumentTypeError(
                "nb.from_flax: an NNX model holds its variables; pass only the model."
            )
        return wrap(NnxFunction(model))
    if framework != "flax_linen":
        raise ArgumentTypeError(
            f"nb.from_flax takes an nnx.Module or a linen nn.Module; got {type(model).__name__}."
        )
    if not isinstance(variables, Mapping) or PARAMS not in variables:
        found = type(variables).__name__
        if isinstance(variables, Mapping):
            found = f"keys {', '.join(map(str, variables))}"
        raise ArgumentTypeError(
            "nb.from_flax of a linen module takes its variables too, the return of module.init, "
            f"with 'params' in it; got {found}."
        )
    wrapped = wrap(LinenFunction(model, variables, rngs))
    if example or kwargs:
        meet_parts(wrapped, example, kwargs)
    return wrapped


def meet_parts(wrapped: Wrapped, args: Args, kwargs: Kwargs) -> None:
    """Find out, without computing anything, which parts a call with such arguments meets."""
    variables = wrapped.foreign_variables().items()
    arrays, joined = separated((args, kwargs), is_array)

    def meet(path: Path, instance: object, run: Run, args: Args, kwargs: Kwargs) -> Any:
        part_at(wrapped, path, type(instance).__name__)
        return run(*args, **kwargs)

    def look(arrays: list[Any]) -> Any:
        args, kwargs = joined(arrays)
        call = ForeignCall(args, kwargs, meet, True, lambda: jax.random.key(0))
        values = {path: variable.value for path, variable in variables}
        return jax.tree.leaves(wrapped._foreign(values, call)[0])

    jax.eval_shape(look, arrays)


def from_haiku(
    transformed: object, params: Mapping[str, Any], state: Any = None, *, with_rng: bool = False
) -> Wrapped:
    """Wrap the return of `hk.transform` as a module: parameters by module, state as buffers.

    Args:
        transformed: Of `hk.transform` or `hk.transform_with_state`.
        params: The return of its `init`.
        state: The second return of `init`, for `hk.transform_with_state`.
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
    if framework_of(transformed) != "haiku":
        raise ArgumentTypeError(
            f"nb.from_haiku takes the return of hk.transform, got {type(transformed).__name__}."
        )
    if state is None and type(transformed).__name__ == "TransformedWithState":
        raise ArgumentTypeError(
            "nb.from_haiku: a function of hk.transform_with_state has a state, the second return "
            "of its init."
        )
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
    return wrap(KerasFunction(model))
