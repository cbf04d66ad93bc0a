"""`nb.what_if`: the effect of settings on the output, on each later module and on the loss, for one
input.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.format import format_number, printable_repr
from nbmodule.base.sockets import Shown, socket
from nbmodule.core.numbers import random
from nbmodule.core.structure.copying import unchanged
from nbmodule.errors import ArgumentError
from nbmodule.interventions.apply_settings import Intervention, Interventions, by_place
from nbmodule.interventions.attribute import Attribution, attribute
from nbmodule.interventions.edit import Edits
from nbmodule.interventions.patch import with_values
from nbmodule.interventions.run import Metric, Run, TargetSettings
from nbmodule.interventions.sweep import ZERO, Sweep, run_sweep
from nbmodule.interventions.targets import targets
from nbmodule.interventions.values import Setting


@dataclass(frozen=True)
class WhatIfResult:
    """The effect of settings, as data.

    Attributes:
        before: The first array that the model returned.
        after: The same with the settings.
        changes: Relative change of the return of each call, `|after - before| / |before|`, in the
            order in which the calls began. `blocks.0.act#1` is the second call of `blocks.0.act`.
        metric_before: The loss or the metric; None if there is none.
        metric_after: The same with the settings.
    """

    before: np.ndarray
    after: np.ndarray
    changes: dict[str, float]
    metric_before: float | None = None
    metric_after: float | None = None

    @property
    def difference(self) -> np.ndarray:
        """`after - before`."""
        return self.after - self.before


class Trial(NamedTuple):
    """One setting at the path of its target, on or off."""

    where: str
    setting: Setting
    on: bool = True


def what_if(
    model: object,
    x: object,
    settings: Mapping[Any, Any] | None = None,
    *,
    target: object = None,
    loss: Callable[..., Any] | None = None,
    metric: Metric = None,
    **kwargs: object,
) -> WhatIf:
    """Change the returns of submodules, and compare the output, each later return and the loss with
    a clean run.

    Nothing of the model changes, also no buffer, random stream or flag. One compiled run serves all
    settings of one kind.

    Args:
        model: A module, or a model of Flax, Equinox, Haiku or Keras.
        x: Its input; a tuple is a list of arguments.
        settings: From places to settings, as `nb.patch` takes them.
        target: The expected output; the loss before and after is computed.
        loss: A function of (output, target); by default cross entropy for integer targets, else the
            mean squared error.
        metric: Instead of a target: a function of the output, the index of a class (the mean of
            that output), or a whole index.
        **kwargs: Keyword arguments of the model.

    Raises:
        PathError: a place is not there.
        ArgumentError: a head, unit or token is not there.
        NotBuiltError: the model has never been called, and builds itself then.

    Example:
        >>> nb.seed(0)
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
        >>> found = nb.what_if(model, jnp.ones((1, 3)), {"1": nb.zero()}, metric=0)
        >>> found.result.changes["1"], found.result.changes["0"]
        (1.0, 0.0)
        >>> print(found.code)
        with nb.patch(model, {"1": nb.zero()}):
            y = model(x)
    """
    return WhatIf(Run(model, x, kwargs, target=target, loss=loss, metric=metric), settings)


_STATE = ("run", "current", "tried", "edited", "_past")
"""Attributes of a `WhatIf` that `undo` restores."""


class TriedEdit(NamedTuple):
    """One edit: the name of a method of `nb.edit`, its arguments, and its line of code."""

    method: str
    args: tuple[Any, ...]
    code: str


class WhatIf(Shown):
    """The result of `nb.what_if`. Settings and edits can be added, turned, switched and
    taken away: each is tried at once.

    Attributes:
        run: The model and its input.
        current: The run of the model with its edits.
        tried: The settings, in order.
        edited: The edits; they are made on a copy of the model until `keep()`.
        swept: The last sweep.
        attributed: The last attribution.
    """

    def __init__(self, run: Run, settings: Mapping[Any, Any] | None = None) -> None:
        self.run = self.current = run
        self.tried: list[Trial] = []
        self.edited: list[TriedEdit] = []
        self.swept: Sweep | None = None
        self.attributed: Attribution | None = None
        self._past: list[Callable[[], None]] = []
        self._result: WhatIfResult | None = None
        """The result; None where it is to be computed anew."""
        if settings:
            self.add(settings)

    @property
    def name(self) -> str:
        """Name of the class of the model."""
        return type(self.run.model).__name__

    @property
    def nbytes(self) -> int:
        """Bytes of the returns of the clean run."""
        return sum({id(x): x.nbytes for x in self.run.before.returns.values()}.values())

    @property
    def result(self) -> WhatIfResult:
        """The effect of the settings and edits, as data."""
        self._follow()
        if self._result is None:
            self._result = self._compute()
        return self._result

    @property
    def can_undo(self) -> bool:
        """True if there is a step to take back."""
        return bool(self._past)

    @property
    def edit_code(self) -> str:
        """The edits as lines of code."""
        return "\n".join(edit.code for edit in self.edited)

    @property
    def has_changed(self) -> bool:
        """True if variables of the model have changed since the clean run; never with edits, which
        are made on a copy.
        """
        return not self.edited and self.run.has_changed

    def _follow(self) -> None:
        if self.has_changed:
            self.run.renew()
            self._result = None

    def _compute(self) -> WhatIfResult:
        before, run = self.run.before, self.current
        on = [item.on for item in self.tried]
        after = run.changed(_chosen(run.model, self.tried), on, before)
        changes = jax.device_get(dict(after.returns))
        return WhatIfResult(
            np.asarray(before.output),
            np.asarray(after.output),
            {path: float(changes[path]) for path in after.returns},
            _number(before.metric),
            _number(after.metric),
        )

    # -- settings --
    def add(self, settings: Mapping[Any, Any]) -> WhatIf:
        """Add settings; if one is invalid, nothing changes.

        Example:
            >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
            >>> found = nb.what_if(model, jnp.ones((1, 3))).add({"0": nb.zero()})
            >>> float(found.result.after.max())
            0.0
        """
        new = [Trial(target.name, setting) for target, setting in self.current.chosen(settings)]
        return self._with(len(self.tried), *new)

    def turn(self, number: int, value: float) -> WhatIf:
        """Give another number to a setting: the factor of `nb.scale_by`, the deviation of
        `nb.add_noise`.
        """
        old = self._at(number)
        if old.setting.kind not in ("scale", "noise"):
            raise ArgumentError(f"{old.setting!r} has no number to change.")
        past = self._past  # moving a slider is no step to undo
        self._with(number, old._replace(setting=old.setting._replace(number=float(value))))
        self._past = past
        return self

    def switch(self, number: int, on: bool) -> WhatIf:
        """Switch a setting on or off."""
        return self._with(number, self._at(number)._replace(on=bool(on)))

    def drop(self, number: int) -> WhatIf:
        """Take a setting away."""
        self._at(number)
        return self._with(number)

    def _at(self, number: int) -> Trial:
        if not 0 <= number < len(self.tried):
            raise ArgumentError(
                f"there are {len(self.tried)} settings, counted from 0: no setting {number}."
            )
        return self.tried[number]

    def _with(self, number: int, *new: Trial) -> WhatIf:
        """Put settings in place of the one with this number, or at the end."""
        with self._step():
            self.tried = [*self.tried[:number], *new, *self.tried[number + 1 :]]
        return self

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Change the state in the block and compute the result; `undo` or an error restores it."""
        self._follow()
        state = {name: getattr(self, name) for name in _STATE}
        try:
            yield
            self._result = self._compute()
        except BaseException:
            vars(self).update(state)
            raise
        self._past = [*self._past, lambda: vars(self).update(state)]

    # -- edits --
    def edit(self, method: str, *args: object) -> WhatIf:
        """Try an edit on a copy of the model: the name of a method of `nb.edit`, and its arguments.

        Example:
            >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
            >>> found = nb.what_if(model, -jnp.ones((1, 3))).edit("replace", "1", nb.Identity())
            >>> type(model[1]).__name__, found.code.splitlines()[0]
            ('ReLU', 'model[1] = nb.Identity()')
        """
        if method not in EDITS:
            raise ArgumentError(f"an edit must be one of {', '.join(EDITS)}, got {method!r}.")
        with self._step():
            with separate_keys():
                edits = Edits(copy.deepcopy(self.current.model), self.run.args, self.run.kwargs)
                getattr(edits, method)(*args)
            self.current = self.run.again(edits.model)
            if method == "reset":  # `keep` takes the values that were drawn for the trial
                drawn = targets(edits.model, *args[:1] or ("",))[0]
                args = drawn.name, lambda: drawn.module
            self.edited = [*self.edited, TriedEdit(method, args, edits.code)]
        return self

    # -- metrics --
    def look_at(
        self,
        metric: Metric = None,
        *,
        target: object = None,
        loss: Callable[..., Any] | None = None,
    ) -> WhatIf:
        """Measure another number: the index of a class, a function of the output, or the loss of a
        target.
        """
        run = self.run.again(metric=metric, target=target, loss=loss)
        current = run.again(self.current.model) if self.edited else run
        self.run, self.current, self._result = run, current, None
        self.swept = self.attributed = None
        return self

    def sweep(self, over: str = "heads", setting: Setting = ZERO, **options: Any) -> Sweep:
        """Sweep over the model with its edits, without the settings; see `nb.sweep`."""
        self.swept = run_sweep(self.current, over, setting, **options)
        return self.swept

    def attribute(self, method: str = "gradient", **options: object) -> Attribution:
        """Attribute the output of the model with its edits, without the settings; see
        `nb.attribute`.
        """
        run = self.current
        self.attributed = attribute(
            run.model, run.args, method=method, **run.requested, **options, **run.kwargs
        )
        return self.attributed

    # -- undo and keep --
    def undo(self) -> WhatIf:
        """Undo the last step: a setting that was added, switched or dropped, an edit, or `keep`."""
        if not self._past:
            raise ArgumentError("there is nothing to undo.")
        self._past[-1]()
        self._result = None
        return self

    def keep(self) -> WhatIf:
        """Apply the edits to the model itself, and register each setting that is on as a hook that
        changes every later call.

        `undo()` reverts this. Afterwards there are no settings and no edits.

        Raises:
            ArgumentError: a setting of a tap or of an edge, which only `nb.patch` can apply.
        """
        on = [item for item in self.tried if item.on]
        places = [target for target, _ in _chosen(self.current.model, on)]
        if any(target.tap is not None or target.receiver is not None for target in places):
            raise ArgumentError(
                "a value of a tap or an edge cannot be kept: use it as `with nb.patch(...)`."
            )
        if not on and not self.edited:
            raise ArgumentError("there is nothing to keep.")
        undone = contextlib.ExitStack()  # the steps in reverse order
        try:
            undone.callback(vars(self).update, {name: getattr(self, name) for name in _STATE})
            edits = Edits(self.run.model, self.run.args, self.run.kwargs)
            for edit in self.edited:
                getattr(edits, edit.method)(*edit.args)
                undone.callback(edits.undo)
            for handle in register_hooks(self.run.model, _chosen(self.run.model, on)):
                undone.callback(handle.remove)
            self.run = self.current = self.run.again()
        except BaseException:
            undone.close()
            raise
        self.tried, self.edited, self._result = [], [], None
        self._past = [undone.close]
        return self

    @property
    def code(self) -> str:
        """Python code with the same effect."""
        needs = "edits = nb.edit(model, x)" if "edits." in self.edit_code else ""
        lines = [needs, self.edit_code, code_of([item for item in self.tried if item.on])]
        return "\n".join(filter(None, lines))

    def _ipython_display_(self) -> None:
        socket("show_in_place")(self)

    @printable_repr
    def __repr__(self) -> str:
        """The settings and the changes of returns, as text."""
        result = self.result
        title = self.name
        if result.metric_before is not None and result.metric_after is not None:
            before, after = map(format_number, (result.metric_before, result.metric_after))
            title += f"  {self.run.noun} {before} → {after}"
        lines = [title, *(f"  edit {line}" for line in self.edit_code.splitlines())]
        for item in self.tried:
            words = (item.where or self.name, item.setting.where, item.setting.words)
            lines.append("  ".join(("  on " if item.on else "  off", *filter(None, words))))
        if not self.tried and not self.edited:
            return "\n".join(
                [*lines, "  nothing is changed: add settings, as in .add({path: nb.zero()})"]
            )
        width = max((len(path or self.name) for path in result.changes), default=0)
        lines += ["", "changed by  |after - before| / |before|"]
        for path, change in result.changes.items():
            if change != 0:
                lines.append(
                    f"  {(path or self.name).ljust(width)}  {bar(change)} {format_number(change)}"
                )
        return "\n".join(lines)


