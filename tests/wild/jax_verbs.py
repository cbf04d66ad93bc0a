"""The sixteen verbs on models of JAX packages, unconverted, against the frameworks' own records.

Verbs that are checked alike on models of PyTorch, in table.py, are in `SHARED`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from tests.wild.jax_models import Model, Records


def is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def is_concrete(x: Any) -> bool:
    return is_array(x) and not isinstance(x, jax.core.Tracer)


def close(mine: Any, expected: Any, tolerance: float = 1e-4, floor: float = 1e-6) -> None:
    """Compare to `tolerance` of the largest value, counted as at least `floor`."""
    mine, expected = np.asarray(mine), np.asarray(expected)
    assert mine.shape == expected.shape, f"{mine.shape} for {expected.shape}"
    error, largest = np.abs(mine - expected).max(), np.abs(expected).max()
    assert error <= tolerance * (largest + floor), f"{error:.1e} beside {largest:.1e}"


def loss_of(outputs: Any) -> Any:
    return sum(
        (x**2).mean() for x in jax.tree.leaves(outputs) if jnp.issubdtype(x.dtype, jnp.floating)
    )


class Recorded:
    """A model with its framework's own records of one call.

    Attributes:
        model: As its framework has it.
        args: Positional arguments of a verb.
        kwargs: Keyword arguments of a verb.
        holder: Holds the variables.
        output: The return of the call.
        single: Path and return of each module that was called once and returned an array.
        part: Path of one of these modules, the last one unless it is given.
    """

    model: Any
    args: Any
    kwargs: Any
    holder: Any
    output: Any

    def __init__(self, calls: Records, part: str | None) -> None:
        names = [path for path, _ in calls]
        self.calls = calls
        self.single = [c for c in calls if names.count(c[0]) == 1 and is_concrete(c[1])]
        below = ["", *(path for path, _ in self.single if path)]
        self.part = below[-1] if part is None else part
        self.before = [np.array(x) for x in self.leaves()]

    def returned(self, path: str) -> np.ndarray:
        return np.asarray(dict(self.single)[path])

    def leaves(self) -> list[Any]:
        raise NotImplementedError

    def unchanged(self) -> bool:
        return all(np.array_equal(a, np.asarray(b)) for a, b in zip(self.before, self.leaves()))


class JaxWild(Recorded):
    """A model of a JAX framework."""

    arrays_in = staticmethod(jax.tree.leaves)

    def __init__(self, entry: Model, part: str | None = None) -> None:
        self.entry, self.holder = entry, entry.state
        self.model, self.args, self.kwargs, self.run = entry.model, entry.args, {}, entry.call
        calls: Records = []
        self.output = self.observed(lambda path, out: calls.append((path, out)) or out)
        super().__init__(calls, part)

    def observed(self, change: Callable[[str, Any], Any]) -> Any:
        with jax.disable_jit(), self.entry.observe(change):
            return self.entry.call()

    def replaced(self, value: Callable[[Any], Any]) -> Any:
        """Run the model with another return of the part."""
        return self.observed(lambda path, out: value(out) if path == self.part else out)

    def scaled(self, factor: float) -> tuple[Any, tuple[Any, ...]]:
        """Return the model and its arguments, with all variables times a factor."""
        state = self.entry.scaled(factor)
        is_beside = self.holder is not self.model
        return (self.model, (state, *self.args[1:])) if is_beside else (state, self.args)

    def converted(self) -> Any:
        return self.entry.convert()

    def leaves(self) -> list[Any]:
        if hasattr(self.holder, "get_weights"):
            return self.holder.get_weights()
        return [x for x in jax.tree.leaves(self.holder) if is_array(x) and not is_key(x)]


def is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def shows(wild: JaxWild) -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        nb.show(wild.holder, form="text")
    sizes = [x.size for x in wild.leaves() if jnp.issubdtype(x.dtype, jnp.floating)]
    assert any(f"{number:,}" in text.getvalue() for number in (sum(sizes), *sizes))


def summarizes(wild: JaxWild) -> None:
    rows = {row.path: row for row in nb.summary(wild.model, *wild.args)}
    assert rows[wild.part].calls == 1
    floats = sum(x.size for x in wild.leaves() if jnp.issubdtype(x.dtype, jnp.floating))
    assert 0 < rows[""].parameters <= floats


def tracks(wild: Any) -> Any:
    with nb.track(wild.model) as calls:
        wild.run()
    for path, out in wild.single:
        if path:
            close(calls[path].returns, out)
    return calls


def tracks_inputs(wild: JaxWild) -> None:
    with nb.track(wild.model, inputs=True) as calls:
        wild.run()
    first = next(call for call in calls if call.inputs)
    close(first.inputs[0], wild.entry.inputs[0])


def tracks_gradients(wild: JaxWild) -> None:
    """The gradient by a part's return, in a compiled step: of our record, and of an added zero."""
    expected = jax.grad(lambda z: loss_of(wild.replaced(lambda out: out + z)))(
        jnp.zeros_like(wild.returned(wild.part))
    )
    x, *others = wild.entry.inputs
    step = jax.jit(jax.grad(lambda x: loss_of(wild.run(x, *others))))
    slope = step(x)
    with nb.track(wild.model, gradients=True) as calls:
        close(step(x), slope, 1e-3)
    close(calls[wild.part].gradient, expected, 1e-3)
    assert any("ran uncompiled" in note for note in calls.notes)


