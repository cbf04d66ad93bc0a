"""Decide when pages get a message, so that no page falls behind and nothing piles up.

A message goes to all pages at once, so one count serves all; each page acknowledges what it has.
The fastest page sets the pace: with two unacknowledged messages nothing more is sent. A page that
stays silent for a while is taken to be asleep or gone and does not count; with no page awake
nothing is sent. Unsent changes are not stored: the next message is made from the history.
"""

from __future__ import annotations

from collections import deque

MOST_UNACKNOWLEDGED = 2
SILENT_AFTER = 5.0
"""Seconds without an answer after which a page no longer counts."""
_INTERVAL = 0.1
"""Least seconds between two messages."""
BYTES_PER_SECOND = 20_000
ENVELOPE = 900
"""Bytes of a message beside its content: headers, signature, routing."""
_MOST_PAGES = 50


class Sender:
    """Keeps the pace of the messages.

    Example:
        >>> sender = Sender()
        >>> sender.may_send(clock=0.0)
        False
        >>> sender.hello("page 1")
        >>> sender.may_send(clock=0.0)
        True
    """

    def __init__(self, *, bytes_per_second: float = BYTES_PER_SECOND) -> None:
        self.bytes_per_second = bytes_per_second
        self.sent = 0
        """Number of the last message."""
        self.pages: dict[str, int] = {}
        """The last message that each page acknowledged; a page is one view in a browser tab."""
        self._next = 0.0
        self._times: deque[float] = deque(maxlen=int(2 * SILENT_AFTER / _INTERVAL))
        """When the last messages were sent."""

    def hello(self, page: str) -> None:
        """Note a page that begins or restarts: it gets the whole run, and counts from now."""
        self.pages.pop(page, None)
        self.pages[page] = self.sent
        if len(self.pages) > _MOST_PAGES:
            del self.pages[next(iter(self.pages))]

    def acknowledge(self, page: str, number: int) -> None:
        """Note that a message has arrived at a page."""
        if page in self.pages:
            self.pages[page] = max(self.pages[page], min(number, self.sent))

    def leave(self, page: str) -> None:
        """Note that a page was closed."""
        self.pages.pop(page, None)

    def awake(self, clock: float) -> list[int]:
        """Return what the pages that answer have acknowledged."""
        recent = sum(clock - time < SILENT_AFTER for time in self._times)
        return [number for number in self.pages.values() if self.sent - number <= recent]

    def may_send(self, clock: float) -> bool:
        """Return True if a message may be sent now."""
        newest = max(self.awake(clock), default=None)
        is_free = newest is not None and self.sent - newest < MOST_UNACKNOWLEDGED
        return is_free and clock >= self._next

    def room(self, clock: float) -> int:
        """Return the bytes that a message sent now may hold beside its envelope."""
        since = clock - self._times[-1] if self._times else 1.0
        return int(self.bytes_per_second * min(max(since, _INTERVAL), 1.0)) - ENVELOPE

    def note_sent(self, size: int, clock: float) -> int:
        """Note that a message of `size` bytes is sent; return its number."""
        self._next = clock + max(_INTERVAL, (size + ENVELOPE) / self.bytes_per_second)
        self._times.append(clock)
        self.sent += 1
        return self.sent

    def rate(self, clock: float) -> float:
        """Return the recent rate in messages per second."""
        return sum(clock - time < 2.0 for time in self._times) / 2.0
