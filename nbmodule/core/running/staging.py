"""Look at what a function computes, without running it: as a pure function of its variables and its arguments.

Looking never changes what is looked at. What the function writes into variables stays in a frame that is thrown away; its
modules get back the attributes and private state that they had, and the default random stream stands where it stood.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax

from nbmodule.core.boxes.frame import Frame, Missed, calling
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.core.recording import tracker
from nbmodule.core.recording.taps import serving
from nbmodule.core.running.calling import prepare
from nbmodule.core.running.capture import capture_submodules
from nbmodule.core.running.observing import run_hooks
from nbmodule.core.running.scopes import own_name
from nbmodule.core.running.stages import ModuleCall, Stages, Way, go_on, take_options, way_of
from nbmodule.core.running.variables import give_variables
from nbmodule.core.shape.looking import unchanged
from nbmodule.core.shape.naming import other_names
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.core.transforms.binding import boxes_of
from nbmodule.core.transforms.captured import guess
from nbmodule.core.transforms.carried import packed
from nbmodule.core.transforms.jit import Jit, split
from nbmodule.core.transforms.options import of_forward, taken
from nbmodule.core.transforms.program import fill
from nbmodule.errors import TraceError

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule


Result = TypeVar("Result")


class Staged(NamedTuple):
    """A function with its variables taken out.

    Attributes:
        fn: `fn(values, *args, **kwargs)`, pure; `args` and `kwargs` are those below.
        whole: The same, but it gives the outputs and, by name, what the function writes into variables.
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
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], use: Callable[[Staged], Result]
) -> Result:
    """Give `use` the function with its variables taken out, and give back what it returns.

    Modules may be the function itself, arguments, or come from the surrounding code. Tracing finds out which variables
    are used; with each that was not expected `use` is called again.

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
    while isinstance(fn, Jit):
        fn = fn.fn
    args, kwargs = taken(f"cannot look at {getattr(fn, '__name__', type(fn).__name__)}", of_forward(fn), args, kwargs)
    (holed, holed_kwargs), given = split((args, kwargs))
    known = {id(thing) for thing in given}
    things = [*given, *(thing for thing in guess(fn) if id(thing) not in known)]
    stage = _Stage(fn, given, things)
    with unchanged(things) as keep, tracker.untracked(), serving(None):
        while True:
            made = stage.make(holed, holed_kwargs)
            try:
                return use(made)
            except Missed as missed:
                keep(stage.extend(missed))


class _Stage:
    """A function, the things among its arguments, and all things that it is known to use."""

    def __init__(self, fn: Callable[..., Any], given: list[Any], things: list[Any]) -> None:
        self.fn, self.given, self.things = fn, given, things
        self.frame: Callable[[], Frame | None] = lambda: None  # of the last trace, as long as somebody else holds it
        self.boxes: list[Variable] = []

    def make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Staged:
        names: dict[Variable, str] = {}
        titles: dict[str, str] = {}
        aliases: dict[str, str] = {}
        for thing in self.things:
            prefix = "" if thing is self.fn else self._name(thing)
            for box, name in _variables(thing, prefix):
                names.setdefault(box, name)
            if not isinstance(thing, Variable):
                own, others = _paths(thing, prefix)
                titles, aliases = own | titles, others | aliases
        self.boxes = list(names)
        values = [jax.ShapeDtypeStruct(box.shape, box.dtype) for box in self.boxes]
        whole = self._pure(names)
        fn = functools.wraps(whole)(lambda *a, **k: whole(*a, **k)[0])
        return Staged(fn, whole, values, args, kwargs, list(names.values()), titles, aliases)

    def _name(self, thing: object) -> str:
        if is_module(thing):
            return own_name(thing)
        if thing is random.default or thing is random.default.state:
            return "random"
        return type(thing).__name__.lower()

    def _pure(self, names: dict[Variable, str]) -> Callable[..., tuple[Any, dict[str, Any]]]:
        def pure(values: Sequence[Any], *args: object, **kwargs: object) -> tuple[Any, dict[str, Any]]:
            __tracebackhide__ = True
            frame = Frame(zip(self.boxes, values), wall=True, guarded=True)
            self.frame = weakref.ref(frame)  # it holds traced values, which are not to outlive the trace
            with closing(frame), frame:
                filled, given = fill((args, kwargs), self.given)
                if is_module(self.fn):
                    outputs = packed(call_without_scope(self.fn, tuple(filled), given))
                else:
                    outputs = packed(self.fn(*filled, **given))
            return outputs, _written(frame, names)

        pure.__name__ = type(self.fn).__name__ if is_module(self.fn) else getattr(self.fn, "__name__", "function")
        first = inspect.Parameter("variables", inspect.Parameter.POSITIONAL_ONLY)
        try:
            parameters = list(inspect.signature(self.fn).parameters.values())
        except (TypeError, ValueError):
            parameters = [inspect.Parameter("argument", inspect.Parameter.VAR_POSITIONAL)]
        if not any(parameter.name == "variables" for parameter in parameters):
            pure.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
        return pure

    def extend(self, missed: Missed) -> Any:
        """Take what was missed along: the outermost module under way that holds it, else the box itself."""
        if missed.frame is not self.frame():
            raise missed
        if any(missed.box is box for box in self.boxes):
            raise TraceError(
                f"cannot look at {self.fn!r}: it met {missed.box.describe()} as unknown although it is an input. "
                "Nothing was changed."
            )
        holders = (m for m in missed.modules if m._nbm.home is None and missed.box in plan_of(m).places)
        thing = next(holders, missed.box)
        if not any(thing is other for other in self.things):
            self.things.append(thing)
        return thing


def _written(frame: Frame, names: dict[Variable, str]) -> dict[str, Any]:
    """What was written, by the name of the variable; of several that go by one name, the later ones are numbered."""
    found: dict[str, Any] = {}
    for box in frame.written:
        name = names.get(box) or type(box).__name__.lower()
        count = sum(known == name or known.startswith(f"{name} (") for known in found)
        found[f"{name} ({count + 1})" if count else name] = frame.values[box]
    return found


def _variables(thing: Any, prefix: str) -> Iterator[tuple[Variable, str]]:
    if isinstance(thing, Variable):
        yield thing, prefix
        return
    places = plan_of(thing).places
    for box in boxes_of(thing):
        yield box, ".".join(filter(None, (prefix, places[box].name)))


def _paths(root: CoreModule, prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """The class of each module by its path, and its path by each other one that calls may take to it."""
    titles = {} if prefix == type(root).__name__ else {prefix: type(root).__name__}  # not the same word twice
    own = {module: ".".join(filter(None, (prefix, place.name))) for module, place in plan_of(root).modules.items()}
    own[root] = prefix
    aliases: dict[str, str] = {}
    for module, path in own.items():
        for below, place in plan_of(module).modules.items():
            name = ".".join(filter(None, (path, place.name)))
            if name != own.get(below, name):
                aliases[name] = own[below]
            titles[own.get(below, name)] = type(below).__name__
    others = {".".join(filter(None, (prefix, name))): path for name, path in other_names(root).items()}
    return titles, {name: ".".join(filter(None, (prefix, path))) for name, path in others.items()} | aliases


def call_without_scope(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of `module` that opens no name scope for itself, so that paths are those below it."""
    __tracebackhide__ = True
    options = take_options(module, kwargs)
    if module._nbm.special:
        prepare(module, args, kwargs)
    call = ModuleCall(module, type(module)._run, args, kwargs, options, options.pop("v", None))
    return go_on(call, way_of(call, _WITHOUT_SCOPE))


def _enter(call: ModuleCall, way: Way) -> Any:
    """As `observe`, without a scope and unseen by trackers."""
    __tracebackhide__ = True
    with calling(call.module):
        return go_on(call, way)


_WITHOUT_SCOPE: Stages = (
    (ModuleCall.is_captured, capture_submodules),
    (ModuleCall.has_variables, give_variables),
    (lambda call: True, _enter),
    (ModuleCall.has_hooks, run_hooks),
)
