"""Reports of a run: messages, and caught exceptions with the line of user code."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from nbmodule.base.format import plain, printable
from nbmodule.base.scopes import PACKAGE, place_in_code
from nbmodule.errors import NbModuleError

MOST = 100
_LONGEST = 4000
_RECENT = 5
"""Messages among which an equal one is counted instead of added."""


class CaughtException(NamedTuple):
    """An exception that was caught."""

    error: str
    """Class and first line."""
    text: str
    """The failed function, the error, and the line of user code that raised it."""
    traceback: str


def describe_caught(what: str, error: BaseException) -> CaughtException:
    """Describe an exception by its innermost line outside of this package and installed ones.

    Example:
        >>> try:
        ...     1 / 0
        ... except ZeroDivisionError as error:
        ...     failure = describe_caught("stop_when", error)
        >>> failure.error
        'ZeroDivisionError: division by zero'
    """
    frames = traceback.extract_tb(error.__traceback__)
    of_user = [
        frame
        for frame in frames
        if "site-packages" not in frame.filename and not frame.filename.startswith(PACKAGE)
    ]
    first = (str(error).strip().splitlines() or [""])[0]
    summary = f"{type(error).__name__}: {first}".removesuffix(": ")
    if isinstance(error, NbModuleError) and not of_user:  # its words say all
        text = f"{what}: {first or summary}"
    else:
        text = f"{what} raised {summary}"
        for frame in (of_user or frames)[-1:]:
            text += f" ({place_in_code(frame.filename, frame.lineno or 0)}: {frame.line})"
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return CaughtException(summary, printable(text), details)


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
    """Label of the mark at this step on the curves, such as 'compiled'; '' for none."""
    number: int = 0
    """Position in the run: a page finds a message by it whose text has changed."""


class Messages(list[Message]):
    """The newest messages of a run.

    Example:
        >>> messages = Messages()
        >>> messages.add(10, "warning", "loss is NaN")
        >>> messages.add(11, "warning", "loss is NaN")
        >>> [(m.text, m.times) for m in messages]
        [('loss is NaN', 2)]
    """

    version = 0
    """Grows with every message."""
    _count = 0

    def add(self, step: int, kind: str, text: str, detail: str = "", *, mark: str = "") -> None:
        """Add a message; one that repeats one of the last few is counted there."""
        self.version += 1
        for message in self[-_RECENT:]:
            if (message.kind, message.text) == (kind, text) and not (mark and message.step != step):
                message.times += 1
                message.step = step
                return
        self._count += 1
        self.append(Message(step, kind, text, detail, mark=mark, number=self._count))
        del self[:-MOST]

    def add_change(self, step: int, name: str, before: object, after: object) -> None:
        """Add a change of a control; changes of one control that follow each other are one."""
        last = self[-1] if self else None
        start = f"{name}: "
        if last and last.mark == "changed" and not last.detail and last.text.startswith(start):
            first = last.text.removeprefix(start).split(" → ")[0]
            last.text, last.step = f"{start}{first} → {_words(after)}", step
            self.version += 1
            return
        self.add(step, "note", f"{start}{_words(before)} → {_words(after)}", mark="changed")

    def add_failure(self, step: int, failure: CaughtException) -> None:
        """Add an exception that was caught."""
        self.add(step, "error", failure.text, failure.traceback)

    def describe(self) -> list[dict[str, Any]]:
        """Return the messages as plain dicts, safe to show."""
        described = []
        for message in self:
            detail = "\n".join(plain(line, 500) for line in message.detail.splitlines())
            fields = {"text": plain(message.text, 600), "detail": detail[-_LONGEST:]}
            described.append(asdict(message) | fields)
        return described


def _words(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
