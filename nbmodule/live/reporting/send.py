"""Decides when a running view is sent something, so that no page falls behind and nothing piles up.

A message goes to all pages at once, so one count of messages serves all; each page says on receipt
which it has. The page that is ahead sets the pace: with two messages on the way to it nothing more
is sent. A page that stays silent for a while is taken to be asleep or gone and no longer counts;
with no page awake nothing is sent at all. What was not sent is not stored either: the history has
it, and the next message is made from there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MOST_UNACKNOWLEDGED = 2
SILENT_AFTER = 5.0
"""Seconds without an answer after which a page no longer counts."""
UPDATES_PER_SECOND = 10.0
BYTES_PER_SECOND = 20_000
ENVELOPE = 900
"""Bytes that a message weighs beside its content: headers, signature, routing."""
_MOST_PAGES = 50


@dataclass
class Page:
    """One view in one browser tab: the last message it acknowledged, and those on the way with the
    time of sending.
    """

    acknowledged: int
    on_the_way: deque[tuple[int, float]] = field(
        default_factory=lambda: deque(maxlen=2 * MOST_UNACKNOWLEDGED)
    )
    heard: float = 0.0

    def is_awake(self, now: float) -> bool:
        """Whether it answers, as far as one can know."""
        return not self.on_the_way or now - self.on_the_way[0][1] < SILENT_AFTER


class Sender:
    """Keeps the pace of the messages.

    Example:
        >>> sender = Sender()
        >>> sender.may_send(now=0.0)
        False
        >>> sender.hello('page 1', now=0.0)
        >>> sender.may_send(now=0.0)
        True
    """

    def __init__(self, *, bytes_per_second: float = BYTES_PER_SECOND) -> None:
        self.least_interval = 1.0 / UPDATES_PER_SECOND
        self.interval = self.least_interval
        """Seconds between messages as they are afforded now; never below `least_interval`."""
        self.bytes_per_second = bytes_per_second
        self.sent = 0
        """Number of the last message."""
        self.pages: dict[str, Page] = {}
        self._next = 0.0
        self._debt = 0.0
        self._paid_at = 0.0
        self._times: deque[float] = deque(maxlen=20)

    def hello(self, page: str, now: float) -> None:
        """Note a page that begins, or begins anew: it gets all there is, and counts from here."""
        if page not in self.pages:
            self._forget_old_pages()
        self.pages[page] = Page(self.sent, heard=now)

    def acknowledge(self, page: str, number: int, now: float) -> None:
        """Note that a message has arrived at a page."""
        found = self.pages.get(page)
        if found is None:
            return
        found.heard = now
        found.acknowledged = max(found.acknowledged, min(number, self.sent))
        while found.on_the_way and found.on_the_way[0][0] <= found.acknowledged:
            found.on_the_way.popleft()

    def leave(self, page: str) -> None:
        """Note that a page was closed."""
        self.pages.pop(page, None)

    def awake(self, now: float) -> list[Page]:
        """The pages that answer."""
        return [page for page in self.pages.values() if page.is_awake(now)]

    def may_send(self, now: float) -> bool:
        """Whether a message may go out now."""
        if now < self._next or self._debt_at(now) > 0:
            return False
        ahead = max((page.acknowledged for page in self.awake(now)), default=None)
        return ahead is not None and self.sent - ahead < MOST_UNACKNOWLEDGED

    def room(self, now: float) -> int:
        """Bytes that a message sent now may hold beside its envelope, so that the line keeps up."""
        since = now - self._times[-1] if self._times else 1.0
        return int(self.bytes_per_second * min(max(since, self.interval), 1.0)) - ENVELOPE

    def note_sent(self, size: int, now: float) -> int:
        """Note that a message of so many bytes goes out; give its number."""
        self._debt = self._debt_at(now) + size + ENVELOPE
        self._paid_at, self._next = now, now + self.interval
        self._times.append(now)
        awake = self.awake(now)
        self.sent += 1
        for page in awake:
            page.on_the_way.append((self.sent, now))
        return self.sent

    def rate(self, now: float) -> float:
        """Messages a second, lately."""
        recent = [t for t in self._times if now - t < 2.0]
        return len(recent) / 2.0

    def _debt_at(self, now: float) -> float:
        """Bytes sent that the time since has not paid for."""
        return max(self._debt - self.bytes_per_second * (now - self._paid_at), 0.0)

    def _forget_old_pages(self) -> None:
        while len(self.pages) >= _MOST_PAGES:
            del self.pages[min(self.pages, key=lambda name: self.pages[name].heard)]
