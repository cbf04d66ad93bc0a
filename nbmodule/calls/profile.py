"""`nb.profile`: the time of a compiled step by module, in the forward pass, the backward pass and
the optimizer.
"""

from __future__ import annotations

import inspect
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.flops import counted
from nbmodule.base.foreign import is_foreign
from nbmodule.base.format import count_noun, format_number, format_seconds
from nbmodule.base.kinds import is_whole
from nbmodule.base.scopes import Mark, marks_in, marks_of, read_scopes
from nbmodule.base.sockets import socket
from nbmodule.base.trees import separated
from nbmodule.calls.instructions import (
    CONTAINERS,
    Instruction,
    Shares,
    read_instructions,
    record_events,
    share_out,
)
from nbmodule.calls.isolated import timed
from nbmodule.calls.rows import PathRows
from nbmodule.core.compiled.jit import Jit, jit
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.options import name_of
from nbmodule.core.variables.traceback import shortened
from nbmodule.errors import ArgumentError, ArgumentTypeError, TraceError

PASSES: tuple[str, ...] = ("forward", "backward", "optimizer", "rest")
OUTSIDE = "outside modules"
# Share of a step by which the profiler may change its time before the title doubts the rows.
MOST_OVERHEAD = 0.25
_NO_NAMES = (
    "no instruction names a module: models of other frameworks leave no names in compiled "
    "functions; nb.profile(model, x) measures them by module"
)


class ProfileRow(NamedTuple):
    """The time of one module, one optimizer, or one kind of operation directly in it, in one step.

    Attributes:
        path: Dotted path of the module, or the name of the optimizer; empty for the whole step.
        name: Text of the row: the last part of the path, or the operation.
        kind: `module`, `part` (a list of modules), `optimizer`, `operation`, `outside` of modules,
            or `waiting`.
        forward: Seconds of one step, children included.
        backward: Likewise, with the forward passes that `nb.checkpoint` repeats.
        share: Share of the whole step.
        flops: Floating-point operations of one step, counted from shapes as `nb.graph` and
            `nb.summary` do.
        bytes: Bytes that its instructions read and write.
    """

    path: str
    name: str
    kind: str
    depth: int
    forward: float
    backward: float
    optimizer: float
    rest: float
    share: float
    flops: float
    bytes: float

    @property
    def seconds(self) -> float:
        """Seconds of all passes."""
        return self.forward + self.backward + self.optimizer + self.rest

    @property
    def flops_per_second(self) -> float:
        """FLOPs over seconds; 0 if the row took no time."""
        return self.flops / self.seconds if self.seconds else 0.0


