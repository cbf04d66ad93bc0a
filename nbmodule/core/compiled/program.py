"""Programs: a function traced over flat lists of arrays, and executables found by their content.

Tracing is cheap, compiling is not. After a trace the program is looked up by what it is: the hash
of its lowered text, and the options it is compiled with. Functions, models and cells that are made
anew run the executable that is there. The store holds no function, model or array of the user,
except small constants.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from nbmodule.base.jax_names import jaxpr_as_fun
from nbmodule.core.compiled.key import CallArguments
from nbmodule.core.recording.parcel import pack_records
from nbmodule.core.recording.taps import serving
from nbmodule.core.structure.structure import static_key
from nbmodule.core.structure.walk import is_module, plan_of, settle_lists
from nbmodule.core.transforms.carried import StaticOutput, packed
from nbmodule.core.transforms.options import check_outputs
from nbmodule.core.variables.call_log import CallInfo
from nbmodule.core.variables.donation import Cold
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
        self.touched: list[Any] = []
        self.unknown: list[Variable] = []
        """Variables that were written and are no inputs."""
        self.facts: Any = None

    def run(
        self, values: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, Effects]:
        """Call the function in a frame; writes are named by the numbers of the variables."""

        def body(frame: Frame) -> Any:
            self.frame = weakref.ref(frame)  # it holds traced values, here and outside
            outputs = packed(self.fn(*args, **kwargs))
            check_outputs(self.fn, outputs)
            settle_lists((*self.call.objects, *self.captured))
            effects = frame.effects()
            effects.values = [
                constrained(variable, x) for variable, x in zip(frame.written, effects.values)
            ]
            if frame.log.infos:
                effects.records = pack_records(effects.records)
            return outputs, effects, list(frame.written), list(frame.touched)

        outputs, effects, written, self.touched = framed(
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
    tree: Any
    infos: tuple[CallInfo, ...]
    records: Any
    """Structure of the records."""
    is_single: bool
    """True if the output is one array."""

    def __hash__(self) -> int:
        return hash(self.targets)  # a structure of outputs may not be hashable


class Program:
    """An executable: a `jax.jit` over flat lists of arrays for one content; it calls no Python."""

    __slots__ = ("__weakref__", "call", "is_warm", "nbytes")

    def __init__(self, call: Any, nbytes: int) -> None:
        self.call, self.nbytes = call, nbytes
        self.is_warm = False  # whether JAX runs it without Python code of its own


class Traced(NamedTuple):
    """A program with the facts of the trace that led to it."""

    program: Program
    facts: TraceFacts
    donated: tuple[int, ...]
    """Numbers of the variables whose memory is reused."""


def _flat(job_of: Callable[[], Job], fn: Any, names: list[str], options: dict[str, Any]) -> Any:
    """Make a function of flat lists of arrays, for `jax.jit`, from the job that `job_of` returns.

    The shardings of outputs are constraints, since only the trace knows their structure.
    """

    def run(values: Any, *leaves: Any) -> Any:
        job = job_of()
        outputs, effects = job.run(values, *job.call.form.filled(leaves, job.call.objects))
        results, tree = jax.tree.flatten(outputs)
        if "out_shardings" in options:
            shardings = spread_over(options["out_shardings"], tree)
            results = [
                x if s is None else jax.lax.with_sharding_constraint(x, s)
                for x, s in zip(results, shardings)
            ]
        records, records_tree = jax.tree.flatten(effects.records)
        is_single = len(results) == 1 and tree == _ONE
        targets, infos = effects.names
        job.facts = TraceFacts(targets, tree, infos, records_tree, is_single)
        return results, effects.values, records

    return _named(run, fn, ["variables", *names])


def trace(
    job: Job, names: list[str], donates: bool, options: dict[str, Any], *, anew: bool = False
) -> Traced:
    """Trace a job, and find or make the program for it.

    Args:
        job: The function with its arguments.
        names: Of the arrays among the arguments, for JAX's messages.
        donates: Whether the memory of what is written is reused.
        options: Of `jax.jit`, for flat leaves.
        anew: Whether a program in the store is replaced.
    """
    jobs, values = [job], [variable.value for variable in job.variables]

    def job_of() -> Job:
        if not jobs:
            raise Cold
        return jobs[0]

    jitted = jax.jit(_flat(job_of, job.fn, names, options), **_shifted(options, 1))
    with serving(None):
        staged = jitted.trace(values, *job.call.arrays)
    jobs.clear()  # JAX's caches keep the function, and must keep no model and no traced value
    facts: TraceFacts = job.facts
    donated = tuple(i for i in facts.targets if type(i) is int) if donates else ()
    # JAX donates whole arguments, and the trace alone knows which variables are written.
    if donated:
        flat = _donating(staged, donated, len(values))
        run = _named(flat, job.fn, ["overwritten", "variables", *names])
        jitted = jax.jit(run, **_shifted(options, 2, first=(0,)))
        lent = tuple(values[i] for i in donated)
        retained = tuple(x for i, x in enumerate(values) if i not in set(donated))
        staged = jitted.trace(lent, retained, *job.call.arrays)
    return Traced(_stored(staged, jitted, donated, options, anew), facts, donated)


def inner_program(fn: Any, names: list[str], options: dict[str, Any]) -> Any:
    """Make the `jax.jit` of a function for calls inside other transforms, with the present job."""
    flat = _flat(lambda: now.job, fn, names, options)

    def run(values: Any, *leaves: Any) -> Any:
        return *flat(values, *leaves), StaticOutput(now.job.facts)

    return jax.jit(_named(run, fn, ["variables", *names]), **_shifted(options, 1))


def _donating(staged: Any, donated: tuple[int, ...], count: int) -> Callable[..., Any]:
    """Make a function of the same equations that takes what it overwrites as its first argument."""
    programs, tree = [staged.jaxpr], jax.tree.structure(staged.out_info)

    def run(lent: Any, retained: Any, *leaves: Any) -> Any:
        if not programs:
            raise Cold
        values: dict[int, Any] = dict(zip(donated, lent))
        source = iter(retained)
        inputs = [values[i] if i in values else next(source) for i in range(count)]
        return jax.tree.unflatten(tree, jaxpr_as_fun(programs.pop())(*inputs, *leaves))

    return run


_ONE = jax.tree.structure(0)


def _shifted(options: dict[str, Any], by: int, first: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return options of `jax.jit` for arguments that stand behind `by` lists of variables."""
    options = {name: value for name, value in options.items() if name != "out_shardings"}
    donated = (*first, *(i + by for i in options.pop("donate_argnums", ())))
    if donated:
        options["donate_argnums"] = donated
    if "in_shardings" in options:
        options["in_shardings"] = (*(None,) * by, *options["in_shardings"])
    return options


