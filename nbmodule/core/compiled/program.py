"""Programs: a function traced with its variables as inputs, and executables found by their content.

Tracing is cheap, compiling is not. After a trace the program is looked up by what it is: the hash
of its lowered text, and the options it is compiled with. Functions, models and cells that are made
anew run the executable that is there. The store holds no function, model or array of the user,
except small constants.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from nbmodule.base.jax_names import jaxpr_as_fun
from nbmodule.core.compiled.key import CallArguments
from nbmodule.core.recording.parcel import StaticLeaf, pack_records
from nbmodule.core.recording.taps import serving
from nbmodule.core.structure.structure import static_key
from nbmodule.core.structure.walk import plan_of, settle_lists
from nbmodule.core.transforms.carried import leaves_of_prefix, packed
from nbmodule.core.transforms.options import check_outputs, of_forward
from nbmodule.core.variables.call_log import CallInfo
from nbmodule.core.variables.donation import NotCached
from nbmodule.core.variables.frame import Effects, Frame, framed, now
from nbmodule.core.variables.placement import constrained
from nbmodule.core.variables.variable import Variable

# Programs in the store, bytes of their constants in all, and of one of them. The text of a program
# contains its constants: above the last bound, hashing them costs more than a compile saves.
MOST_PROGRAMS, MOST_BYTES, HEAVIEST = 32, 2**26, 2**24
# Custom calls that name a Python object by a number, which may be given again to another object.
_UNSHARED = ("callback", "CustomSPMDPartitioning")


class Job:
    """One trace of a function: its arguments and the objects that it captures.

    Args:
        fn: The function.
        call: Its arguments.
        captured: Stateful objects from the surrounding code.
        variables: The variables of all, each once: the inputs.
    """

    def __init__(
        self, fn: Any, call: CallArguments, captured: list[Any], variables: list[Variable]
    ) -> None:
        self.fn, self.call, self.captured, self.variables = fn, call, captured, variables
        self.frame: Callable[[], Frame | None] = lambda: None
        self.called: list[Any] = []
        self.unknown: list[Variable] = []
        """Variables that were written and are no inputs."""
        self.facts: Any = None

    def run(
        self, values: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Effects]:
        """Call the function in a frame; writes are named by the numbers of the variables."""
        filled_args, filled_kwargs = self.call.filled(args, kwargs)

        def body(frame: Frame) -> Any:
            self.frame = weakref.ref(frame)  # it holds traced values, here and outside
            outputs = packed(self.fn(*filled_args, **filled_kwargs))
            check_outputs(self.fn, outputs)
            settle_lists((*self.call.objects, *self.captured))
            effects = frame.effects()
            effects.values = [
                constrained(variable, x) for variable, x in zip(frame.written, effects.values)
            ]
            if frame.log.infos:
                effects.records = pack_records(effects.records)
            return outputs, effects, list(frame.written), list(frame.called)

        outputs, effects, written, self.called = framed(
            body, zip(self.variables, values), wall=True
        )
        index = {variable: i for i, variable in enumerate(self.variables)}
        self.unknown = [
            variable for variable in written if variable not in index and variable._home is None
        ]
        # In the order of the inputs: JAX lets a new value take the memory of the first array of its
        # shape, and where that is another variable's, XLA copies both.
        pairs = sorted(
            zip(written, effects.values), key=lambda pair: index.get(pair[0], len(index))
        )
        targets = tuple(index.get(variable, variable.slot) for variable, _ in pairs)
        names = targets, effects.names[1]
        return outputs, Effects(names, [value for _, value in pairs], effects.records)


class TraceFacts(NamedTuple):
    """The static part of the outputs of a program."""

    targets: tuple[Any, ...]
    """For each new value the number of the variable, or its slot if it is no input."""
    infos: tuple[CallInfo, ...]
    tree: Any
    """Structure of the user's outputs and the records."""

    def __hash__(self) -> int:
        return hash(self.targets)  # a structure of outputs may not be hashable


