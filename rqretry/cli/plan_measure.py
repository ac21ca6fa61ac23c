"""What messages cost on this machine: the measurement behind `rqretry plan`.

One private server, one process that publishes and then consumes; the server's time is what it says
of itself, the clients' that of this process, so that other programs disturb little.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any, Self

from rqretry.app import App
from rqretry.core.envelope import encode
from rqretry.core.parts import parts_of
from rqretry.core.retry_policy import RetryPolicy
from rqretry.protocol.command import query
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.transport.connection import read_info

SMALL, LARGE = 100, 4196
"""Bytes of the bodies; large ones cost what they have more."""
MESSAGES = 8_000
_LARGE_SHARE, _ONE_SHARE = 4, 8
"""There are so many times fewer large messages, and such as are published one by one."""
_TOPIC, _GROUP = "plan", "plan"
_PATIENCE_S = 120.0
_MICROSECONDS = 1_000_000

Figures = dict[str, float]


def measure(messages: int = MESSAGES) -> Figures:
    """Measure every cost that capacity.py knows, once. Raises ConfigError without a server."""
    logging.disable(logging.WARNING)  # of what fails on purpose
    try:
        port = _free_port()
        with EmbeddedRedis(port=port), _Bench(f"redis://127.0.0.1:{port}/0") as bench:
            return bench.run(messages)
    finally:
        logging.disable(logging.NOTSET)


class _Bench:
    def __init__(self, url: str) -> None:
        self._url = url
        self._client = App(url).client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(self, count: int) -> Figures:
        """The phases, one after the other."""
        small, large, few = b"x" * SMALL, b"x" * LARGE, count // _LARGE_SHARE
        self._client.admin.create_topic(_TOPIC)
        self._client.admin.create_group(_GROUP, [_TOPIC], policy=RetryPolicy.fixed("1h"))
        self._publish_one([small] * (count // _ONE_SHARE))  # whatever happens only once
        self._consume(count // _ONE_SHARE)
        one = self._during(count // _ONE_SHARE, self._publish_one, small)
        self._consume(count // _ONE_SHARE)
        bulk = self._during(count, self._publish_bulk, small)
        consumed, worker_us = self._consume(count)
        self._publish_bulk([small] * count)
        failed, failing_us = self._consume(count, fails=True)
        again = self._reading(count, lambda: self._client.admin.promote(_GROUP))
        second, second_us = self._consume(count)
        heavy = self._during(few, self._publish_bulk, large)
        heavier, _ = self._consume(few)
        kept = self._kept(count, small)
        kibs = (LARGE - SMALL) / 1024
        extra = heavy["server"] + heavier["server"] - bulk["server"] - consumed["server"]
        retried = {
            name: failed[name] + again[name] + second[name] - consumed[name] for name in failed
        }
        encoded = len(encode(small))
        return {
            "publish_one_us": one["server"],
            "publish_bulk_us": bulk["server"],
            "consume_us": consumed["server"],
            "failure_us": retried["server"],
            "kib_us": max(0.0, extra / kibs / 2),
            "producer_one_us": one["client"],
            "producer_bulk_us": bulk["client"],
            "worker_us": worker_us,
            "worker_failure_us": max(0.0, failing_us + second_us - worker_us),
            "stored_bytes": bulk["memory"] - SMALL,
            "retry_bytes": failed["memory"],
            "kept_bytes": bulk["memory"] + kept["memory"] - SMALL,
            "publish_one_in": one["in"] - encoded,
            "publish_in": bulk["in"] - encoded,
            "consume_in": consumed["in"],
            "consume_out": max(0.0, consumed["out"] - encoded),
            "failure_in": max(0.0, retried["in"]),
            "failure_out": max(0.0, retried["out"] - encoded),
        }

    def _kept(self, count: int, body: bytes) -> Figures:
        self._client.admin.set_topic(_TOPIC, keep="1h")
        self._publish_bulk([body] * count)
        return self._consume(count)[0]

    def _during(self, count: int, publish: Callable[[list[bytes]], Any], body: bytes) -> Figures:
        return self._reading(count, lambda: publish([body] * count))

    def _publish_one(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self._client.publish(_TOPIC, body)

    def _publish_bulk(self, bodies: list[bytes]) -> None:
        self._client.publish_many(_TOPIC, bodies)

    def _consume(self, count: int, *, fails: bool = False) -> tuple[Figures, float]:
        """Have a worker handle so many; what it took, and the worker's time for each."""
        times: list[float] = []

        def consume() -> None:
            asyncio.run(_worked(self._url, count, times, fails=fails))

        taken = self._reading(count, consume)
        return taken, (times[-1] - times[0]) / max(1, count - 1) * _MICROSECONDS

    def _reading(self, count: int, act: Callable[[], Any]) -> Figures:
        """What an action takes of server, memory, network and this process, for each message."""
        before, began = self._info(), time.process_time()
        act()
        spent, after = time.process_time() - began, self._info()
        taken = {name: (after[name] - before[name]) / count for name in before}
        return taken | {"client": spent / count * _MICROSECONDS}

    def _info(self) -> Figures:
        found = parts_of(self._client).store.run(query(read_info, "INFO"))
        cpu_s = float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
        return {
            "server": cpu_s * _MICROSECONDS,
            "memory": float(found["used_memory"]),
            "in": float(found["total_net_input_bytes"]),
            "out": float(found["total_net_output_bytes"]),
        }


async def _worked(url: str, count: int, times: list[float], *, fails: bool) -> None:
    """A worker handles so many messages; notes this process's time at the first and the last."""
    app, done = App(url), asyncio.Event()
    handled = 0

    @app.consumer(_TOPIC, group=_GROUP)
    async def handle(body: bytes) -> None:
        nonlocal handled
        del body
        handled += 1
        if handled in {1, count}:
            times.append(time.process_time())
        if handled == count:
            done.set()
        if fails:
            raise RuntimeError("measured")

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(app.run(signals=False))
        async with asyncio.timeout(_PATIENCE_S):
            await done.wait()
        working.cancel()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
