"""10,000 receives that wait at one gateway process, each by a client of its own, for ten groups.

`rate` is of opening them; `p50_ms` and `p99_ms` are from a publish to the end of the poll that it
wakes; `rss_mb` is the gateway's, with `polls_kb` for each of them. The rest is of 3 s in which
nothing happens, and of how much later than asked the polls end that nothing has woken. Before that
some polls that end at once show how fast this machine opens them now, so that all are open at once.
"""

import asyncio
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.figures import Figures, percentile
from benchmarks.scenarios.gateway import Calls, serving
from benchmarks.servers import Server
from benchmarks.workers import process_cpu_s
from benchmarks.workload import TOPIC
from rqretry import AsyncClient

_GROUPS, _PUBLISHED, _IDLE_S, _PATIENCE_S = 10, 20, 3.0, 60.0
_TRIED, _SLOWER = 500, 2.0
"""Polls that are tried first, and how much slower the others may be opened."""
_SHORTEST_S, _LONGER = 30.0, 1.3
"""Of a wait; and how much longer its client is patient."""


def gateway_polls(messages: int | None) -> Figures:
    """So many polls."""
    with Server() as server, serving(server.url) as (address, pid):
        return asyncio.run(_measured(server, address, pid, messages or 10_000))


async def _measured(server: Server, address: str, pid: int, count: int) -> Figures:
    return await _Run(server, address, pid, count).figures()


class _Run:
    def __init__(self, server: Server, address: str, pid: int, count: int) -> None:
        self.server, self.address, self.pid, self.count = server, address, pid, count
        self.wait_s = 0
        """Of a poll: it is to be open until all have been opened and looked at."""
        self.calls = Calls(address)
        self.connections = 0
        self.woken: dict[str, float] = {}
        self.late: list[float] = []
        self.codes = Counter[str]()

    async def figures(self) -> Figures:
        """All of them."""
        async with AsyncClient(self.server.url) as direct:
            await direct.admin.create_topic(TOPIC)
            await self._try_some()
            before, began = _rss_mb(self.pid), time.monotonic()
            polls = [asyncio.ensure_future(self._poll(number)) for number in range(self.count)]
            await self._until_open()
            rate = self.count / (time.monotonic() - began)
            commands, idle_share = await self._idle()
            rss = _rss_mb(self.pid)
            sent: dict[str, float] = {}
            for _ in range(_PUBLISHED):
                at = time.monotonic()
                sent[str(await direct.publish(TOPIC, "x"))] = at
                await asyncio.sleep(0.02)
            await asyncio.gather(*polls)
        await self.calls.channel.close()
        waits = [(self.woken[id_] - at) * 1000 for id_, at in sent.items() if id_ in self.woken]
        delivered = _PUBLISHED * _GROUPS
        quiet = {"OK": delivered, "MESSAGE_NOT_FOUND": self.count - delivered}
        return Figures(
            rate=rate,
            checked=self.codes == quiet and len(waits) == _PUBLISHED,
            p50_ms=percentile(waits, 50),
            p99_ms=percentile(waits, 99),
            rss_mb=rss,
            more={
                "polls_kb": (rss - before) * 1024 / self.count,
                "redis_connections": self.connections,
                "idle_commands_per_s": commands,
                "idle_cpu_percent": idle_share * 100,
                "late_p50_s": percentile(self.late, 50),
                "late_p99_s": percentile(self.late, 99),
            },
        )

    async def _poll(self, number: int) -> None:
        v2 = self.calls.v2
        request = v2.ReceiveMessageRequest(batch_size=1)
        request.group.name, request.message_queue.topic.name = f"bench-{number % _GROUPS}", TOPIC
        request.filter_expression.type, request.filter_expression.expression = 1, "*"
        request.invisible_duration.seconds = 60
        request.long_polling_timeout.seconds = self.wait_s
        began, status = time.monotonic(), ""
        within = max(_PATIENCE_S, _LONGER * self.wait_s)
        async for part in self.calls.call("ReceiveMessage", request, f"client-{number}", within):
            if part.HasField("message"):
                id_ = part.message.system_properties.message_id
                self.woken[id_] = max(self.woken.get(id_, 0.0), time.monotonic())
            elif part.HasField("status"):
                status = v2.Code.Name(part.status.code)
        self.codes[status] += 1
        if status == "MESSAGE_NOT_FOUND":
            self.late.append(time.monotonic() - began - self.wait_s)

    async def _try_some(self) -> None:
        began = time.monotonic()
        await asyncio.gather(*map(self._poll, range(min(_TRIED, self.count))))
        each_s = (time.monotonic() - began) / len(self.late)
        self.wait_s = round(max(_SHORTEST_S, 2 * _IDLE_S + _SLOWER * each_s * self.count))
        self.late.clear()
        self.codes.clear()

    async def _until_open(self) -> None:
        until, is_open = time.monotonic() + self.wait_s, 0
        while is_open < self.count:
            assert time.monotonic() < until, f"{is_open} polls are open, {self.codes}"
            await asyncio.sleep(0.1)
            self._look_at_connections()
            is_open = await asyncio.to_thread(self._open)

    def _open(self) -> int:
        with urlopen(f"http://{self.address}/metrics", timeout=_PATIENCE_S) as answer:
            text = answer.read().decode()
        return round(
            float(re.findall(r"^rqretry_gateway_open_polls.* (\S+)$", text, re.MULTILINE)[0])
        )

    def _look_at_connections(self) -> None:
        found: Any = self.server.client.info("clients")
        self.connections = max(self.connections, int(found["connected_clients"]))

    async def _idle(self) -> tuple[float, float]:
        """Commands a second, and the gateway's share of a core."""
        commands, cpu = self.server.requests(), process_cpu_s(self.pid)
        await asyncio.sleep(_IDLE_S)
        self._look_at_connections()
        used = process_cpu_s(self.pid) - cpu
        return (self.server.requests() - commands) / _IDLE_S, used / _IDLE_S


def _rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024
