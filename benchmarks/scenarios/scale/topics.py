"""What 10,000 topics cost in which nothing happens: a reaper, and a worker that consumes them all.

Counted is what the server executes, also inside scripts.
"""

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.scenarios.scale.measure import Measure
from benchmarks.servers import Server
from benchmarks.workers import Job, Workers
from benchmarks.workload import run
from rqretry import App

TOPICS = 10_000
BAR = 100
GROUP = "bench"
_TOPICS_AT_ONCE = 500
_SECONDS, _SETTLE_S = 20.0, 60.0


def topics(most: int | None) -> Iterator[Measure]:
    """Both, with up to `most` topics (with that, for a shorter time)."""
    count = min(TOPICS, most or TOPICS)
    seconds, settle_s = (1.0, 0.5) if most else (_SECONDS, _SETTLE_S)
    names = tuple(f"topic-{number}" for number in range(count))
    with Server() as server:
        print(f"  topics: {count} of them ...", file=sys.stderr, flush=True)
        run(_subscribe(server.url, names))
        command = [sys.executable, "-m", "rqretry", "reaper", "--url", server.url]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as reaper:
            time.sleep(settle_s)
            yield Measure(f"reaper_{count}_idle_topics", _executed(server, seconds), BAR)
            reaper.terminate()
        with Workers(Job(server.url, "noop", topics=names, groups=(GROUP,), look_every_s=1)):
            time.sleep(settle_s)
            yield Measure(f"worker_{count}_idle_topics", _executed(server, seconds), BAR)


def _executed(server: Server, seconds: float) -> float:
    before = server.executed()
    time.sleep(seconds)
    return (server.executed() - before) / seconds


async def _subscribe(url: str, names: tuple[str, ...]) -> None:
    app = App(url)
    client = app.async_client
    try:
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            await client.store.perform(
                client.catalog.join(GROUP, "push", names[start : start + _TOPICS_AT_ONCE])
            )
    finally:
        await app.aclose()
