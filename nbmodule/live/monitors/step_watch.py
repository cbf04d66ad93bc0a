"""Watch the returns of submodules and the gradients of parameters, beside the user's own steps.

For one step in a while a tracker is open. Before each compiled function of that step runs, a second
compiled function of the same Python code runs on the same arguments, in a frame whose writes are
dropped; its additional outputs are the statistics. The user's executable always makes the state, so
a watched run equals an unwatched one bit for bit. The second executable is compiled in a background
thread, and its outputs are read at a later boundary, so no step waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.compiling import compiled_ahead
from nbmodule.base.jax_names import is_jit_being_traced
from nbmodule.base.kinds import Shaped
from nbmodule.base.signals import is_of_signal
from nbmodule.base.statistics import Statistics
from nbmodule.calls.choice import Choice
from nbmodule.calls.reduction import read_statistics, reduce_tree
from nbmodule.calls.steps import Step, Steps
from nbmodule.core.compiled.jit import jit
from nbmodule.core.recording.parcel import Parcel
from nbmodule.core.recording.tracker import Tracker, untracked
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.variables.frame import framed, now
from nbmodule.live.monitors.compile_queue import CompileTask
from nbmodule.live.monitors.rows import grouped, one_each
from nbmodule.live.monitors.sources import module_of
from nbmodule.live.monitors.step_examiner import StepExaminer
from nbmodule.live.run.watch import MOST_ROWS, WATCHES, Sample

_SIDE = 32
"""Elements along each side of the picture of a return."""
_PATIENCE = 3
"""Steps without any call of the model before the view says that returns cannot be watched."""
_MOST_CALLS = 8
"""Calls of the model in one step of the loop that are kept until it ends, for the one that has gradients."""
_MOST_SIGNATURES = 16
"""Signatures (function, structure of modules, shapes of arguments) that are kept compiled."""
_MOST_COMPILES = 12
_SLOW = 0.3
"""Seconds; a shorter compile was found in a cache."""
_DONATION = ("donate", "donate_argnums", "donate_argnames")

_NOTHING_SEEN = (
    "returns and gradients are not watched: no compiled step that calls the model was seen. "
    "Compile the step with nb.jit in place of jax.jit"
)
_OTHERS = (
    "returns and gradients are not watched here while nb.track or a recorder records the same steps"
)
_TOO_MANY = "returns and gradients are not watched: the step or the shapes of its data change so often that it would be compiled all the time"
_COMPILING = "statistics of returns and gradients: a watched form of the step is being compiled in the background; training goes on"


class ReturnsWatcher:
    """Statistics of returns and gradients of each submodule.

    Args:
        model: A module; it is held weakly.
        holder: A module that nothing else holds, to be held as long as this watches.
    """

    def __init__(self, model: Any, holder: Any = None) -> None:
        self.about, self._holder = "", holder
        self._choice = Choice(model, None, None)
        self._key = ("live", self._choice.key)
        self._steps = self._new_steps()
        self._wanted = False
        self._unread: tuple[int, Step] | None = None
        self._pictures: dict[str, Any] = {}
        self._watched: dict[int, tuple[Any, Any]] = {}
        """By the `id` of the Python function: that function, and the compiled one that is watched."""
        self._compiled: dict[Any, CompileTask] = {}
        """By signature."""
        self._reductions: dict[Any, CompileTask] = {}
        """Of returns of eager calls, by shape."""
        self._pending: list[CompileTask] = []
        self._met: dict[Any, tuple[Any, Any, Any, Any]] = {}
        """By signature: functions first called in the watched step, with their arguments as shapes."""
        self._blind = self._compiles = 0
        self._has_seen_call = self._has_failed = False
        self.examiner, self._step = StepExaminer(model), 0

    @property
    def is_preparing(self) -> bool:
        """Whether something is being compiled."""
        self._compiles += sum(each.is_done and each.seconds > _SLOW for each in self._pending)
        self._pending = [each for each in self._pending if not each.is_done]
        return bool(self._pending)

    def request(self, step: int) -> None:
        """Watch the step that begins now."""
        self._wanted = self._unread is None and not self._has_failed

    def around(self, step: int) -> AbstractContextManager[Any] | None:
        """Return the context in which the step is to run, None if it is not to be watched."""
        wanted, self._wanted = self._wanted, False
        return self._watching(step) if wanted else None

    @contextlib.contextmanager
    def _watching(self, step: int) -> Iterator[None]:
        if now.tracker is not None:
            self.about = _OTHERS
            yield
            return
        self._steps, self._has_seen_call, self._step = self._new_steps(), False, step
        tracker = self._tracker(self._steps)
        tracker.ready = self._run_beside
        with tracker:
            yield
        kept = [each for each in self._steps.kept if each.facts]
        if kept:
            self._blind = 0
            found = next(
                (each for each in reversed(kept) if each.gradients_of), kept[-1]
            )  # an evaluation may follow the training
            if not isinstance(found.values, Parcel):
                found.values = [self._reduced(value) for value in found.values]
            self._unread = (step, found)
        elif not self._has_seen_call:
            self._blind += 1
            if self._blind >= _PATIENCE:
                self.about = _NOTHING_SEEN

    def take(self, step: int) -> Sequence[Sample]:
        """Return the statistics of the watched step, once they are computed."""
        self._compile_met()
        if self._unread is None:
            return ()
        number, found = self._unread
        if not _is_computed(found.values):
            return ()
        self._unread = None
        samples, self._pictures = _read(number, found, self._parameter_names())
        return samples

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Return the output of a submodule for its first example, at the step watched last."""
        return self._pictures.get(path) if quantity == "return" else None

    def close(self) -> None:
        """Release what was recorded, and drop what was to be compiled."""
        self._wanted, self._unread, self._holder = False, None, None
        self._steps = self._new_steps()
        for task in self._pending:
            task.cancel()
        for store in (self._pictures, self._met, self._watched, self._compiled, self._reductions):
            store.clear()

    def _new_steps(self) -> Steps:
        return Steps(self._choice, _MOST_CALLS, 2**30, True)

    def _tracker(self, steps: Steps) -> Tracker:
        return Tracker(
            self._choice.wants, _keep, self._key, keep_gradient=_keep_gradient, log=steps
        )

    def _parameter_names(self) -> list[str]:
        """Names of the model's variables, in the order of their definition."""
        model = self._choice.model
        return [] if model is None else [place.name for place in plan_of(model).places.values()]

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
                self.examiner.observe(function, args, kwargs, self._step)
        except Exception as error:
            if is_of_signal(error):
                raise
            self._fail(error)
        return False

    def _try_beside(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        watched = self._watched_form(function)
        shapes = _shapes_of((args, kwargs))
        signature = (watched.program_for(args, kwargs), shapes)
        task = self._compiled.get(signature)
        if task is None:
            self._met[signature] = (watched, shapes, *_as_structs((args, kwargs)))
        elif not task.is_done:
            self.about = _COMPILING
        elif task.error is not None:
            self._fail(task.error)
        else:
            self.about = ""
            framed(lambda _: watched(*args, **kwargs), log=self._steps)

    def _watched_form(self, function: Any) -> Any:
        """Return a compiled function of the same Python code that donates nothing.

        The caches of the user's compiled function stay as they are.
        """
        code = function.fn
        found = self._watched.get(id(code))
        if found is None:
            if len(self._watched) >= _MOST_SIGNATURES:
                del self._watched[next(iter(self._watched))]
            options = {k: v for k, v in function.asked.items() if k not in _DONATION}
            found = self._watched[id(code)] = (code, jit(code, **options))
        return found[1]

    def _compile_met(self) -> None:
        """Trace what was met here, at a boundary, and compile it in the background.

        The step that met it is over, so its own executable and the state of its optimizer exist.
        """
        met, self._met = self._met, {}
        try:
            for call in met.values():
                self._compile(*call)
        except Exception as error:
            if is_of_signal(error):
                raise
            self._fail(error)

    def _compile(self, watched: Any, shapes: Any, args: Any, kwargs: Any) -> None:
        if self._compiles >= _MOST_COMPILES:
            self.about = _TOO_MANY
            return
        with self._tracker(self._new_steps()):
            lowered = watched.lower(*args, **kwargs)
            signature = (watched.program_for(args, kwargs), shapes)
        if signature in self._compiled:
            return
        if len(self._compiled) >= _MOST_SIGNATURES:
            del self._compiled[next(iter(self._compiled))]
        self._compiled[signature] = task = CompileTask(lambda: lowered, _compile_lowered)
        self._pending.append(task)
        self.about = _COMPILING

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        self.about = f"returns and gradients are not watched: {_line_of(error)}"

    def _reduced(self, value: dict[str, Any]) -> dict[str, Any]:
        """Reduce the arrays of an eager call; an empty dict until the reductions are compiled."""
        if "whole" in value:
            found = self._reduce(value["whole"])
            return {} if found is None else {"statistics": [found[0]], "corner": found[1]}
        if "whole parameters" in value:
            parts = {name: self._reduce(x) for name, x in value["whole parameters"].items()}
            return {
                "parameters": {name: found[0] for name, found in parts.items() if found is not None}
            }
        return value

    def _reduce(self, x: object) -> Any:
        if not isinstance(x, jax.Array) or x.is_deleted():
            return None
        kind = (x.shape, x.dtype, x.sharding)
        if kind not in self._reductions:
            self._reductions[kind] = _compile_reduction(x)
            self._pending.append(self._reductions[kind])
        function = self._reductions[kind].result
        return None if function is None else function(x)


def _compile_lowered(lowered: Any) -> bool:
    """Compile; JAX keeps the executable, and the next call of the function finds it."""
    lowered.compile()
    return True


def _line_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _keep(module: object, given: object, outputs: object) -> dict[str, Any]:
    """What is kept of one call: its first floating array, in numbers and in small; outside of
    compiled code as it is.
    """
    if given is None:  # a value named by `nb.tap`
        return {}
    first = next((leaf for leaf in jax.tree.leaves(outputs) if _is_floating(leaf)), None)
    if first is None:
        return {}
    if not is_jit_being_traced():
        return {"whole": jax.lax.stop_gradient(first)}
    statistics, corner = _reduce(first)
    return {"statistics": [statistics], "corner": corner}


def _keep_gradient(gradient: Any, of: str) -> dict[str, Any]:
    """What is kept of the gradients by variables; those by returns are not."""
    if of != "variables":
        return {}
    found = {name: x for name, x in gradient.items() if _is_floating(x)}
    if not is_jit_being_traced():
        return {"whole parameters": found}
    return {"parameters": {name: reduce_tree([x])[0] for name, x in found.items()}}


def _is_floating(x: object) -> bool:
    return isinstance(x, jax.Array) and x.size > 0 and jnp.issubdtype(x.dtype, jnp.floating)


def _corner(x: Any) -> Any:
    """The first example of a return, thinned evenly to a small picture: `[rows, columns]`."""
    if x.ndim >= 4:  # images: one channel
        x = x.reshape(-1, *x.shape[-3:])[0, :, :, 0]
    elif x.ndim == 3:
        x = x[0]
    x = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    rows, columns = (max(1, -(-size // _SIDE)) for size in x.shape)
    return jax.lax.stop_gradient(x[::rows, ::columns]).astype(jnp.float32)


def _kind_of(leaf: Shaped) -> Any:
    """What of an argument decides whether a compiled function is traced anew."""
    if not is_stateful(leaf) and hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return (
            leaf.shape,
            leaf.dtype,
            getattr(leaf, "weak_type", False),
            getattr(leaf, "sharding", None),
        )
    if isinstance(leaf, (bool, int, float, complex)):
        return type(leaf)
    return leaf if isinstance(leaf, (str, type(None))) else id(leaf)


def _shapes_of(arguments: Any) -> Any:
    leaves, tree = jax.tree.flatten(arguments, is_leaf=is_stateful)
    return tree, tuple(map(_kind_of, leaves))


def _as_structs(arguments: Any) -> Any:
    """Replace arrays by their shapes, because the step may donate them."""
    return jax.tree.map(_struct_of, arguments, is_leaf=is_stateful)


def _struct_of(leaf: object) -> Any:
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return leaf
    return jax.ShapeDtypeStruct(
        leaf.shape,
        leaf.dtype,
        sharding=leaf.sharding if leaf.committed else None,
        weak_type=getattr(leaf, "weak_type", False),  # typed random keys have none
    )


def _compile_reduction(x: Array) -> CompileTask:
    spec = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    return CompileTask(lambda: jax.jit(_reduce).lower(spec), compiled_ahead)


def _reduce(x: Shaped) -> Any:
    return reduce_tree([x])[0], _corner(x)


def _is_computed(values: object) -> bool:
    leaves = (values.vectors, values.large) if isinstance(values, Parcel) else values
    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(leaves) if isinstance(leaf, jax.Array)]
    return all(array.is_deleted() or array.is_ready() for array in arrays)


def _read(number: int, step: Step, names: list[str]) -> tuple[list[Sample], dict[str, Any]]:
    """Turn a watched step into samples and pictures: returns in the order of the calls, gradients
    in the order of definition.
    """
    found: dict[str, Statistics] = {}
    pictures: dict[str, Any] = {}
    for call in sorted(
        step.calls, key=lambda call: call.returned if call.returned >= 0 else np.inf
    ):
        statistics = call.statistics
        if (
            not call.path
            or call.path in found
            or not isinstance(statistics, Statistics)
            or len(found) >= MOST_ROWS
        ):
            continue
        found[call.path] = statistics
        pictures[call.path] = _flat(call.values.get("corner"))
    samples = [one_each(number, "return", found)] if found else []
    gradients = {
        name: s
        for name, parts in step.gradients().items()
        if (s := read_statistics(parts)) is not None
    }
    if gradients:
        order = {name: place for place, name in enumerate(names)}
        ordered = sorted(gradients, key=lambda name: order.get(name, len(order)))
        samples.append(grouped(number, "gradient", ordered, [gradients[name] for name in ordered]))
    return samples, pictures


def _flat(picture: object) -> Any:
    """The first of the pictures that `vmap` and `scan` have stacked."""
    if picture is None:
        return None
    picture = np.asarray(picture)
    return picture.reshape(-1, *picture.shape[-2:])[0]


def watch_steps(model: object, level: str | None) -> ReturnsWatcher | None:
    """Make a watcher of returns and gradients of a module, or of several; None where there is none."""
    module = module_of(model) if level == "all" else None
    return None if module is None else ReturnsWatcher(module, None if module is model else module)


WATCHES.append(watch_steps)