def differs(wild: JaxWild) -> None:
    state = wild.holder
    assert not nb.diff(state, state)
    found = nb.diff(state, wild.entry.scaled(2.0))  # a clone of Keras has seeds of its own
    changed = [c for c in found if c.status != "same" and "seed" not in c.path]
    moved = [x for x in wild.leaves() if np.abs(np.asarray(x)).max() > 0]
    assert 0 < len(changed) <= len(moved)


def finds_nonfinite(wild: JaxWild) -> None:
    assert nb.first_nonfinite(wild.model, *wild.args) is None
    values = np.array(wild.args[-len(wild.entry.inputs)])
    values.flat[0] = np.nan
    args = list(wild.args)
    args[-len(wild.entry.inputs)] = jnp.asarray(values)
    assert nb.first_nonfinite(wild.model, *args) is not None


def converts(wild: JaxWild) -> str:
    mine = jax.tree.leaves(wild.converted()(*wild.entry.inputs))[0]
    theirs = np.asarray(jax.tree.leaves(wild.output)[0])
    close(mine, theirs)
    return f"{float(np.abs(np.asarray(mine) - theirs).max() / (np.abs(theirs).max() + 1e-9)):.0e}"


def converts_gradients(wild: JaxWild) -> None:
    """The slope of the loss along a scaling of all weights, against a central difference."""
    model = wild.converted()
    gradients = nb.grad(lambda m: loss_of(m(*wild.entry.inputs)))(model)
    pairs = zip(jax.tree.leaves(gradients), model.parameters())
    slope = sum(float((np.asarray(g, float) * np.asarray(p.value, float)).sum()) for g, p in pairs)
    values = [np.asarray(p.value) for p in model.parameters()]

    def at(factor: float) -> float:
        for parameter, value in zip(model.parameters(), values):
            parameter.value = jnp.asarray(value * np.float32(factor))
        return float(loss_of(model(*wild.entry.inputs)))

    difference = (at(1 + 2e-3) - at(1 - 2e-3)) / 4e-3
    assert abs(slope - difference) <= 2e-2 * abs(difference) + 1e-5, (slope, difference)


# -- checks of models of any framework --
def draws(wild: Any) -> None:
    graph = nb.graph(wild.model, *wild.args, **wild.kwargs)
    assert graph.find(wild.part).operations
    assert len(graph.outputs) >= len(wild.arrays_in(wild.output))


def profiles(wild: Any) -> None:
    assert nb.profile(wild.model, *wild.args, runs=1, **wild.kwargs).total.flops > 0


def patches(wild: Any) -> None:
    inputs = wild.kwargs or wild.args
    found = nb.patch(wild.model, inputs, inputs, wild.part)
    close(wild.arrays_in(found.patched)[0], wild.arrays_in(wild.output)[0])


def sets(wild: Any) -> None:
    with nb.patch(wild.model, {wild.part: nb.zero()}):
        found = wild.run()
    close(jax.tree.leaves(found)[0], jax.tree.leaves(wild.replaced(lambda out: out * 0))[0])


def inspects(wild: Any) -> None:
    view = nb.inspect(wild.model, *wild.args, **wild.kwargs)
    close(view.calls[wild.part].returns, wild.returned(wild.part))


def tracks_statistics(wild: Any) -> None:
    with nb.track(wild.model, returns="stats") as calls:
        wild.run()
    close(calls[wild.part].statistics.mean, wild.returned(wild.part).mean(), 1e-3)


def compares(wild: Any) -> None:
    with nb.track(wild.model) as first:
        wild.run()
    with nb.track(wild.model) as second:
        wild.run()
    assert len(first) and nb.compare(first, second).agrees


SHARED: dict[str, Callable[[Any], Any]] = {
    "inspect": inspects, "statistics": tracks_statistics, "compare": compares, "graph": draws,
    "profile": profiles, "patch": patches, "settings": sets,
}  # fmt: skip
VERBS: dict[str, Callable[[Any], Any]] = {
    "show": shows, "summary": summarizes, "inspect": inspects, "track": tracks, "statistics": tracks_statistics,
    "inputs": tracks_inputs, "gradients": tracks_gradients, "graph": draws, "profile": profiles, "patch": patches,
    "settings": sets, "diff": differs, "nonfinite": finds_nonfinite, "compare": compares, "convert": converts,
    "convert: gradients": converts_gradients,
}  # fmt: skip
