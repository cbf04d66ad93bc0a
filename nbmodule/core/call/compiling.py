"""`model.compile()`: the calls of one module through `nb.jit`, with its variables as inputs."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.interpreter import is_of_signal
from nbmodule.base.kinds import as_flag
from nbmodule.core.call.capture import capture_submodules
from nbmodule.core.call.stages import ModuleCall, enter, inner_stages, prepare
from nbmodule.core.compiled.jit import Jit, jit
from nbmodule.core.recording.parcel import StaticLeaf
from nbmodule.core.structure.building import STATEFUL, as_stateful_option, settle
from nbmodule.core.transforms.carried import ObjectPlaceholder, is_stateful
from nbmodule.core.transforms.options import OPTIONS, check_names, of_forward, places_of, refusal
from nbmodule.core.variables.frame import current_log, during, now
from nbmodule.core.variables.traceback import shortened
from nbmodule.errors import ArgumentTypeError, NbModuleError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

_NUMBERS = (bool, int, float, complex)
# Options of `nb.jit` that count the arguments of the compiled step are not offered.
_JIT_OPTIONS = [
    name for name in OPTIONS if name not in ("donate_argnums", "donate_argnames", "in_shardings")
]
_FALLBACK = "fallback_to_non_compiled"


@jax.tree_util.register_static
class Number(ObjectPlaceholder):
    """Stands for the object of that number, of those that JAX does not know."""


class Compiled:
    """The compiled calls of one module."""

    def __init__(self, module: CoreModule, options: dict[str, Any]) -> None:
        names = (*_JIT_OPTIONS, *STATEFUL, _FALLBACK)
        check_names(f"{type(module).__name__}.compile", options, names)
        options = dict(options)
        self.static = places_of(of_forward(module), "static", options)
        self.choices: dict[str, Any] = {
            name: as_stateful_option(name, options.pop(name))
            for name in STATEFUL
            if name in options
        }
        if _FALLBACK in options:
            self.choices[_FALLBACK] = as_flag(_FALLBACK, options.pop(_FALLBACK))
        self.step: Jit = jit(_step, **options)
        self.has_warned = False

    def __call__(self, call: ModuleCall) -> Any:
        """Run the call, with all that it changes in its stateful objects."""
        outputs, objects = self._run(call, self.step)
        if not objects:
            return outputs[0]
        outputs, contents = _opened(outputs, objects)
        _set_contents(objects, contents)
        return outputs

    def lower(self, call: ModuleCall) -> None:
        """Compile for the arguments of the call; nothing is run, and no variable changes."""
        self._run(call, lambda *args: self.step.compile_for(args, {}))

    def arguments(self, call: ModuleCall) -> tuple[tuple[Any, ...], list[Any]]:
        """Return the arguments of the compiled step, and the objects that JAX does not know.

        The contents of those objects are inputs. Among the arguments each is replaced by its
        number.
        """
        stateful = stateful_objects(call)
        objects = _holders([obj for obj in stateful if not is_stateful(obj)])
        known = tuple(obj for obj in stateful if is_stateful(obj))
        args, kwargs, static = call.args, call.kwargs, self.static
        numbers = static.among(len(args))
        args = tuple(StaticLeaf(x) if i in numbers else x for i, x in enumerate(args))
        kwargs = {name: StaticLeaf(x) if name in static.names else x for name, x in kwargs.items()}
        if objects:
            args, kwargs = _numbered((args, kwargs), objects)
        return (call.module, call.v, (_contents(objects), known), args, kwargs), objects

    def _run(self, call: ModuleCall, fn: Callable[..., Any]) -> tuple[Any, list[Any]]:
        arguments, objects = self.arguments(call)
        try:
            with during(objects=objects) if objects else nullcontext():
                return fn(*arguments), objects
        except TypeError as error:
            how = f"{type(call.module).__name__}.compile({{}})"
            forward = of_forward(call.module)
            raise refusal(forward, call.args, call.kwargs, self.static, how) or error from None

    def falls_back(self, module: CoreModule, error: Exception) -> bool:
        """Return True if a call that failed compiled shall run eagerly; warn once."""
        if not module._nbm.config.fallback_to_non_compiled or is_of_signal(error):
            return False
        if not self.has_warned:
            self.has_warned = True
            reason = (str(error).splitlines() or [""])[0]
            warnings.warn(
                f"{type(module).__name__}: the compiled call failed and runs eagerly from now on "
                f"where it fails ({type(error).__name__}: {reason}).",
                stacklevel=5,
            )
        return True


def _step(
    module: Any,
    v: Mapping[str, Any],
    stateful: tuple[list[Any], tuple[Any, ...]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run the eager stages of a call; this is the function that is compiled.

    Objects that JAX does not know hold traced values meanwhile, and afterwards their former
    content: no traced value may stay in an object of the user.
    """
    objects = now.objects
    before = list(map(_shallow_copy, objects))
    args, kwargs = _opened((args, kwargs), objects)
    try:
        _set_contents(objects, _opened(stateful[0], objects))
        call = ModuleCall(module, type(module)._run, args, kwargs, v)
        outputs = enter(call, inner_stages(call))
        return _numbered(outputs, objects), _contents(objects)
    finally:
        _set_contents(objects, before)


