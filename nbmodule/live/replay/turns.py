"""What is kept of a turn of the loop, as data: calls, what was written and set between them, and
with what a run of turns begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from nbmodule.core.structure.restoring import Form
from nbmodule.core.variables.variable import Variable

_NO_CONTROLS: dict[str, Any] = {}
NOT_LOGGED: dict[str, Output] = {}
"""Of turns that have none, which is no reason for a dict of their own."""


class Freezing:
    """Whether a variable is frozen."""

    __slots__ = ("_is_frozen", "obj")

    def __init__(self, box: Variable) -> None:
        self.obj, self._is_frozen = box, box._frozen

    def is_as(self, other: object) -> bool:
        """Whether it is the same in the other."""
        return isinstance(other, Freezing) and self._is_frozen == other._is_frozen

    def put_back(self) -> None:
        """Freeze it, or let it be trained, as it was."""
        if self.obj._frozen != self._is_frozen:
            self.obj.requires_grad_(not self._is_frozen)


class Mode:
    """Whether a module is in training mode."""

    __slots__ = ("obj", "training")

    def __init__(self, module: Any, training: bool) -> None:
        self.obj, self.training = module, training

    def put_back(self) -> None:
        """Put the module, and none below it, into this mode."""
        if self.obj.training != self.training:
            self.obj.train(self.training, recursive=False)


Setting: TypeAlias = Form | Freezing
"""What decides, beside values, what a call does."""


class Output(NamedTuple):
    """Stands in the arguments for what an earlier call has returned."""

    call: KeptCall
    number: int


class KeptCall:
    """One call: a function, and the leaves of its arguments."""

    __slots__ = ("captured", "function", "leaves", "segment", "small", "tree", "witness")

    def __init__(self, function: Any, leaves: list[Any], tree: object, segment: Segment) -> None:
        self.function, self.leaves, self.tree, self.segment = function, leaves, tree, segment
        self.small: dict[int, Any] = {}
        """Small arrays among what it returned, by number: a repeat has to return the same."""
        self.witness: tuple[Variable, Any] | None = None
        """A small variable that it wrote, and the value; None where values are overwritten."""
        self.captured: tuple[tuple[str, Any], ...] = ()
        """Names and weak references of the stateful objects that it used from surrounding code."""


class Write(NamedTuple):
    """A variable was given another value between two calls: an array, or what a call has returned."""

    box: Variable
    value: Any


class Switch(NamedTuple):
    """Modules, optimizers or frozen variables are others from here on."""

    settings: list[Setting] | list[Mode]


class Moved(NamedTuple):
    """Controls that no variable holds are others from here on."""

    values: dict[str, Any]


class Turn:
    """One turn of the loop: the item that it began with, what was done in it, and what was logged
    of it.
    """

    __slots__ = (
        "acts",
        "carries",
        "carries_by_hand",
        "controls",
        "digests",
        "drawn",
        "epoch",
        "item",
        "logged",
        "made",
        "nbytes",
        "number",
    )

    def __init__(self, item: Any, made: Any, drawn: int) -> None:
        self.item, self.made, self.drawn = item, made, drawn
        self.number = self.epoch = 0
        self.controls = _NO_CONTROLS
        self.acts: list[KeptCall | Write | Switch | Moved] = []
        self.logged = NOT_LOGGED
        """Which output of which call was logged under a name."""
        self.nbytes = 0
        self.carries = False
        """Whether a call takes what a call of the turn before returned: the loop carries state."""
        self.carries_by_hand = False
        """Whether no variable holds what it takes so: putting variables back does not change it."""
        self.digests: dict[int, tuple[Any, int]] = {}
        """Arrays of NumPy that are kept uncopied, with their digests, by `id`."""

    @property
    def calls(self) -> list[KeptCall]:
        """The calls alone."""
        return [act for act in self.acts if type(act) is KeptCall]


class Segment:
    """The values of all variables before a turn, and the turns from there on."""

    def __init__(
        self, first: int, values: dict[Variable, Any], nbytes: int, settings: dict[int, Setting]
    ) -> None:
        self.first, self.values, self.nbytes, self.settings = first, values, nbytes, settings
        self.turns: list[Turn] = []
        self.counted: set[int] = set()
        """Arrays whose bytes were counted, by `id`."""
        self.batches = 0
        """Bytes of the arguments that are kept."""

    def turn(self, number: int) -> Turn | None:
        """The turn of that number."""
        place = number - self.first
        return self.turns[place] if 0 <= place < len(self.turns) else None
