"""`nb.sweep`: the same setting at each of many places, one by one, in one compiled call;
`nb.trace_causes`: the same with a clean run's returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import format_number, printable_repr
from nbmodule.base.kinds import is_whole
from nbmodule.base.sockets import Shown
from nbmodule.core.structure.naming import entries_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.interventions.apply_settings import numbers_of
from nbmodule.interventions.patch import with_values
from nbmodule.interventions.run import Metric, Run, RunPlan, SettingKinds, TargetSettings, kinds_of
from nbmodule.interventions.targets import Target, heads_of, names_of, patch_point, targets
from nbmodule.interventions.values import Setting, zero

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

OVER = {"heads": "head", "channels": "channel", "units": "unit", "tokens": "token", "layers": ""}
"""Kinds of sweeps, with the part of a return that each goes over."""
ZERO = zero()


def sweep(
    model: object,
    x: object,
    over: str = "heads",
    setting: Setting = ZERO,
    *,
    only: object = None,
    block: int = 1,
    target: object = None,
    loss: Callable[..., Any] | None = None,
    metric: Metric = None,
    chunk: int = 16,
    **kwargs: object,
) -> Sweep:
    """Change each head of each layer (or channel, unit, token, layer) one by one, and measure the
    effect on the loss or on an output.

    All runs are one compiled call, `chunk` of them at a time.

    Args:
        model: A module, or a model of Flax, Equinox, Haiku or Keras.
        x: Its input; a tuple is a list of arguments.
        over: `heads`, `channels`, `units`, `tokens` or `layers`.
        setting: The change of each; `nb.zero()` by default. It names no parts itself.
        only: Modules, paths or globs; by default all that have such parts: attention layers, those
            with a layout of images, linear layers.
        block: How many neighbors are changed at a time.
        target: The expected output; the loss is measured.
        loss: A function of (output, target), as in `nb.what_if`.
        metric: The number to measure instead of a loss, as in `nb.what_if`.
        chunk: How many runs are done at the same time; less takes less memory.
        **kwargs: Keyword arguments of the model.

    Raises:
        ArgumentError: neither target nor metric was given, or there is nothing to go over.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
        >>> found = nb.sweep(model, jnp.ones((1, 3)), "units", only="0", metric=0)
        >>> found.rows, found.values.shape
        (('0',), (1, 4))
    """
    run = Run(model, x, kwargs, target=target, loss=loss, metric=metric)
    return run_sweep(run, over, setting, only=only, block=block, chunk=chunk)


def trace_causes(
    model: object,
    clean: object,
    corrupted: object,
    metric: Metric,
    *,
    only: object = None,
    chunk: int = 16,
    **kwargs: object,
) -> Sweep:
    """Restore the return of each module at each position of a clean run in a corrupted run, one by
    one (causal tracing).

    `values` are the metric with that one return restored, `recovered` the share of the difference
    that it recovers: 1 where the output is as in the clean run, 0 where nothing changes.

    Args:
        model: A module, or a model of Flax, Equinox, Haiku or Keras.
        clean: Its input; a tuple is a list of arguments.
        corrupted: Another input, of the same shapes.
        metric: A function of the output, the index of a class, or a whole index such as `(0, -1,
            5)`.
        only: Modules, paths or globs; by default all that return as many positions as the first one
            does. A module that is called several times has no one return to put back: by default it
            is left out, and named in `notes`.
        chunk: How many runs are done at the same time.
        **kwargs: Keyword arguments of the model.

    Example:
        >>> model = nb.Sequential(nb.Embedding(5, 4), nb.Linear(4, 5))
        >>> found = nb.trace_causes(model, jnp.array([[1, 2]]), jnp.array([[1, 3]]), (0, -1, 2))
        >>> found.rows, found.recovered.round(3)
        (('0', '1'), array([[0., 1.],
               [0., 1.]]))

    Source: Meng et al. (2022), arXiv:2202.05262.
    """
    run = Run(model, corrupted, kwargs, metric=metric)
    whole = Run(model, clean, kwargs, metric=metric)
    result = run_sweep(
        run, "tokens", Setting("example", example=whole.args), only=only, chunk=chunk
    )
    result.clean = float(whole.before.metric)
    return result


@dataclass(eq=False, repr=False)
class Sweep(Shown):
    """The result of `nb.sweep` and `nb.trace_causes`.

    Attributes:
        name: The class of the model.
        over: The kind of parts.
        setting: The change of each part.
        rows: Paths of the modules.
        columns: Indices of the parts, the first one of each block; one empty text for whole layers.
        values: The metric of each run, `(rows, columns)`; NaN also where a module has no such part,
            see `has`.
        before: The metric without any setting.
        noun: Name of the metric.
        block: How many neighbors were changed at a time.
        counts: How many parts each row has.
        notes: Modules that were left out.
        clean: Of `nb.trace_causes` the metric of the clean run.
    """

    name: str
    over: str
    setting: Setting
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    before: float
    noun: str
    block: int = 1
    counts: Sequence[int] = ()
    notes: Sequence[str] = ()
    clean: float | None = None

    @property
    def changes(self) -> np.ndarray:
        """Changes of the metric: `values - before`."""
        return self.values - self.before

    @property
    def recovered(self) -> np.ndarray:
        """Of `nb.trace_causes` the share of the difference between the two runs that each return
        recovers.
        """
        if self.clean is None:
            raise ArgumentError(
                "only nb.trace_causes has a clean run; `changes` of a sweep has the change of the "
                "metric."
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.changes / (self.clean - self.before)

    @property
    def shown_values(self) -> np.ndarray:
        """The numbers of the heat map."""
        return self.changes if self.clean is None else self.recovered

    def has(self, row: int, column: int) -> bool:
        """Return True if a module has such a part."""
        return not OVER[self.over] or int(self.columns[column]) < self.counts[row]

    def most(self, count: int = 5) -> list[SweepCell]:
        """The largest changes first; numbers that are not finite come before all others.

        Example:
            >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
            >>> found = nb.sweep(model, jnp.ones((1, 3)), "layers", metric=0)
            >>> sorted(each.path for each in found.most())
            ['0', '1', '2']
        """
        cells = list(self)
        sizes = np.nan_to_num(np.abs([cell.shown for cell in cells]), nan=np.inf)
        return [cells[k] for k in np.argsort(-sizes, kind="stable")[:count]]

    def at(self, row: int, column: int) -> SweepCell:
        """Return one cell of the map, with its setting."""
        part = OVER[self.over]
        first = int(self.columns[column]) if part else 0
        indices = tuple(range(first, min(first + self.block, self.counts[row]))) if part else ()
        setting = self.setting._replace(parts=((part, indices),) if part else ())
        return SweepCell(
            self.rows[row],
            setting,
            float(self.values[row, column]),
            float(self.shown_values[row, column]),
        )

    def __iter__(self) -> Iterator[SweepCell]:
        return (self.at(*place) for place in np.ndindex(self.values.shape) if self.has(*place))

    def __len__(self) -> int:
        return sum(self.has(*place) for place in np.ndindex(self.values.shape))

    @property
    def facts(self) -> tuple[str, ...]:
        """The parts of the title."""
        part = OVER[self.over] or "layer"
        blocks = "" if self.block == 1 else f" in blocks of {self.block}"
        before = f"{self.noun} {format_number(self.before)}"
        if self.clean is None:
            done, shown = self.setting.words, f"change of {self.noun}"
        else:
            done, shown = "as in the clean run", "share that comes back"
            before += f", clean {format_number(self.clean)}"
        return self.name, f"each {part}{blocks} {done}", before, shown, *self.notes

    @printable_repr
    def __repr__(self) -> str:
        """The map as numbers."""
        columns, shown = range(len(self.columns)), self.shown_values
        left = columns[12:-3] if len(columns) > 16 else ()
        kept = [c for c in columns if c not in left]
        table = [["", *(self.columns[c] for c in kept)]]
        for r, name in enumerate(self.rows):
            numbers = [format_number(float(shown[r, c]), 3) if self.has(r, c) else "" for c in kept]
            table.append([name, *numbers])
        first, *widths = (max(map(len, column)) for column in zip(*table))
        lines = [" · ".join(self.facts)]
        for name, *cells in table:
            aligned = "".join(f"  {cell.rjust(width)}" for cell, width in zip(cells, widths))
            lines.append((name.ljust(first) + aligned).rstrip())
        if left:
            lines.append(f"columns {left[0]} to {left[-1]} are left out")
        return "\n".join(lines)


@dataclass(frozen=True)
class SweepCell:
    """One cell of a sweep: path, setting, metric, and the number in the heat map."""

    path: str
    setting: Setting
    value: float
    shown: float


def run_sweep(
    run: Run, over: str, setting: Setting, *, only: object = None, block: int = 1, chunk: int = 16
) -> Sweep:
    """Run a sweep; see `sweep`."""
    _check(run, over, setting, block, chunk)
    block, chunk, part = int(block), int(chunk), OVER[over]
    tried = setting
    if setting.kind == "freeze" and setting.example is None:
        tried = setting._replace(example=run.args)
    # another run has no one value for what is called several times
    repeated = run.repeated if only is None and tried.example is not None else []
    modules, counts = _swept_modules(run, over, only, repeated)
    starts = range(0, max(counts), block)
    cells = [
        (r, c) for r, count in enumerate(counts) for c, start in enumerate(starts) if start < count
    ]
    chosen: TargetSettings = [
        (target, tried._replace(parts=((part, tuple(range(min(block, n)))),) if part else ()))
        for target, n in zip(modules, counts)
    ]
    numbers = [numbers_of(setting) for _, setting in with_values(run.model, chosen)]
    on = np.zeros((len(cells), len(modules)), bool)
    on[np.arange(len(cells)), [r for r, _ in cells]] = True
    values = np.full((len(modules), len(starts)), np.nan)
    values[tuple(zip(*cells))] = run.call(
        _sweep_function,
        (kinds_of(chosen), part, chunk),
        numbers,
        on,
        np.asarray([starts[c] for _, c in cells], np.int32),
    )
    left_out = f"called several times, and left out: {', '.join(repeated)}"
    return Sweep(
        type(run.model).__name__,
        over,
        setting,
        tuple(target.name for target in modules),
        tuple(map(str, starts)) if part else ("",),
        values,
        float(run.before.metric),
        run.noun,
        block,
        counts,
        (left_out,) if repeated else (),
    )


def _sweep_function(
    plan: RunPlan, settings: SettingKinds, part: str, chunk: int
) -> Callable[..., Any]:
    """Return a function that computes the metric of each cell; the row that is on and its first
    index are inputs.
    """

    def sweeping(
        model: CoreModule, arrays: list[Any], target: Any, fixed: list[Any], on: Any, start: Any
    ) -> Any:
        def one(cell: Any) -> Any:
            flags, first = cell
            numbers = [[flag, *others] for flag, (_, *others) in zip(flags, fixed)]
            for each in numbers if part else ():
                each[3] = each[3] + first
            return plan.run(model, arrays, target, settings, numbers).metric

        return jax.lax.map(one, (on, jnp.asarray(start)), batch_size=min(chunk, on.shape[0]))

    return sweeping


def _check(run: Run, over: str, setting: Setting, block: int, chunk: int) -> None:
    if not isinstance(over, str) or over not in OVER:
        raise ArgumentError(f"over must be one of {', '.join(OVER)}, got {over!r}.")
    if not isinstance(setting, Setting):
        raise ArgumentTypeError(
            f"a sweep takes a value such as nb.zero(), got {type(setting).__name__}."
        )
    if setting.parts:
        raise ArgumentError(
            f"the sweep itself goes over {over}: give {setting.kind} without "
            f"{setting.parts[0][0]}=."
        )
    if setting.kind == "skip" and over != "layers":
        raise ArgumentError("nb.skip() skips whole layers: sweep over 'layers'.")
    run.require_metric("a sweep")
    for name, value, least in (("block", block, 1), ("chunk", chunk, 1)):
        if not is_whole(value) or value < least:
            raise ArgumentError(f"{name} must be an integer of at least {least}, got {value!r}.")


def _swept_modules(
    run: Run, over: str, only: object, left_out: list[str]
) -> tuple[list[Target], list[int]]:
    """Return the modules of a sweep, each with its number of parts."""
    named = names_of(run.model)
    ran = {
        path: named[path] for path in run.before.returns if path in named and path not in left_out
    }  # in the order of the calls; those that ran several times once
    if only is not None:
        expected = set()
        for entry in entries_of("only", only):
            names = {target.name for target in targets(run.model, entry)}
            if names.isdisjoint(ran):
                raise PathError(
                    f'"{min(names)}" did not run, or returned no array, so there is nothing to '
                    "sweep over."
                )
            expected |= names
        ran = {path: module for path, module in ran.items() if path in expected}
    elif over in ("layers", "tokens"):
        ran.pop("", None)
    counts = {path: _count(over, path, run, only is not None) for path in ran}
    if over == "tokens":
        length = next(filter(None, counts.values()), 0)
        counts = {path: count for path, count in counts.items() if count == length}
    counts = {path: count for path, count in counts.items() if count}
    if counts:
        return [Target(path, named[path]) for path in counts], list(counts.values())
    names = ", ".join(left_out)
    why = f": {names} are called several times, so that no single value can be restored"
    where = ". Name modules with only=." if only is None else f" at {only!r}."
    raise ArgumentError(
        f"{type(run.model).__name__} has nothing to sweep over {over}{why if names else ''}{where}"
    )


def _count(over: str, path: str, run: Run, is_named: bool) -> int:
    """Return the number of parts of a module; 0 if it is not swept over."""
    shape, module = run.before.returns[path].shape, names_of(run.model)[path]
    if over == "heads":
        return heads_of(module)[0]
    if over == "layers":
        return 1
    if over == "channels" and not (is_named or getattr(module, "data_format", None)):
        return 0
    if over == "units" and not (is_named or hasattr(module, "out_features")):
        return 0
    location = patch_point(Target(path, module), Setting("zero", ((OVER[over], (0,)),)))
    axis = location.parts[0].axis
    least = 3 if over == "tokens" else 1
    return shape[axis] if len(shape) >= max(least, -axis) else 0
