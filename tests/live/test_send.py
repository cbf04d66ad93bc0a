"""The pace of the messages: two on the way, a slow line, pages that sleep or are gone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.live.reporting.view import MOST_UNACKNOWLEDGED, SILENT_AFTER, Sender


class FrontEnd:
    """Pages that answer after a delay, in a time of their own."""

    def __init__(self, sender: Sender, delays: dict[str, float | None]) -> None:
        self.sender, self.delays = sender, delays
        for page in delays:
            sender.hello(page)

    def run(self, until: float, size: int = 500, tick: float = 0.01) -> int:
        now, due = 0.0, []
        while now < until:
            for item in sorted(answer for answer in due if answer[0] <= now):
                due.remove(item)
                self.sender.acknowledge(*item[1:])
            if self.sender.may_send(now):
                number = self.sender.note_sent(size, now)
                answering = ((page, delay) for page, delay in self.delays.items() if delay)
                due += [(now + delay, page, number) for page, delay in answering]
            now += tick
        return self.sender.sent


@pytest.mark.parametrize("others", [{}, {"gone": None}], ids=["alone", "beside one that sleeps"])
def test_a_fast_page_gets_ten_messages_a_second(others):
    assert 90 <= FrontEnd(Sender(), others | {"fast": 0.005}).run(10, size=100) <= 101


def test_a_page_that_wakes_up_counts_again_once_it_has_caught_up():
    sender = Sender()
    sender.hello("a")
    numbers = [sender.note_sent(10, 0.0), sender.note_sent(10, 0.1)]
    late = SILENT_AFTER + 1
    assert not sender.may_send(late)
    for number in numbers:
        sender.acknowledge("a", number)
    assert sender.may_send(late)


def test_pages_that_come_and_go_do_not_pile_up():
    sender = Sender()
    for i in range(1000):
        sender.hello(f"page {i}")
    assert len(sender.pages) <= 50
    assert "page 999" in sender.pages


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["send", "ack", "nonsense", "hello", "leave"]), max_size=60))
def test_at_most_two_messages_are_unacknowledged(events):
    sender, now = Sender(bytes_per_second=1e9), 0.0
    for event in ["hello", *events]:
        now += 0.2
        before = dict(sender.pages)
        if event == "send" and sender.may_send(now):
            sender.note_sent(10, now)
        elif event == "ack":
            sender.acknowledge("a", sender.sent)
        elif event == "nonsense":
            sender.acknowledge("a", -1)
            sender.acknowledge("b", 1)
            assert sender.pages == before
        elif event == "hello":
            sender.hello("a")
        elif event == "leave":
            sender.leave("a")
            assert not sender.may_send(now)
        acknowledged = sender.pages.get("a", sender.sent)
        assert 0 <= sender.sent - acknowledged <= MOST_UNACKNOWLEDGED
