"""What a run has to say beside its numbers: alarms, caught exceptions, notes; the newest of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from nbmodule.base.format import plain
from nbmodule.live.run.failure import CaughtException

MOST = 100
_LONGEST = 4000


@dataclass
class Message:
    """One line for the reader: `kind` is 'error', 'warning' or 'note'; equal ones that follow each
    other are counted.
    """

    step: int
    kind: str
    text: str
    detail: str = ""
    times: int = 1
    mark: str = ""
    """A word for the mark that stands at this step on the curves: 'compiled', 'changed', 'rewound', 'NaN'; '' for none."""
    number: int = 0
    """The how manieth of the run: a page knows by it a message whose words have changed."""


class Messages:
    """The newest messages of a run.

    Example:
        >>> messages = Messages()
        >>> messages.add(10, 'warning', 'loss is NaN'); messages.add(11, 'warning', 'loss is NaN')
        >>> [(m.text, m.times) for m in messages]
        [('loss is NaN', 2)]
    """

    def __init__(self) -> None:
        self.version = 0
        """Grows with every message."""
        self._messages: list[Message] = []
        self._count = 0

    def add(self, step: int, kind: str, text: str, detail: str = "", *, mark: str = "") -> None:
        """Add a message; one that repeats one of the last few is counted there."""
        self.version += 1
        for message in self._messages[-5:]:
            if (message.kind, message.text) == (kind, text) and not (mark and message.step != step):
                message.times += 1
                message.step = step
                return
        self._count += 1
        self._messages.append(Message(step, kind, text, detail, mark=mark, number=self._count))
        del self._messages[:-MOST]

    def add_change(self, step: int, name: str, before: object, after: object) -> None:
        """Add that a control was moved; moves of one control that follow each other are one."""
        last = self._messages[-1] if self._messages else None
        if (
            last is not None
            and last.mark == "changed"
            and last.detail == ""
            and last.text.startswith(f"{name}: ")
        ):
            before, last.step = last.text[len(name) + 2 :].split(" → ")[0], step
            last.text = f"{name}: {before} → {_spelled(after)}"
            self.version += 1
            return
        self.add(step, "note", f"{name}: {_spelled(before)} → {_spelled(after)}", mark="changed")

    def add_failure(self, step: int, failure: CaughtException) -> None:
        """Add an exception that was caught."""
        self.add(step, "error", str(failure), failure.traceback)

    def describe(self) -> list[dict[str, Any]]:
        """Give them as plain dicts, safe to show."""
        shown = []
        for message in self._messages:
            fields = asdict(message)
            text = "\n".join(plain(line, 500) for line in message.detail.splitlines())
            shown.append(fields | {"text": plain(message.text, 600), "detail": text[-_LONGEST:]})
        return shown

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)


def _spelled(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