@shortened
def compile_module(module: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
    """Compile the calls of `module`: at once if arguments are given, else at the next call."""
    for name, given, kinds, what in (
        ("args", args, (tuple, list), "positional arguments of a call as a tuple or list"),
        ("kwargs", kwargs, dict, "keyword arguments of a call as a dict"),
    ):
        if given is not None and not isinstance(given, kinds):
            raise ArgumentTypeError(
                f"compile({name}=...) takes the {what}, got {type(given).__name__}."
            )
    inner = module._nbm
    # Another `compile()` replaces the options of the first, and its programs.
    inner.compiled = compiled = Compiled(module, options)
    inner.config = replace(inner.config, **compiled.choices)
    settle(module)
    if args is None and kwargs is None:
        return module
    call = ModuleCall.of(module, tuple(args or ()), kwargs or {})
    prepare(module, call.args, call.kwargs)
    stages = (capture_submodules,) if call.is_captured() else ()
    try:
        enter(call, (*stages, lambda call, _: compiled.lower(call)))
    except Exception as error:
        if not compiled.falls_back(module, error):
            raise
    return module


def run_compiled(call: ModuleCall, stages: Any) -> Any:
    """Run the compiled call; eagerly, with one warning, if that fails and the module falls back."""
    module, inner = call.module, call.module._nbm
    if inner.compiled is None:
        inner.compiled = Compiled(module, {})
    if inner.config.compile_on_next_step:
        inner.config = replace(inner.config, compile_on_next_step=False)
        settle(module)
    log = current_log()
    mark = None if log is None else log.mark()
    try:
        return inner.compiled(call)
    except Exception as error:
        if not inner.compiled.falls_back(module, error):
            raise
        if log is not None and mark is not None:  # the eager call records its own
            log.rewind(mark)
        return enter(call, stages)


def stateful_objects(call: ModuleCall) -> tuple[Any, ...]:
    """Return the objects whose changes belong to the compiled call."""
    config, options = call.module._nbm.config, call.options
    objects = list(options.get("stateful") or config.stateful)
    sources: dict[str, Any] = {"arg_stateful_idxs": call.args, "kwarg_stateful_idxs": call.kwargs}
    for name, source in sources.items():
        for path in options.get(name) or getattr(config, name):
            steps = path if isinstance(path, (list, tuple)) else (path,)
            try:
                objects.append(functools.reduce(operator.getitem, steps, source))
            except (KeyError, IndexError, TypeError) as error:
                raise NbModuleError(
                    f"{name}=[{list(steps)!r}] names no argument of this call "
                    f"({type(error).__name__}: {error})."
                ) from error
    return tuple(objects)


# Stateful objects that JAX does not know: dicts, Containers, lists, plain objects
def _holders(objects: list[Any]) -> list[Any]:
    """Return the objects and the dicts within them, each once: all stay the objects they are."""
    found: dict[int, Any] = {}
    waiting = list(objects)
    for obj in waiting:  # grows
        if id(obj) not in found:
            found[id(obj)] = obj
            content = _shallow_copy(obj)
            items = content.values() if isinstance(content, dict) else content
            waiting += [item for item in items if isinstance(item, Mapping)]
    return list(found.values())


def _shallow_copy(obj: object) -> Any:
    """Return the content of an object in a dict or list of its own."""
    if isinstance(obj, list):
        return list(obj)
    return dict(obj if isinstance(obj, Mapping) else vars(obj))


def _numbered(tree: object, objects: Sequence[Any]) -> Any:
    """Return a tree with numbers in place of these objects."""
    numbers = {id(obj): Number(i) for i, obj in enumerate(objects)}
    return jax.tree.map(
        lambda leaf: numbers.get(id(leaf), leaf),
        tree,
        is_leaf=lambda x: is_stateful(x) or id(x) in numbers,
    )


def _contents(objects: Sequence[Any]) -> list[Any]:
    """Return the contents as JAX takes them: arrays and numbers are values, all else is static."""

    def leaf(x: Any) -> Any:
        is_value = isinstance(x, _NUMBERS) or (hasattr(x, "shape") and not is_stateful(x))
        return x if is_value else StaticLeaf(x)

    contents = _numbered(list(map(_shallow_copy, objects)), objects)
    return jax.tree.map(leaf, contents, is_leaf=is_stateful)


def _opened(tree: object, objects: Sequence[Any]) -> Any:
    """Return a tree with the objects in place of their numbers, and static leaves by value."""

    def leaf(x: Any) -> Any:
        if type(x) is Number:
            return objects[x.number]
        return x.value if isinstance(x, StaticLeaf) else x

    return jax.tree.map(
        leaf, tree, is_leaf=lambda x: is_stateful(x) or isinstance(x, (Number, StaticLeaf))
    )


def _set_contents(objects: Sequence[Any], contents: Sequence[Any]) -> None:
    for obj, content in zip(objects, contents, strict=True):
        if isinstance(obj, list):
            obj[:] = content
            continue
        current: Any = obj if isinstance(obj, Mapping) else vars(obj)
        for key in current.keys() - content.keys():
            del current[key]
        for key, value in content.items():
            if key not in current or current[key] is not value:
                current[key] = value
