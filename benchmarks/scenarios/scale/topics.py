"""What 10,000 topics cost in which nothing happens: a reaper, and a worker that consumes them all.

Counted is what the server executes, also inside scripts; and how long such a worker takes to start.
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
from rqretry.core.parts import parts_of

TOPICS = 10_000
BAR, START_BAR_S = 100, 30
GROUP = "bench"
_TOPICS_AT_ONCE = 500
_SECONDS, _SETTLE_S = 20.0, 30.0


def topics(most: int | None) -> Iterator[Measure]:
    """Both, with up to `most` topics (with that, for a shorter time)."""
    count = min(TOPICS, most or TOPICS)
    seconds, settle_s = (1.0, 0.5) if most else (_SECONDS, _SETTLE_S)
    names = tuple(f"topic-{number}" for number in range(count))
    with Server() as server:
        print(f"  topics: {count} of them ...", file=sys.stderr, flush=True)
        begun = time.monotonic()
        run(_subscribe(server.url, names))
        joined_s = time.monotonic() - begun
        print(f"  topics: created in {joined_s:.0f} s", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "rqretry", "reaper", "--url", server.url]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as reaper:
            try:
                time.sleep(settle_s)
                executed = _executed(server, seconds)
            finally:
                reaper.terminate()
        yield Measure(f"reaper_{count}_idle_topics", executed, BAR)
        begun = time.monotonic()
        with Workers(Job(server.url, "noop", topics=names, groups=(GROUP,), look_every_s=1)):
            yield Measure(f"worker_start_s_{count}_topics", time.monotonic() - begun, START_BAR_S)
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
            await parts_of(client).store.perform(
                parts_of(client).catalog.join(GROUP, "push", names[start : start + _TOPICS_AT_ONCE])
            )
    finally:
        await app.aclose()
