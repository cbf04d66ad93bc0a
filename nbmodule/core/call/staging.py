"""Look at what a function computes, without running it: as a pure function of its variables and its
arguments.

Looking never changes what is looked at. What the function writes into variables stays in a frame
that is thrown away; its modules get back the attributes and private state that they had, and the
default random stream stands where it stood.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax

from nbmodule.core.call.calling import prepare
from nbmodule.core.call.capture import capture_submodules
from nbmodule.core.call.scopes import own_name, run_hooks
from nbmodule.core.call.stages import ModuleCall, Remaining, Stages, enter, stages_of, take_options
from nbmodule.core.call.variables import give_variables
from nbmodule.core.compiled.capture import reachable
from nbmodule.core.compiled.jit import Jit
from nbmodule.core.numbers import random
from nbmodule.core.recording import tracker
from nbmodule.core.recording.taps import serving
from nbmodule.core.structure.naming import other_names
from nbmodule.core.structure.restoring import unchanged
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import boxes_of, fill, packed, split
from nbmodule.core.transforms.options import of_forward, taken
from nbmodule.core.variables.frame import Frame, Missed, calling
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import TraceError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


Result = TypeVar("Result")


class Staged(NamedTuple):
    """A function with its variables taken out.

    Attributes:
        fn: `fn(values, *args, **kwargs)`, pure; `args` and `kwargs` are those below.
        whole: The same, but it gives the outputs and, by name, what the function writes into
            variables.
        values: Shape and dtype of each variable.
        args: Positional arguments, with holes for the modules among them.
        kwargs: Keyword arguments, likewise.
        names: Name of each variable, `blocks.0.weight`.
        titles: Class name of each module by dotted path.
        aliases: The one path of a shared module, for each other path that calls may take to it.
    """

    fn: Callable[..., Any]
    whole: Callable[..., tuple[Any, dict[str, Any]]]
    values: list[jax.ShapeDtypeStruct]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: list[str]
    titles: dict[str, str]
    aliases: dict[str, str]


def staged(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    use: Callable[[Staged], Result],
) -> Result:
    """Give `use` the function with its variables taken out, and give back what it returns.

    Modules may be the function itself, arguments, or come from the surrounding code. Tracing finds
    out which variables are used; with each that was not expected `use` is called again.

    Args:
        fn: A module, or any function that JAX can trace.
        args: Positional arguments of the call; arrays may be `jax.ShapeDtypeStruct`.
        kwargs: Keyword arguments of the call.
        use: A function that traces what it is given, once or not at all.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import nbmodule as nb
        >>> model = nb.Linear(3, 2)
        >>> staged(model, (jnp.ones((4, 3)),), {}, lambda s: (s.names, jax.eval_shape(s.fn, s.values, *s.args).shape))
        (['bias', 'weight'], (4, 2))
    """
    __tracebackhide__ = True
    # A compiled function is staged as the function in it.
    while isinstance(fn, Jit):
        fn = fn.fn
    args, kwargs = taken(
        f"cannot look at {getattr(fn, '__name__', type(fn).__name__)}", of_forward(fn), args, kwargs
    )
    (holed, holed_kwargs), provided = split((args, kwargs))
    cached = {id(obj) for obj in provided}
    # The count of initial values that were drawn becomes an input only where a model is made.
    found = (obj for obj in reachable(fn) if not isinstance(obj, random.MadeCount))
    objects = [*provided, *(obj for obj in found if id(obj) not in cached)]
    stage = _Stage(fn, provided, objects)
    with unchanged(objects) as keep, tracker.untracked(), serving(None):
        while True:
            created = stage.make(holed, holed_kwargs)
            try:
                return use(created)
            except Missed as missed:
                keep(stage.extend(missed))


class _Stage:
    """A function, the things among its arguments, and all things that it is known to use."""

    def __init__(self, fn: Callable[..., Any], provided: list[Any], objects: list[Any]) -> None:
        self.fn, self.given, self.things = fn, provided, objects
        self.frame: Callable[[], Frame | None] = lambda: (
            None
        )  # of the last trace, as long as somebody else holds it
        self.boxes: list[Variable] = []

    def make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Staged:
        names: dict[Variable, str] = {}
        titles: dict[str, str] = {}
        aliases: dict[str, str] = {}
        for obj in self.things:
            prefix = "" if obj is self.fn else self._name(obj)
            for box, name in _variables(obj, prefix):
                names.setdefault(box, name)
            if not isinstance(obj, Variable):
                local, others = _paths(obj, prefix)
                titles, aliases = local | titles, others | aliases
        self.boxes = list(names)
        values = [jax.ShapeDtypeStruct(box.shape, box.dtype) for box in self.boxes]
        whole = self._pure(names)
        fn = functools.wraps(whole)(lambda *a, **k: whole(*a, **k)[0])
        return Staged(fn, whole, values, args, kwargs, list(names.values()), titles, aliases)

    def _name(self, obj: object) -> str:
        if is_module(obj):
            return own_name(obj)
        if obj is random.default or obj is random.default.state:
            return "random"
        return type(obj).__name__.lower()

    def _pure(self, names: dict[Variable, str]) -> Callable[..., tuple[Any, dict[str, Any]]]:
        def pure(
            values: Sequence[Any], *args: object, **kwargs: object
        ) -> tuple[Any, dict[str, Any]]:
            __tracebackhide__ = True
            frame = Frame(zip(self.boxes, values), wall=True, guarded=True)
            self.frame = weakref.ref(
                frame
            )  # it holds traced values, which are not to outlive the trace
            with closing(frame), frame:
                filled, provided = fill((args, kwargs), self.given)
                if is_module(self.fn):
                    outputs = packed(call_without_scope(self.fn, tuple(filled), provided))
                else:
                    outputs = packed(self.fn(*filled, **provided))
            return outputs, _written(frame, names)

        pure.__name__ = (
            type(self.fn).__name__
            if is_module(self.fn)
            else getattr(self.fn, "__name__", "function")
        )
        first = inspect.Parameter("variables", inspect.Parameter.POSITIONAL_ONLY)
        try:
            parameters = list(inspect.signature(self.fn).parameters.values())
        except (TypeError, ValueError):
            parameters = [inspect.Parameter("argument", inspect.Parameter.VAR_POSITIONAL)]
        if not any(parameter.name == "variables" for parameter in parameters):
            pure.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
        return pure

    def extend(self, missed: Missed) -> Any:
        """Take what was missed along: the outermost module under way that holds it, else the box
        itself.
        """
        if missed.frame is not self.frame():
            raise missed
        if any(missed.box is box for box in self.boxes):
            raise TraceError(
                f"cannot look at {self.fn!r}: it met {missed.box.describe()} as unknown although "
                "it is an input. "
                "Nothing was changed."
            )
        holders = (
            m for m in missed.modules if m._nbm.home is None and missed.box in plan_of(m).places
        )
        obj = next(holders, missed.box)
        if not any(obj is second for second in self.things):
            self.things.append(obj)
        return obj


def _written(frame: Frame, names: dict[Variable, str]) -> dict[str, Any]:
    """What was written, by the name of the variable; of several that go by one name, the later ones
    are numbered.
    """
    result: dict[str, Any] = {}
    for box in frame.written:
        name = names.get(box) or type(box).__name__.lower()
        count = sum(cached == name or cached.startswith(f"{name} (") for cached in result)
        result[f"{name} ({count + 1})" if count else name] = frame.values[box]
    return result


def _variables(obj: Any, prefix: str) -> Iterator[tuple[Variable, str]]:
    if isinstance(obj, Variable):
        yield obj, prefix
        return
    places = plan_of(obj).places
    for box in boxes_of(obj):
        yield box, ".".join(filter(None, (prefix, places[box].name)))


def _paths(root: CoreModule, prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the class of each module by its path, and its path by each other one that calls may
    take to it.
    """
    titles = (
        {} if prefix == type(root).__name__ else {prefix: type(root).__name__}
    )  # not the same word twice
    local = {
        module: ".".join(filter(None, (prefix, location.name)))
        for module, location in plan_of(root).modules.items()
    }
    local[root] = prefix
    aliases: dict[str, str] = {}
    for module, path in local.items():
        for child, location in plan_of(module).modules.items():
            name = ".".join(filter(None, (path, location.name)))
            if name != local.get(child, name):
                aliases[name] = local[child]
            titles[local.get(child, name)] = type(child).__name__
    others = {
        ".".join(filter(None, (prefix, name))): path for name, path in other_names(root).items()
    }
    return titles, {
        name: ".".join(filter(None, (prefix, path))) for name, path in others.items()
    } | aliases


def call_without_scope(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a call of `module` that opens no name scope for itself, so that paths are those below
    it.
    """
    __tracebackhide__ = True
    options = take_options(module, kwargs)
    if module._nbm.special:
        prepare(module, args, kwargs)
    call = ModuleCall(module, type(module)._run, args, kwargs, options, options.pop("v", None))
    return enter(call, stages_of(call, _WITHOUT_SCOPE))


def _observe_without_scope(call: ModuleCall, stages: Remaining) -> Any:
    """As `observe`, without a scope and unseen by trackers."""
    __tracebackhide__ = True
    with calling(call.module):
        return enter(call, stages)


_WITHOUT_SCOPE: Stages = (
    (ModuleCall.is_captured, capture_submodules),
    (ModuleCall.has_variables, give_variables),
    (lambda call: True, _observe_without_scope),
    (ModuleCall.has_hooks, run_hooks),
)
