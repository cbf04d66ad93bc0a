"""Watches what submodules return, and the gradients of their parameters, inside the user's own steps.

For one step in a while a tracker is open. A function compiled by `nb.jit` that is called in it runs as another executable,
which gives statistics as further outputs. That executable is compiled in a thread, and until it is there the plain one goes
on, so no step waits. What comes out is read on the host at a later boundary, once it is computed.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from nbmodule.base.statistics import Statistics
from nbmodule.calls.statistics import read_statistics, reduce_tree
from nbmodule.calls.steps import Step, Steps
from nbmodule.calls.watch import Choice as Choice
from nbmodule.core.boxes.frame import now
from nbmodule.core.recording.parcel import Parcel
from nbmodule.core.recording.tracker import Tracker
from nbmodule.core.shape.walk import is_module
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.live.run.watch import MOST_ROWS, WATCHES, Sample
from nbmodule.live.watching.aside import Aside
from nbmodule.live.watching.rows import grouped, one_each

_SIDE = 32
"""Elements along each side of the picture of a return."""
_PATIENCE = 3
"""Steps without any call of the model before the view says that returns cannot be watched."""
_MOST_CALLS = 8
"""Calls of the model in one step of the loop that are kept until it ends, for the one that has gradients."""
_MOST_FORMS = 8
"""Forms (shapes of the arguments) of one function that are kept ready."""
_MOST_COMPILES = 12
_SLOW = 0.3
"""Seconds; what takes less was compiled before."""

_NOTHING_SEEN = (
    "returns and gradients are not watched: the step does not call the model in a way that can be seen. "
    "Compile it with nb.jit in place of jax.jit"
)

_OTHERS = "returns and gradients are not watched here while nb.track or a recorder records the same steps"
_TOO_MANY = "returns and gradients are not watched: the step or the shapes of its data change so often that it would be compiled all the time"
_COMPILING = (
    "statistics of returns and gradients: the step is being compiled with them, beside the run; training goes on"
)


class ReturnsWatcher:
    """Statistics of returns and gradients of each submodule.

    Args:
        model: A module; it is held weakly.
    """

    def __init__(self, model: Any) -> None:
        self.about = ""
        self._choice = Choice(model, None, None)
        self._key = ("live", self._choice.key)
        self._steps = self._new_steps()
        self._wanted = False
        self._unread: tuple[int, Step] | None = None
        self._pictures: dict[str, Any] = {}
        self._forms: weakref.WeakKeyDictionary[Any, dict[Any, Aside | None]] = weakref.WeakKeyDictionary()
        self._eager: dict[Any, Aside] = {}
        self._compiling: list[Aside] = []
        self._met: list[tuple[Any, Any, Any, Any]] = []
        """What was called for the first time in the step that is watched, with its arguments as shapes: it is compiled aside after it."""
        self._moving: set[Any] = set()
        """Forms that the loop had left when they were traced aside: they are traced while it stands still."""
        self._blind = self._compiles = 0
        self._asked = False

    @property
    def is_preparing(self) -> bool:
        """Whether something is being compiled."""
        self._compiles += sum(each.is_done and each.seconds > _SLOW for each in self._compiling)
        self._compiling = [each for each in self._compiling if not each.is_done]
        return bool(self._compiling)

    def request(self, step: int) -> None:
        """Watch the step that begins now."""
        self._wanted = self._unread is None

    def around(self, step: int) -> AbstractContextManager[Any] | None:
        """Give the context in which the step is to run, None if it is not to be watched."""
        wanted, self._wanted = self._wanted, False
        return self._watched(step) if wanted else None

    @contextlib.contextmanager
    def _watched(self, step: int) -> Iterator[None]:
        if now.tracker is not None:
            self.about = _OTHERS
            yield
            return
        self._steps, self._asked = self._new_steps(), False
        tracker = self._tracker(self._steps)
        tracker.ready = self._is_ready
        with tracker:
            yield
        kept = [each for each in self._steps.kept if each.facts]
        if kept:
            self._blind, self.about = 0, ""
            found = next(
                (each for each in reversed(kept) if each.gradients_of), kept[-1]
            )  # an evaluation may follow the training
            if not isinstance(found.values, Parcel):
                found.values = [self._reduced(value) for value in found.values]
            self._unread = (step, found)
        elif not self._asked:
            self._blind += 1
            if self._blind >= _PATIENCE:
                self.about = _NOTHING_SEEN

    def take(self, step: int) -> Sequence[Sample]:
        """Give what came out of the watched step, once it is computed."""
        self._begin()
        if self._unread is None:
            return ()
        number, found = self._unread
        if not _is_computed(found.values):
            return ()
        self._unread = None
        samples, self._pictures = _read(number, found)
        return samples

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Give the return of a submodule, of its first example, at the step that was watched last."""
        return self._pictures.get(path) if quantity == "return" else None

    def close(self) -> None:
        """Let go of what was recorded."""
        self._wanted, self._unread = False, None
        self._steps = self._new_steps()
        self._pictures = {}
        self._met.clear()
        self._forms.clear()
        self._moving.clear()
        self._eager.clear()

    def _new_steps(self) -> Steps:
        return Steps(self._choice, _MOST_CALLS, 2**30, True)

    def _tracker(self, steps: Steps) -> Tracker:
        return Tracker(self._choice.wants, _keep, self._key, keep_gradient=_keep_gradient, log=steps)

    def _is_ready(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the watched form of a compiled function is there; if not, have it compiled."""
        self._asked = True
        forms = self._forms.setdefault(function, {})
        form = (function.program_for(args, kwargs), _form_of(args, kwargs))
        if form not in forms:
            if len(forms) >= _MOST_FORMS:
                del forms[next(iter(forms))]
            forms[form] = _finished(forms, form)
            if forms[form] is None:  # the plain form may not have been compiled either; that comes first
                self._met.append((function, *_specs_of(args, kwargs), form[1]))
            return forms[form] is not None
        found = forms[form]
        if found is None:
            found = self._compile(function, args, kwargs, form)
            if found is None:
                return False
        self.about = "" if found.is_done else _COMPILING
        if found.is_done and found.error is None and found.result is not form[0]:
            # While it was being traced aside the loop went from `train()` to `eval()`, or back: it is of that other form.
            forms[found.result, form[1]], forms[form] = found, None
            self._moving.add(form)
            return False
        if found.error is not None:
            self.about = f"returns and gradients are not watched: the step could not be compiled with them ({_line_of(found.error)})"
        return found.is_done and found.error is None

    def _begin(self) -> None:
        """Have what was met compiled: the step that met it is over, and its plain form is there."""
        met, self._met = self._met, []
        for function, args, kwargs, shapes in met:
            with self._tracker(self._new_steps()):
                form = (function.program_for(args, kwargs), shapes)  # tracing may have met further variables
            forms = self._forms.setdefault(function, {})
            if forms.get(form) is None and self._compile(function, args, kwargs, form) is not None:
                self.about = _COMPILING

    def _compile(self, function: Any, args: Any, kwargs: Any, form: Any) -> Aside | None:
        if self._compiles >= _MOST_COMPILES:
            self.about = _TOO_MANY
            return None
        tracker = self._tracker(self._new_steps())
        found = _compiled(function, args, kwargs, tracker, at_once=form in self._moving)
        self._forms[function][form] = found
        self._compiling.append(found)
        return found

    def _reduced(self, value: dict[str, Any]) -> dict[str, Any]:
        """Reduce what an eager call has left whole, with functions that were compiled aside; nothing before they are there."""
        if "whole" in value:
            found = self._reduce(value["whole"])
            return {} if found is None else {"statistics": [found[0]], "corner": found[1]}
        if "whole parameters" in value:
            parts = {name: self._reduce(x) for name, x in value["whole parameters"].items()}
            return {"parameters": {name: found[0] for name, found in parts.items() if found is not None}}
        return value

    def _reduce(self, x: object) -> Any:
        if not isinstance(x, jax.Array) or x.is_deleted():
            return None
        kind = (x.shape, x.dtype, x.sharding)
        if kind not in self._eager:
            self._eager[kind] = _reducing(x)
            self._compiling.append(self._eager[kind])
        function = self._eager[kind].result
        return None if function is None else function(x)


def _line_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _keep(module: object, given: object, outputs: object) -> dict[str, Any]:
    """What is kept of one call: its first floating array, in numbers and in small; outside of compiled code as it is."""
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


def _form_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What decides, beside the structure of modules, whether a compiled function is traced anew: the shapes of its arguments."""
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_stateful)
    return tree, tuple(map(_kind_of, leaves))


