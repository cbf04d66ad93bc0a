"""The calls of each outermost call (a *step*), kept as they came out and made into `Call`s when
somebody looks.

A compiled step hands over the same static facts each time, so what they say (paths, parents) is
worked out once; what is added per step is one small object around a few arrays.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nbmodule.calls.call import Call, bytes_in
from nbmodule.calls.choice import CallFact, Choice
from nbmodule.core.call.capture import ran
from nbmodule.core.recording.parcel import PackedValues, opened
from nbmodule.core.variables.call_log import CallInfo, Log


@dataclass(eq=False)
class Step:
    """One outermost call, with everything that was called inside it."""

    number: int
    infos: tuple[CallInfo, ...]
    values: Any
    facts: list[CallFact]
    gradients_of: list[Any]
    order: bool

    @cached_property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return (
            self.values.nbytes if isinstance(self.values, PackedValues) else bytes_in(self.values)
        )

    def value(self, number: int) -> dict[str, Any]:
        return (
            self.values.part(number)
            if isinstance(self.values, PackedValues)
            else self.values[number]
        )

    @cached_property
    def calls(self) -> list[Call]:
        """The calls, made at first sight."""
        made: list[Call | None] = []
        counts: dict[tuple[int, str], int] = {}
        for fact in self.facts:
            enclosing = made[fact.parent] if fact.parent >= 0 else None
            if "branch" in fact.info.lifted and not ran(self.value(fact.number)):
                made.append(None)
                continue
            key = (fact.parent, fact.path)
            counts[key] = counts.get(key, -1) + 1
            made.append(self._call(fact, enclosing, counts[key]))
        results = [call for call in made if call is not None]
        if not self.order:
            results.sort(key=lambda call: call.returned if call.returned >= 0 else len(self.infos))
        for position, call in enumerate(results):
            call.order = position
            if not self.order:
                call.parent, call.depth = None, 0
        return results

    def _call(self, fact: CallFact, parent: Call | None, index: int) -> Call:
        info, module = fact.info, fact.info.module()
        eager = self.values[fact.number] if not isinstance(self.values, PackedValues) else {}
        timing: Any = {name: eager.get(name) for name in ("seconds", "start", "compiling")}
        return Call(
            fact.path,
            lambda: self.value(fact.number),
            index=index,
            parent=parent,
            step=self.number,
            depth=parent.depth + 1 if parent else 0,
            returned=info.returned,
            class_name=info.name,
            framework=module._framework if module is not None else "",
            kind=info.kind,
            input_shapes=info.inputs,
            return_shapes=info.outputs,
            error=info.error,
            lifted=tuple(name for name in info.lifted if name != "branch"),
            captured=info.captured,
            _module=info.module,
            **timing,
        )

    def gradients(self) -> dict[str, Any]:
        """Gradients by the model's parameters, by path, or their statistics."""
        results: dict[str, Any] = {}
        for number, names in self.gradients_of:
            parameters = self.value(number).get("parameters", {})
            results |= {names(name): value for name, value in parameters.items()}
        return results


class Steps(Log):
    """A log whose outermost calls are steps, of which the last ones are kept.

    Args:
        watch: Which calls are looked at.
        last: How many steps are kept.
        budget: Bytes that their values may take; the newest step is always kept.
        order: Whether calls are listed in the order in which they began.
    """

    def __init__(self, watch: Choice, last: int, budget: int, order: bool) -> None:
        super().__init__()
        self.watch, self.last, self.budget, self.order = watch, last, budget, order
        self.kept: deque[Step] = deque()
        self.count = self.nbytes = 0
        self.lock = threading.RLock()
        self.outer: Log | None = None  # of a tracker around this one

    def end(self, *args: Any, **kwargs: Any) -> None:
        super().end(*args, **kwargs)
        if self.open < 0:
            self.flush()

    def merge(self, infos: tuple[CallInfo, ...], values: object, *, lifted: str = "") -> None:
        if self.open >= 0 or lifted:
            super().merge(infos, values, lifted=lifted)
            if self.open < 0:
                self.flush()
        else:
            self.add(infos, values)

    def flush(self) -> None:
        """Make what was logged since into a step."""
        infos, values = tuple(self.infos), self.values
        self.infos, self.values, self.open, self.returns = [], [], -1, 0
        if infos:
            self.add(infos, values)

    def add(self, infos: tuple[CallInfo, ...], values: Any) -> None:
        if self.outer is not None:
            self.outer.merge(infos, values)
        facts, gradients_of = self.watch.seen(infos)
        if not facts and not gradients_of:
            return
        if not facts and self.kept and self.count and not isinstance(values, PackedValues):
            last = self.kept[-1]  # these are the gradients of an eager `nb.grad` that just ended
            start = len(last.infos)
            self.kept[-1] = replace(
                last,
                infos=(*last.infos, *infos),
                values=[*opened(last.values), *values],
                gradients_of=[
                    *last.gradients_of,
                    *((start + i, names) for i, names in gradients_of),
                ],
            )
            self.nbytes += self.kept[-1].nbytes - last.nbytes
            return
        step = Step(self.count, infos, values, facts, gradients_of, self.order)
        self.count += 1
        with self.lock:
            self.kept.append(step)
            self.nbytes += step.nbytes
            while len(self.kept) > self.last or (self.nbytes > self.budget and len(self.kept) > 1):
                self.nbytes -= self.kept.popleft().nbytes

    def clear(self) -> None:
        """Forget all steps; numbers go on."""
        with self.lock:
            self.kept.clear()
            self.nbytes = 0
