"""huey: a list, popped; what a killed worker held is lost by design."""

from typing import Any

import peer
from huey import RedisHuey

huey = RedisHuey(
    "bench", url=peer.URL, results=False, store_intermediate_errors=False, blocking=True
)


@huey.task(retries=3)
def work(message: dict[str, Any]) -> None:
    """The handler."""
    peer.saw(message)


def one(number: int) -> None:
    """Publish one."""
    work(peer.body(number))


def bulk(numbers: range) -> None:
    """Publish many: one by one."""
    for number in numbers:
        one(number)


def main() -> None:
    """Publish, or work."""
    peer.serve(one, bulk)
