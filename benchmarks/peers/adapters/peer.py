"""What all adapters share: the workload, publishing it, and counting what is handled.

It runs in the environment of another system, so it imports nothing but the standard library.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

PORT = int(os.environ["BENCH_PORT"])
URL = f"redis://127.0.0.1:{PORT}/0"
EXPECTED = int(os.environ.get("BENCH_EXPECTED", "0"))
OUT = Path(os.environ.get("BENCH_OUT", "/dev/null"))
HANGS = bool(os.environ.get("BENCH_HANGS"))
FAILS = bool(os.environ.get("BENCH_FAILS"))
LIMIT_S = float(os.environ.get("BENCH_LIMIT_S", "0"))
NUDGE = -1
CHUNK = 500
EVERY_S = 0.005
_GRACE_S = 0.3

Ways = tuple[Callable[..., Any], Callable[..., Any]]
"""How to publish one, and how to publish many."""

_numbers: list[int] = []
_starts: list[float] = []
_failed: set[int] = set()
_done: set[int] = set()
_cpu: list[float] = []
_lock = threading.Lock()

if FAILS:
    logging.disable(logging.CRITICAL)  # not the logging of failures is measured


class FirstAttemptError(Exception):
    """What every first delivery fails with, where messages have to fail once."""


def body(number: int) -> dict[str, Any]:
    """About 100 bytes, as rqretry's own scenarios have it."""
    return {"n": number, "carrier": "UA", "origin": "EWR", "note": "x" * 60}


def saw(message: dict[str, Any]) -> None:
    """What every handler does: note the time and read a field. A hanging one never returns.

    Raises:
        FirstAttemptError: It is the first time for this message, and each has to fail once.
    """
    number = message["n"]
    if number == NUDGE:
        return
    _starts.append(time.monotonic())
    _numbers.append(number)
    if HANGS:
        _hang()
    if not _cpu:
        _begin()
    if FAILS and number not in _failed:
        _failed.add(number)
        raise FirstAttemptError("the first attempt fails")
    _done.add(number)
    if len(_done) >= EXPECTED:
        _end()


async def saw_async(message: dict[str, Any]) -> None:
    """The same for asyncio: to hang is to wait."""
    if HANGS and message["n"] != NUDGE:
        _starts.append(time.monotonic())
        _say_that_it_hangs()
        await asyncio.sleep(3600)
    saw(message)


def _hang() -> None:
    _say_that_it_hangs()
    time.sleep(3600)


def _say_that_it_hangs() -> None:
    OUT.touch()


def _begin() -> None:
    _cpu.append(time.process_time())
    if LIMIT_S:
        limit = threading.Timer(LIMIT_S, _end)
        limit.daemon = True
        limit.start()


def _end() -> None:
    """All is done, or time is over."""
    with _lock:
        if len(_cpu) == 1:
            _cpu.append(time.process_time())
            threading.Thread(target=_report).start()


def _report() -> None:
    time.sleep(_GRACE_S)  # a duplicate would come now
    cpu_us = (_cpu[1] - _cpu[0]) / max(1, EXPECTED - 1) * 1e6
    done, numbers = len(_done), list(_numbers)
    starts = _starts[: len(numbers)]  # when time was over, handlers still run
    report = {"numbers": numbers, "starts": starts, "done": done, "worker_us": cpu_us}
    whole = OUT.with_suffix(".part")
    whole.write_text(json.dumps(report), encoding="utf-8")
    whole.rename(OUT)


def reported(took: float, sent: list[float]) -> None:
    """Answer the harness."""
    print(json.dumps({"took": took, "sent": sent}))


def _single(action: str, count: int) -> Iterable[int]:
    """What is published one by one: messages, or what only makes a worker look at its queue."""
    if action == "nudge":
        return [NUDGE] * count
    return range(count) if action in {"one", "slow"} else ()


def _share(count: int, callers: int) -> int:
    """How many of so many messages each caller publishes."""
    return max(1, count // callers)


def _in_threads(one: Callable[[int], Any], count: int, callers: int) -> None:
    """So many threads, each of which publishes again when its last message is stored."""
    waits: list[float] = []
    together = threading.Barrier(callers + 1)

    def publish() -> None:
        together.wait()
        for number in range(_share(count, callers)):
            sent = time.perf_counter()
            one(number)
            waits.append(time.perf_counter() - sent)

    one(0)
    threads = [threading.Thread(target=publish) for _ in range(callers)]
    for thread in threads:
        thread.start()
    together.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    reported(time.perf_counter() - started, waits)


async def _in_tasks(one: Callable[[int], Awaitable[Any]], count: int, callers: int) -> None:
    """The same with tasks of one event loop."""
    waits: list[float] = []

    async def publish() -> None:
        for number in range(_share(count, callers)):
            sent = time.perf_counter()
            await one(number)
            waits.append(time.perf_counter() - sent)

    await one(0)
    started = time.perf_counter()
    await asyncio.gather(*(publish() for _ in range(callers)))
    reported(time.perf_counter() - started, waits)


def serve(
    one: Callable[[int], Any], bulk: Callable[[range], Any], work: Callable[[], Any] | None = None
) -> None:
    """The program of a system whose client is synchronous."""
    action, *rest = sys.argv[1:]
    if action == "work" and work is not None:
        work()
        return
    if action == "callers":
        _in_threads(one, int(rest[0]), int(rest[1]))
        return
    count, sent = int(rest[0]), []
    started = time.perf_counter()
    if action == "bulk":
        for at in range(0, count, CHUNK):
            bulk(range(at, min(count, at + CHUNK)))
    due = time.monotonic()
    for number in _single(action, count):
        if action == "slow":
            due += EVERY_S
            time.sleep(max(0.0, due - time.monotonic()))
        sent.append(time.monotonic())
        one(number)
    reported(time.perf_counter() - started, sent)


def serve_async(
    connect: Callable[[], Awaitable[Ways]],
    work: Callable[[], Any] | None = None,
) -> None:
    """The program of a system whose client is asyncio; `connect` answers (one, bulk)."""
    action, *rest = sys.argv[1:]
    if action == "work" and work is not None:
        work()
        return

    async def publish() -> None:
        one, bulk = await connect()
        if action == "callers":
            await _in_tasks(one, int(rest[0]), int(rest[1]))
            return
        count, sent = int(rest[0]), []
        started, due = time.perf_counter(), time.monotonic()
        if action == "bulk":
            for at in range(0, count, CHUNK):
                await bulk(range(at, min(count, at + CHUNK)))
        for number in _single(action, count):
            if action == "slow":
                due += EVERY_S
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent.append(time.monotonic())
            await one(number)
        reported(time.perf_counter() - started, sent)

    asyncio.run(publish())