_far = itertools.count(2**30, 2**12)


@contextmanager
def separate_keys() -> Iterator[None]:
    """Draw keys in the block from a distant part of the stream, so that layers made afterwards get
    the keys that they would get without it.
    """
    stream = random.default
    with unchanged([]):
        stream._go_to(stream._making.key, next(_far))
        yield


EDITS = ("replace", "insert", "remove", "share", "freeze", "unfreeze", "reset", "set")


def _chosen(model: object, tried: list[Trial]) -> TargetSettings:
    """Return the settings with their targets in a model."""
    return [(targets(model, item.where)[0], item.setting) for item in tried]


def register_hooks(model: object, chosen: TargetSettings) -> list[Any]:
    """Register settings as hooks on the modules, and return the handles."""
    interventions = [Intervention(*pair) for pair in with_values(model, chosen)]
    return [
        handle for item in by_place(interventions).items() for handle in _register_hooks_at(*item)
    ]


def _register_hooks_at(place: Any, at: Interventions) -> list[Any]:
    return [
        place.register_forward_pre_hook(lambda _, inputs: at.before(inputs, {})[0]),
        place.register_forward_hook(lambda _, inputs, outputs: at.after(inputs, outputs)),
    ]


def _number(metric: Any) -> float | None:
    return None if metric is None else float(metric)


def bar(share: float, width: int = 10) -> str:
    """Return a share as a bar of at most `width` characters; a share above 1 or NaN is full."""
    full = width if not share < 1 else round(share * width)
    return "█" * full + " " * (width - full)


def code_of(tried: list[Trial]) -> str:
    """Return the `with nb.patch` block of settings; several at one path are a list."""
    call = "y = model(x)"
    if not tried:
        return call
    places: dict[str, list[Setting]] = {}
    for item in tried:
        places.setdefault(item.where, []).append(item.setting)
    entries = (
        f'"{where}": {settings[0] if len(settings) == 1 else settings}'
        for where, settings in places.items()
    )
    return f"with nb.patch(model, {{{', '.join(entries)}}}):\n    {call}"
