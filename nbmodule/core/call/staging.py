"""A function with stateful modules as a pure function of their variables: what JAX, graphs and
summaries trace.

Which variables are used is found by tracing. Whatever is called, changed or drawn meanwhile leaves
no trace: modules get back the attributes and private state that they had.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax

from nbmodule.base.trees import separated
from nbmodule.core.call.capture import capture_submodules
from nbmodule.core.call.stages import ModuleCall, Remaining, enter, inner_stages, own_name, prepare
from nbmodule.core.compiled.capture import reachable
from nbmodule.core.compiled.jit import Jit, jit
from nbmodule.core.compiled.key import take_apart
from nbmodule.core.compiled.program import Job, describe_as
from nbmodule.core.numbers import random
from nbmodule.core.recording import tracker
from nbmodule.core.recording.taps import serving
from nbmodule.core.structure.copying import unchanged
from nbmodule.core.structure.naming import joined, other_names
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import packed, variables_of
from nbmodule.core.transforms.options import Places, of_forward, taken
from nbmodule.core.variables.call_log import Log
from nbmodule.core.variables.frame import Frame, calling
from nbmodule.core.variables.variable import Variable

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

Result = TypeVar("Result")


class Staged(NamedTuple):
    """A function with its variables taken out.

    Attributes:
        whole: `whole(values, *args, **kwargs)`, pure: returns the outputs and, by name, the values
            written to variables; `args` and `kwargs` are those below.
        variables: The variables.
        values: Shape and dtype of each variable.
        args: Positional arguments, with None for the modules among them.
        kwargs: Keyword arguments, likewise.
        names: Name of each variable, `blocks.0.weight`.
        roots: Class names of the modules that it calls, other than itself.
        titles: Class name of each module by dotted path.
        aliases: The one path of a shared module, for each other path that calls may take to it.
        log: The calls of submodules, in order, where a tracker is open while `fn` is traced.
    """

    whole: Callable[..., tuple[Any, dict[str, Any]]]
    variables: list[Variable]
    values: list[jax.ShapeDtypeStruct]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: list[str]
    roots: set[str]
    titles: dict[str, str]
    aliases: dict[str, str]
    log: Log

    def of_arrays(self, is_array: Callable[[Any], bool]) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function of the values and a list of arrays, and the arrays of the call."""
        arrays, joined = separated((self.args, self.kwargs), is_array)

        def run(values: list[Any], arrays: list[Any]) -> Any:
            args, kwargs = joined(arrays)
            return self.whole(values, *args, **kwargs)

        return run, arrays


def staged(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    use: Callable[[Staged], Result],
) -> Result:
    """Return `use(staged)`, where `staged` is the function with its variables taken out.

    Modules may be the function itself, arguments, or come from the surrounding code, as for
    `nb.jit`. For each variable that the trace uses unexpectedly, `use` is called again.

    Args:
        fn: A module, or any function that JAX can trace.
        args: Positional arguments of the call; arrays may be `jax.ShapeDtypeStruct`.
        kwargs: Keyword arguments of the call.
        use: A function that traces its argument, once or not at all.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import nbmodule as nb
        >>> def names_and_shape(s):
        ...     return s.names, jax.eval_shape(s.whole, s.values, *s.args)[0].shape
        >>> staged(nb.Linear(3, 2), (jnp.ones((4, 3)),), {}, names_and_shape)
        (['bias', 'weight'], (4, 2))
    """
    while isinstance(fn, Jit):
        fn = fn.fn
    title = f"cannot trace {getattr(fn, '__name__', type(fn).__name__)}"
    call = take_apart(*taken(title, of_forward(fn), args, kwargs), Places())
    # The count of initial values that were drawn becomes an input only where a model is made.
    others = [obj for obj in reachable(fn) if not isinstance(obj, random.InitialKeyCount)]
    # A trace for a view must neither show in the user's records nor serve the user's gradients.
    with unchanged([*call.objects, *others]) as keep, tracker.untracked(), serving(None):
        captured = [obj for obj in others if not any(obj is x for x in call.objects)]
        return jit(fn).capturing(call, captured, lambda job: use(_staged(job)), keep, draws=False)[
            0
        ]


def _staged(job: Job) -> Staged:
    """Describe a function with the objects that it is known to use."""
    names: dict[Variable, str] = {}
    objects = (*job.call.objects, *job.captured)
    roots = {type(obj).__name__ for obj in objects if is_module(obj) and obj is not job.fn}
    titles: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for obj in objects:
        prefix = "" if obj is job.fn else _object_name(obj)
        if isinstance(obj, Variable):
            names.setdefault(obj, prefix)
            continue
        locations = plan_of(obj).places
        for variable in variables_of(obj):
            names.setdefault(variable, joined(prefix, locations[variable].name))
        own_titles, own_aliases = _paths(obj, prefix)
        titles, aliases = own_titles | titles, own_aliases | aliases
    values = [jax.ShapeDtypeStruct(variable.shape, variable.dtype) for variable in names]
    log = Log()
    whole = _pure_function(job, names, log)
    args, kwargs = job.call.args, job.call.kwargs
    own = list(names.values())
    return Staged(whole, list(names), values, args, kwargs, own, roots, titles, aliases, log)


def _pure_function(
    job: Job, names: dict[Variable, str], log: Log
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    fn: Any = job.fn
    is_model = is_module(fn)

    def pure(values: Sequence[Any], *args: object, **kwargs: object) -> tuple[Any, dict[str, Any]]:
        frame = Frame(zip(names, values), wall=True, guarded=True, log=log)
        job.frame = weakref.ref(frame)  # it holds traced values, which must not outlive it
        with closing(frame), frame:
            user_args, user_kwargs = job.call.filled(args, kwargs)
            if is_model:
                outputs = packed(call_without_scope(fn, user_args, user_kwargs))
            else:
                outputs = packed(fn(*user_args, **user_kwargs))
        return outputs, _written(frame, names)

    describe_as(pure, fn, ("variables",))
    return pure


def _object_name(obj: object) -> str:
    if is_module(obj):
        return own_name(obj)
    if obj is random.default or obj is random.default.state:
        return "random"
    return type(obj).__name__.lower()


def _written(frame: Frame, names: dict[Variable, str]) -> dict[str, Any]:
    """Return written values by the name of the variable; equal names are numbered."""
    result: dict[str, Any] = {}
    for variable in frame.written:
        name = names.get(variable) or type(variable).__name__.lower()
        count = sum(other == name or other.startswith(f"{name} (") for other in result)
        result[f"{name} ({count + 1})" if count else name] = frame.values[variable]
    return result


def _paths(root: CoreModule, prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the class of each module by path, and its path for each other path to it."""
    places, class_name = plan_of(root).modules.items(), type(root).__name__
    titles = {} if prefix == class_name else {prefix: class_name}  # not the same word twice
    titles |= {joined(prefix, location.name): type(m).__name__ for m, location in places}
    aliases = {joined(prefix, a): joined(prefix, b) for a, b in other_names(root).items()}
    return titles, aliases


def call_without_scope(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `module` without a name scope of its own, so that paths start below it."""
    call = ModuleCall.of(module, args, kwargs)
    if module._nbm.special:
        prepare(module, args, call.kwargs)
    stages = inner_stages(call, _enter_frame)
    return enter(call, (capture_submodules, *stages) if call.is_captured() else stages)


def _enter_frame(call: ModuleCall, stages: Remaining) -> Any:
    """Observe the call, without a scope and unseen by trackers."""
    with calling(call.module):
        return enter(call, stages)