def spread_over(prefix: Any, tree: Any) -> list[Any]:
    """Return the item of a prefix of a tree, such as its shardings, for each leaf of the tree."""

    def is_leaf(x: Any) -> bool:
        return x is None or isinstance(x, (jax.sharding.Sharding, jax.sharding.PartitionSpec))

    full = jax.tree.broadcast(prefix, tree.unflatten(range(tree.num_leaves)), is_leaf=is_leaf)
    return jax.tree.leaves(full, is_leaf=is_leaf)


class _Named(inspect.Signature):
    """The signature under which JAX names the arguments of a flat function in its messages."""

    __slots__ = ("_names",)

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        return types.SimpleNamespace(arguments=dict(zip(self._names, args)))


def _named(run: Any, fn: Any, names: list[str]) -> Any:
    """Let JAX's messages name the user's function, its file and its arguments; returns `run`."""
    run.__name__ = getattr(fn, "__name__", type(fn).__name__)
    run.__qualname__ = getattr(fn, "__qualname__", run.__name__)
    source = python_function(fn)
    if source is not None:
        run.__wrapped__ = _Source(source)
    signature = _Named([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    signature._names = names
    run.__signature__ = signature
    return run


class _Source:
    """The name and code of a function, without what it holds."""

    def __init__(self, fn: types.FunctionType) -> None:
        self.__name__, self.__code__ = fn.__name__, fn.__code__


def python_function(fn: Any) -> types.FunctionType | None:
    """Return the Python function behind methods, partials and modules; None where there is none."""
    while fn is not None and not isinstance(fn, types.FunctionType):
        if is_module(fn):
            fn = type(fn)._run
            continue
        found = (inspect.getattr_static(fn, name, None) for name in _INNER_FUNCTIONS)
        names = [name for name, inner in zip(_INNER_FUNCTIONS, found) if inner is not None]
        fn = getattr(fn, names[0]) if names else None
    return fn


_INNER_FUNCTIONS = ("__func__", "func", "__wrapped__")


# -- the store of programs, by content -------------------------------------------------------------
class _Store:
    """The programs that were used last, by their content."""

    def __init__(self) -> None:
        self._programs: OrderedDict[Any, Program] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Any, make: Callable[[], Program], *, anew: bool = False) -> Program:
        """Return the program of this content; `make` gives it if there is none."""
        with self._lock:
            program = None if anew else self._programs.get(key)
            if program is None:
                program = self._programs[key] = make()
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
    staged: Any, jitted: Any, donated: tuple[int, ...], options: dict[str, Any], anew: bool
) -> Program:
    """Look a traced program up by content; a heavy one, or one with callbacks, is not shared."""
    nbytes = _bytes_of_constants(staged.jaxpr)
    if nbytes > HEAVIEST:
        return Program(jitted, nbytes)
    text = staged.lower().as_text()
    if any(mark in text for mark in _UNSHARED):
        return Program(jitted, nbytes)
    digest = hashlib.sha256(text.encode()).hexdigest()
    avals = tuple(jax.tree.leaves(staged.in_avals)) if hasattr(staged, "in_avals") else ()
    outputs, tree = jax.tree.flatten(staged.out_info)
    weak = tuple(bool(getattr(x, "weak_type", False)) for x in outputs)
    # Weak types, trees and layouts of arguments are no part of the text.
    key = (digest, donated, static_key(options), avals, tree, weak)
    return store.find(key, lambda: Program(jitted, nbytes), anew=anew)


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
