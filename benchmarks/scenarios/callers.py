"""Many callers that publish one message at a time through one client: coroutines, and threads."""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import aclosing

from benchmarks.figures import Figures, percentile
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workload import TOPIC, body, check, run, stored
from rqretry import App

AT_ONCE = (1, 8, 64, 512)
KINDS = ("asyncio", "threads")
_ALONE, _TOGETHER = 4_000, 16_000
"""Messages of one caller, and of several."""
_SHOWN = 64


def callers(messages: int | None) -> Figures:
    """Each caller publishes again when it is answered; the main figures are those of 64 tasks."""
    found = {kind: figures(kind, messages) for kind in KINDS}
    main = found[KINDS[0]]
    return Figures(
        rate=main[f"{_SHOWN}_per_s"],
        checked=True,
        p99_ms=main[f"{_SHOWN}_p99_ms"],
        redis_us=main[f"{_SHOWN}_redis_us"],
        more={f"{kind}_{name}": value for kind in KINDS for name, value in found[kind].items()},
    )


def figures(kind: str, messages: int | None) -> dict[str, float]:
    """Messages a second, p99 and CPU of the server, by the number of callers."""
    found: dict[str, float] = {}
    for number in AT_ONCE:
        count = messages or (_ALONE if number == 1 else _TOGETHER)
        publish = _threads if kind == "threads" else _tasks
        with Server() as server:
            cpu = server.cpu_s()
            took, waits, ids = publish(server.url, number, max(1, count // number))
            cpu = server.cpu_s() - cpu
            check(ids, stored(server)[1:])
        found[f"{number}_per_s"] = len(ids) / took
        found[f"{number}_p99_ms"] = percentile(waits, 99)
        found[f"{number}_redis_us"] = cpu / len(ids) * MICROSECONDS
    return found


Published = tuple[float, list[float], list[str]]
"""Seconds in all, milliseconds of each publish, and the ids."""


def _tasks(url: str, number: int, each: int) -> Published:
    published: Published = run(_in_tasks(url, number, each))
    return published


async def _in_tasks(url: str, number: int, each: int) -> Published:
    waits: list[float] = []
    ids: list[str] = []
    async with aclosing(App(url)) as app:

        async def publish(caller: int) -> None:
            for at in range(each):
                sent = time.perf_counter()
                ids.append(str(await app.publish(TOPIC, body(caller * each + at))))
                waits.append((time.perf_counter() - sent) * 1000)

        await app.publish(TOPIC, 0)
        started = time.perf_counter()
        await asyncio.gather(*(publish(caller) for caller in range(number)))
        return time.perf_counter() - started, waits, ids


def _threads(url: str, number: int, each: int) -> Published:
    made: list[tuple[Sequence[float], Sequence[str]]] = []
    together = threading.Barrier(number + 1)
    with App(url).client as client:

        def publish(caller: int) -> None:
            waits, ids = [], []
            together.wait()
            for at in range(each):
                sent = time.perf_counter()
                ids.append(str(client.publish(TOPIC, body(caller * each + at))))
                waits.append((time.perf_counter() - sent) * 1000)
            made.append((waits, ids))

        client.publish(TOPIC, 0)
        threads = [threading.Thread(target=publish, args=(caller,)) for caller in range(number)]
        for thread in threads:
            thread.start()
        together.wait()
        started = time.perf_counter()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - started
    return took, [wait for waits, _ in made for wait in waits], [i for _, ids in made for i in ids]
