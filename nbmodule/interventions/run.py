"""One model on one input, run with many settings: compiled once for each kind,
the numbers as inputs.

A compiled run is a function of the model, the input, and the numbers of the settings. It leaves no
trace: what it writes into variables stays in a frame inside of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.foreign import framework_of, is_foreign, received
from nbmodule.base.kinds import Args, Kwargs, Shaped, is_whole
from nbmodule.base.paths import hint
from nbmodule.base.sockets import socket
from nbmodule.core.call.module import CoreModule
from nbmodule.core.compiled.jit import jit
from nbmodule.core.recording.tracker import Tracker, describe, untracked
from nbmodule.core.structure.copying import unchanged
from nbmodule.core.structure.structure import Static
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.call_log import Log
from nbmodule.core.variables.frame import framed, let_go
from nbmodule.core.variables.variable import weak_value
from nbmodule.errors import ArgumentError, ArgumentTypeError, NotBuiltError, PathError, ShapeError
from nbmodule.interventions.apply_settings import (
    Dials,
    Intervention,
    by_place,
    check_parts,
    is_floating,
    numbers_of,
)
from nbmodule.interventions.patch import with_values
from nbmodule.interventions.targets import (
    ARROW,
    Target,
    names_of,
    patch_point,
    targets,
    values_by_target,
)
from nbmodule.interventions.values import Setting

MOST_PROGRAMS = 64
Metric = Callable[[Any], Any] | int | tuple[Any, ...] | None
TargetSettings = list[tuple[Target, Setting]]
SettingKinds = tuple[tuple[str, Setting], ...]


class RunResult(NamedTuple):
    """The results of one run.

    Attributes:
        output: The first array that the model returned.
        metric: The loss or metric; None if there is none.
        returns: The return of each call; of a run with settings its relative change,
            `|after - before| / |before|`.
    """

    output: Any
    metric: Any
    returns: dict[str, Any]


class RunPlan(NamedTuple):
    """The static part of a run, the key of its compiled function: the arguments without their
    arrays, so that the cached function holds no input, and the number computed from the output.
    """

    tree: Any
    fixed: tuple[Static | None, ...]
    metric: Metric
    loss: Callable[..., Any] | None
    has_target: bool

    @property
    def noun(self) -> str:
        """Name of the number: `loss`, `metric`, `output 3`; empty if there is none."""
        if self.has_target:
            return "loss"
        if self.metric is None:
            return ""
        return "metric" if callable(self.metric) else f"output {self.metric}"

    def number(self, output: Any, target: Any) -> Any:
        """Return the loss or metric of an output; None if there is none."""
        if self.has_target:
            result = (self.loss or default_loss)(output, target)
        elif self.metric is None:
            return None
        elif callable(self.metric):
            result = self.metric(output)
        else:
            result = picked(output, self.metric).mean()
        if jnp.ndim(result):
            raise ShapeError(f"the loss or metric must be one number, got {describe(result)}.")
        return jnp.asarray(result)

    def run(
        self,
        model: CoreModule,
        arrays: Sequence[Any],
        target: object,
        settings: SettingKinds = (),
        numbers: Sequence[list[Any]] = (),
    ) -> RunResult:
        """Call a model while it is traced, with settings at their paths and the numbers of each."""
        supplied = iter(arrays)
        leaves = [next(supplied) if leaf is None else leaf.value for leaf in self.fixed]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        changes = by_place(
            [
                Intervention(targets(model, name)[0], setting, Dials(setting, item))
                for (name, setting), item in zip(settings, numbers)
            ]
        )
        log = Log()
        with Tracker(lambda _: True, _first_floating, ("look", object()), changes=changes):
            output = first_array(framed(lambda _: model(*args, **kwargs), log=log), model)
        let_go()
        return RunResult(output, self.number(output, target), _returns_by_call(model, log))


@lru_cache(maxsize=MOST_PROGRAMS)
def compiled(make: Callable[..., Any], plan: RunPlan, *key: Any) -> Callable[..., Any]:
    """Return `make(plan, *key)` as a compiled function; the same plan and key reuse it."""
    return jit(make(plan, *key))


def clean(plan: RunPlan) -> Callable[..., RunResult]:
    """Return a function that runs the model without settings."""
    return lambda model, arrays, target: plan.run(model, arrays, target)


def changed(plan: RunPlan, settings: SettingKinds) -> Callable[..., RunResult]:
    """Return a function that runs the model with settings, and compares its returns with those of
    another run.
    """

    def compare(
        model: CoreModule,
        arrays: list[Any],
        target: object,
        numbers: list[Any],
        before: dict[str, Any],
    ) -> RunResult:
        after = plan.run(model, arrays, target, settings, numbers)
        off = OrderedDict(
            (name, relative(before[name], x))
            for name, x in after.returns.items()
            if name in before and before[name].shape == x.shape  # an edited model has other parts
        )
        return after._replace(returns=off)

    return compare


class Run:
    """One model on one input.

    Args:
        model: A module, or a model of another framework that can be converted.
        x: Its input; a tuple is a list of arguments.
        kwargs: Its keyword arguments.
        target: The expected output; the loss is the metric then.
        loss: A function of (output, target); by default cross entropy for integer targets, else the
            mean squared error.
        metric: A function of the output, or an index of its last axis, or a whole index.
    """

    def __init__(
        self,
        model: object,
        x: object,
        kwargs: Kwargs,
        *,
        target: object = None,
        loss: Callable[..., Any] | None = None,
        metric: Metric = None,
    ) -> None:
        model, args, kwargs = as_module(model, x if isinstance(x, tuple) else (x,), kwargs)
        if not model.built_:
            raise NotBuiltError(
                f"{type(model).__name__} is not built yet, so there is nothing to change. Call it "
                "once first."
            )
        if loss is not None and target is None:
            raise ArgumentError("a loss compares the output with a target: give target= too.")
        if metric is not None and target is not None:
            raise ArgumentError("give either target=, whose loss is measured, or metric=.")
        parts = metric if isinstance(metric, tuple) else (metric,)
        if not (metric is None or callable(metric) or all(map(is_whole, parts))):
            raise ArgumentTypeError(
                "metric must be a function of the output, an index of its last axis, or a full "
                f"index such as (0, -1, 5), got {metric!r}."
            )
        self.model, self.args, self.kwargs = model, args, kwargs
        self.requested = {"target": target, "loss": loss, "metric": metric}
        self.target = None if target is None else jnp.asarray(received(target, "target"))
        leaves, tree = jax.tree.flatten((args, kwargs))
        self.arrays = [received(leaf, "an argument") for leaf in leaves if is_traced_leaf(leaf)]
        fixed = tuple(None if is_traced_leaf(leaf) else Static(leaf) for leaf in leaves)
        self.plan = RunPlan(tree, fixed, metric, loss, target is not None)
        self.noun = self.plan.noun
        self.renew()

    @property
    def has_changed(self) -> bool:
        """True if variables have changed since `before` was computed."""
        variables = plan_of(self.model).variables
        return len(variables) != len(self._seen) or any(
            value() is not variable.settled() for value, variable in zip(self._seen, variables)
        )

    def require_metric(self, what: str) -> None:
        """Raise if the run computes no number."""
        if not self.noun:
            raise ArgumentError(
                f"{what} needs one number of the output: give target= for the loss, or metric=, "
                "such as the index of a class, or (0, -1, 5)."
            )

    def renew(self) -> None:
        """Run the model with its present variables, without settings."""
        self.before: RunResult = self.call(clean)
        self._seen = [weak_value(variable) for variable in plan_of(self.model).variables]

    def again(self, model: object = None, **requested: Any) -> Run:
        """Return a run of the same input on another model, or with another metric."""
        model = self.model if model is None else model
        return Run(model, self.args, self.kwargs, **(requested or self.requested))

    def row(self, number: int) -> tuple[Any, ...]:
        """Return the arguments with one row of each array that has as many rows as the first."""
        count = self.arrays[0].shape[0] if self.arrays and self.arrays[0].ndim else 0
        if not 0 <= number < count:
            raise ArgumentError(
                f"the input has {count} rows, numbered from 0: there is no row {number}."
            )

        def cut(leaf: Array) -> Any:
            has_rows = is_traced_leaf(leaf) and leaf.ndim > 0 and leaf.shape[0] == count
            return leaf[number : number + 1] if has_rows else leaf

        return jax.tree.map(cut, self.args)

    @property
    def calls(self) -> list[str]:
        """The calls, as paths with the number of the call where there are several:
        `blocks.0.act#1`.
        """
        return list(self.before.returns)

    @property
    def repeated(self) -> list[str]:
        """Paths of the modules that are called several times."""
        return sorted({name.partition("#")[0] for name in self.calls if "#" in name})

    def call(self, make: Callable[..., Any], key: tuple[Any, ...] = (), *supplied: object) -> Any:
        """Call the compiled function `make(plan, *key)` with the model, the arrays of its input,
        the target, and further arguments.
        """
        with unchanged([self.model]), untracked():
            run = compiled(make, self.plan, *key)
            return run(self.model, self.arrays, self.target, *supplied)

    def chosen(self, settings: object) -> TargetSettings:
        """Return the settings with their targets; those that freeze a return get this input."""
        results = []
        for target, setting in values_by_target(self.model, settings):
            if setting.kind == "freeze" and setting.example is None:
                setting = setting._replace(example=self.args, example_name="x")
            location = target.name.partition(f" {ARROW} ")[0]
            if location not in self.before.returns:
                raise PathError(
                    f'"{location}" did not run on this input, or returned no floating '
                    f"array{hint(location, self.calls)}"
                )
            place, at_input, parts = patch_point(target, setting)
            shape = self.before.returns[location].shape
            shape = (*shape[:-1], place.in_features) if at_input else shape
            check_parts(target.name, parts, [at[-1] for _, at in setting.parts], shape)
            results.append((target, setting))
        return results

    def changed(self, chosen: TargetSettings, on: Sequence[bool], before: RunResult) -> RunResult:
        """Run with these settings, each on or off, and compare with `before`."""
        pairs = zip(with_values(self.model, chosen), on)
        numbers = [numbers_of(setting, flag) for (_, setting), flag in pairs]
        return self.call(changed, (kinds_of(chosen),), numbers, before.returns)


def kinds_of(chosen: TargetSettings) -> SettingKinds:
    """Return the static part of settings by path: all but their numbers."""
    return tuple(
        (
            target.name,
            Setting(
                setting.kind, tuple((name, tuple(range(len(at)))) for name, at in setting.parts)
            ),
        )
        for target, setting in chosen
    )


def _first_floating(module: object, inputs: object, outputs: object) -> dict[str, Any]:
    array = next(filter(is_floating, jax.tree.leaves(outputs)), None)
    return {} if array is None else {"first": array}


def _returns_by_call(model: object, log: Log) -> OrderedDict[str, Any]:
    names = {module: name for name, module in names_of(model).items()}
    counts: dict[str, int] = {}
    result = OrderedDict()  # JAX sorts a plain dict
    for info, values in zip(log.infos, log.values):
        name = names.get(info.module()) if info.kind in ("call", "tap") else None
        if name is None or "first" not in values:
            continue
        if info.kind == "tap":
            name = f"{name}.{info.name}" if name else info.name
        number = counts[name] = counts.get(name, -1) + 1
        result[f"{name}#{number}" if number else name] = values["first"]
    return result


def relative(before: Any, after: Any) -> Any:
    """Return the relative change to `after`, as the norm of the difference over that of `before`;
    zero where they differ by rounding alone: by less than the precision of float32, or of their
    dtype if that is finer.
    """
    precision = min(jnp.finfo(dtype).eps for dtype in (before.dtype, jnp.float32))
    before, after = before.astype(_wide(before)), after.astype(_wide(after))
    off, norm = jnp.linalg.norm((after - before).ravel()), jnp.linalg.norm(before.ravel())
    return jnp.where(off <= precision * norm, 0.0, off / norm)


def _wide(x: Shaped) -> Any:
    return jnp.promote_types(x.dtype, jnp.float32)


def first_array(output: object, model: object) -> Any:
    """The first floating array of what a model returned, else its first array."""
    arrays = [leaf for leaf in jax.tree.leaves(output) if is_traced_leaf(leaf)]
    if not arrays:
        raise ArgumentTypeError(
            f"{type(model).__name__} returned {describe(output)}: no array to compare."
        )
    return next(filter(is_floating, arrays), arrays[0])


def is_traced_leaf(leaf: object) -> bool:
    """Return True if a leaf of the arguments is traced; other leaves are static."""
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def picked(output: Any, index: Any) -> Any:
    """One entry of the last axis, or what a whole index names; an index that is not there is an
    error, not the last entry.
    """
    parts = index if isinstance(index, tuple) else (index,)
    sizes = output.shape if isinstance(index, tuple) else output.shape[-1:]
    if len(parts) > len(sizes) or any(not -size <= i < size for i, size in zip(parts, sizes)):
        raise ArgumentError(f"the output {describe(output)} has no entry {index}.")
    return output[index] if isinstance(index, tuple) else output[..., index]


def default_loss(output: Any, target: Any) -> Any:
    """Cross entropy of logits for integer targets, else the mean squared error."""
    if jnp.issubdtype(target.dtype, jnp.integer):
        if target.shape != output.shape[:-1]:
            raise ShapeError(
                f"integer targets {describe(target)} name classes of the last axis of the output "
                f"{describe(output)}, and need its other axes."
            )
        logs = jax.nn.log_softmax(output.astype(_wide(output)))
        return -jnp.take_along_axis(logs, target[..., None], -1).mean()
    if target.shape != output.shape:
        raise ShapeError(
            f"the target {describe(target)} does not have the shape of the output "
            f"{describe(output)}."
        )
    return ((output - target) ** 2).mean()


def as_module(
    model: object, args: Args, kwargs: Kwargs
) -> tuple[CoreModule, tuple[Any, ...], dict[str, Any]]:
    """Return a model as a module, with the arguments for it."""
    if isinstance(model, CoreModule):
        return model, args, kwargs
    if not is_foreign(model) or framework_of(model) == "torch":
        raise ArgumentTypeError(
            f"expected a module, or a model of Flax, Equinox, Haiku or Keras, got "
            f"{type(model).__name__}. Convert one "
            "of PyTorch by nb.from_torch; of any other function, take the module that it calls."
        )
    return socket("native_verb")("module", model, args, kwargs)
