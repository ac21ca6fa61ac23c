"""How room and tokens are divided among places."""

import pytest

from rqretry.protocol.keys import partition_keys
from rqretry.worker.fetch import divided, look_every_s, share
from rqretry.worker.leases import Delivery, LeasedPlace


class Consumer:
    """Takes messages from some places."""

    def __init__(self, partitions: int) -> None:
        keys = [partition_keys("n", "t", n).group("g", 18) for n in range(partitions)]
        self.places = [LeasedPlace("t", n, key, 30.0) for n, key in enumerate(keys)]

    def room(self) -> int:
        return 0

    def accept(self, deliveries: list[Delivery]) -> None:
        raise AssertionError


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
    ("places", "seconds"), [(1, 20), (2, 10), (4, 5), (256, 5), (5000, 10), (50_000, 20)]
)
def test_a_place_is_looked_at_every_5_s_unless_it_is_alone_or_one_of_very_many(
    places: int, seconds: float
) -> None:
    (place,) = Consumer(1).places
    assert look_every_s(place, places) == seconds
    place.visibility_s = 2.0
    assert look_every_s(place, places) == 2.0
