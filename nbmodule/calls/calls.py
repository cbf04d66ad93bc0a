"""`Calls`: what ran, in order, as a list that is also looked up by path."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

from nbmodule.base.format import format_bytes, printable_repr
from nbmodule.base.paths import hint, match
from nbmodule.base.sockets import Shown, socket
from nbmodule.calls.call import Call, bytes_in
from nbmodule.errors import ArgumentTypeError, PathError

_GLOB = frozenset("*?[")


class Calls(Shown, Sequence[Call]):
    """Calls in the order in which they began, the called module itself first.

    `calls[3]` is the fourth call, `calls['blocks.5']` the first call of that path,
    `calls['blocks.5', 1]` the second; `calls['blocks.*']` and `calls.find(fn)` are all calls that
    fit.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.ones((2, 3)))
        >>> [call.path for call in calls], calls["1"].return_shapes
        (['', '0', '1'], 'float32[2, 4]')
    """

    def __init__(
        self,
        items: Sequence[Call] = (),
        name: str = "",
        known: Sequence[str] = (),
        notes: Sequence[str] = (),
        others: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Keep calls, and metadata of the tracked model.

        Args:
            items: The calls.
            name: Name of the class of the tracked model.
            known: Paths of all submodules that were tracked, called or not.
            notes: Notes for a reader: values that were dropped or could not be recorded.
            others: The other names of shared submodules, each with their path.
        """
        self._list = list(items)
        self.name = name or next((call.class_name for call in items if not call.path), "")
        self.known, self.notes, self.others = tuple(known), tuple(notes), dict(others)

    # -- as a list --
    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._list)

    @overload
    def __getitem__(self, key: int) -> Call: ...
    @overload
    def __getitem__(self, key: slice) -> Calls: ...
    @overload
    def __getitem__(self, key: str | tuple[str, int]) -> Call: ...

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, str):
            return self._among(key) if _GLOB.intersection(key) else self._nth(key, 0)
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str):
            return self._nth(*key)
        if isinstance(key, slice):
            return self._part(self._list[key])
        position: Any = key
        if not hasattr(position, "__index__"):
            raise ArgumentTypeError(
                f"calls are indexed by position, path or (path, number of the call), got {key!r}."
            )
        return self._list[operator.index(position)]

    def _part(self, items: Sequence[Call]) -> Calls:
        return Calls(items, self.name, self.known, (), self.others)

    def _among(self, pattern: str) -> Calls:
        fitting = {path for other, path in self.others.items() if match(pattern, other)}
        results = [call for call in self._list if call.path in fitting or match(pattern, call.path)]
        if not results:
            raise self._missing(pattern)
        return self._part(results)

    def _nth(self, path: str, number: int) -> Call:
        results = [call for call in self._list if call.path == path]
        if not results and (owned := self.others.get(path)) is not None:
            return self._nth(owned, number)
        if not results:
            raise self._missing(path)
        if not -len(results) <= number < len(results):
            raise PathError(
                f'"{path}" was called {len(results)} times in this record; there is no call '
                f"{number} (they count from 0)."
            )
        return results[number]

    def _missing(self, path: str) -> PathError:
        called = self.paths
        if path in self.known:
            return PathError(f'"{path}" was not called in this record.')
        if not called:
            return PathError(f'no call of "{path}": nothing was recorded.')
        return PathError(f'no call of "{path}" was recorded{hint(path, [*called, *self.known])}')

    def find(self, fn: Callable[[Call], Any]) -> Calls:
        """Return the calls for which `fn` is true.

        Example:
            >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
            >>> with nb.track(model) as calls:
            ...     _ = model(jnp.ones((2, 3)))
            >>> [call.path for call in calls.find(lambda call: call.class_name == "ReLU")]
            ['1']
        """
        return self._part([call for call in self._list if fn(call)])

    # -- facts --
    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that were called, in the order of their first call."""
        return tuple(dict.fromkeys(call.path for call in self._list))

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of the outermost calls that are kept."""
        return tuple(dict.fromkeys(call.step for call in self._list))

    def step(self, number: int) -> Calls:
        """Return the calls of one outermost call; negative numbers count from the last."""
        number = kept_step(self.steps, number)
        return self._part([call for call in self._list if call.step == number])

    @property
    def not_called(self) -> tuple[str, ...]:
        """Submodules that were not called."""
        called = set(self.paths)
        return tuple(path for path in self.known if path not in called)

    @property
    def nbytes(self) -> int:
        """Bytes of the values that are kept."""
        return bytes_in([call.values for call in self._list])

    @property
    def failed(self) -> Call | None:
        """The innermost call that ended with an exception, the first one."""
        return next((call for call in reversed(self._list) if call.error), None)

    def estimate(self) -> None:
        """Set `flops` and `bytes_accessed` of all calls, each submodule taken alone.

        `flops` counts operations from shapes, as `nb.graph` and `nb.summary` do; `bytes_accessed`
        is the estimate of the compiler.

        Example:
            >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
            >>> with nb.track(model) as calls:
            ...     _ = model(jnp.ones((2, 3)))
            >>> calls.estimate()
            >>> calls["0"].flops >= 2 * 2 * 3 * 4
            True
        """
        from nbmodule.calls.isolated import estimate

        estimate(self._list)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calls to a file, which `nb.load_calls` reads; see there."""
        from nbmodule.calls.saved_calls import write_record

        write_record(path, self)

    def __str__(self) -> str:
        """Return the whole table of `show`, and the key of a repeated call."""
        text = socket("text")(self)
        counts = Counter(call.path for call in self._list)
        repeated = next((path for path, count in counts.items() if count > 1), None)
        if repeated is None:
            return text
        return f'{text}\ncalls["{repeated}", 1] is the second call of "{repeated}"'

    @printable_repr
    def __repr__(self) -> str:
        """Return the calls with their keys for `calls[...]`."""
        size = f", {format_bytes(self.nbytes)}" if self else ""
        lines = [f"<Calls of {self.name or 'nothing'}: {len(self)}{size}>"]
        shown, numbers = self._list[:40], Counter[str]()
        for call in shown:
            number = numbers[call.path]
            numbers[call.path] += 1
            key = f'"{call.path}", {number}' if number else f'"{call.path}"'
            name = key if call.path else f"{key} {call.class_name}"
            lines.append(f"  {'  ' * call.depth}{name}: {call.outcome}")
        if len(self) > len(shown):
            lines.append(f"  ... {len(self) - len(shown)} more")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def kept_step(steps: Sequence[int], number: int) -> int:
    """Return the number of one of these steps; negative numbers count from the last.

    Raises:
        PathError: There is no such step; the message names the nearest.
    """
    number = steps[number] if -len(steps) <= number < 0 else number
    if number not in steps:
        near = min(steps, key=lambda step: abs(step - number), default=0)
        kept = f"the nearest is {near}, kept are {list_steps(steps)}" if steps else "none is kept"
        raise PathError(f"there is no step {number}; {kept}.")
    return number


def list_steps(steps: Sequence[int]) -> str:
    """Return the numbers of steps as text; of many the first ones and the last."""
    if len(steps) <= 6:
        return ", ".join(map(str, steps)) or "none"
    return f"{', '.join(map(str, steps[:3]))}, ..., {steps[-1]}"
