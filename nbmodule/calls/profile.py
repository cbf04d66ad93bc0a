"""`nb.profile`: where the time of a compiled step goes, by module, in the forward pass, the
backward pass and the optimizer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nbmodule.base.foreign import is_foreign
from nbmodule.base.format import (
    count_noun,
    format_number,
    format_percent,
    format_seconds,
    printable_repr,
)
from nbmodule.base.kinds import is_whole
from nbmodule.base.paths import closest
from nbmodule.base.scopes import marks_of, read_scopes
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
from nbmodule.calls.rows import PathRows, table_text
from nbmodule.core.compiled.jit import Jit, jit
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, TraceError

PASSES: tuple[str, ...] = ("forward", "backward", "optimizer", "rest")
_WARM = 3
OUTSIDE = "outside modules"
MOST_OVERHEAD = 0.25
"""Share of a step by which the profiler may change its time before the title doubts the rows."""
_NO_NAMES = (
    "no instruction names a module: another framework's model leaves no names in a compiled "
    "function of your own; nb.profile(model, x) measures it by module"
)


class ProfileRow(NamedTuple):
    """What one module, one optimizer, or one kind of operation directly in it takes in one step."""

    path: str
    """Dotted path of the module; the name of the optimizer; empty for all together."""
    name: str
    """What stands in the row: the last part of the path, or the operation."""
    kind: str
    """`module`, `part` (a list of modules), `optimizer`, `operation`, `outside` of modules, or
    `waiting`.
    """
    depth: int
    forward: float
    """Seconds of one step, with all that is inside."""
    backward: float
    """Likewise, with what `nb.checkpoint` computes again."""
    optimizer: float
    rest: float
    share: float
    """Of the whole step."""
    flops: float
    """Floating-point operations of one step, from the shapes."""
    bytes: float
    """Read and written by its instructions."""

    @property
    def seconds(self) -> float:
        """All passes together."""
        return self.forward + self.backward + self.optimizer + self.rest

    @property
    def flops_per_second(self) -> float:
        """0 where nothing took any time."""
        return self.flops / self.seconds if self.seconds else 0.0


class Profile(PathRows[ProfileRow]):
    """Where the time of one step goes; rows are modules in the order of the tree, the dearest
    first.

    Attributes:
        name: Of the function.
        seconds: What a step takes by itself, measured without the profiler: the median of the runs.
        spread: Half the middle half of the runs, over the median.
        runs: How many were measured each way.
        overhead: How much longer a step took under the profiler, over `seconds`.
        best: FLOP/s of a large matrix product on the same device; of the dearest row, if that is
            more.
        device: On which it ran.
        root: What paths in a graph of the same function begin with: the class of the model that it
            calls, empty for a model itself.
    """

    def __init__(self, name: str, rows: Sequence[ProfileRow], **facts: Any) -> None:
        super().__init__(rows)
        self.name = name
        self.seconds: float = facts["seconds"]
        self.spread: float = facts["spread"]
        self.runs: int = facts["runs"]
        self.overhead: float = facts["overhead"]
        self.best: float = facts["best"]
        self.device: str = facts["device"]
        self.root: str = facts["root"]

    def __getitem__(self, index: str | int | slice) -> Any:
        """A row by position, or that of a module or an optimizer by its path."""
        if not isinstance(index, str):
            return self._rows[index]
        results = [row for row in self._rows if row.path == index and row.kind != "operation"]
        if not results:
            near = closest(index, [row.path for row in self._rows if row.path])
            hint = f' The closest path is "{near}".' if near else ""
            raise PathError(f'no instruction of "{index}" ran in what was profiled.{hint}')
        return results[0]

    @property
    def total(self) -> ProfileRow:
        """All together."""
        return self._rows[0]

    @property
    def times(self) -> dict[str, float]:
        """Seconds by path of module, as graphs write it: `nb.graph(model,
        x).drawn(color=profile.times)`.
        """
        paths = {
            f"{self.root}.{row.path}" if self.root else row.path: row
            for row in self
            if row.kind == "module"
        }
        return {path.rstrip("."): row.seconds for path, row in paths.items() if row.path}

    @property
    def facts(self) -> list[str]:
        """What stands in the first line."""
        work = self.total.flops / self.seconds
        of_best = (
            [f"{format_number(work / self.best, 2)} of the device's best FLOP/s"]
            if self.best and work
            else []
        )
        runs = f"{count_noun(self.runs, 'run')}, ±{100 * self.spread:.0f} %"
        own = f"{format_seconds(self.seconds)} ({runs})"
        return [self.name, own, *self._doubt, *of_best, self.device]

    @property
    def _doubt(self) -> list[str]:
        """A warning where the rows, measured under the profiler, do not add up to `seconds`."""
        if abs(self.overhead) <= MOST_OVERHEAD:
            return []
        return [f"rows not reliable: they add up to {format_seconds(self.total.seconds)}"]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the figures."""
        kinds = {row.kind for row in self[1:]}
        under = (
            f"under the profiler a step took {abs(100 * self.overhead):.0f} % "
            f"{'longer' if self.overhead >= 0 else 'less'}"
        )
        return (
            f"{under}; threads that work at the same time share the time, so that rows add up "
            f"to the step",
            "an instruction that the compiler fused from several modules counts for the one "
            "that it ends in",
            *([_NO_NAMES] if "outside" in kinds and "module" not in kinds else []),
        )

    @printable_repr
    def __repr__(self) -> str:
        rows = [
            row
            for row in self._rows[1:]
            if row.kind != "operation" or (row.path == OUTSIDE and row.share >= 0.01)
        ]
        lines = [
            [
                _indented(row),
                format_percent(row.share, 2),
                *(_cell(getattr(row, item)) for item in PASSES),
            ]
            for row in rows
        ]
        table = [["", "share", *PASSES], *lines[:60]]
        more = [f"… {len(lines) - 60} more rows"] if len(lines) > 60 else []
        return "\n".join(
            [
                " · ".join(self.facts),
                table_text(table),
                *more,
                *(f"  {note}" for note in self.notes),
            ]
        )


