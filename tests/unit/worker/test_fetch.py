"""How room and tokens are divided among places, and what a lease that waited is worth."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rqretry.protocol.command import Command
from rqretry.protocol.keys import partition_keys
from rqretry.transport.session import ServerClock
from rqretry.worker.fetch import Fetcher, look_every_s, share
from rqretry.worker.leases import Delivery, LeasedPlace
from rqretry.worker.rate_limiter import divided


class Consumer:
    """Takes messages from some places."""

    def __init__(self, partitions: int) -> None:
        keys = [partition_keys("n", "t", n).group("g", 18) for n in range(partitions)]
        self.places = [LeasedPlace("t", n, key, 30.0) for n, key in enumerate(keys)]
        self.taken: list[Delivery] = []

    def room(self) -> int:
        return 0

    def accept(self, deliveries: list[Delivery]) -> None:
        self.taken += deliveries


def test_a_call_does_not_take_the_room_of_a_consumer_twice() -> None:
    one, two = Consumer(3), Consumer(1)
    wants = [(one, place, 10) for place in one.places] + [(two, two.places[0], 10)]
    assert [want for _, _, want in share(wants)] == [4, 4, 4, 10]


def test_tokens_go_to_the_places_that_were_looked_at_the_longest_ago() -> None:
    consumer = Consumer(3)
    for place, looked_at in zip(consumer.places, (3.0, 1.0, 2.0), strict=True):
        place.schedule.looked_at = looked_at
    wants = [(consumer, place, 4) for place in consumer.places]
    given = [(place.partition, part) for _, place, part in divided(wants, 6)]
    assert given == [(1, 4), (2, 2)]
    assert divided(wants, None) == wants
    assert divided(wants, 0) == []


@pytest.mark.parametrize(
    ("places", "seconds"),
    [(1, 20), (2, 10), (4, 10), (5, 5), (256, 5), (5000, 10), (50_000, 20)],
)
def test_a_place_is_looked_at_every_5_s_unless_it_is_one_of_few_or_of_very_many(
    places: int, seconds: float
) -> None:
    (place,) = Consumer(1).places
    assert look_every_s(place, places) == seconds
    place.visibility_s = 2.0
    assert look_every_s(place, places) == 2.0


@pytest.mark.parametrize("places", [1, 2, 3, 4])
def test_the_leases_behind_a_wait_cost_less_than_half_a_command_a_second_and_place(
    places: int,
) -> None:
    (place,) = Consumer(1).places
    assert (1 + places) / (0.9 * look_every_s(place, places)) < min(0.5 * places, 0.6)


class WaitingServer:
    """Answers leases that were sent with a wait, at one time of its own."""

    spread, patience = False, 1.0

    def __init__(self, now_ms: int, known_ms: int, renewed: bytes = b"OK") -> None:
        self.now_ms = now_ms
        self.renewed = renewed
        self.sent: list[Command[Any]] = []
        self.woken_at = 0.0
        self.waits: list[int] = []
        """Behind each wait, how many leases."""
        self.clock = ServerClock()
        self.clock.note(known_ms, time.monotonic() - 20)

    def clock_of(self, _: str) -> ServerClock:
        return self.clock

    def request_for(self, command: Command[Any]) -> Command[Any]:
        return command

    async def block(
        self, _wakes: Any, _seconds: float, _covered: Any, after: list[Command[Any]]
    ) -> list[Any]:
        self.waits.append(len(after))
        self.woken_at = time.monotonic()
        leased = [b"OK", b"", 30_000, b"", 0, [b"m"], [b"body"], b"", [], self.now_ms, b"", 1]
        empty = [b"OK", b"", 30_000, b"", 0, [], [], b"", [], self.now_ms, b"", 1]
        return [None, leased, *[empty for _ in after[1:]]]

    async def run_each(self, commands: list[Command[Any]], _: float) -> list[Any]:
        self.sent += commands
        return [[self.renewed]]


async def waited(server: WaitingServer, places: int = 1) -> Consumer:
    """A worker of so many places that was woken."""
    consumer = Consumer(places)
    for place in consumer.places:
        place.schedule.seen = 1_000_000, time.monotonic() - 20
    upkeep = cast(Any, SimpleNamespace(due=lambda _: None))
    fetcher = Fetcher(cast(Any, server), [consumer], "w", cast(Any, None), cast(Any, server),
                      upkeep, lambda: None, cast(Any, None))  # fmt: skip
    await fetcher._wait_and_lease([(consumer, place, 1) for place in consumer.places])
    assert [delivery.id for delivery in consumer.taken] == ["m"]
    return consumer


@pytest.mark.parametrize(("passed_ms", "renewed"), [(0, True), (19_500, False)])
async def test_what_was_leased_by_a_time_that_stood_still_while_it_waited_is_renewed(
    passed_ms: int, *, renewed: bool
) -> None:
    server = WaitingServer(1_000_000 + passed_ms, 1_000_000)
    await waited(server)
    assert [command.verb for command in server.sent] == ["renew"] * renewed
    for command in server.sent:
        visibility_ms, expected_ms, *receipt = command.args
        assert (visibility_ms, receipt) == (30_000, ["m", 1])
        assert 1_019_000 <= int(cast(int, expected_ms)) < 1_030_000


@pytest.mark.parametrize("verdict", [b"OK", b"STALE"])
async def test_what_was_leased_by_a_time_that_was_put_forward_is_renewed_and_the_time_asked_again(
    verdict: bytes,
) -> None:
    server = WaitingServer(1_025_000, 1_000_000, verdict)
    consumer = await waited(server)
    (delivery,), (place,) = consumer.taken, consumer.places
    assert [command.verb for command in server.sent] == ["renew"]
    assert (delivery.sent_at >= server.woken_at) == (verdict == b"OK"), (
        "else from the sending of the wait"
    )
    assert not place.empty, "the next lease is not sent behind a wait"


async def test_a_lease_for_each_of_a_few_places_goes_behind_one_wait() -> None:
    server = WaitingServer(1_020_000, 1_000_000)
    consumer = await waited(server, places=3)
    assert server.waits == [3]
    assert server.sent == []
    assert all(place.empty for place in consumer.places)
