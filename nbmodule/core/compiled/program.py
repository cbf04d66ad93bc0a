"""Programs: a function traced over flat lists of arrays, and executables found by their content.

Tracing is cheap, compiling is not. After a trace the program is looked up by what it is: the hash of
its lowered text, and the options it is compiled with. Functions, models and cells that are made anew
run the executable that is there. The store holds no function, model or array of the user, but for
small constants.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from nbmodule.base.jax_names import jaxpr_as_fun
from nbmodule.core.compiled.key import CallArguments
from nbmodule.core.recording.parcel import pack
from nbmodule.core.recording.taps import serving
from nbmodule.core.structure.structure import static_key
from nbmodule.core.structure.walk import plan_of, settle_lists
from nbmodule.core.transforms.carried import packed
from nbmodule.core.transforms.options import check_outputs
from nbmodule.core.variables.donation import Cold
from nbmodule.core.variables.frame import Effects, Frame, framed, now, slot_of
from nbmodule.core.variables.layout import constrained
from nbmodule.core.variables.record import CallInfo
from nbmodule.core.variables.variable import Variable

MOST_PROGRAMS, MOST_BYTES, HEAVIEST = 32, 2**26, 2**24
"""Programs in the store, bytes of their constants in all, and of one of them."""
_UNSHARED = ("callback", "CustomSPMDPartitioning")
"""Texts of custom calls that name a Python object by a number."""


class Job:
    """One trace of a function: what it is called with and what it captures.

    Args:
        fn: The function.
        call: Its arguments.
        captured: Stateful objects from the surrounding code.
        boxes: The variables of all, each once: the inputs.
    """

    def __init__(
        self, fn: Any, call: CallArguments, captured: list[Any], boxes: list[Variable]
    ) -> None:
        self.fn, self.call, self.captured, self.boxes = fn, call, captured, boxes
        self.frame: Callable[[], Frame | None] = lambda: None
        self.touched: list[Any] = []
        self.unknown: list[Variable] = []
        """Variables that were written and are no inputs."""
        self.facts: TraceFacts | None = None

    def run(
        self, values: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, Effects]:
        """Call the function in a frame; writes are named by the numbers of the variables."""

        def body(frame: Frame) -> Any:
            self.frame = weakref.ref(frame)  # it holds traced values, here and outside
            outputs = packed(self.fn(*args, **kwargs))
            check_outputs(self.fn, outputs)
            settle_lists((*self.call.things, *self.captured))
            effects = frame.effects()
            effects.values = [constrained(box, x) for box, x in zip(frame.written, effects.values)]
            if frame.log.infos:
                effects.records = pack(effects.records)
            return outputs, effects, list(frame.written), list(frame.touched)

        outputs, effects, written, self.touched = framed(body, zip(self.boxes, values), wall=True)
        index = {box: i for i, box in enumerate(self.boxes)}
        self.unknown = [box for box in written if box not in index and box._home is None]
        # In the order of the inputs: JAX lets a new value take the memory of the first array of its
        # shape, and where that is another variable's, XLA copies both.
        pairs = sorted(
            zip(written, effects.values), key=lambda pair: index.get(pair[0], len(index))
        )
        places = tuple(index.get(box, box.slot) for box, _ in pairs)
        infos = _by_position(effects.names[1], self.call.things)
        return outputs, Effects((places, infos), [value for _, value in pairs], effects.records)


class TraceFacts(NamedTuple):
    """The static side of what a program returns."""

    places: tuple[Any, ...]
    """For each new value the number of the variable, or its slot if it is no input."""
    tree: Any
    infos: tuple[CallInfo, ...]
    records: Any
    """Structure of the records."""
    is_single: bool
    """Whether the output is one array."""


class Program:
    """An executable: a `jax.jit` over flat lists of arrays for one content, which calls no Python."""

    __slots__ = ("__weakref__", "call", "is_warm", "nbytes")

    def __init__(self, call: Callable[..., Any], nbytes: int) -> None:
        self.call, self.nbytes = call, nbytes
        self.is_warm = False  # whether JAX runs it without Python code of its own


class Traced(NamedTuple):
    """A program with the facts of the trace that led to it."""

    program: Program
    facts: TraceFacts
    donated: tuple[int, ...]
    """Numbers of the variables whose memory is reused."""


def trace(
    job: Job,
    names: list[str],
    values: Sequence[Any],
    donates: bool,
    options: dict[str, Any],
    *,
    anew: bool = False,
) -> Traced:
    """Trace a job, and find or make the program for it.

    Args:
        job: What is traced.
        names: Of the arrays among the arguments, for JAX's messages.
        values: Of the variables.
        donates: Whether the memory of what is written is reused.
        options: Of `jax.jit`, for flat leaves.
        anew: Whether a program in the store is replaced.
    """
    open_job: list[Job] = [job]

    def run(kept: Any, *leaves: Any) -> Any:
        if not open_job:
            raise Cold
        mine = open_job[0]
        args, kwargs = mine.call.form.filled(leaves, mine.call.things)
        outputs, effects = mine.run(kept, args, kwargs)
        leaves, tree = jax.tree.flatten(outputs)
        records, records_tree = jax.tree.flatten(effects.records)
        is_single = len(leaves) == 1 and tree == _ONE
        mine.facts = TraceFacts(*effects.names[:1], tree, effects.names[1], records_tree, is_single)
        return leaves, effects.values, records

    _name(run, job.fn, ["variables", *names])
    given = options.get("donate_argnums", ())
    with serving(None):
        if "out_shardings" in options:  # for flat outputs, whose structure a first trace tells
            rest = {name: x for name, x in options.items() if name != "out_shardings"}
            jax.jit(run, **_shifted(rest, 1)).trace(list(values), *job.call.arrays)
            assert job.facts is not None
            spread = spread_over(options["out_shardings"], job.facts.tree)
            options = {**options, "out_shardings": spread}
            run = _copied(run)
            _name(run, job.fn, ["variables", *names])
        jitted = jax.jit(run, **_shifted(options, 1))
        staged = jitted.trace(list(values), *job.call.arrays)
    open_job.clear()
    facts = job.facts
    assert facts is not None
    donated = tuple(i for i in facts.places if type(i) is int) if donates else ()
    if donated:
        closed, counts = staged.jaxpr, staged.out_info
        jitted = jax.jit(
            _donating(closed, jax.tree.structure(counts), donated, len(values), job.fn, names),
            **_shifted({**options, "donate_argnums": given}, 2, first=(0,)),
        )
        lent = tuple(values[i] for i in donated)
        rest = tuple(x for i, x in enumerate(values) if i not in set(donated))
        staged = jitted.trace(lent, rest, *job.call.arrays)
    return Traced(_found(staged, jitted, donated, options, anew), facts, donated)


def _copied(run: Any) -> Any:
    return lambda *args: run(*args)


def spread_over(prefix: Any, tree: Any) -> list[Any]:
    """Return for each leaf of a tree what a prefix of the tree, such as shardings, says of it."""
    found: list[Any] = []

    def add(value: Any, below: Any) -> None:
        found.extend([value] * len(jax.tree.leaves(below)))

    def is_leaf(x: Any) -> bool:
        return x is None or isinstance(x, (jax.sharding.Sharding, jax.sharding.PartitionSpec))

    jax.tree.map(add, prefix, tree.unflatten(range(tree.num_leaves)), is_leaf=is_leaf)
    return found


class TraceFactsNode:
    """TraceFacts on their way out of a program inside another transform: a node without leaves."""

    __slots__ = ("facts",)

    def __init__(self, facts: TraceFacts) -> None:
        self.facts = facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceFactsNode) and self.facts == other.facts

    def __hash__(self) -> int:
        return hash(self.facts.places)


jax.tree_util.register_static(TraceFactsNode)


def inner_program(fn: Any, names: list[str], options: dict[str, Any]) -> Any:
    """Make the `jax.jit` of a function for calls inside other transforms; the job is that of now."""

    def run(kept: Any, *leaves: Any) -> Any:
        job = now.programs[-1]
        args, kwargs = job.call.form.filled(leaves, job.call.things)
        outputs, effects = job.run(kept, args, kwargs)
        leaves, tree = jax.tree.flatten(outputs)
        records, records_tree = jax.tree.flatten(effects.records)
        if "out_shardings" in options:
            spread = spread_over(options["out_shardings"], tree)
            leaves = [
                x if s is None else jax.lax.with_sharding_constraint(x, s)
                for x, s in zip(leaves, spread)
            ]
        facts = TraceFacts(effects.names[0], tree, effects.names[1], records_tree, False)
        return leaves, effects.values, records, TraceFactsNode(facts)

    _name(run, fn, ["variables", *names])
    kept = {name: x for name, x in options.items() if name != "out_shardings"}
    return jax.jit(run, **_shifted(kept, 1))


def _donating(
    closed: Any, tree: Any, donated: tuple[int, ...], count: int, fn: Any, names: list[str]
) -> Callable[..., Any]:
    """Make a function of the same equations that takes what it overwrites as an argument of its own."""
    open_closed = [closed]

    def run(lent: Any, kept: Any, *leaves: Any) -> Any:
        if not open_closed:
            raise Cold
        values: list[Any] = [None] * count
        rest = iter(kept)
        for i, value in zip(donated, lent):
            values[i] = value
        known = set(donated)
        values = [value if i in known else next(rest) for i, value in enumerate(values)]
        outputs = jaxpr_as_fun(open_closed.pop())(*values, *leaves)
        return jax.tree.unflatten(tree, outputs)

    _name(run, fn, ["overwritten", "variables", *names])
    return run


_ONE = jax.tree.structure(0)


def _shifted(options: dict[str, Any], by: int, first: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return options of `jax.jit` for arguments that stand behind `by` lists of variables."""
    options = dict(options)
    given = tuple(i + by for i in options.pop("donate_argnums", ()))
    if given or first:
        options["donate_argnums"] = (*first, *given)
    if "in_shardings" in options:
        options["in_shardings"] = (*(None,) * by, *options["in_shardings"])
    if "out_shardings" in options:
        options["out_shardings"] = (options["out_shardings"], None, None)
    return options


