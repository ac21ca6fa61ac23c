"""What partitions remember of producers: no more than there are at once."""

import threading
from typing import Any

from rqretry import Client
from tests.contract.integration.harness import NAMESPACE, PATIENCE_S, Lab

SINGLE, BULK = 1, 2
"""Lanes that one call uses at most."""


def lanes(lab: Lab) -> int:
    return len(lab.redis.keys("rqretry:test:{t:0}:lane:*"))


def in_threads(count: int, work: Any, *args: Any) -> None:
    """Run it in so many new threads at once."""
    threads = [threading.Thread(target=work, args=args) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)


async def test_threads_that_come_and_go_leave_one_lane(lab: Lab) -> None:
    client = lab.client()
    for _ in range(30):
        in_threads(1, client.publish, "t", "a message")
    assert lanes(lab) == SINGLE
    in_threads(1, client.publish_many, "t", range(1200))
    assert lanes(lab) == BULK
    assert lab.redis.hlen("rqretry:test:{t:0}:bodies") == 30 + 1200


async def test_threads_at_once_have_lanes_of_their_own(lab: Lab) -> None:
    client, together = lab.client(), threading.Barrier(4)
    client.publish("t", "so that the topic is there")

    def work() -> None:
        together.wait(PATIENCE_S)
        for number in range(50):
            client.publish("t", number)

    in_threads(4, work)
    assert lanes(lab) <= 4 * SINGLE
    assert lab.redis.hlen("rqretry:test:{t:0}:bodies") == 1 + 200


async def test_a_client_that_ends_begins_with_lanes_of_its_own(lab: Lab) -> None:
    for _ in range(2):
        with Client(lab.url, namespace=NAMESPACE) as client:
            client.publish("t", 1)
    assert lanes(lab) == 2 * SINGLE
