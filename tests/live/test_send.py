"""The pace of the messages: two on the way, a slow line, pages that sleep or are gone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.live.reporting.send import ENVELOPE, MOST_UNACKNOWLEDGED, SILENT_AFTER, Sender


class FrontEnd:
    """Pages that answer after a delay, in a time of their own."""

    def __init__(self, sender: Sender, delays: dict[str, float | None]) -> None:
        self.sender, self.delays = sender, delays
        self.due: list[tuple[float, str, int]] = []
        self.most = dict.fromkeys(delays, 0)
        for page in delays:
            sender.hello(page)

    def run(self, until: float, size: int = 500, tick: float = 0.01) -> int:
        now, sent = 0.0, 0
        while now < until:
            for item in sorted(d for d in self.due if d[0] <= now):
                self.due.remove(item)
                self.sender.acknowledge(item[1], item[2])
            if self.sender.may_send(now):
                number = self.sender.note_sent(size, now)
                sent += 1
                for page, delay in self.delays.items():
                    if delay is not None:
                        self.due.append((now + delay, page, number))
            for page in self.delays:
                if page in self.sender.pages:
                    self.most[page] = max(
                        self.most[page], self.sender.sent - self.sender.pages[page]
                    )
            now += tick
        return sent


def test_a_fast_page_gets_ten_messages_a_second():
    sender = Sender()
    assert 90 <= FrontEnd(sender, {"a": 0.005}).run(10, size=100) <= 101


def test_a_page_that_sleeps_holds_up_no_other():
    sender = Sender()
    assert FrontEnd(sender, {"gone": None, "fast": 0.005}).run(10, size=100) >= 90


def test_the_line_is_never_given_more_than_its_bytes():
    for size in (100, 2_000, 10_000):
        sender = Sender(bytes_per_second=20_000)
        sent = FrontEnd(sender, {"a": 0.001}).run(20, size=size)
        assert sent * (size + ENVELOPE) <= 20 * 20_000 + size + ENVELOPE


def test_a_page_that_wakes_up_counts_again_once_it_has_caught_up():
    sender = Sender()
    sender.hello("a")
    numbers = [sender.note_sent(10, 0.0), sender.note_sent(10, 0.1)]
    late = SILENT_AFTER + 1
    assert not sender.may_send(late)
    for number in numbers:
        sender.acknowledge("a", number)
    assert sender.may_send(late)


def test_a_page_that_says_farewell_is_forgotten():
    sender = Sender()
    sender.hello("a")
    sender.leave("a")
    assert not sender.may_send(1.0)


def test_acknowledgments_that_make_no_sense_change_nothing():
    sender = Sender()
    sender.hello("a")
    sender.acknowledge("a", 99)
    sender.acknowledge("b", 1)
    sender.note_sent(10, 0.2)
    assert sender.pages["a"] == 0
    assert list(sender.pages) == ["a"]


def test_pages_that_come_and_go_do_not_pile_up():
    sender = Sender()
    for i in range(1000):
        sender.hello(f"page {i}")
    assert len(sender.pages) <= 50
    assert "page 999" in sender.pages


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["send", "ack", "hello", "wait"]), max_size=60))
def test_never_more_than_two_are_unacknowledged_whatever_happens(events):
    sender, now = Sender(bytes_per_second=1e9), 0.0
    sender.hello("a")
    for event in events:
        now += 0.2
        if event == "send" and sender.may_send(now):
            sender.note_sent(10, now)
        elif event == "ack":
            sender.acknowledge("a", sender.sent)
        elif event == "hello":
            sender.hello("a")
        assert sender.sent - sender.pages["a"] <= MOST_UNACKNOWLEDGED
