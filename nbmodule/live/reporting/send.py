"""Decide when pages get a message, so that no page falls behind and nothing piles up.

A message goes to all pages at once, so one count serves all; each page acknowledges what it has.
The fastest page sets the pace: with two unacknowledged messages nothing more is sent. A page that
stays silent for a while is taken to be asleep or gone and does not count; with no page awake
nothing is sent. Unsent changes are not stored: the next message is made from the history.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MOST_UNACKNOWLEDGED = 2
SILENT_AFTER = 5.0
"""Seconds without an answer after which a page no longer counts."""
_INTERVAL = 0.1
"""Least seconds between two messages."""
BYTES_PER_SECOND = 20_000
ENVELOPE = 900
"""Bytes of a message beside its content: headers, signature, routing."""
_MOST_PAGES = 50


@dataclass
class Page:
    """One view in one browser tab: the last message it acknowledged, and later ones with the time
    of sending.
    """

    acknowledged: int
    on_the_way: deque[tuple[int, float]] = field(
        default_factory=lambda: deque(maxlen=2 * MOST_UNACKNOWLEDGED)
    )
    heard: float = 0.0

    def is_awake(self, clock: float) -> bool:
        """Return True if it answers, as far as is known."""
        return not self.on_the_way or clock - self.on_the_way[0][1] < SILENT_AFTER


class Sender:
    """Keeps the pace of the messages.

    Example:
        >>> sender = Sender()
        >>> sender.may_send(clock=0.0)
        False
        >>> sender.hello("page 1", clock=0.0)
        >>> sender.may_send(clock=0.0)
        True
    """

    def __init__(self, *, bytes_per_second: float = BYTES_PER_SECOND) -> None:
        self.bytes_per_second = bytes_per_second
        self.sent = 0
        """Number of the last message."""
        self.pages: dict[str, Page] = {}
        self._next = 0.0
        self._debt = 0.0
        self._paid_at = 0.0
        self._times: deque[float] = deque(maxlen=20)

    def hello(self, page: str, clock: float) -> None:
        """Note a page that begins or restarts: it gets the whole run, and counts from now."""
        self.pages[page] = Page(self.sent, heard=clock)
        if len(self.pages) > _MOST_PAGES:
            del self.pages[min(self.pages, key=lambda name: self.pages[name].heard)]

    def acknowledge(self, page: str, number: int, clock: float) -> None:
        """Note that a message has arrived at a page."""
        receiver = self.pages.get(page)
        if receiver is None:
            return
        receiver.heard = clock
        receiver.acknowledged = max(receiver.acknowledged, min(number, self.sent))
        while receiver.on_the_way and receiver.on_the_way[0][0] <= receiver.acknowledged:
            receiver.on_the_way.popleft()

    def leave(self, page: str) -> None:
        """Note that a page was closed."""
        self.pages.pop(page, None)

    def awake(self, clock: float) -> list[Page]:
        """Return the pages that answer."""
        return [page for page in self.pages.values() if page.is_awake(clock)]

    def may_send(self, clock: float) -> bool:
        """Return True if a message may be sent now."""
        if clock < self._next or self._debt_at(clock) > 0:
            return False
        newest = max((page.acknowledged for page in self.awake(clock)), default=None)
        return newest is not None and self.sent - newest < MOST_UNACKNOWLEDGED

    def room(self, clock: float) -> int:
        """Return the bytes that a message sent now may hold beside its envelope."""
        since = clock - self._times[-1] if self._times else 1.0
        return int(self.bytes_per_second * min(max(since, _INTERVAL), 1.0)) - ENVELOPE

    def note_sent(self, size: int, clock: float) -> int:
        """Note that a message of `size` bytes is sent; return its number."""
        self._debt = self._debt_at(clock) + size + ENVELOPE
        self._paid_at, self._next = clock, clock + _INTERVAL
        self._times.append(clock)
        self.sent += 1
        for page in self.awake(clock):
            page.on_the_way.append((self.sent, clock))
        return self.sent

    def rate(self, clock: float) -> float:
        """Return the recent rate in messages per second."""
        return sum(clock - time < 2.0 for time in self._times) / 2.0

    def _debt_at(self, clock: float) -> float:
        """Return the bytes sent beyond `bytes_per_second`."""
        return max(self._debt - self.bytes_per_second * (clock - self._paid_at), 0.0)
