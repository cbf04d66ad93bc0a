"""Watch the returns of submodules and the gradients of parameters during the user's own steps.

For one step in a while a tracker is open. Before each compiled function of that step runs, a second
compiled function of the same Python code runs on the same arguments, in a frame whose writes are
dropped; its additional outputs are the statistics. The user's executable always makes the state, so
a watched run equals an unwatched one bit for bit. The second executable is compiled in a background
thread, and its outputs are read at a later boundary, so no step waits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from nbmodule.base.interpreter import is_of_signal
from nbmodule.base.jax_names import is_jit_being_traced
from nbmodule.base.statistics import Statistics, statistics_of_elements
from nbmodule.calls.reduction import read_statistics, reduce_tree
from nbmodule.calls.steps import Choice, Step, Steps
from nbmodule.core.recording.parcel import PackedValues
from nbmodule.core.recording.tracker import Tracker, untracked
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.variables.frame import framed
from nbmodule.core.variables.frame import now as frames
from nbmodule.live.diagnosis.examine import Examiner
from nbmodule.live.monitors.compile_queue import Watcher, compile_in_background, is_computed
from nbmodule.live.run_data.strips import MOST_ROWS, Sample, grouped, one_each

_SIDE = 32
"""Elements along each side of the picture of a return."""
_PATIENCE = 3
"""Steps without a call of the model before the view says that returns cannot be watched."""
_MOST_CALLS = 8
"""Calls of the model in one iteration that are kept until it ends, for the one with gradients."""
_MOST_SIGNATURES = 16
"""Signatures (function, structure of modules, shapes of arguments) that are compiled."""

_NOTHING_SEEN = (
    "returns and gradients are not watched: no compiled step that calls the model was seen. "
    "Compile the step with nb.jit in place of jax.jit"
)
_OTHERS = (
    "returns and gradients are not watched while nb.track or a recorder records the same steps"
)
_TOO_MANY = (
    "returns and gradients are not watched: the step or the shapes of its data change so often "
    "that it would be compiled all the time"
)
_COMPILING = (
    "statistics of returns and gradients: a watched form of the step is being compiled in the "
    "background; training goes on"
)


class ReturnsWatcher(Watcher):
    """Statistics of returns and gradients of each submodule.

    Args:
        model: A module.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model
        self._choice = Choice(model, None, None)
        self._key = ("live", self._choice.key)
        self._steps = self._new_steps()
        self._unread: tuple[int, Step] | None = None
        self._pictures: dict[str, Any] = {}
        self._watched: dict[int, tuple[Any, Any]] = {}
        """By the `id` of the Python function: that function, and its watched compiled form."""
        self._blind = 0
        self._has_seen_call = self._has_failed = False
        self.examiner, self._step = Examiner(model), 0

    def request(self, step: int) -> AbstractContextManager[Any] | None:
        """Return a context in which the step after this one is watched, None if it cannot be."""
        is_free = self._unread is None and not self._has_failed
        return self._watching(step + 1) if is_free else None

    @contextlib.contextmanager
    def _watching(self, step: int) -> Iterator[None]:
        if frames.tracker is not None:
            self.about = _OTHERS
            yield
            return
        self._steps, self._has_seen_call, self._step = self._new_steps(), False, step
        tracker = self._tracker(self._steps)
        tracker.ready = self._run_beside
        with tracker:
            yield
        steps = [each for each in self._steps.kept if each.facts]
        if steps:
            self._blind = 0
            # an evaluation may follow the training
            trained = (each for each in reversed(steps) if each.gradients_of)
            self._unread = (step, next(trained, steps[-1]))
        elif not self._has_seen_call:
            self._blind += 1
            if self._blind >= _PATIENCE:
                self.about = _NOTHING_SEEN

    def take(self, step: int) -> Sequence[Sample]:
        """Return the statistics of the watched step, once they are computed."""
        if self._unread is None:
            return ()
        values = self._unread[1].values
        if not is_computed(
            (values.vectors, values.large) if isinstance(values, PackedValues) else values
        ):
            return ()
        (number, watched), self._unread = self._unread, None
        if not isinstance(watched.values, PackedValues):
            watched.values = [_reduced_on_host(value) for value in watched.values]
        places = plan_of(self._model).places.values()
        samples, self._pictures = _read(number, watched, [place.name for place in places])
        return samples

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Return the output of a submodule for its first example, at the step watched last."""
        return self._pictures.get(path) if quantity == "return" else None

    def _new_steps(self) -> Steps:
        return Steps(self._choice, _MOST_CALLS, 2**30, True)

    def _tracker(self, steps: Steps) -> Tracker:
        wants = self._choice.wants
        return Tracker(wants, _keep, self._key, keep_gradient=_keep_gradient, log=steps)

    def _run_beside(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Run the watched form of a call on the same arguments, and drop what it writes.

        Returns False, so that the call itself runs as if nobody watched. Never raises: no argument
        or leaf may end a training because it is watched.
        """
        self._has_seen_call = True
        try:
            if not self._has_failed:
                self._try_beside(function, args, kwargs)
            with untracked():
                self.examiner.observe(partial(function, *args, **kwargs), self._step)
        except Exception as error:
            if is_of_signal(error):
                raise
            self._fail(error)
        return False

    def _try_beside(self, function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        watched = self._watched_form(function)
        task = self._compiled.get(_signature_of(watched, args, kwargs))
        if task is None and len(self._compiled) >= _MOST_SIGNATURES:
            self.about = _TOO_MANY
        elif task is None:
            if self._step > 1:  # the first one gives the optimizer its state
                self._compile(watched, args, kwargs)
        elif not task.done():
            self.about = _COMPILING
        elif (error := task.exception()) is not None:
            self._fail(error)
        else:
            self.about = ""
            framed(lambda _: watched(*args, **kwargs), log=self._steps)

    def _compile(self, watched: Any, args: Any, kwargs: Any) -> None:
        """Trace the watched form here, and compile it in the background."""
        with untracked(), self._tracker(self._new_steps()):  # the one of the step goes on after it
            lowered = watched.lower(*args, **kwargs)
            signature = _signature_of(watched, args, kwargs)
        self.about = _COMPILING
        # JAX keeps the executable, and the next call of the function finds it
        self._compiled[signature] = compile_in_background(
            lambda: lowered, lambda lowered: bool(lowered.compile())
        )

    def _watched_form(self, function: Any) -> Any:
        """Return a compiled function of the same Python code that donates nothing.

        The caches of the user's compiled function stay as they are.
        """
        code = function.fn
        if id(code) not in self._watched:
            if len(self._watched) >= _MOST_SIGNATURES:
                del self._watched[next(iter(self._watched))]
            self._watched[id(code)] = (code, function.without_donation())
        return self._watched[id(code)][1]

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        line = (str(error).splitlines() or [""])[0]
        self.about = f"returns and gradients are not watched: {type(error).__name__}: {line}"


def _keep(module: object, given: object, outputs: object) -> dict[str, Any]:
    """Keep the first floating array of a call: its statistics and a small picture, outside of
    compiled code the array itself.
    """
    if given is None:  # a value named by `nb.tap`
        return {}
    first = next((leaf for leaf in jax.tree.leaves(outputs) if _is_floating(leaf)), None)
    if first is None:
        return {}
    if not is_jit_being_traced():
        return {"whole": jax.lax.stop_gradient(first)}
    return {"statistics": [reduce_tree([first])[0]], "corner": _corner(first)}


def _keep_gradient(gradient: Any, of: str) -> dict[str, Any]:
    """Keep the gradients by variables; those by returns are not kept."""
    if of != "variables":
        return {}
    arrays = {name: x for name, x in gradient.items() if _is_floating(x)}
    if not is_jit_being_traced():
        return {"whole parameters": arrays}
    return {"parameters": {name: reduce_tree([x])[0] for name, x in arrays.items()}}


def _reduced_on_host(value: dict[str, Any]) -> dict[str, Any]:
    """Reduce the arrays of an eager call on the host, where nothing is compiled for it."""
    if "whole" in value:
        x = value["whole"]
        if x.is_deleted():
            return {}
        return {"statistics": [_on_host(x)], "corner": np.asarray(_corner(np.asarray(x)))}
    if "whole parameters" in value:
        arrays = value["whole parameters"]
        return {"parameters": {n: _on_host(x) for n, x in arrays.items() if not x.is_deleted()}}
    return value


def _on_host(x: object) -> Statistics:
    return statistics_of_elements(np.asarray(x).astype(np.float32, copy=False))


def _is_floating(x: object) -> bool:
    return isinstance(x, jax.Array) and x.size > 0 and jnp.issubdtype(x.dtype, jnp.floating)


def _corner(x: Any) -> Any:
    """Return the first example of a return, sampled evenly to a small picture `[rows, columns]`."""
    if x.ndim >= 4:  # images: one channel
        x = x.reshape(-1, *x.shape[-3:])[0, :, :, 0]
    elif x.ndim == 3:
        x = x[0]
    x = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    rows, columns = (max(1, -(-size // _SIDE)) for size in x.shape)
    small = x[::rows, ::columns]
    return jax.lax.stop_gradient(small).astype(jnp.float32)


def _signature_of(watched: Any, args: Any, kwargs: Any) -> Any:
    """Return what decides whether a call is traced again; it is known once it was traced."""
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_stateful)
    return watched.program_for(args, kwargs), tree, tuple(map(_kind_of, leaves))


def _kind_of(leaf: Any) -> Any:
    """Return what of a leaf decides whether a call is traced again."""
    if isinstance(leaf, (str, type(None))):
        return leaf
    if isinstance(leaf, jax.core.Tracer):
        return id(leaf)
    try:
        return jax.typeof(leaf), leaf.sharding if getattr(leaf, "committed", False) else None
    except TypeError:  # no array
        return id(leaf)


def _read(number: int, step: Step, names: list[str]) -> tuple[list[Sample], dict[str, Any]]:
    """Return samples and pictures of a watched step: returns in the order of the calls, gradients
    in the order of definition.
    """
    returns: dict[str, Statistics] = {}
    pictures: dict[str, Any] = {}
    for call in sorted(step.calls, key=lambda c: c.returned if c.returned >= 0 else math.inf):
        is_new = call.path and call.path not in returns and len(returns) < MOST_ROWS
        if is_new and isinstance(call.statistics, Statistics):
            returns[call.path] = call.statistics
            # of the pictures that `vmap` and `scan` have stacked the first
            stacked = np.asarray(call.values["corner"])
            pictures[call.path] = stacked.reshape(-1, *stacked.shape[-2:])[0]
    samples = [one_each(number, "return", returns)] if returns else []
    gradients = {
        name: s
        for name, parts in step.gradients().items()
        if (s := read_statistics(parts)) is not None
    }
    if gradients:
        order = {name: i for i, name in enumerate(names)}
        ordered = sorted(gradients, key=lambda name: order.get(name, len(order)))
        samples.append(grouped(number, "gradient", ordered, [gradients[name] for name in ordered]))
    return samples, pictures