@dataclass(eq=False)
class Program:
    """An executable: a `jax.jit` for one content; it calls no Python."""

    call: Any
    nbytes: int
    donated: tuple[int, ...]
    """Numbers of the variables whose memory is reused."""
    is_warm: bool = False
    """Whether JAX runs it without Python code of its own."""


def _pure(job_of: Callable[[], Job], options: dict[str, Any]) -> Any:
    """Make the function for `jax.jit`: of the variables and of the arguments but for objects.

    Its outputs are flat, so that a program serves every structure of outputs. Their shardings are
    constraints, since only the trace knows the structure.
    """

    def run(values: Any, *args: Any, **kwargs: Any) -> Any:
        job = job_of()
        outputs, effects = job.run(values, args, kwargs)
        results, tree = jax.tree.flatten((outputs, effects.records))
        if "out_shardings" in options:
            shardings = leaves_of_prefix((options["out_shardings"], None), tree)
            results = [
                x if s is None else jax.lax.with_sharding_constraint(x, s)
                for x, s in zip(results, shardings)
            ]
        job.facts = TraceFacts(*effects.names, tree)
        return results, effects.values

    return run


def trace(
    job: Job, donates: bool, options: dict[str, Any], *, anew: bool = False
) -> tuple[Program, TraceFacts]:
    """Trace a job, and find or make the program for it.

    Args:
        job: The function with its arguments.
        donates: Whether the memory of what is written is reused.
        options: Of `jax.jit`.
        anew: Whether a program in the store is replaced.
    """
    jobs, values = [job], [variable.value for variable in job.variables]
    args, kwargs = job.call.args, job.call.kwargs

    def job_of() -> Job:
        if not jobs:
            raise NotCached
        return jobs[0]

    jitted = _jitted(_pure(job_of, options), job.fn, ("variables",), options, len(args))
    with serving(None):
        staged = jitted.trace(values, *args, **kwargs)
    jobs.clear()  # JAX's caches keep the function, and must keep no model and no traced value
    donated = tuple(i for i in job.facts.targets if type(i) is int) if donates else ()
    # JAX donates whole arguments, and the trace alone knows which variables are written.
    if donated:
        run, leading = _donating(staged, donated, len(values)), ("overwritten", "variables")
        jitted = _jitted(run, job.fn, leading, options, len(args))
        staged = jitted.trace(*split(values, donated), *args, **kwargs)
    tree = jax.tree.structure((args, kwargs))
    return _stored(staged, jitted, donated, (static_key(options), tree), anew), job.facts


