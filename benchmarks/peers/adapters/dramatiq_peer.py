"""dramatiq: actor.send; it has no bulk publish."""

from typing import Any

import dramatiq
import peer
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=peer.URL, heartbeat_timeout=10_000, maintenance_chance=50_000))


@dramatiq.actor(max_retries=3, min_backoff=0)
def work(message: dict[str, Any]) -> None:
    """The handler."""
    peer.saw(message)


def one(number: int) -> None:
    """Publish one."""
    work.send(peer.body(number))


def bulk(numbers: range) -> None:
    """Publish many: one by one."""
    for number in numbers:
        one(number)


def main() -> None:
    """Publish, or work."""
    peer.serve(one, bulk)
