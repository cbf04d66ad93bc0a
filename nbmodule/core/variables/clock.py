"""Counters that tell whether anything changed: values of variables, structures of modules, flags of
variables.

Whatever is derived from variables or modules (a walk, a container `v`, a compiled program)
remembers the tick at which it was made. Ticks are never repeated, so a thread that loses a race
sees a difference, never a stale agreement.
"""

from itertools import count

ticks = count(1)


class _Clock:
    __slots__ = ("flags", "structure", "values")

    def __init__(self) -> None:
        self.values = self.structure = self.flags = 0

    def __reduce__(self) -> str:
        """Pickle by name: there is one clock, also where cloudpickle copies a function."""
        return "clock"

    def structure_changed(self) -> None:
        """Say that a module has another attribute, mode or hook."""
        self.structure = next(ticks)


clock = _Clock()