def _finished(forms: dict[Any, Aside | None], form: Any) -> Aside | None:
    """What was compiled for this form under the program that was known before tracing met further variables."""
    done = (each for (_, shapes), each in forms.items() if each is not None and each.is_done and shapes == form[1])
    return next((each for each in done if each.error is None and each.result is form[0]), None)


def _kind_of(leaf: Shaped) -> Any:
    if not is_stateful(leaf) and hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), getattr(leaf, "sharding", None)
    if isinstance(leaf, (bool, int, float, complex)):
        return type(leaf)
    return leaf if isinstance(leaf, (str, type(None))) else id(leaf)


def _spec_of(leaf: object) -> Any:
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return leaf
    sharding = leaf.sharding if leaf.committed else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)


def _specs_of(args: Any, kwargs: Any) -> Any:
    """Arguments with the shapes of arrays in their place: the step may donate them."""
    return jax.tree.map(_spec_of, (args, kwargs), is_leaf=is_stateful)


def _compiled(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tracker: Tracker, *, at_once: bool = False
) -> Aside:
    """Compile the watched form of a function; gives its program. JAX keeps what is compiled, and the next call finds it.

    With `at_once` the caller waits until it is traced, so that modes and flags are those of this call.
    """
    args, kwargs = _specs_of(args, kwargs)

    def lower() -> Any:
        with tracker:
            return function.staged("lower", args, kwargs), function.program_for(args, kwargs)

    def finish(lowered: Any) -> Any:
        lowered[0].compile()
        return lowered[1]

    if at_once:
        with ThreadPoolExecutor(1) as pool:  # in a thread all the same: nothing that is open here is open there
            traced = pool.submit(lower)
        return Aside(traced.result, finish)
    return Aside(lower, finish)