@dataclass(eq=False, repr=False)
class Profile(PathRows[ProfileRow]):
    """The time of one step; rows are modules in the order of the tree, the slowest first.

    Attributes:
        name: Name of the function.
        rows: The rows; the whole step first.
        seconds: Seconds of a step without the profiler: the median of the runs.
        spread: Half the interquartile range of the runs, over the median.
        runs: Number of runs with and without the profiler.
        overhead: Additional time of a step under the profiler, over `seconds`.
        best: FLOP/s of a large matrix product on the same device, or of the step if that is more.
        device: The device.
        root: First part of paths in a graph of the same function: the class of the model that it
            calls; empty for a model itself.
    """

    name: str
    rows: Sequence[ProfileRow]
    _: KW_ONLY
    seconds: float
    spread: float
    runs: int
    overhead: float
    best: float
    device: str
    root: str

    def __post_init__(self) -> None:
        super().__init__(self.rows)

    @property
    def total(self) -> ProfileRow:
        """The row of the whole step."""
        return self._rows[0]

    @property
    def times(self) -> dict[str, float]:
        """Seconds by path of module, as graphs write it: `nb.graph(model,
        x).drawn(color=profile.times)`.
        """
        rows = [row for row in self if row.kind == "module" and row.path]
        return {f"{self.root}.{row.path}".lstrip("."): row.seconds for row in rows}

    @property
    def facts(self) -> list[str]:
        """The parts of the title."""
        runs = f"{count_noun(self.runs, 'run')}, ±{100 * self.spread:.0f} %"
        facts = [self.name, f"{format_seconds(self.seconds)} ({runs})"]
        if abs(self.overhead) > MOST_OVERHEAD:  # the rows, measured under it, do not add up
            total = format_seconds(self.total.seconds)
            facts.append(f"rows not reliable: they add up to {total}")
        work = self.total.flops / self.seconds
        if self.best and work:
            facts.append(f"{format_number(work / self.best, 2)} of the device's best FLOP/s")
        return [*facts, self.device]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the figures."""
        kinds = {row.kind for row in self[1:]}
        under = (
            f"under the profiler a step took {abs(100 * self.overhead):.0f} % "
            f"{'longer' if self.overhead >= 0 else 'less'}"
        )
        return (
            f"{under}; threads that work at the same time share the time, so that rows add up "
            f"to the step",
            "an instruction fused from several modules counts for the last of them",
            *([_NO_NAMES] if "outside" in kinds and "module" not in kinds else []),
        )


@shortened
def profile(fn: Callable[..., Any], *args: object, runs: int = 10, **kwargs: object) -> Profile:
    """Measure the time of a compiled function by module, in the forward pass, the backward pass and
    the optimizer.

    The function runs warm, as in training: first alone, for its total time, then under JAX's
    profiler, which measures each instruction; the metadata of the compiled program assign
    instructions to modules. It is compiled even if JAX's setting `jax_disable_jit` is on. Nothing
    changes: writes are discarded, and a function that donates its arguments gets copies.

    Args:
        fn: A function of `nb.jit` or `jax.jit`, any other function (it is compiled by `nb.jit`), a
            module, or an unconverted model of Flax, Equinox, Haiku or Keras.
        *args: Its arguments.
        runs: Number of warm runs, with and without the profiler.
        **kwargs: Its keyword arguments.

    Raises:
        ArgumentTypeError: `fn` is not callable.
        TraceError: it cannot be compiled, or another profile is running.

    Example:
        >>> model, optimizer = (
        ...     nb.Sequential(nb.Linear(64, 64), nb.ReLU(), nb.Linear(64, 8)),
        ...     nb.Adam(1e-3),
        ... )
        >>> @nb.jit
        ... def step(x):
        ...     loss, gradients = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        ...     optimizer.update(model, gradients)
        ...     return loss
        >>> profile = nb.profile(step, jnp.ones((32, 64)))
        >>> profile["0"].backward > 0, profile["adam"].optimizer > 0, profile["adam"].forward
        (True, True, 0.0)
    """
    if not is_whole(runs) or runs < 1:
        raise ArgumentError(f"runs must be at least 1, got {runs!r}.")
    runs = int(runs)
    with untracked(), jax.disable_jit(False):
        if is_foreign(fn):
            fn, args, kwargs = socket("native_verb")("profile", fn, args, kwargs)
        result = _prepared(fn, args, kwargs)
        times = timed(result.call, runs)
        spent: list[float] = []
        events = record_events(
            lambda: spent.extend(timed(result.call, runs, warm=0)), result.module
        )
        # before and after, so that a change of the load of the machine affects both
        times += timed(result.call, runs, warm=0)
        owned, best = statistics.median(times), _best_flops()
    events = [event for event in events if event.name in result.instructions]
    if not events:
        raise TraceError(
            f"nb.profile found no instruction of {result.name} in JAX's profile on "
            f"{jax.default_backend()}: the step ran, but the device reports no instructions."
        )
    shares = share_out(
        [event for event in events if result.instructions[event.name].opcode not in CONTAINERS]
    )
    traced = statistics.median(spent)
    rows = _rows(result, shares, sum(spent) / traced, runs, traced)
    low, _, high = statistics.quantiles(times, n=4)
    roots = result.roots
    return Profile(
        result.name,
        rows,
        seconds=owned,
        spread=(high - low) / 2 / owned,
        runs=runs,
        overhead=traced / owned - 1,
        best=max(best, rows[0].flops / owned),
        device=str(jax.devices()[0]),
        root="" if is_module(fn) or len(roots) != 1 else next(iter(roots)),
    )


# -- the function --
class _Prepared(NamedTuple):
    """A compiled function that can be called repeatedly, and the meaning of its scopes.

    Attributes:
        name: Name of the function.
        call: Returns a function that runs it once, with copies of donated arguments.
        module: Name of the compiled program.
        roots: Scopes of models: the names of their classes.
        modules: Paths of modules, of all models.
        optimizers: Scopes of optimizers.
    """

    name: str
    call: Callable[[], Any]
    module: str
    instructions: Mapping[str, Instruction]
    jaxpr: Any
    roots: Set[str] = frozenset()
    modules: Set[str] = frozenset()
    optimizers: Set[str] = frozenset()


def _prepared(fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Prepared:
    if not callable(fn):
        raise ArgumentTypeError(
            f"nb.profile takes a model or a function that JAX can compile, got {type(fn).__name__}."
        )
    name = name_of(inspect.unwrap(fn))
    try:
        if isinstance(fn, Jit):
            return _of_nbmodule(fn, name, args, kwargs)
        if hasattr(fn, "trace"):  # of `jax.jit`: it has no state, and knows its static arguments
            traced: Any = fn
            return _made(traced.trace(*args, **kwargs), args, kwargs, name, fn)
        # Flags, numbers and texts are fixed, as they are for `fn`.
        inputs, joined = separated(
            (args, kwargs), lambda leaf: is_stateful(leaf) or hasattr(leaf, "dtype"), is_stateful
        )

        def forward(*inputs: object) -> Any:
            args, kwargs = joined(inputs)
            return fn(*args, **kwargs)

        return _of_nbmodule(jit(forward), name, tuple(inputs), {})
    except jax.errors.JAXTypeError as error:
        first = (str(error).splitlines() or [""])[0]
        raise TraceError(
            f"nb.profile could not compile {name}: {type(error).__name__}: {first} It measures "
            "compiled programs, and this function needs values while it is traced. Profile "
            "the part that can be compiled."
        ) from error


def _of_nbmodule(
    compiled: Jit, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Prepared:
    prepared = _made(*compiled.staged(args, kwargs), name)
    objects = compiled.reached(args, kwargs)
    models = [obj for obj in objects if is_module(obj)]
    return prepared._replace(
        roots={type(model).__name__ for model in models},
        modules={place.name for model in models for place in plan_of(model).modules.values()},
        optimizers={type(obj).__name__.lower() for obj in objects if not is_module(obj)},
    )


def _made(
    traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, run: Any = None
) -> _Prepared:
    lowered = traced.lower()
    program = lowered.compile()
    text = program.as_text()
    takes = any(info.donated for info in jax.tree.leaves(lowered.args_info))

    def call() -> Callable[[], Any]:
        given = (args, kwargs)
        if takes:
            given = jax.block_until_ready(jax.tree.map(_copied, given))
        return lambda: (run or program)(*given[0], **given[1])

    module = text.partition(",")[0].removeprefix("HloModule").strip()
    return _Prepared(name, call, module, read_instructions(text), traced.jaxpr)


def _copied(leaf: object) -> Any:
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf


_best: dict[str, float] = {}


def _best_flops() -> float:
    """Return the FLOP/s of a product of large float32 matrices on the default device, measured
    once.
    """
    backend = jax.default_backend()
    if backend not in _best:
        size = 512 if backend == "cpu" else 4096
        product, x = jax.jit(jnp.dot), jnp.ones((size, size), jnp.float32)
        times = timed(lambda: lambda: product(x, x), 5)
        _best[backend] = 2 * size**3 / min(times)
    return _best[backend]


# -- rows --
Path = tuple[str, ...]
# Seconds of each pass, FLOPs, bytes; by path, and by an operation directly in it, empty for all.
Sums = dict[tuple[Path, str], np.ndarray]


def _rows(
    result: _Prepared, shares: Shares, typical: float, runs: int, whole: float
) -> list[ProfileRow]:
    """Return the rows of one step of `whole` seconds; all runs took as long as `typical` median
    runs.
    """
    sums: Sums = defaultdict(lambda: np.zeros(len(PASSES) + 2))
    kinds: dict[Path, str] = {(): "module"}
    for name, seconds in shares.seconds.items():
        instruction = result.instructions[name]
        path, spent, operation = _place_of_instruction(instruction, result)
        work = np.zeros(len(PASSES) + 2)
        work[PASSES.index(spent)] = seconds / typical
        work[-1] = instruction.bytes * shares.counts[name] / runs
        for at, inside in _keys(path, operation):
            sums[at, inside] += work
            kinds.setdefault(at, _kind_of(at, spent, result))
    for stack, operation, flops in counted(result.jaxpr):
        path, _ = _place(marks_in(stack), result)
        for key in _keys(path, operation):
            if key in sums:  # else it was fused with an instruction of another module
                sums[key][-2] += flops
    total = sums[(), ""]
    waiting = np.zeros(len(PASSES) + 2)
    waiting[PASSES.index("rest")] = max(whole - total[: len(PASSES)].sum(), 0.0)
    total += waiting
    whole = total[: len(PASSES)].sum()
    rows = _below((), sums, kinds, whole)
    return [*rows, _row(waiting, (), "no instruction", "waiting", 1, whole)]


def _keys(path: Path, operation: str) -> list[tuple[Path, str]]:
    """Return the keys of an operation: each part of its path, and itself."""
    return [*((path[:end], "") for end in range(len(path) + 1)), (path, operation)]


def _row(figures: Any, path: Path, name: str, kind: str, depth: int, whole: float) -> ProfileRow:
    *seconds, flops, moved = map(float, figures)
    share = sum(seconds) / whole if whole else 0.0
    return ProfileRow._make((".".join(path), name, kind, depth, *seconds, share, flops, moved))


def _below(path: Path, sums: Sums, kinds: Mapping[Path, str], whole: float) -> list[ProfileRow]:
    """Return a row and those inside it, the slowest first."""

    def dearest(keys: Iterable[tuple[Path, str]]) -> list[tuple[Path, str]]:
        return sorted(keys, key=lambda key: -sums[key][: len(PASSES)].sum())

    depth, name = len(path), path[-1] if path else "all"
    rows = [_row(sums[path, ""], path, name, kinds[path], depth, whole)]
    inside = (key for key in sums if len(key[0]) == depth + 1 and key == ((*path, key[0][-1]), ""))
    for inner, _ in dearest(inside):
        rows += _below(inner, sums, kinds, whole)
    for key in dearest(key for key in sums if key[0] == path and key[1]):
        rows.append(_row(sums[key], path, key[1], "operation", depth + 1, whole))
    return rows


def _kind_of(path: Path, spent: str, prepared: _Prepared) -> str:
    if path and spent == "optimizer":
        return "optimizer"
    if path == (OUTSIDE,):
        return "outside"
    return "module" if not prepared.modules or ".".join(path) in {"", *prepared.modules} else "part"


def _place_of_instruction(instruction: Instruction, prepared: _Prepared) -> tuple[Path, str, str]:
    """Return the path, the pass and the operation of an instruction."""
    if not instruction.scopes:
        return (OUTSIDE,), "rest", instruction.opcode
    marks, operation = marks_of(instruction.scopes)
    return *_place(marks, prepared), operation


def _place(marks: tuple[Mark, ...], prepared: _Prepared) -> tuple[Path, str]:
    """Return the path and the pass of an operation with these scopes."""
    scopes, phase = read_scopes(marks)
    names = [scope.name for scope in scopes]
    spent = "backward" if phase in ("backward", "recomputed") else "forward"
    if not names:
        is_loss = any(mark.is_transform and mark.text == "jvp" for mark in marks)
        is_rest = spent == "forward" and prepared.roots and not is_loss
        return (OUTSIDE,), "rest" if is_rest else spent
    if names[0] in prepared.optimizers and names[0] not in prepared.roots:
        return tuple(names), "optimizer"
    if names[0] in prepared.roots and len(prepared.roots) == 1:
        names = names[1:]
    return tuple(part for name in names for part in name.split(".")), spent
