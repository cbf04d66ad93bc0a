"""`nb.patch`: run a model with the returns of some submodules changed, while a block runs or
once.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any, NamedTuple, overload

import jax

from nbmodule.base.foreign import framework_of, is_foreign
from nbmodule.base.kinds import Args
from nbmodule.base.sockets import socket
from nbmodule.core.recording.tracker import (
    TrackedBlock,
    Tracker,
    keeps_nothing,
    untracked,
    wants_none,
)
from nbmodule.core.structure.copying import unchanged
from nbmodule.core.structure.naming import entries_of
from nbmodule.core.structure.walk import is_module
from nbmodule.core.variables.call_log import Log
from nbmodule.core.variables.frame import EAGER, framed, here, now, slot_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, TraceError
from nbmodule.interventions.apply_settings import (
    Intervention,
    by_place,
    dials_for,
    is_floating,
    mean_of,
)
from nbmodule.interventions.targets import ARROW, Target, patch_point, values_by_target
from nbmodule.interventions.values import Setting, from_example


class Patch(NamedTuple):
    """The returns of the model: on the clean input, on the corrupt one, and on the corrupt one with
    returns of the clean run.
    """

    clean: Any
    corrupt: Any
    patched: Any


@overload
def patch(model: object, settings: Mapping[Any, Any], /) -> Patching: ...
@overload
def patch(model: object, x_clean: object, x_corrupt: object, path: object) -> Patch: ...
def patch(model: Any, x_clean: Any, x_corrupt: Any = None, path: Any = None) -> Any:
    """Change the returns of submodules while a block runs; or run once with the returns of another
    input (activation patching).

    `with nb.patch(model, {'blocks.3.attention': nb.zero(head=2)}):` changes every call of the model
    in the block, compiled by `nb.jit` or not, also training steps. A target is a module, its path,
    a glob, the name of an `nb.tap` below a path, or an edge `'a -> b'`: then only `b` gets the
    changed return of `a`, alone or as part of a sum such as a residual stream. The numbers of
    settings are inputs of the compiled program: another number, head or example of the same shapes
    compiles nothing. Nested blocks add up, the outermost first.

    `nb.patch(model, x_clean, x_corrupt, path)` runs the model on both inputs and gives the returns:
    clean, corrupt, and corrupt with the returns at `path` as they were on the clean input. All runs
    draw the same random numbers, and none changes a buffer.

    Args:
        model: The model; with settings also an unconverted one of Flax, Equinox, Haiku or Keras,
            run without `jax.jit`. Parts of linen and Haiku exist only while they are applied, so a
            path that is not called is reported at the end of the block.
        x_clean: The settings: a mapping from targets to `nb.zero`, `nb.scale_by` and the like, or
            lists of them. Or the clean input; a tuple is a list of arguments, variables first where
            they stand beside the model.
        x_corrupt: Another input, of the same shapes.
        path: A submodule, its path, a glob such as `blocks.*.mlp`, or several of these.

    Raises:
        PathError: no such submodule, or it did not run.
        ArgumentError: there is no such head, unit or token; or a target runs several times in one
            call, so that its return is not one value.
        TraceError: inside of a function that is being traced.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.patch(model, {"1": nb.scale_by(2.0)}):
        ...     y = model(jnp.ones((1, 3)))
        >>> bool((y == 2 * model(jnp.ones((1, 3)))).all())
        True
        >>> found = nb.patch(model, jnp.ones((1, 3)), jnp.zeros((1, 3)), "0")
        >>> bool((found.patched == found.clean).all())
        True
    """
    if x_corrupt is None and path is None:
        return Patching(model, x_clean)
    clean, corrupt = (x if isinstance(x, tuple) else (x,) for x in (x_clean, x_corrupt))
    if is_foreign(model):
        return socket("native_verb")("patch", model, clean, {}, corrupt=corrupt, path=path)
    settings = dict.fromkeys(entries_of("path", path), from_example(*clean))

    def run(args: Args) -> Any:
        log = None if now.tracker is None else now.tracker.log
        with unchanged([model]):
            return framed(lambda _: model(*args), log=log)  # its writes are dropped

    with untracked():
        with Patching(model, settings):
            patched = run(corrupt)
        return Patch(run(clean), run(corrupt), patched)


class Patching(TrackedBlock):
    """The context manager that `nb.patch` gives; see there."""

    def __init__(self, model: object, settings: Mapping[Any, Any]) -> None:
        cls = framework_of(model)
        if cls == "torch":
            raise ArgumentTypeError(
                f"{type(model).__name__} runs in PyTorch, where nb.patch takes no values. Convert "
                "it, as in nb.patch(nb.from_torch(model), settings), or put the returns for one "
                "example into the run of another: nb.patch(model, x, x_other, path)."
            )
        self.foreign = None if is_module(model) else socket("watched")(model)
        self.model = model if self.foreign is None else self.foreign.module
        self.settings = settings
        if cls in ("flax_linen", "haiku"):
            expect(self.foreign, model, settings)
        self._span = threading.Lock()  # held while the returns are changed
        self._interventions: list[Intervention] = []
        self._seen = _PatchLog(None, [])

    def __enter__(self) -> Patching:
        if now.frame is not None or here() != EAGER:
            raise TraceError(
                "nb.patch was entered inside a traced function or under v=. Put the `with` around "
                "the call of the compiled function."
            )
        if self._span.locked():
            raise TraceError("this patch is already open: make another one with nb.patch.")
        try:
            chosen = values_by_target(self.model, self.settings)
            for target, setting in with_values(self.model, chosen, self.foreign):
                dials = dials_for(setting, target)
                self._interventions.append(Intervention(target, setting, dials))
                dials.is_taken = True
            changes = by_place(self._interventions)
            self._seen = _PatchLog(now.tracker, self._interventions)
            key = ("patch", *(intervention.key for intervention in self._interventions))
            Tracker(
                wants_none, keeps_nothing, key, changes=changes, log=self._seen, span=self._span
            ).__enter__()
            self._watch()
        except BaseException:
            self._close()
            raise
        return self

    def _leave(self, category: object, error: BaseException | None, trace: object) -> None:
        interventions = list(self._interventions)
        try:
            self._close()
        finally:
            self._close()
        unmet = [each.target for each in interventions if each.place not in self._seen.met]
        missing = sorted({target.name or type(self.model).__name__ for target in unmet})
        if error is None and missing:
            warnings.warn(
                f"nb.patch changed nothing at {', '.join(missing)}: it was not called in the "
                f"block, or only inside of a function that "
                "jax.jit had compiled before (use nb.jit).",
                RuntimeWarning,
                stacklevel=2,
            )

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            while self._interventions:
                self._interventions[-1].dials.is_taken = False  # others may use them
                self._interventions.pop()


def expect(foreign: Any, model: object, settings: Mapping[Any, Any]) -> None:
    """Register the paths of settings with a model whose submodules exist only while it is
    applied.
    """
    ends = [end.strip() for key in settings if isinstance(key, str) for end in key.split(ARROW)]
    if any(set("*?[") & set(end) for end in ends):
        raise ArgumentTypeError(
            f"the parts of {type(model).__name__} exist only while it is applied, so a glob "
            f"matches none of them before. Give their paths as nb.track shows them, ask "
            f"nb.what_if(model, "
            "(variables, x), {...}), or convert it: nb.from_flax(model, variables), "
            "nb.from_haiku(net, params)."
        )
    for end in filter(None, ends):
        foreign.expect(end)


class _PatchLog(Log):
    """A log that keeps only the modules, and (module, name) of taps, that were called, and passes
    the calls on to the tracker around it.

    When an outermost call ends, edges forget what was sent in it.
    """

    __slots__ = ("interventions", "met", "outer")

    def __init__(self, outer: Any, interventions: list[Intervention]) -> None:
        super().__init__()
        self.interventions = interventions
        self.outer: Log | None = None if outer is None else outer.log
        self.met: set[Any] = set()

    def end(self, *args: Any, **kwargs: Any) -> None:
        super().end(*args, **kwargs)
        self._let_go()

    def merge(self, *args: Any, **kwargs: Any) -> None:
        super().merge(*args, **kwargs)
        self._let_go()

    def _let_go(self) -> None:
        if self.open >= 0:
            return
        for info in self.infos:
            module = info.module()
            self.met.add((module, info.name) if info.kind == "tap" else module)
        if self.outer is not None:
            self.outer.merge(tuple(self.infos), list(self.values))
        self.rewind((0, -1, 0))
        for intervention in self.interventions:
            intervention.sent = None


def with_values(
    model: object, chosen: list[tuple[Target, Setting]], foreign: object = None
) -> list[tuple[Target, Setting]]:
    """Return settings with their values, from runs of the model on their examples."""
    examples: dict[Any, tuple[Any, ...]] = {}
    places: dict[Any, set[Any]] = {}
    for target, setting in chosen:
        if setting.example is not None:
            key = tuple(map(id, setting.example))
            examples[key] = setting.example
            places.setdefault(key, set()).add(patch_point(target, setting)[:2])
        elif setting.kind == "freeze":
            raise ArgumentError(
                f'"{target.name}": nb.freeze() needs the example input here; write nb.freeze(x).'
            )
    runs = {key: record_at(model, foreign, examples[key], places[key]) for key in examples}
    return [(target, _with_value(target, setting, runs)) for target, setting in chosen]


def _with_value(target: Target, setting: Setting, runs: Mapping[Any, Any]) -> Setting:
    if setting.example is None:
        return setting
    location, at_input, parts = patch_point(target, setting)
    met = runs[tuple(map(id, setting.example))].get((location, at_input), [])
    if len(met) != 1:
        times = "did not run" if not met else f"runs {len(met)} times in one call"
        raise (ArgumentError if met else PathError)(
            f'"{target.name}" {times} on the example, so no single value can replace it. Name '
            "another target, or give each call its own module."
        )
    arrays = met[0][:1] if parts else met[0]
    is_mean = setting.kind == "mean"
    return setting._replace(values=tuple(mean_of(x, parts) if is_mean else x for x in arrays))


def record_at(
    model: Any,
    foreign: Any,
    example: Args,
    places: set[Any],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> dict[Any, list[Any]]:
    """Return the returns, or inputs, at targets on an example; the run changes nothing.

    Values are recorded in a log, so that they also leave functions that the model compiles or scans
    itself.
    """
    log = Log()
    slots = frozenset(
        slot_of(location[0] if isinstance(location, tuple) else location) for location, _ in places
    )
    received = Tracker(
        lambda module: slot_of(module) in slots, _floating_values, ("heard", slots), log=log
    )
    with unchanged([model]), untracked(), received:
        if foreign is None:
            framed(lambda frame: model(*example, **kwargs), log=log)
        else:
            apply = getattr(foreign.model, "apply", foreign.model)  # if variables stand beside it
            with closing(foreign.watching()) as watching:  # whose parts are the places
                next(watching)
                apply(*example, **kwargs)
    met: dict[Any, list[Any]] = {}
    for info, values in zip(log.infos, log.values):
        location = (info.module(), info.name) if info.kind == "tap" else info.module()
        for at_input, retained in ((True, "given"), (False, "returned")):
            if (location, at_input) in places and retained in values:
                met.setdefault((location, at_input), []).extend(
                    _each(values[retained], info.lifted)
                )
    return met


def _floating_values(module: object, inputs: Any, outputs: object) -> dict[str, Any]:
    trees = {"returned": outputs}
    if inputs is not None and inputs[0]:
        trees["given"] = inputs[0][0]
    return {name: list(filter(is_floating, jax.tree.leaves(x))) for name, x in trees.items()}


def _each(arrays: list[Any], lifted: tuple[str, ...]) -> list[list[Any]]:
    """Return the arrays of each iteration of a scan; the rows of a mapped call stay together."""
    results, axis = [arrays], 0
    for how in lifted:  # the outermost first
        kind, _, size = how.rpartition(" ")
        if kind == "vmap":
            axis += 1
        elif size.isdigit():
            results = [[x.take(i, axis) for x in row] for row in results for i in range(int(size))]
    return results