def _reducing(x: Array) -> Aside:
    """Compile the reduction of arrays of one kind."""
    spec = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    return Aside(lambda: jax.jit(_reduce).lower(spec), compiled_ahead)


def _reduce(x: Shaped) -> Any:
    return reduce_tree([x])[0], _corner(x)


def _is_computed(values: object) -> bool:
    leaves = (values.vectors, values.large) if isinstance(values, Parcel) else values
    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(leaves) if isinstance(leaf, jax.Array)]
    return all(array.is_deleted() or array.is_ready() for array in arrays)


def _read(number: int, step: Step) -> tuple[list[Sample], dict[str, Any]]:
    """Turn a watched step into rows of statistics, in the order in which the submodules returned, and pictures."""
    found: dict[str, Statistics] = {}
    pictures: dict[str, Any] = {}
    for call in sorted(step.calls, key=lambda call: call.returned if call.returned >= 0 else np.inf):
        statistics = call.statistics
        if not call.path or call.path in found or not isinstance(statistics, Statistics) or len(found) >= MOST_ROWS:
            continue
        found[call.path] = statistics
        pictures[call.path] = _flat(call.values.get("corner"))
    samples = [one_each(number, "return", found)] if found else []
    gradients = {name: s for name, parts in step.gradients().items() if (s := read_statistics(parts)) is not None}
    if gradients:
        samples.append(grouped(number, "gradient", list(gradients), list(gradients.values())))
    return samples, pictures


def _flat(picture: object) -> Any:
    """The first of the pictures that `vmap` and `scan` have stacked."""
    if picture is None:
        return None
    picture = np.asarray(picture)
    return picture.reshape(-1, *picture.shape[-2:])[0]


def watch_steps(model: object, level: str | None) -> ReturnsWatcher | None:
    """Make a watcher of returns and gradients of a module; None where there is none."""
    return ReturnsWatcher(model) if level == "all" and model is not None and is_module(model) else None


WATCHES.append(watch_steps)
