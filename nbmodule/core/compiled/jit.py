"""`nb.jit`: JAX's own, for functions that use modules, optimizers and random streams from anywhere.

The first call traces; `call.py` has the steady state of the calls that follow.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import jax

from nbmodule.base.jax_names import is_eager
from nbmodule.core.compiled.call import (
    SLOW,
    Binding,
    Entry,
    by_shape,
    prepared_variables,
    shapes_of_arrays,
    unique_variables,
)
from nbmodule.core.compiled.call_record import call_recorded, is_recorded, recording
from nbmodule.core.compiled.capture import Guards, Search, holds, reachable, unlocated
from nbmodule.core.compiled.key import CallArguments, CallKey, call_key, cells, take_apart
from nbmodule.core.compiled.program import (
    Job,
    Program,
    TraceFacts,
    inner_program,
    modules_of,
    trace,
)
from nbmodule.core.numbers import random
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.copying import unchanged
from nbmodule.core.structure.walk import has_same_content
from nbmodule.core.transforms.carried import is_stateful, unpacked, variables_of
from nbmodule.core.transforms.options import (
    Places,
    check_function,
    check_names,
    check_passed_on,
    is_traceable,
    name_of,
    places_of,
    refusal,
    refuse_call_options,
)
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.donation import NotCached
from nbmodule.core.variables.frame import (
    Effects,
    Missed,
    apart,
    during,
    gate,
    here,
    now,
    replay,
    warn_of_constant,
)
from nbmodule.core.variables.placement import find_device
from nbmodule.core.variables.traceback import shorten, shortened
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import NbModuleError, TraceError, TracerLeakError

# Types that JAX takes as they are; its own array classes are added when they are first met, since
# they differ between versions.
PLAIN: set[type] = {int, float, bool, complex, type(None)}
# Bounds, so that a function that is called with ever new models or shapes does not grow for ever.
_MOST_ENTRIES, MOST_TRACES = 64, 16
# Each repeat captures one object more, unless the function makes new ones in each trace.
_MOST_REPEATS = 200

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Jit(Generic[P, R]):
    """A compiled function; see `jit`."""

    _is_jit = True

    def __init__(
        self,
        fn: Callable[P, R],
        donate: bool,
        options: dict[str, Any],
        static: Places,
        donated: Places,
    ) -> None:
        self.fn, self.donate, self.options = fn, donate, options
        self.static, self.donated = static, donated
        numbers, names = donated
        self._jax_options = options | {"donate_argnums": numbers, "donate_argnames": names}
        self.entries: dict[Entry, Any] = {}
        """Traces: each with a `Program` and facts, or for other transforms with a `jax.jit`."""
        self.traces: list[Entry] = []
        """The last traces, for `nb.explain_retrace`."""
        self.count = 0
        """How often it was traced."""
        self._steady: Callable[[tuple[Any, ...]], Any] | None = None
        self._steadies: dict[Any, Any] = {}
        self._epoch = -1
        self._tracked: tuple[Any, Any] = (None, None)
        """The key of a tracker, and the steady call for it."""
        self._methods: dict[int, tuple[weakref.ref[Any], Jit]] = {}
        """The compiled form of this method for each object, gone with the object."""
        functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn

    def __reduce__(self) -> Any:
        """Copy the function and nothing compiled; a global of a module is pickled by its name."""
        name, home = getattr(self, "__name__", ""), sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(home, name, None) is self:
            return name
        return Jit, (self.fn, self.donate, self.options, self.static, self.donated)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if recording.listener is not None and is_recorded():
                return call_recorded(self, args, kwargs, None if gate.open else self._steady)
            steady = self._steady
            # The gate is one attribute; to look for the tracker of this thread costs 0.3 µs.
            if steady is not None and not kwargs and not gate.open:
                outputs = steady(args)
                if outputs is not SLOW:
                    return outputs
            if kwargs:
                refuse_call_options("nb.jit", self.fn, kwargs)
            tracker = now.tracker
            if tracker is not None and now.frame is None:
                if tracker.ready is not None and not tracker.ready(self, args, kwargs):
                    with untracked():
                        return self(*args, **kwargs)
                key, steady = self._tracked
                if steady is not None and not kwargs and key == tracker.key:
                    outputs = steady(args)
                    if outputs is not SLOW:
                        return outputs
            return self._call(args, kwargs)
        except Exception as error:
            is_jax_s = isinstance(error, TypeError) and not isinstance(error, NbModuleError)
            unfit = refusal(self.fn, args, kwargs, self.static) if is_jax_s else None
            if unfit is None:
                shorten(error)
                raise
            raise unfit from None

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find or make the program, and run it."""
        cells.follow()  # here, since IPython may start after this package was imported
        call = take_apart(args, kwargs, self.static)
        disabled = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
        if now.frame is not None or disabled or not is_eager():
            return self._inside(call)
        try:
            binding = self.bound(call)
            objects = [reference() for reference in (*binding.objects, *binding.captured)]
            for module in binding.entry.called(objects):
                module._empty_captured()
            outputs = binding.run(call.args, call.kwargs)
        except NotCached:  # settings of JAX that no key holds: the program is traced for these
            binding = self.bound(call, anew=True)
            outputs = binding.run(call.args, call.kwargs)
        PLAIN.update(type(x) for x in call.arrays if isinstance(x, jax.Array))
        if not kwargs:
            self._settle_steady(binding, args)
        return outputs

    def _settle_steady(self, binding: Binding, args: tuple[Any, ...]) -> None:
        steady = binding.steady(args, PLAIN)
        if now.tracker is not None:
            self._tracked = now.tracker.key, steady
            return
        # A change of structure ends all steady calls from before.
        if self._epoch != clock.structure or len(self._steadies) > _MOST_ENTRIES:
            self._epoch, self._steadies = clock.structure, {}
        if steady is None:
            self._steady = None
            return
        self._steadies[shapes_of_arrays(args)] = steady
        # With one trace no shapes are compared: others miss the cache: `NotCached`.
        self._steady = steady if len(self._steadies) == 1 else by_shape(self._steadies)

    # -- entries --
    def _find(self, key: CallKey, objects: list[Any]) -> tuple[Entry | None, Any, list[Any]]:
        """Return the entry that fits these objects and the surroundings of the function, its
        program, and the objects that it captures.
        """
        for entry, program in self.entries.items():
            captured = entry.resolve(key, objects)
            if captured is not None:
                return entry, program, captured
        return None, None, []

    def _add(self, job: Job, program: Any, *, inside: bool = False) -> tuple[Entry, bool]:
        """Add the entry of a trace that is over: it may have given an optimizer its state.

        The second result is False if it takes the place of an equal one.
        """
        guards = Guards(Search(self.fn, job.call.objects), job.captured, self.fn)
        entry = Entry(call_key(job.call, inside=inside), job, guards)
        # Entries of earlier cells can match no call any more.
        live = [old for old in self.entries if old.cell == cells.tick]
        others = [
            old for old in live if (old.key, old.surroundings) != (entry.key, entry.surroundings)
        ]
        programs = {entry: program} | {old: self.entries[old] for old in others}
        self.entries = dict(islice(programs.items(), _MOST_ENTRIES))
        return entry, len(others) == len(live)

    # -- tracing --
    def bound(self, call: CallArguments, *, anew: bool = False) -> Binding:
        """Return what runs these arguments; it is traced if there is none, or `anew`."""
        entry, program, captured = self._find(call_key(call), call.objects)
        if entry is None or anew:
            captured = captured if entry is not None else self._seeds(call.objects)

            def run(job: Job) -> tuple[Program, TraceFacts]:
                return trace(job, self.donate, self._jax_options, anew=anew)

            with unchanged(call.objects, only_on_error=True) as keep:
                program, job = self.capturing(call, captured, run, keep)
                captured = job.captured
                entry, is_new = self._add(job, program)
            if is_new:
                self.count += 1
                self.traces = [*self.traces[1 - MOST_TRACES :], entry]
        return Binding(entry, program, call, captured)

    def capturing(
        self,
        call: CallArguments,
        captured: list[Any],
        run: Callable[[Job], T],
        keep: Callable[[Any], object],
        *,
        draws: bool = True,
    ) -> tuple[T, Job]:
        """Run `run(job)` again until all that its trace meets is captured.

        Args:
            call: The arguments.
            captured: Objects that are captured from the first.
            run: Traces a job.
            keep: Called with each captured object.
            draws: False for a view, which draws no values and changes no objects.

        Returns:
            The result of `run`, and the last job.
        """
        for _ in range(_MOST_REPEATS):
            for obj in captured:
                keep(obj)
            objects = [*call.objects, *captured]
            variables = prepared_variables(objects) if draws else unique_variables(objects)
            job = Job(self.fn, call, captured, variables)
            try:
                result = run(job)
            except Missed as missed:
                if missed.frame is not job.frame():
                    raise
                captured = self._missing(missed, job)
            else:
                more = self._uncaptured(job) if draws else None
                if more is None:
                    return result, job
                captured = more
        raise TraceError(
            f"{self!r} uses other captured objects in each trace, so it cannot be compiled."
        )

    def expected(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, inside: bool = False
    ) -> tuple[CallKey, Entry | None]:
        """Return the key of a call and the trace that it would use, for `nb.explain_retrace`."""
        call = take_apart(args, kwargs, self.static)
        key = call_key(call, inside=inside)
        return key, self._find(key, call.objects)[0]

    def _seeds(self, objects: list[Any]) -> list[Any]:
        """Return objects that a first trace will probably use: it need not begin again for each."""
        covered = {variable for obj in objects for variable in variables_of(obj)}
        result = [
            obj
            for obj in Search(self.fn, objects).seeds()
            if not any(obj is argument for argument in objects)
            and not covered.issuperset(variables_of(obj) or (None,))
        ]
        if any(_draws_from_default(obj) for obj in (*objects, *result)):
            result.append(random.default.state)
        return result

    def _with(self, job: Job, parts: Sequence[Any], missed: Missed | None = None) -> list[Any]:
        """Return the captured objects together with those that variables or modules belong to."""
        objects, captured = job.call.objects, job.captured
        search, new = Search(self.fn, objects), []
        for part in parts:
            holders = search.holding(part)
            if not holders and (missed is not None or not isinstance(part, Variable)):
                raise unlocated(self.fn, part, missed)
            # Of a module itself: what holds it may change without an effect here. A variable that
            # was only written is no input if no name leads to it.
            new += holders if isinstance(part, Variable) else holders[-1:]
        found = {id(obj): obj for obj in (*captured, *new)}
        return [obj for obj in found.values() if not any(obj is argument for argument in objects)]

    def _missing(self, missed: Missed, job: Job) -> list[Any]:
        """Return the objects to capture after a variable was read that is no input."""
        variable, captured = missed.variable, job.captured
        if any(holds(obj, variable) for obj in (*job.call.objects, *captured)):
            return list(captured)  # it was created meanwhile, as the state of an optimizer is
        if variable._home is not None:  # it belongs to the trace around this call
            return [*captured, variable]
        return self._with(job, [variable], missed)

    def _uncaptured(self, job: Job) -> list[Any] | None:
        """Return the objects to trace again with after a trace; None if it used no others."""
        if not has_same_content(_lasting(job), job.variables):
            return list(job.captured)
        ids = {id(part) for obj in (*job.call.objects, *job.captured) for part in modules_of(obj)}
        called = [m for m in job.called if id(m) not in ids and m._nbm.home is None]
        parts = (*job.unknown, *called)
        captured = self._with(job, parts) if parts else job.captured
        return captured if len(captured) > len(job.captured) else None

    # -- inside other transforms --
    def _inside(self, call: CallArguments) -> Any:
        """Call inside another transform, or in a frame: the program becomes a part of its trace."""

        def use(inner: Any, values: list[Any]) -> Any:
            # a trace holds the zeros of this very gradient
            with apart() if now.taps is not None else nullcontext():
                return inner(values, *call.args, **call.kwargs)

        (leaves, values, node), variables = self._with_inner(call, use)
        facts: TraceFacts = node.value
        outputs, records = facts.tree.unflatten(leaves)
        slots = tuple([variables[t].slot if type(t) is int else t for t in facts.targets])
        replay(Effects((slots, facts.infos), values, records))
        for variable in variables if now.frame is None else ():
            if variable._home is None:
                warn_of_constant(variable)
        return unpacked(outputs)

    def _with_inner(
        self, call: CallArguments, use: Callable[[Any, list[Any]], Any]
    ) -> tuple[Any, list[Variable]]:
        """Use the `jax.jit` for calls inside other transforms; returns result and variables."""
        entry, program, captured = self._find(call_key(call, inside=True), call.objects)
        first = captured if entry is not None else self._seeds(call.objects)
        mark = now.taps.mark() if now.taps is not None else None

        def run(job: Job) -> Any:
            if now.taps is not None:
                now.taps.rewind(mark)
            if entry is not None and job.captured is first:
                inner = program
            else:
                inner = inner_program(self.fn, self._jax_options, len(call.args))
            with during(job=job):
                # In a raw transform the values are constants; a write is refused.
                values = [
                    variable.settled() if now.frame is None else variable.value
                    for variable in job.variables
                ]
                return use(inner, values), inner

        restores = entry is None and now.frame is None
        with unchanged(call.objects, only_on_error=True) if restores else nullcontext(id) as keep:
            (result, inner), job = self.capturing(call, first, run, keep)
        # Local objects end with the trace around this call.
        is_new = entry is None or job.captured is not first
        if is_new and not any(map(_is_local, job.captured)):
            self._add(job, inner, inside=True)
        if now.frame is not None:
            called = job.called
            if entry is not None and not called:  # JAX may have had the trace: no Python has run
                called = entry.called([*call.objects, *first])
            now.frame.add_called(called)
        return result, job.variables

    # -- stages of JAX --
    @shortened
    def lower(self, *args: object, **kwargs: object) -> Any:
        """Lower for these arguments; nothing is run and no variable changes.

        The result is JAX's, of a function of the variables and the arrays among the arguments.
        """
        return self.staged(args, kwargs)[0].lower()

    @shortened
    def trace(self, *args: object, **kwargs: object) -> Any:
        """Return JAX's traced form for these arguments; nothing is run and no variable changes."""
        return self.staged(args, kwargs)[0]

    @shortened
    def eval_shape(self, *args: object, **kwargs: object) -> Any:
        """Return shapes and dtypes of the outputs; nothing is run and no variable changes."""
        leaves, _, node = self.trace(*args, **kwargs).out_info
        return unpacked(node.value.tree.unflatten(leaves)[0])

    def staged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Trace with nothing changed by it: JAX's stage, and the arguments that it takes."""
        refuse_call_options("nb.jit", self.fn, kwargs)
        try:
            with unchanged(self.reached(args, kwargs)):
                call = take_apart(args, kwargs, self.static)
                staged, variables = self._with_inner(
                    call, lambda inner, values: inner.trace(values, *call.args, **call.kwargs)
                )
                return staged, ([variable.value for variable in variables], *call.args), call.kwargs
        except TypeError as error:
            if isinstance(error, NbModuleError):
                raise
            raise refusal(self.fn, args, kwargs, self.static) or error from None

    def reached(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the stateful objects among the arguments of a call, and those it may reach."""
        leaves = jax.tree.leaves((args, kwargs), is_leaf=is_stateful)
        objects = [*filter(is_stateful, leaves), *reachable(self.fn)]
        return list({id(obj): obj for obj in objects}.values())

    def program_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the key of the program of a call, but for shapes."""
        key, entry = self.expected(args, kwargs, inside=True)
        return key, None if entry is None else entry.captured

    def compile_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Trace and compile for these arguments, and build models that build at first call."""
        call = take_apart(args, kwargs, self.static)
        self.bound(call).lowered(call).compile()

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Jit[P, R]: ...
    @overload
    def __get__(
        self: Jit[Concatenate[S, Q], T], instance: S, owner: type | None = None
    ) -> Callable[Q, T]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if is_stateful(instance) or 0 in self.static.numbers or not _is_plain(instance):
            return types.MethodType(self, instance)
        _, form = self._methods.get(id(instance), (None, None))
        if form is None:
            forms, number = self._methods, id(instance)
            form = self._without_self(instance)
            forms[number] = weakref.ref(instance, lambda _: forms.pop(number, None)), form
        return Bound(form, instance)

    def without_donation(self) -> Jit:
        """Return another compiled form of the function, which overwrites nothing."""
        return Jit(self.fn, False, self.options, self.static, Places())

    def _without_self(self, owner: object) -> Jit:
        """Return the compiled form of this function as a method of `owner`."""
        method, options = _Method(self.fn, owner), dict(self.options)
        if isinstance(options.get("in_shardings"), tuple):
            options["in_shardings"] = options["in_shardings"][1:]
        static, donated = (
            places_of(method, which, {f"{which}_argnames": places.names or None})
            for which, places in (("static", self.static), ("donate", self.donated))
        )
        return Jit(method, self.donate, options, static, donated)

    def __repr__(self) -> str:
        return f"<nb.jit of {getattr(self.fn, '__qualname__', self.fn)!s}>"


class Bound(Jit[P, R]):
    """The compiled form of a method with its object, as Python's bound methods are.

    It shares the attributes of the form, one for each object, which does not keep the object.
    """

    __slots__ = ("_owner",)

    def __init__(self, form: Jit[P, R], owner: object) -> None:
        self.__dict__ = form.__dict__
        self._owner = owner

    def __reduce__(self) -> Any:
        return getattr, (self._owner, self.fn.__name__)

    def __eq__(self, second: object) -> bool:
        return isinstance(second, Bound) and self.__dict__ is second.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)


class _Method:
    """A function with the object that it is called on.

    The object is held weakly: the function of the class keeps the compiled form, which would
    otherwise keep each trainer and its model alive.
    """

    _is_method = True

    def __init__(self, fn: Callable[..., Any], owner: object) -> None:
        functools.update_wrapper(self, fn, updated=())
        del vars(self)["__wrapped__"]
        self.__func__, self._owner = fn, weakref.ref(owner)
        self.__signature__ = inspect.signature(types.MethodType(fn, owner))

    @property
    def __self__(self) -> Any:
        return self._owner()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.__func__(self._owner(), *args, **kwargs)


def _is_plain(owner: object) -> bool:
    """Return True for an object that is no tree of arrays, not traced, and can be held weakly."""
    try:
        weakref.ref(owner)
    except TypeError:
        return False
    return jax.tree_util.all_leaves([owner]) and not is_traceable(owner)


def _is_local(obj: Any) -> bool:
    if isinstance(obj, Variable):
        return obj._home is not None
    return getattr(getattr(obj, "_nbm", None), "home", None) is not None


def _draws_from_default(obj: Any) -> bool:
    """Return True if a part of a module draws from the default stream in training."""
    return any(
        part._nbm.training and part._moved_stream is random.default
        for part in modules_of(obj)
        if hasattr(type(part), "_moved_stream")
    )


def _lasting(job: Job) -> list[Variable]:
    """Return the variables of all inputs after a trace.

    Raises:
        TracerLeakError: An input holds a variable that was created in the trace, which has ended.
    """
    trace, inputs, objects = here(), set(job.variables), [*job.call.objects, *job.captured]
    for variable in [variable for obj in objects for variable in variables_of(obj)]:
        home = variable._home
        if home is not None and home.trace != trace and variable not in inputs:
            raise TracerLeakError(
                f"{name_of(job.fn)} creates {variable.describe()} while it is traced and keeps it "
                "in an object that outlives the call. Create layers and variables outside of "
                "compiled functions, in __init__ or setup."
            )
    return prepared_variables(objects)


@overload
def jit(fn: Callable[P, R], **options: Any) -> Jit[P, R]: ...
@overload
def jit(fn: None = None, **options: Any) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    donate: bool = False,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    **options: Any,
) -> Any:
    """Compile a function that may use modules, optimizers and random streams.

    They may be arguments or come from the surrounding code: their variables become inputs and
    outputs of the compiled function. Its writes are committed when the outermost call
    succeeds; if it raises, nothing has changed. Another model, optimizer or structure (a layer
    replaced, a hook added, `eval()`) is noticed at the next call. Numbers, flags and code are read
    when the function is traced, as in `jax.jit`, and a notebook traces it again in each cell that
    calls it; what has been compiled for the same content is used again.

    Args:
        fn: The function; without it a decorator is returned.
        donate: Reuse the memory of the variables that the call overwrites. Arrays kept from before
            are deleted then.
        static_argnums: Positions of arguments that are compared by value, not traced.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of array arguments whose memory may be reused.
        donate_argnames: Names of such arguments.
        in_shardings: Shardings of the arguments.
        out_shardings: Shardings of the outputs.
        **options: Further options of `jax.jit`.

    Raises:
        TraceError: The function uses a model to which no name leads.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> count = nb.Buffer(0)
        >>> @nb.jit
        ... def tick(x):
        ...     count.value = count + 1
        ...     return x * count
        >>> tick(2), tick(2), count()
        (Array(2, dtype=int32), Array(4, dtype=int32), Array(2, dtype=int32))
    """
    options |= {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
    }
    options = {name: value for name, value in options.items() if value is not None}
    if fn is None:
        return functools.partial(jit, donate=donate, **options)
    check_function("nb.jit", fn)
    check_names("nb.jit", options)
    if isinstance(options.get("device"), str):
        options["device"] = find_device(options["device"])
    check_passed_on(options)
    static, donated = (places_of(fn, which, options) for which in ("static", "donate"))
    return Jit(fn, donate, options, static, donated)


@shortened
def eval_shape(fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Return shapes and dtypes of what `fn(*args, **kwargs)` would return; nothing is run.

    As `jax.eval_shape`, for functions with stateful objects: `fn` may be a module, a training step,
    or an `nb.jit` of one.

    Example:
        >>> import jax
        >>> import nbmodule as nb
        >>> nb.eval_shape(nb.Linear(3, 2), jax.ShapeDtypeStruct((8, 3), "float32"))
        ShapeDtypeStruct(shape=(8, 2), dtype=float32)
    """
    check_function("nb.eval_shape", fn)
    return compiled(fn).eval_shape(*args, **kwargs)


def make_jaxpr(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that returns the jaxpr of `fn` for its arguments; nothing is run.

    The inputs of the jaxpr are the variables that are used, then the arguments; its outputs are
    those of `fn`, then the new values of the variables that are written.

    Example:
        >>> import nbmodule as nb
        >>> model = nb.Module(scale=nb.Parameter(2.0))
        >>> nb.make_jaxpr(lambda x: x * model.scale)(3.0)
        { lambda ; a:f32[] b:f32[]. let
            c:f32[] = convert_element_type[new_dtype=float32 weak_type=False] b
            d:f32[] = mul c a
          in (d,) }
    """
    check_function("nb.make_jaxpr", fn)

    @functools.wraps(fn, updated=())
    @shortened
    def made(*args: object, **kwargs: object) -> Any:
        return compiled(fn).trace(*args, **kwargs).jaxpr

    return made


def compiled(fn: Callable[..., Any]) -> Jit:
    """Return `fn` itself if it is compiled, else a compiled form of it."""
    # Of a function it makes one
    return fn if isinstance(fn, Jit) else jit(fn)  # pyright: ignore[reportReturnType]
