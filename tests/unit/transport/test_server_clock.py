"""What a client knows of its server's time, and what it may conclude from that."""

import random
import time
from types import SimpleNamespace

import pytest

from rqretry.transport.session import ServerClock


def test_the_server_s_clock_is_estimated_from_the_time_of_sending() -> None:
    clock = ServerClock()
    assert not clock.known
    assert clock.now_ms() == 0

    clock.note(0)
    assert not clock.known

    clock.note(5_000_000, sent_at=time.monotonic() - 1)
    assert 5_000_900 <= clock.now_ms() <= 5_002_000


class Clocks:
    """Our clock, and that of a server, which cuts off the fraction of a millisecond."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.ahead_ms, self.faster = 5_000_000.3, 0.0
        monkeypatch.setattr("rqretry.transport.session.time", SimpleNamespace(monotonic=self._now))

    def _now(self) -> float:
        return self.now

    def server_ms(self) -> int:
        return int(self.now * 1000 * (1 + self.faster) + self.ahead_ms)


def test_a_call_never_ran_later_than_it_did_by_what_is_known_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, clock, chance = Clocks(monkeypatch), ServerClock(), random.Random(4)
    assert clock.ran_at(5, clocks.now) is None, "nothing is known of the server"
    clock.note(clocks.server_ms())
    assert clock.ran_at(clocks.server_ms(), clocks.now) is None, "nor when that was asked"
    for clocks.faster in (0.0, 0.0004, -0.0004):
        for _ in range(100):
            asked_at, clocks.now = clocks.now, clocks.now + 0.001 * chance.random()
            now_ms, clocks.now = clocks.server_ms(), clocks.now + 0.001 * chance.random()
            clock.note(now_ms, asked_at)
            clock.note(now_ms)  # what has no time of sending is no bound
            sent_at, clocks.now = clocks.now, clocks.now + 20 * chance.random()
            now_ms, ran_at = clocks.server_ms(), clocks.now
            clocks.now += chance.choice([0.0, 0.0001, 5.0])  # its answer may be late
            found = clock.ran_at(now_ms, sent_at)
            assert found is not None
            assert max(sent_at, ran_at - 0.03) <= found <= ran_at


def test_a_server_time_that_was_put_forward_tells_nothing_until_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, clock = Clocks(monkeypatch), ServerClock()
    clock.note(clocks.server_ms(), clocks.now)
    clocks.ahead_ms += 100
    assert clock.ran_at(clocks.server_ms(), clocks.now - 10) is None
    assert clock.ran_at(clocks.server_ms() - 1000, clocks.now - 10) is None
    assert not clock.fresh
    clock.note(clocks.server_ms(), clocks.now)
    assert clock.ran_at(clocks.server_ms(), clocks.now - 10) == pytest.approx(clocks.now, abs=0.003)
    clocks.now += 61
    assert not clock.fresh, "by now the clocks may have drifted apart"
