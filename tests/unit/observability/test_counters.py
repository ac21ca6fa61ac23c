"""What a worker process counts: as many series as are bounded, whatever its handlers raise."""

from typing import Any

from rqretry.core.envelope import Envelope
from rqretry.core.message import Message
from rqretry.core.waits import Started
from rqretry.observability.counters import MOST_REASONS, WAIT_BUCKETS_S, Figures, Tally


def test_the_reasons_of_a_group_are_bounded_and_the_rest_is_one() -> None:
    figures = Figures()
    for number in range(3 * MOST_REASONS):
        figures.count_failed("orders", "billing", f"Error{number}")
    figures.count_failed("orders", "shipping", "KeyError")

    total = Figures()
    for part in (figures, Figures.read(figures.plain())):
        total.add(part)

    assert len(total.failed) == MOST_REASONS + 2
    assert total.failed["orders", "billing", "Error0"] == 2
    assert total.failed["orders", "billing", "other"] == 4 * MOST_REASONS
    assert total.failed["orders", "shipping", "KeyError"] == 2


def test_how_long_messages_waited_is_counted() -> None:
    tally, now_ms = Tally(), 1_800_000_000_000
    for seconds in (0.02, 30.0):
        envelope = Envelope(None, None, (), {}, None, now_ms - round(seconds * 1000), None)
        message: Any = Message(("t", 0, "g", 1, "a"), envelope, 1, 16, 0.0)
        message._started = Started(100.0, 100.5, (now_ms, 100.0))
        tally.attempting("n", message, "w").settled("success")
    figures = Figures.read(tally.snapshot())
    figures.add(Figures.read(tally.snapshot()))
    counted = {name: getattr(figures, name)["t", "g"] for name in ("queued", "buffered")}
    assert [sum(buckets[:-1]) for buckets in counted.values()] == [4, 4]
    assert counted["queued"][-1] == 2 * 30.02
    assert counted["buffered"][WAIT_BUCKETS_S.index(0.5)] == 4
