"""`nb.jit`: JAX's own, for functions that use modules, optimizers and random streams from anywhere."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import jax
import jax.core
import numpy as np

from nbmodule.base.foreign import as_read, is_native
from nbmodule.core.boxes.frame import Missed, apart, gate, now
from nbmodule.core.boxes.placement import find_device
from nbmodule.core.boxes.traceback import shorten, shortened
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.shape.looking import unchanged
from nbmodule.core.shape.structure import static_key
from nbmodule.core.transforms.ahead import Ahead, Astray
from nbmodule.core.transforms.beside import asked_of, module_of
from nbmodule.core.transforms.binding import SLOW, Binding, Made, boxes_of
from nbmodule.core.transforms.captured import guess
from nbmodule.core.transforms.carried import Packed, is_stateful, unpacked
from nbmodule.core.transforms.closure import HEAVIEST, Closure, adoptable, adopted, missing, shelf
from nbmodule.core.transforms.environment import signature_of
from nbmodule.core.transforms.explain_facts import TraceHistory
from nbmodule.core.transforms.functions import check_function
from nbmodule.core.transforms.listening import call_heard, ears, is_heard, told
from nbmodule.core.transforms.methods import Method, Methods, is_given_class, is_plain
from nbmodule.core.transforms.options import Places, check_names, check_passed_on, places_of, refusal
from nbmodule.core.transforms.program import Hole, Program
from nbmodule.errors import NbModuleError, ShapeStructureError, TraceError

_PLAIN: set[type] = {int, float, bool, complex, str, type(None)}  # JAX's own arrays join at the first call
_MOST_IDLE = (
    8  # closures whose names stand for other models now, of those that are kept for a return of the earlier ones
)
_HOLES = tuple(Hole(i) for i in range(16))

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


def split(arguments: object) -> tuple[Any, list[Any]]:
    """Arguments with holes, and the stateful things that were there, each once; arrays of NumPy as JAX reads them."""
    is_as_given = True
    leaves, tree = jax.tree.flatten(arguments, is_leaf=is_stateful)
    things: dict[int, Any] = {}
    numbers: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if is_stateful(leaf):
            number = numbers.setdefault(id(leaf), len(numbers))
            things[number] = leaf
            leaves[i] = _HOLES[number] if number < len(_HOLES) else Hole(number)
        elif isinstance(leaf, np.ndarray) and not is_native(leaf):
            leaves[i], is_as_given = as_read(leaf), False
    if not things and is_as_given:
        return arguments, []
    return jax.tree.unflatten(tree, leaves), list(things.values())


Holes = tuple[tuple[int, int], ...]


def split_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any], list[Any], Holes]:
    """As `split`; holes at the top of the arguments are None there, which costs JAX nothing, and are named apart."""
    (args, kwargs), things = split((args, kwargs))
    holes = tuple((i, arg.number) for i, arg in enumerate(args) if type(arg) is Hole)
    return tuple([None if type(arg) is Hole else arg for arg in args]), kwargs, things, holes


class Jit(Generic[P, R]):
    """A compiled function; see `jit`."""

    _is_jit = True

    def __init__(
        self, fn: Callable[P, R], donate: bool, options: dict[str, Any], static: Places, asked: dict[str, Any]
    ) -> None:
        self.fn, self.donate, self.options, self.static, self.asked = fn, donate, options, static, asked
        self.closures: dict[Any, list[Closure]] = {}
        self._kept: dict[Any, list[Program]] = {}  # that hold too much for the shelf
        self._asked = static_key(asked)
        self.history = TraceHistory()  # of traces, for `nb.explain_retrace`
        self._steady: Callable[[tuple[Any, ...]], Any] | None = None  # the last call again, at its cheapest
        self._last: tuple[Binding | None, tuple[Any, ...]] = (None, ())
        self._last_tracked: tuple[Any, tuple[Binding | None, tuple[Any, ...]]] = (
            None,
            (None, ()),
        )  # and what was asked for
        self._methods = Methods()
        functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn

    def __reduce__(self) -> Any:
        """A copy has the function and nothing compiled; what a module holds under its own name goes by that name."""
        name, home = getattr(self, "__name__", ""), sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(home, name, None) is self:
            return name
        return Jit, (self.fn, self.donate, self.options, self.static, self.asked)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            steady = self._steady
            if steady is not None and not kwargs and not gate.open:
                outputs = steady(args)
                if outputs is not SLOW:
                    return outputs if type(outputs) is not Packed else unpacked(outputs)
            if kwargs and (module := asked_of(self.fn, kwargs)) is not None:
                return module._call_beside(self, args, kwargs)
            if ears.listener is not None and is_heard():
                return call_heard(self, args, kwargs)
            tracker = now.tracker
            if (
                tracker is not None
                and tracker.ready is not None
                and now.frame is None
                and not tracker.ready(self, args, kwargs)
            ):
                with untracked():
                    return self(*args, **kwargs)
            binding, kinds = self._last if not now.busy else self._watched()
            if binding is not None and not kwargs and len(args) == len(kinds):
                things: Any = ()
                for arg, hole in zip(args, kinds):
                    if hole is None:
                        if type(arg) not in _PLAIN and not is_native(arg):
                            break
                    elif hole == len(things):
                        things = (*things, arg)
                    elif things[hole] is not arg:  # it was given twice, and now it is two
                        break
                else:
                    if binding.holds(things):
                        plain = (
                            tuple([arg if hole is None else None for arg, hole in zip(args, kinds)]) if things else args
                        )
                        try:
                            outputs = binding.run(plain, kwargs)
                            return outputs if type(outputs) is not Packed else unpacked(outputs)
                        except Missed as missed:
                            if missed.frame is not binding.program.frame():
                                raise
            return self._call(args, kwargs)
        except Exception as error:
            is_jax_s = isinstance(error, TypeError) and not isinstance(error, NbModuleError)
            unfit = refusal(self.fn, args, kwargs, self.static) if is_jax_s else None
            if unfit is None:
                shorten(error)
                raise
            raise unfit from None

    def _call(self, given: tuple[Any, ...], given_kwargs: dict[str, Any]) -> Any:
        """The long way: find or make the program, and trace again for each box that was not guessed."""
        __tracebackhide__ = True
        if is_given_class(self, given):
            return self.__get__(given[0])(*given[1:], **given_kwargs)
        args, kwargs, things, holes = split_call(given, given_kwargs)
        key = self._key(things, holes, len(args))
        ahead = Ahead()
        binding = self._bound(key, things, ahead)
        with apart() if now.taps is not None else nullcontext():  # a trace holds the zeros of this very gradient
            outputs, binding = self._traced(key, binding, things, lambda b: b.run(args, kwargs), args, kwargs, ahead)
        _PLAIN.update(type(arg) for arg in args if isinstance(arg, jax.Array) and not isinstance(arg, jax.core.Tracer))
        if now.frame is None and now.tracker is None and (module := module_of(self.fn)) is not None:
            module._empty_captured()
        if now.frame is None and not kwargs and not things_inside(args):
            numbers = dict(holes)
            last = (binding, tuple(numbers.get(i) for i in range(len(args))))
            if now.tracker is None:
                self._last = last
                self._steady = told(self, binding.steady(last[1], _PLAIN))
                binding.closure.current = binding
            else:
                self._last_tracked = (now.tracker.key, last)
        return unpacked(outputs)

    def _watched(self) -> tuple[Binding | None, tuple[Any, ...]]:
        """What `_last` is to calls that are not tracked, for a call that is."""
        if now.frame is None and now.tracker is not None:
            key, last = self._last_tracked
            if key is now.tracker.key or key == now.tracker.key:
                return last
        return None, ()

    def _traced(
        self,
        key: Any,
        binding: Binding,
        things: list[Any],
        use: Callable[[Binding], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        ahead: Ahead,
    ) -> Any:
        """Use the binding; each box that is met for the first time is added, and the function is traced again."""
        __tracebackhide__ = True
        asked = now.taps.mark() if now.taps is not None else None
        met: list[Variable] = []
        try:
            while True:
                if now.taps is not None:
                    now.taps.rewind(asked)
                try:
                    outputs = self._used(binding, use, args, kwargs, ahead)
                    self._keep(key, binding.program)
                    return outputs, binding
                except Missed as missed:
                    if missed.frame is not binding.program.frame():
                        raise
                    if any(missed.box is box for box in (*met, *binding.boxes)):
                        raise TraceError(
                            f"{self!r} met {missed.box.describe()} as unknown although it is an input: an error of nbmodule, not "
                            "of the function. Nothing was changed; please report it."
                        ) from None
                    met.append(missed.box)
                    captured = [*binding.closure.captured_now(), missing(missed.box, missed.modules)]
                    captured += ahead.look(self.fn, [*things, *captured])
                except (Astray, ShapeStructureError):  # the latter, of state that is another model's
                    if not ahead.is_open():
                        raise
                    ahead.give_up()
                    captured = binding.closure.captured_now()
                self._drop(binding.closure)
                binding = self._begun(self._key_after(ahead, key, things), things, captured)
        except Exception:
            ahead.put_back()
            raise
        finally:
            ahead.give_up()

    def _used(
        self,
        binding: Binding,
        use: Callable[[Binding], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        ahead: Ahead,
    ) -> Any:
        """What `use` gives; state that was made ahead of a trace stays only if the trace has come to its end with it."""
        __tracebackhide__ = True
        program = binding.program
        if program.learned and not ahead.is_open():
            return use(binding)
        program.ahead = ahead
        try:
            if not program.learned:
                program.learn(binding, args, kwargs, ahead.writes if now.taps is None else set())
            return use(binding)
        finally:
            program.ahead = None
            if program.traces:
                ahead.keep()

    def _key(self, things: list[Any], holes: Holes, count: int) -> Any:
        boxes = [box for thing in things for box in boxes_of(thing)]
        index: dict[Variable, int] = {}
        order = tuple(index.setdefault(box, len(index)) for box in boxes)
        aliased = order if len(index) != len(boxes) else ()
        tracker = now.tracker.key if now.tracker is not None else None
        return (tuple(map(signature_of, things)), aliased, (holes, count), tracker)

    def _bound(self, key: Any, things: list[Any], ahead: Ahead | None = None) -> Binding:
        """The binding of a known program to these things, or of a new one, for which something may be supposed."""
        closures = self.closures.setdefault(key, [])
        programs = [closure.program for closure in reversed(closures)]
        closures[:] = [closure for closure in closures if closure.alive and closure.watch.has_code()]
        for closure in closures:
            binding = closure.bind(things)
            if binding is not None:
                return binding
        closure = adopted(self._known_programs(key, programs), self.fn, key[2][0], things, self.history, ahead)
        if closure is not None:  # things that were given state for it have another structure now
            return self._added(self._key(things, *key[2]), closure, things)
        known = {id(thing) for thing in things}
        covered = {box for thing in things for box in boxes_of(thing)}
        reachable = [thing for thing in guess(self.fn) if id(thing) not in known]
        captured = [thing for thing in reachable if not covered.issuperset(boxes_of(thing) or (None,))]
        if ahead is not None:
            captured += ahead.look(self.fn, [*things, *captured])
            key = self._key_after(ahead, key, things)
        return self._begun(key, things, captured)

    def _known_programs(self, key: Any, programs: list[Program]) -> list[Program]:
        """Programs that might be taken over, those of this function first."""
        return list(dict.fromkeys((*programs, *self._kept.get(key, ()), *shelf.of(self._family(key)))))

    def program_at_hand(self, given: tuple[Any, ...], given_kwargs: dict[str, Any]) -> tuple[Program | None, list[Any]]:
        """The compiled form that a call would find, its own or one kept for what is made anew, and its things; nothing is changed."""
        args, _, things, holes = split_call(given, given_kwargs)
        binding, _ = self._last if not now.busy else self._watched()
        if binding is not None and len(things) == len(binding.things) and binding.holds(tuple(things)):
            return binding.program, [*things, *binding.closure.captured_now()]
        key = self._key(things, holes, len(args))
        closures = self.closures.get(key, [])
        for closure in closures:
            if closure.alive and closure.watch.has_code() and closure.fits():
                return closure.program if closure.shares_as_traced(things) else None, [*things, *closure.captured_now()]
        return adoptable(self._known_programs(key, [each.program for each in reversed(closures)]), self.fn, things)

    def _begun(self, key: Any, things: list[Any], captured: list[Any]) -> Binding:
        """The binding of a new program."""
        program = Program(getattr(self.fn, "__name__", type(self.fn).__name__), key[2][1], self.options, self.donate)
        return self._added(key, Closure(self.fn, program, key[2][0], things, captured, self.history), things)

    def _added(self, key: object, closure: Closure, things: list[Any]) -> Binding:
        closures = self.closures.setdefault(key, [])
        idle = [other for other in closures if not other.watch.is_bound()]
        dropped = [other for other in idle if other.program.terms is not None and not other.watch.is_light]
        dropped += [other for other in idle if other not in dropped][:-_MOST_IDLE]
        closures[:] = [*(other for other in closures if other not in dropped), closure]
        binding = closure.bind(things)
        if binding is None:
            raise TraceError(
                f"{self!r} cannot settle on the structure of what it uses: it changes while it is looked at."
            )
        return binding

    def _key_after(self, ahead: Ahead, key: Any, things: list[Any]) -> Any:
        """The key of things some of which may have been given state just now."""
        return self._key(things, *key[2]) if ahead.is_open() else key

    def _drop(self, closure: Closure) -> None:
        """Let go of a closure whose program was not traced to its end."""
        for closures in list(self.closures.values()):
            closures[:] = [other for other in closures if other is not closure]

    def _keep(self, key: object, program: Program) -> None:
        """After a call on the long way: if others may take the program over, it stays when what it was used with is gone."""
        if program.terms is None:
            return
        if program.terms.weight <= HEAVIEST:
            shelf.put(self._family(key), program)
        else:
            self._kept = {key: [program]}

    def _family(self, key: object) -> Any:
        """Functions whose programs may serve this one."""
        return key, self.donate, self._asked

    @property
    def programs(self) -> dict[Any, list[Program]]:
        """The compiled forms that are in use, by the structure of the arguments."""
        return {key: [closure.program for closure in closures] for key, closures in self.closures.items()}

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Jit[P, R]: ...
    @overload
    def __get__(self: Jit[Concatenate[S, Q], T], instance: S, owner: type | None = None) -> Callable[Q, T]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if is_stateful(instance) or 0 in self.static.numbers or not is_plain(instance):
            return types.MethodType(self, instance)
        form = self._methods.of(instance, lambda: jit(Method(self.fn, instance), **_without_self(self.asked)))
        return Bound(form, instance)

    def __repr__(self) -> str:
        return f"<nb.jit of {getattr(self.fn, '__qualname__', self.fn)!s}>"

    # -- looking at it -------------------------------------------------------------------------------
    @shortened
    def lower(self, *args: object, **kwargs: object) -> Any:
        """JAX's lowered form of the function for these arguments; nothing is run and no variable changes."""
        return self.look("lower", args, kwargs)

    def program_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
        """The compiled form that a call would use now; it is found or begun, and neither traced nor run."""
        args, kwargs, things, holes = split_call(args, kwargs)
        return self._bound(self._key(things, holes, len(args)), things).program

    @shortened
    def eval_shape(self, *args: object, **kwargs: object) -> Any:
        """Shapes and dtypes of the outputs; nothing is run and no variable changes."""
        made = self.look("eval_shape", args, kwargs)
        if type(made) is not Made:
            return unpacked(made)
        outputs, _, _, (_, _, tree, _) = made
        return unpacked(outputs if tree is None else jax.tree.unflatten(tree, outputs))

    @shortened
    def trace(self, *args: object, **kwargs: object) -> Any:
        """JAX's traced form of the function for these arguments; nothing is run and no variable changes."""
        return self.look("trace", args, kwargs)

    def look(self, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A stage of `jax.jit` for these arguments; models are left as they were, unbuilt ones too."""
        return self._looked(args, kwargs, lambda: self.staged(what, args, kwargs))

    def _looked(self, args: tuple[Any, ...], kwargs: dict[str, Any], use: Callable[[], T]) -> T:
        """What `use` gives, with nothing changed by it."""
        try:
            with unchanged(self.reached(args, kwargs)):
                return use()
        except TypeError as error:
            if isinstance(error, NbModuleError):
                raise
            raise refusal(self.fn, args, kwargs, self.static) or error from None

    def reached(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Modules, optimizers, streams and boxes that a call would be given or may reach."""
        leaves = jax.tree.leaves((args, kwargs), is_leaf=is_stateful)
        return [*{id(leaf): leaf for leaf in leaves if is_stateful(leaf)}.values(), *guess(self.fn)]

    def staged_apart(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """JAX's lowered form and the arrays that a call would hand to it: whoever runs it changes nothing here."""

        def stage(compiled: Any, *given: Any, **named: Any) -> Any:
            return compiled.lower(*given, **named), given, named

        return self._looked(args, kwargs, lambda: self._staged(stage, args, kwargs))

    def staged(self, what: str, given: tuple[Any, ...], given_kwargs: dict[str, Any]) -> Any:
        """A stage of `jax.jit` for these arguments; models that build at their first call are built."""
        return self._staged(
            lambda compiled, *args, **named: getattr(compiled, what)(*args, **named), given, given_kwargs
        )

    def _staged(self, stage: Callable[..., Any], given: tuple[Any, ...], given_kwargs: dict[str, Any]) -> Any:
        if (module := asked_of(self.fn, given_kwargs)) is not None:
            return module._call_beside(lambda *args, **kwargs: self._staged(stage, args, kwargs), given, given_kwargs)
        args, kwargs, things, holes = split_call(given, given_kwargs)
        key = self._key(things, holes, len(args))

        def use(binding: Binding) -> Any:
            values = binding.values()
            given = (binding.pick_donated(values), binding.pick_kept(values)) if self.donate else (values,)
            with binding.called_cold():
                return stage(binding.compiled, *given, *args, **kwargs)

        ahead = Ahead()
        return self._traced(key, self._bound(key, things, ahead), things, use, args, kwargs, ahead)[0]


class Bound(Jit[P, R]):
    """The compiled form of a method with the object that it is called on, as Python's bound methods are: who holds it, holds that.

    All that it knows is the form's own, which is one for each object and does not keep it.
    """

    __slots__ = ("_owner",)

    def __init__(self, form: Jit[P, R], owner: object) -> None:
        self.__dict__ = form.__dict__
        self._owner = owner

    def __reduce__(self) -> Any:
        return getattr, (self._owner, self.fn.__name__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.__dict__ is other.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)


def things_inside(args: tuple[Any, ...]) -> bool:
    """Whether stateful things may be deeper inside the arguments than at their top."""
    return any(type(arg) is not Hole and type(arg) not in _PLAIN and not is_native(arg) for arg in args)


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

    They may be arguments or come from the surrounding code: their variables become inputs and outputs of the compiled
    function. What the function writes is committed when the outermost call succeeds; if it raises, nothing has changed.
    A change of structure (a layer replaced, a hook added, `eval()`, the code of a forward defined again) traces again, a
    change of values never does. `jax.jit`'s own options are passed on. Above a method of a plain class, `self` is part of the
    surroundings; its numbers, texts and flags are fixed for a trace, and another value traces again.

    Args:
        fn: The function; without it a decorator is returned.
        donate: Reuse the memory of the variables that the call overwrites. Arrays kept from before are deleted then.
        static_argnums: Positions of arguments that are compared by value, not traced.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of array arguments whose memory may be reused.
        donate_argnames: Names of such arguments.
        in_shardings: Shardings of the arguments.
        out_shardings: Shardings of the outputs.
        **options: Further options of `jax.jit`.

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
    if fn is None:
        return functools.partial(
            jit,
            donate=donate,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            **options,
        )
    check_function("nb.jit", fn)
    check_names("nb.jit", options)
    if isinstance(options.get("device"), str):
        options["device"] = find_device(options["device"])
    check_passed_on(options)
    asked = {
        "donate": donate,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        **options,
    }
    lists = 2 if donate else 1  # of arrays, before the user's arguments
    static = places_of(fn, "static", static_argnums, static_argnames)
    for which, places in (("static", static), ("donate", places_of(fn, "donate", donate_argnums, donate_argnames))):
        if places.numbers:
            options[f"{which}_argnums"] = tuple(i + lists if i >= 0 else i for i in places.numbers)
        if places.names:
            options[f"{which}_argnames"] = places.names
    if in_shardings is not None:
        options["in_shardings"] = in_shardings
    if out_shardings is not None:
        options["out_shardings"] = out_shardings
    return Jit(fn, donate, options, static, asked)


def _without_self(asked: dict[str, Any]) -> dict[str, Any]:
    """The options of a function for the method that it is without its first argument."""
    asked = dict(asked)
    for name in ("static_argnums", "donate_argnums"):
        given = asked[name]
        if given is not None:
            given = given if isinstance(given, (tuple, list)) else (given,)
            asked[name] = tuple(i - 1 if i > 0 else i for i in given if i != 0)
    if isinstance(asked["in_shardings"], tuple):
        asked["in_shardings"] = asked["in_shardings"][1:]
    return asked


@shortened
def eval_shape(fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Shapes and dtypes of what `fn(*args, **kwargs)` would return; nothing is run and no variable changes.

    What `jax.eval_shape` is to pure functions: `fn` may be a module, a training step, an `nb.jit` of one.

    Example:
        >>> import jax
        >>> import nbmodule as nb
        >>> nb.eval_shape(nb.Linear(3, 2), jax.ShapeDtypeStruct((8, 3), "float32"))
        ShapeDtypeStruct(shape=(8, 2), dtype=float32)
    """
    check_function("nb.eval_shape", fn)
    return compiled(fn).eval_shape(*args, **kwargs)


def make_jaxpr(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that gives the jaxpr of `fn` for its arguments; nothing is run and no variable changes.

    The inputs of the jaxpr are the variables that are used, then the arguments; its outputs are those of `fn`, then the new
    values of the variables that are written.

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
        __tracebackhide__ = True
        return compiled(fn).trace(*args, **kwargs).jaxpr

    return made


def compiled(fn: Callable[..., Any]) -> Jit:
    """`fn` itself if it is compiled, else a compiled form of it."""
    return fn if isinstance(fn, Jit) else jit(fn)  # pyright: ignore[reportReturnType] - of a function it makes one