def split(values: Sequence[Any], donated: Sequence[int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the values that a program overwrites, and the others."""
    others = set(range(len(values))).difference(donated)
    return tuple(values[i] for i in donated), tuple(values[i] for i in sorted(others))


def inner_program(fn: Any, options: dict[str, Any], count: int) -> Any:
    """Make the `jax.jit` of a function for calls inside other transforms, with the present job.

    Args:
        fn: The function.
        options: Of `jax.jit`.
        count: The number of positional arguments.
    """
    pure = _pure(lambda: now.job, options)

    def run(values: Any, *args: Any, **kwargs: Any) -> Any:
        return *pure(values, *args, **kwargs), StaticLeaf(now.job.facts)

    return _jitted(run, fn, ("variables",), options, count)


def _donating(staged: Any, donated: tuple[int, ...], count: int) -> Callable[..., Any]:
    """Make a function of the same equations that takes what it overwrites as its first argument."""
    programs, tree = [staged.jaxpr], jax.tree.structure(staged.out_info)

    def run(lent: Any, retained: Any, *args: Any, **kwargs: Any) -> Any:
        if not programs:
            raise NotCached
        values: dict[int, Any] = dict(zip(donated, lent))
        source = iter(retained)
        inputs = [values[i] if i in values else next(source) for i in range(count)]
        leaves = jax.tree.leaves((args, kwargs))
        return jax.tree.unflatten(tree, jaxpr_as_fun(programs.pop())(*inputs, *leaves))

    return run


def _jitted(
    run: Any, fn: Any, leading: tuple[str, ...], options: dict[str, Any], count: int
) -> Any:
    """Make the `jax.jit` of a function whose arguments stand behind lists of variables.

    Args:
        run: The function to compile.
        fn: The user's function: JAX's messages name it, its file and its arguments.
        leading: Names of the lists; those that are `overwritten` are donated.
        options: Of `jax.jit`, for the arguments alone.
        count: The number of positional arguments.
    """
    describe_as(run, fn, leading)
    code = code_of(fn)
    if code is not None:  # without the function itself, which may hold a model
        run.__wrapped__ = types.SimpleNamespace(__name__=code.co_name, __code__=code)
    options = {name: value for name, value in options.items() if name != "out_shardings"}
    by, numbers = len(leading), options.get("donate_argnums", ())
    overwritten = [i for i, name in enumerate(leading) if name == "overwritten"]
    options["donate_argnums"] = (*overwritten, *(i % count + by for i in numbers if i < count))
    if "in_shardings" in options:
        shardings = options["in_shardings"]
        shardings = shardings if isinstance(shardings, tuple) else (shardings,) * count
        options["in_shardings"] = (*(None,) * by, *shardings)
    return jax.jit(run, **options)


def describe_as(run: Any, fn: Any, leading: Sequence[str]) -> None:
    """Give `run` name and signature of `fn`, behind lists with the names `leading`."""
    run.__name__ = getattr(fn, "__name__", type(fn).__name__)
    run.__qualname__ = getattr(fn, "__qualname__", run.__name__)
    with suppress(TypeError, ValueError):  # a builtin has no signature
        own = inspect.signature(fn).parameters
        names = (f"_{name}" if name in own else name for name in leading)
        lists = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
        run.__signature__ = inspect.Signature([*lists, *own.values()])


def code_of(fn: Any) -> types.CodeType | None:
    """Return the code of the Python function behind a method, partial or module, if any."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = of_forward(fn)
    return getattr(inspect.unwrap(getattr(fn, "__func__", fn)), "__code__", None)


# -- the store of programs, by content -------------------------------------------------------------
class _Store:
    """The programs that were used last, by their content."""

    def __init__(self) -> None:
        self._programs: OrderedDict[Any, Program] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Any, new: Program, *, anew: bool = False) -> Program:
        """Return the program of this content: a `new` one if there is none, or `anew`."""
        with self._lock:
            program = self._programs[key] = new if anew else self._programs.get(key, new)
            self._programs.move_to_end(key)
            while (
                len(self._programs) > MOST_PROGRAMS
                or sum(program.nbytes for program in self._programs.values()) > MOST_BYTES
            ) and len(self._programs) > 1:
                self._programs.popitem(last=False)
            return program

    def __len__(self) -> int:
        return len(self._programs)

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._programs.clear()


store = _Store()


def _stored(
    staged: Any, jitted: Any, donated: tuple[int, ...], key: tuple[Any, ...], anew: bool
) -> Program:
    """Look a traced program up by content; a heavy one, or one with callbacks, is not shared."""
    program = Program(jitted, _bytes_of_constants(staged.jaxpr), donated)
    if program.nbytes > HEAVIEST:
        return program
    text = staged.lower().as_text()
    if any(mark in text for mark in _UNSHARED):
        return program
    digest = hashlib.sha256(text.encode()).hexdigest()
    avals = tuple(jax.tree.leaves(staged.in_avals)) if hasattr(staged, "in_avals") else ()
    outputs, tree = jax.tree.flatten(staged.out_info)
    weak = tuple(bool(getattr(x, "weak_type", False)) for x in outputs)
    # Weak types, trees and layouts of arguments are no part of the text.
    return store.find((digest, donated, *key, avals, tree, weak), program, anew=anew)


def _bytes_of_constants(closed: Any) -> int:
    """Return the bytes of arrays that a jaxpr holds, those of inner jaxprs too."""
    jaxpr = getattr(closed, "jaxpr", closed)
    total = sum(getattr(x, "nbytes", 0) for x in getattr(closed, "consts", ()))
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    total += _bytes_of_constants(inner)
    return total


def modules_of(obj: Any) -> tuple[Any, ...]:
    """Return a stateful object and the modules below it; none of a variable."""
    return () if isinstance(obj, Variable) else (obj, *plan_of(obj).modules)