class _Named(inspect.Signature):
    """The signature under which JAX names the arguments of a flat function in its messages."""

    __slots__ = ("_names",)

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        return types.SimpleNamespace(arguments=dict(zip(self._names, args)))


def _name(run: Any, fn: Any, names: list[str]) -> None:
    """Let JAX's messages name the user's function, its file and its arguments."""
    run.__name__ = getattr(fn, "__name__", type(fn).__name__)
    run.__qualname__ = getattr(fn, "__qualname__", run.__name__)
    source = source_of(fn)
    if source is not None:
        run.__wrapped__ = _Source(source)
    signature = _Named([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    signature._names = names
    run.__signature__ = signature


class _Source:
    """Where a function is written: its name and code, without what it holds."""

    def __init__(self, fn: types.FunctionType) -> None:
        self.__name__, self.__code__ = fn.__name__, fn.__code__


def source_of(fn: Any) -> types.FunctionType | None:
    """Return the Python function behind methods, partials and modules; None where there is none."""
    for _ in range(16):
        if isinstance(fn, types.FunctionType):
            return fn
        if hasattr(type(fn), "_is_module"):
            fn = type(fn).forward if hasattr(type(fn), "forward") else type(fn)._run
            continue
        for name in ("__func__", "func", "__wrapped__"):
            inner = inspect.getattr_static(fn, name, None)
            if inner is not None:
                fn = getattr(fn, name)
                break
        else:
            return None
    return None


# -- the store of programs, by content --------------------------------------------------------------
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
                or sum(each.nbytes for each in self._programs.values()) > MOST_BYTES
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


def _found(
    staged: Any, jitted: Any, donated: tuple[int, ...], options: dict[str, Any], anew: bool
) -> Program:
    """Look a traced program up by its content; above a bound, or with callbacks, it is its own."""
    nbytes = _bytes_of_constants(staged.jaxpr)
    if nbytes > HEAVIEST:
        return Program(jitted, nbytes)
    lowered = staged.lower()
    text = lowered.as_text()
    if any(mark in text for mark in _UNSHARED):
        return Program(jitted, nbytes)
    digest = hashlib.sha256(text.encode()).hexdigest()
    avals = tuple(jax.tree.leaves(staged.in_avals)) if hasattr(staged, "in_avals") else ()
    key = (digest, donated, static_key(options), avals, jax.tree.structure(staged.out_info))
    weak = tuple(bool(getattr(x, "weak_type", False)) for x in jax.tree.leaves(staged.out_info))
    return store.find((key, weak), lambda: Program(jitted, nbytes), anew=anew)


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


# -- records name modules of arguments by position: a program serves several models ------------------
def _by_position(infos: tuple[CallInfo, ...], things: list[Any]) -> tuple[CallInfo, ...]:
    if not infos:
        return infos
    where: dict[int, tuple[int, int]] = {}
    for number, thing in enumerate(things):
        if not isinstance(thing, Variable):
            for i, module in enumerate((thing, *plan_of(thing).modules)):
                where.setdefault(id(module), (number, i))
    return tuple(_renamed(info, where.get(id(info.module()), info.module)) for info in infos)


def of_these(infos: tuple[CallInfo, ...], things: list[Any]) -> tuple[CallInfo, ...]:
    """Return the records with the modules that were called this time."""
    if not things:
        return infos
    modules = [
        () if isinstance(thing, Variable) else (thing, *plan_of(thing).modules) for thing in things
    ]
    return tuple(
        _renamed(info, slot_of(modules[info.module[0]][info.module[1]]))
        if type(info.module) is tuple
        else info
        for info in infos
    )


def _renamed(info: CallInfo, module: object) -> CallInfo:
    return info if info.module is module else replace(info, module=module)
