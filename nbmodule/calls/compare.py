"""`nb.compare`: two runs side by side, and the innermost module at fault."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import printable_repr
from nbmodule.base.interpreter import is_of_signal
from nbmodule.base.trees import Gap, channels_as_in, gap_between
from nbmodule.calls.call import Call
from nbmodule.calls.calls import Calls
from nbmodule.calls.isolated import thrown_away
from nbmodule.calls.rows import PathRows
from nbmodule.calls.saved_calls import as_calls
from nbmodule.errors import ArgumentError


class Pair:
    """One call and the call of the reference that it is compared with.

    Attributes:
        path: Path of the call.
        actual: The call.
        expected: The call of the reference.
        gap: Distance of the returns.
        input_gap: Distance of the arguments; None if one side did not keep them.
        fault: `module` if the module itself is at fault, `input` if its input already differs,
            `inside` if a module that it calls is at fault, `tap` for the first value named by
            `nb.tap` that differs, empty if the returns agree.
    """

    def __init__(self, actual: Call, expected: Call, rtol: float, atol: float) -> None:
        self.actual, self.expected = actual, expected
        self.gap = gap_between(*self.returns, rtol, atol)
        inputs = self.inputs
        self.input_gap = None if inputs is None else gap_between(*inputs, rtol, atol)
        self.fault = ""

    @property
    def path(self) -> str:
        return self.actual.path

    @property
    def index(self) -> int:
        """Counts repeats of the path within one parent call."""
        return self.actual.index

    @property
    def mixes_layouts(self) -> bool:
        """True if one of both is of PyTorch, which has channels first."""
        return (self.actual.framework == "torch") != (self.expected.framework == "torch")

    @property
    def returns(self) -> tuple[list[Any], list[Any]]:
        """The arrays of both returns as they are compared: with channels last if one is of
        PyTorch.
        """
        return self._alike(
            jax.tree.leaves(self.actual.returns), jax.tree.leaves(self.expected.returns)
        )

    @property
    def inputs(self) -> tuple[list[Any], list[Any]] | None:
        """The arrays of both inputs as they are compared; None if one side did not keep them."""
        supplied, expected = self.actual.values.get("input"), self.expected.values.get("input")
        if supplied is None or expected is None:
            return None
        sides = [
            [leaf for leaf in jax.tree.leaves(side) if hasattr(leaf, "dtype")]
            for side in (supplied, expected)
        ]
        return self._alike(*sides)

    def _alike(self, result: list[Any], expected: list[Any]) -> tuple[list[Any], list[Any]]:
        if not self.mixes_layouts or len(result) != len(expected):
            return result, expected
        if self.actual.framework == "torch":
            return [channels_as_in(x, y) for x, y in zip(expected, result)], expected
        return result, [channels_as_in(x, y) for x, y in zip(result, expected)]

    @property
    def largest(self) -> float:
        """Largest absolute difference of the returns."""
        return self.gap.largest

    @property
    def mean(self) -> float:
        """Mean absolute difference of the returns."""
        return self.gap.mean

    @property
    def where(self) -> tuple[int, ...]:
        """Index of the largest difference."""
        return self.gap.where

    def sentence(self) -> str:
        """Describe the pair in one sentence."""
        name = self.path or self.actual.class_name or "the model"
        if not self.fault:
            return f"{name} agrees"
        if self.gap.reason:
            gap = f"its return has {self.gap.reason}"
        else:
            at = f" at {list(self.where)}" if self.where else ""
            gap = (
                f"its return differs by {self.largest:.3g}{at} (expected "
                f"{self.gap.expected:.6g}, got {self.gap.actual:.6g})"
            )
        supplied = {
            "inside": "a module inside it is at fault",
            "tap": "a value inside a module",
        }.get(self.fault) or self._about_input()
        return f"{name} ({supplied}, {gap})"

    def _about_input(self) -> str:
        if self.input_gap is None:
            return "its input was not kept"
        if not self.input_gap.agrees and self.fault == "module":
            return "its input differs too, but it also fails with the input of the reference"
        if not self.input_gap.agrees:
            return f"its input already differs by {self.input_gap.largest:.3g}"
        by = f"to {self.input_gap.largest:.1g}" if self.input_gap.largest else "exactly"
        return f"its input agrees {by}"

    @printable_repr
    def __repr__(self) -> str:
        return f"<{self.sentence()}{f'; fault: {self.fault}' if self.fault else ''}>"


class Comparison(PathRows[Pair]):
    """Two runs side by side: pairs of calls in the order in which they returned."""

    def __init__(
        self, pairs: list[Pair], unmatched: list[Call], unexpected: list[Call], name: str
    ) -> None:
        super().__init__(pairs)
        self.pairs, self.unmatched, self.unexpected, self.name = pairs, unmatched, unexpected, name

    @property
    def left_out(self) -> dict[str, list[Call]]:
        """The calls that are not compared, by the reason."""
        return {"without a counterpart": self.unmatched, "only in the reference": self.unexpected}

    @property
    def agrees(self) -> bool:
        """True if all returns are within tolerance."""
        return all(pair.gap.agrees for pair in self.pairs)

    @property
    def first(self) -> Pair | None:
        """The innermost module at fault, else the first call whose return differs; None if all
        agree.
        """
        at_fault = next((pair for pair in self.pairs if pair.fault == "module"), None)
        return at_fault or next((pair for pair in self.pairs if pair.fault), None)

    @printable_repr
    def __repr__(self) -> str:
        differing = sum(1 for pair in self.pairs if pair.fault)
        outcome = "all agree" if self.agrees else f"{differing} differ"
        lines = [f"<Comparison of {len(self.pairs)} calls: {outcome}>"]
        if self.first is not None:
            lines.append(f"  first fault: {self.first.sentence()}")
        opaque = sorted({name for pair in self.pairs for name in pair.gap.opaque})
        if opaque:
            lines.append(f"  not compared, since they are not arrays: {', '.join(opaque)}")
        for title, calls in self.left_out.items():
            if calls:
                names = (call.path or call.class_name for call in calls[:10])
                lines.append(f"  {title}: {', '.join(names)}")
        return "\n".join(lines)


def compare(
    calls: Calls, reference: object, *, rtol: float = 1e-4, atol: float = 1e-5
) -> Comparison:
    """Compare a tracked run with a reference run, and find the innermost module at fault.

    Calls are aligned by path and number, the others by order and shape. If the return of a module
    differs and its input agrees, the module is at fault. If its input differs too, the module is
    run by itself on the reference's input, with its present variables, and is at fault only if its
    return still differs. Track both runs with `inputs=True` for that (eager code keeps inputs).
    Images of PyTorch, with channels first, are compared with channels last if the other side has
    them so.

    Args:
        calls: A tracked run with returns; of several steps the last one is compared.
        reference: Calls, the path of a file, `{path: returns}`, or rows `(path, inputs, returns)`;
            arrays of any framework. Tensors are taken as those of PyTorch, NumPy arrays are not.
        rtol: Relative tolerance, to the size of each expected element.
        atol: Absolute tolerance, in the units of the values.

    Raises:
        ArgumentError: one of the runs kept no returns, or no calls can be aligned.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.track(model) as before:
        ...     _ = model(jnp.ones((2, 3)))
        >>> model[0].weight[0] = 7.0
        >>> with nb.track(model) as after:
        ...     _ = model(jnp.ones((2, 3)))
        >>> nb.compare(after, before).first.path, nb.compare(after, before).first.fault
        ('0', 'module')
    """
    expected = as_calls(reference)
    actual = _comparable(calls, "the run")
    requested = _comparable(expected, "the reference")
    pairs, unmatched, unexpected = aligned(actual, requested)
    if not pairs:
        raise ArgumentError(
            "no call of the run matches the reference by path or shape: paths of the run begin "
            f"with {_some(actual)}, those of the reference {_some(requested)}."
        )
    result = [Pair(a, b, rtol, atol) for a, b in pairs]
    result.sort(key=lambda pair: pair.actual.returned)
    for number, pair in enumerate(result):
        if not pair.gap.agrees:
            pair.fault = _fault(pair, result[:number], rtol, atol)
    return Comparison(result, unmatched, unexpected, calls.name)


def _comparable(calls: Calls, what: str) -> list[Call]:
    last = _last_run(calls)
    listed = [call for call in calls if call.step in last and call.kind != "operation"]
    retained = [call for call in listed if call.returned >= 0 and "output" in call.values]
    if not retained:
        raise ArgumentError(f"{what} holds no returns to compare: track it with returns=True.")
    return retained


def _last_run(calls: Calls) -> set[int]:
    """Return the steps of the last run: several for a function that calls modules without a module
    around them.
    """
    results: dict[str, int] = {}
    for call in reversed([call for call in calls if call.parent is None]):
        if call.path in results or (results and not call.path):
            break
        results[call.path] = call.step
        if not call.path:
            break
    return set(results.values())


def _some(calls: list[Call]) -> str:
    return ", ".join(f'"{call.path}"' for call in calls[:3])


def aligned(
    actual: list[Call], expected: list[Call]
) -> tuple[list[tuple[Call, Call]], list[Call], list[Call]]:
    """Return pairs by path and number, the others by order and shape; and the calls without a
    pair.
    """
    waiting: dict[str, list[Call]] = {}
    for call in expected:
        waiting.setdefault(call.path, []).append(call)
    pairs, left = [], []
    for call in actual:
        same = waiting.get(call.path)
        if same:
            pairs.append((call, same.pop(0)))
        else:
            left.append(call)
    left.sort(key=lambda call: call.returned)
    others = [call for calls in waiting.values() for call in calls]
    others.sort(key=lambda call: call.returned)
    shapes = (list(map(_shapes, calls)) for calls in (left, others))
    matcher = SequenceMatcher(None, *shapes, autojunk=False)
    by_shape = [(a + i, b + i) for a, b, size in matcher.get_matching_blocks() for i in range(size)]
    pairs += [(left[i], others[j]) for i, j in by_shape]
    mine, theirs = {i for i, _ in by_shape}, {j for _, j in by_shape}
    return (
        pairs,
        [c for i, c in enumerate(left) if i not in mine],
        [c for j, c in enumerate(others) if j not in theirs],
    )


def _shapes(call: Call) -> tuple[Any, ...]:
    return tuple(np.shape(x) for x in jax.tree.leaves(call.returns))


def _fault(pair: Pair, earlier: list[Pair], rtol: float, atol: float) -> str:
    """Return the cause of a differing return; `earlier` are the pairs before it."""
    if pair.actual.kind == "tap":
        return "input" if any(other.fault for other in earlier) else "tap"
    at_fault = [other.actual for other in earlier if other.fault in ("module", "inside")]
    if any(_inside(call, pair.actual) for call in at_fault):
        return "inside"
    if pair.input_gap is None:  # only the pairs before it tell
        return "input" if any(other.fault not in ("", "tap") for other in earlier) else "module"
    if pair.input_gap.agrees:
        return "module"
    gap = _fed(pair, rtol, atol)
    return "module" if gap is not None and not gap.agrees else "input"


def _inside(inner: Call, outer: Call) -> bool:
    enclosing = inner.parent
    while enclosing is not None:
        if enclosing is outer:
            return True
        enclosing = enclosing.parent
    return False


def _fed(pair: Pair, rtol: float, atol: float) -> Gap | None:
    """Return the distance of the module's return on the reference's input; None if the module
    cannot be run again with the same result.
    """
    call, module = pair.actual, pair.actual.module
    own, given = call.values.get("input"), pair.expected.values.get("input")
    if module is None or own is None or given is None or call.lifted or call.framework:
        return None

    def converted(mine: object, theirs: object) -> Any:
        if not hasattr(mine, "dtype"):
            return mine
        return jax.numpy.asarray(channels_as_in(mine, theirs) if pair.mixes_layouts else theirs)

    try:
        again = thrown_away(module, *own[0], **own[1])
        if not gap_between(again, call.returns, rtol, atol).agrees:
            return None  # it draws random numbers, or its variables have changed since
        args, kwargs = jax.tree.map(converted, own, given)
        arrays = jax.tree.leaves(thrown_away(module, *args, **kwargs))
        expected = jax.tree.leaves(pair.expected.returns)
        return gap_between(*pair._alike(arrays, expected), rtol, atol)
    except Exception as error:
        # the module does not take the input of the reference
        if is_of_signal(error):
            raise
        return None