def _indented(row: ProfileRow) -> str:
    return "  " * (row.depth - 1) + row.name


def _cell(seconds: float) -> str:
    return format_seconds(seconds) if seconds else ""


def profile(fn: Callable[..., Any], *args: object, runs: int = 10, **kwargs: object) -> Profile:
    """Measure where the time of a compiled function goes, by module: in the forward and backward
    pass, the optimizer, the rest.

    The function runs warm, as it runs in training: first by itself, to know its own time, then
    under JAX's profiler, which gives the time of each instruction; the compiled program says which
    module each was written in. It is compiled for this also where JAX's setting `jax_disable_jit`
    is on. Nothing is changed by it: what a step would write is thrown away, and where it takes its
    arguments over (`donate`), it gets copies.

    Args:
        fn: A function of `nb.jit` or `jax.jit`, any other function (it is compiled by `nb.jit`), a
            module, or a model of Flax, Equinox, Haiku or Keras as it stands.
        *args: What it is called with.
        runs: How many warm runs are measured each way.
        **kwargs: Likewise.

    Raises:
        ArgumentTypeError: `fn` is no function of JAX.
        TraceError: it cannot be compiled, or another profile is being taken.

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
        raise ArgumentError(
            f"runs counts the measured runs: a number of at least 1 is wanted, found {runs!r}."
        )
    runs = int(runs)
    with untracked(), jax.disable_jit(False):
        if is_foreign(fn):
            fn, args, kwargs = socket("as_it_stands")("profile", fn, args, kwargs)
        result = _prepared(fn, args, kwargs)
        times = _timed(result.call, runs)[1]
        spent: list[float] = []
        events = record_events(
            lambda: spent.extend(_timed(result.call, runs, warm=0)[1]), result.module
        )
        times += _timed(result.call, runs, warm=0)[
            1
        ]  # before and after: a machine that gets busier meanwhile is so for both
        owned, best = statistics.median(times), _best_flops()
    existing = [event for event in events if event.name in result.instructions]
    shares = share_out(
        [event for event in existing if result.instructions[event.name].opcode not in CONTAINERS]
    )
    if not existing:
        raise TraceError(
            f"nb.profile found no instruction of {result.words.name} in JAX's profile on "
            f"{jax.default_backend()}: "
            "the step ran, but its device does not say what it did."
        )
    traced = statistics.median(spent)
    rows = _rows(result, shares, sum(spent) / traced, runs, traced)
    quarter = statistics.quantiles(times, n=4) if len(times) > 1 else [owned, owned, owned]
    best = max([best, *(row.flops_per_second for row in rows if row.share > 0.01)])
    facts = {
        "seconds": owned,
        "spread": (quarter[2] - quarter[0]) / 2 / owned,
        "runs": runs,
        "overhead": traced / owned - 1,
    }
    facts["root"] = (
        "" if is_module(fn) or len(result.words.roots) != 1 else next(iter(result.words.roots))
    )
    return Profile(result.words.name, rows, **facts, best=best, device=str(jax.devices()[0]))


# -- what runs --
class _Words(NamedTuple):
    """What the scopes of a function mean."""

    name: str
    """Of the function."""
    roots: frozenset[str] = frozenset()
    """Scopes of models: the names of their classes."""
    modules: frozenset[str] = frozenset()
    """Paths of modules, of all models."""
    optimizers: frozenset[str] = frozenset()


class _Prepared(NamedTuple):
    """A compiled function that can be called again and again."""

    words: _Words
    call: Callable[[], Any]
    """Gives a function that runs it once, with copies of what it takes over."""
    module: str
    """The name of the compiled program."""
    instructions: Mapping[str, Instruction]


def _prepared(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Prepared:
    name = getattr(fn, "__name__", None) or getattr(
        getattr(fn, "fn", None), "__name__", type(fn).__name__
    )
    name = type(fn).__name__ if is_module(fn) else name
    if not callable(fn):
        raise ArgumentTypeError(
            f"nb.profile measures a function that JAX can compile, or a model; found "
            f"{type(fn).__name__}."
        )
    try:
        if not isinstance(fn, Jit) and hasattr(fn, "lower"):
            return _of_jax(fn, name, args, kwargs)
        return _of_nbmodule(fn, name, args, kwargs)
    except (jax.errors.JAXTypeError, TypeError, ValueError) as error:
        if isinstance(error, jax.errors.JAXTypeError) or "lower" in str(error):
            first = (str(error).splitlines() or [""])[0]
            raise TraceError(
                f"nb.profile could not compile {name}: {type(error).__name__}: {first} It "
                f"measures compiled programs, and "
                "this function asks for values while it is traced. Nothing was run or changed; "
                "profile the part of it that can be compiled."
            ) from error
        raise


def _of_nbmodule(
    fn: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Prepared:
    compiled: Any = fn
    if not isinstance(fn, Jit):
        compiled, args, kwargs = _compiled(fn, args, kwargs)
    values = compiled.reached(args, kwargs)
    models = [value for value in values if is_module(value)]
    lowered, supplied = compiled.lowered_apart(args, kwargs)
    others = {type(value).__name__.lower() for value in values if not is_module(value)}
    roots = frozenset(type(model).__name__ for model in models)
    modules = frozenset(
        location.name for model in models for location in plan_of(model).modules.values()
    )
    return _made(lowered, supplied, {}, _Words(name, roots, modules, frozenset(others)))


def _compiled(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Jit, Any, dict[str, Any]]:
    """A compiled form of what is not compiled, and what it is given; flags, numbers and texts are
    fixed, as they are for `fn`.
    """

    def is_input(leaf: object) -> bool:
        return is_stateful(leaf) or hasattr(leaf, "dtype")

    leaves = jax.tree.leaves((args, kwargs), is_leaf=is_stateful)
    if all(map(is_input, leaves)) and not is_module(fn):
        return jit(fn), args, kwargs
    inputs, joined = separated((args, kwargs), is_input, is_stateful)

    def forward(*inputs: object) -> Any:
        args, kwargs = joined(inputs)
        return fn(*args, **kwargs)

    return jit(forward), tuple(inputs), {}


def _of_jax(fn: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Prepared:
    return _made(fn.lower(*args, **kwargs), args, kwargs, _Words(name), fn)


def _made(
    lowered: Any, args: tuple[Any, ...], kwargs: dict[str, Any], words: _Words, run: Any = None
) -> _Prepared:
    program = lowered.compile()
    text = program.as_text()
    run = (
        program if run is None else run
    )  # a function of `jax.jit` has no state, and knows its static arguments
    takes = any(
        getattr(leaf, "donated", False)
        for leaf in jax.tree.leaves(lowered.args_info, is_leaf=_is_info)
    )

    def call() -> Callable[[], Any]:
        supplied, named = (
            jax.block_until_ready(jax.tree.map(_copied, (args, kwargs)))
            if takes
            else (args, kwargs)
        )
        return lambda: run(*supplied, **named)

    module = text.partition(",")[0].removeprefix("HloModule").strip()
    return _Prepared(words, call, module, read_instructions(text))


def _is_info(leaf: object) -> bool:
    return hasattr(leaf, "donated")


def _copied(leaf: object) -> Any:
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf


def _timed(call: Callable[[], Any], runs: int, warm: int = _WARM) -> tuple[float, list[float]]:
    """The median of the seconds of some runs, and all of them; what is copied for a run is no part
    of it.
    """
    results = []
    for number in range(-warm, runs):
        run = call()
        start = time.perf_counter()
        jax.block_until_ready(run())
        if number >= 0:
            results.append(time.perf_counter() - start)
    return statistics.median(results), results


_best: dict[str, float] = {}


def _best_flops() -> float:
    """FLOP/s of a product of large matrices in float32 on the device in use; measured once."""
    backend = jax.default_backend()
    if backend not in _best:
        size = 512 if backend == "cpu" else 4096
        product, x = jax.jit(jnp.dot), jnp.ones((size, size), jnp.float32)
        _, times = _timed(lambda: lambda: product(x, x), 5)
        _best[backend] = 2 * size**3 / min(times)
    return _best[backend]


# -- rows --
class _Sum:
    """What is added up for one path or one operation."""

    __slots__ = ("bytes", "flops", "seconds")

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PASSES, 0.0)
        self.flops = self.bytes = 0.0

    def add(self, spent: str, seconds: float, flops: float, moved: float) -> None:
        self.seconds[spent] += seconds
        self.flops += flops
        self.bytes += moved

    @property
    def all(self) -> float:
        return sum(self.seconds.values())

    def row(self, path: str, name: str, kind: str, depth: int, whole: float) -> ProfileRow:
        share = self.all / whole if whole else 0.0
        return ProfileRow(
            path, name, kind, depth, **self.seconds, share=share, flops=self.flops, bytes=self.bytes
        )


def _rows(
    result: _Prepared, shares: Shares, typical: float, runs: int, whole: float
) -> list[ProfileRow]:
    """The rows of one step that takes `whole`: all runs together took as long as so many typical
    ones, which a slow run may be several of.
    """
    sums: dict[tuple[str, ...], _Sum] = {(): _Sum()}
    operations: dict[tuple[tuple[str, ...], str], _Sum] = {}
    kinds: dict[tuple[str, ...], str] = {(): "module"}
    for name, seconds in shares.seconds.items():
        instruction, times = result.instructions[name], shares.counts[name] / runs
        path, spent, operation = _place(instruction, result)
        work = (spent, seconds / typical, instruction.flops * times, instruction.bytes * times)
        for end in range(len(path) + 1):
            sums.setdefault(path[:end], _Sum()).add(*work)
            kinds.setdefault(path[:end], _kind_of(path[:end], spent, result))
        operations.setdefault((path, operation), _Sum()).add(*work)
    waiting = max(whole - sums[()].all, 0.0)
    sums[()].add("rest", waiting, 0, 0)
    rows = _below((), sums, operations, kinds, sums[()].all)
    wait = _Sum()
    wait.add("rest", waiting, 0, 0)
    return [*rows, wait.row("", "no instruction", "waiting", 1, sums[()].all)]


def _kind_of(path: tuple[str, ...], spent: str, result: _Prepared) -> str:
    if path and spent == "optimizer":
        return "optimizer"
    if path == (OUTSIDE,):
        return "outside"
    return (
        "module"
        if not path or not result.words.modules or ".".join(path) in result.words.modules
        else "part"
    )


def _below(
    path: tuple[str, ...], sums: Any, operations: Any, kinds: Any, whole: float
) -> list[ProfileRow]:
    """A row and those inside it, the dearest first."""
    owned = sums[path]
    rows = [owned.row(".".join(path), path[-1] if path else "all", kinds[path], len(path), whole)]
    inside = [other for other in sums if len(other) == len(path) + 1 and other[: len(path)] == path]
    direct = {name: result for (at, name), result in operations.items() if at == path}
    for other in sorted(inside, key=lambda other: -sums[other].all):
        rows += _below(other, sums, operations, kinds, whole)
    for name in sorted(direct, key=lambda name: -direct[name].all):
        rows.append(direct[name].row(".".join(path), name, "operation", len(path) + 1, whole))
    return rows


def _place(instruction: Instruction, result: _Prepared) -> tuple[tuple[str, ...], str, str]:
    """Under which path an instruction stands, in which pass, and what it does."""
    if not instruction.scopes:
        return (OUTSIDE,), "rest", instruction.opcode
    marks, operation = marks_of(instruction.scopes)
    scopes, phase = read_scopes(marks)
    names = [scope.name for scope in scopes]
    backward = phase in ("backward", "recomputed")
    if names and names[0] in result.words.optimizers and names[0] not in result.words.roots:
        return tuple(names), "optimizer", operation
    if not names:
        is_loss = any(mark.is_transform and mark.text == "jvp" for mark in marks)
        return (
            (OUTSIDE,),
            "backward" if backward else "forward" if is_loss or not result.words.roots else "rest",
            operation,
        )
    if names[0] in result.words.roots and len(result.words.roots) == 1:
        names = names[1:]
    path = tuple(part for name in names for part in name.split("."))
    return path, "backward" if backward else "forward", operation
