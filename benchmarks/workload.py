"""The messages of the scenarios, and the check that each one was handled."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import Any

from benchmarks.servers import Server
from rqretry import App
from rqretry.core.envelope import encode
from rqretry.core.parts import parts_of

SMALL, LARGE = 60, 960
"""Bytes of filling that make a body of about 100 bytes, and of 1 KB."""
TOPIC = "work"


def body(number: int, filling: int = SMALL) -> dict[str, Any]:
    """The body of a message; handlers read its field `n`."""
    return {"n": number, "carrier": "UA", "origin": "EWR", "note": "x" * filling}


def bodies(count: int, filling: int = SMALL) -> list[dict[str, Any]]:
    """So many bodies."""
    return [body(number, filling) for number in range(count)]


def encoded_size(filling: int = SMALL) -> int:
    """Bytes of a message as it is stored."""
    return len(encode(body(1000, filling)))


def publish_all(url: str, items: Sequence[Any], topic: str = TOPIC) -> list[str]:
    """Publish in bulk; the ids."""

    async def publish() -> list[str]:
        async with aclosing(App(url)) as app:
            return [str(id_) for id_ in await app.publish_many(topic, items)]

    ids: list[str] = run(publish())
    return ids


def join(url: str, *groups: str) -> None:
    """Make groups that get everything published from now on."""
    app = App(url)
    with app.client as client:
        for group in groups:
            parts_of(client).store.perform(parts_of(client).catalog.join(group, "push", [TOPIC]))


def unfinished(url: str, group: str = "bench") -> int:
    """How many messages the group is not done with."""
    app = App(url)
    with app.client as client:
        stats = client.admin.stats(TOPIC, group)
        return stats.ready + stats.retry + stats.waiting + stats.inflight + stats.dead


def run(coroutine: Any) -> Any:
    """Run a coroutine in the event loop that workers use."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(coroutine)


def loop_factory() -> Any:
    """Uvloop where it is installed."""
    try:
        return import_module("uvloop").new_event_loop
    except ImportError:
        return None


def check(expected: Iterable[str], handled: Iterable[str], times: int = 1) -> None:
    """Every message was handled exactly so often.

    Raises:
        AssertionError: One was lost, handled too often, or never published.
    """
    wanted, counts = set(expected), Counter(handled)
    missing = len(wanted - set(counts))
    unknown = len(set(counts) - wanted)
    wrong = sum(1 for id_ in wanted if id_ in counts and counts[id_] != times)
    if missing or unknown or wrong:
        raise AssertionError(
            f"of {len(wanted)} messages {missing} were not handled, {wrong} not {times} times,"
            f" and {unknown} that were never published were"
        )


def stored(server: Server) -> list[str]:
    """The ids that wait for the first group, in their order."""
    (key,) = server.client.keys("*:backlog")
    return [id_.decode() for id_ in server.client.lrange(key, 0, -1)]
