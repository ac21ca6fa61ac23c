"""How long one call keeps the server, on the worst data for it: CPU time, of the longest call.

A message without a body among many message groups, a message group of messages that lost their
bodies, bodies of 4 MiB that end at once, history in large entries, and a full batch of each kind.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.scenarios.scale.measure import Measure
from benchmarks.servers import Server
from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failure, Leased, fail, lease, succeed
from rqretry.protocol.maintain import expire, sweep
from rqretry.protocol.operate import purge

MESSAGE_GROUPS, BODIES, BATCH = 500_000, 500, 500
BAR_MS = 20
_BODY = b"x" * (4 * 2**20)
_AT_ONCE = 20_000
_LEASE_MS = 3_600_000


class _Bench:
    """One topic with one group on a server of its own; each call is timed by its CPU."""

    def __init__(self, server: Server, *, ordered: bool = False) -> None:
        server.client.flushall()
        self._server = server
        self.raw = server.client
        self.client = Client(server.url)
        self.client.publish("t", 0)
        parts_of(self.client).store.perform(
            parts_of(self.client).catalog.join("g", "push", ["t"], ordered=ordered)
        )
        self.keys: GroupKeys = parts_of(self.client).catalog.group_keys("t", 0, "g")
        self.longest_ms = 0.0
        self.run(succeed(self.keys, self.receipts(1), worker="w"))
        self.longest_ms = 0.0

    def run(self, command: Command[Any]) -> Any:
        before = self._server.cpu_s()
        answer = parts_of(self.client).store.run(command)
        self.longest_ms = max(self.longest_ms, (self._server.cpu_s() - before) * 1000)
        return answer

    def receipts(self, want: int) -> list[tuple[str, int]]:
        leased: Leased = self.run(lease(self.keys, worker="w", want=want, visibility_ms=_LEASE_MS))
        return [(id_, no) for id_, (no, _) in zip(leased.ids, leased.numbers, strict=True)]

    def fill(self, key: str, rows: dict[str, Any]) -> None:
        """Into a hash."""
        items = list(rows.items())
        for at in range(0, len(items), _AT_ONCE):
            self.raw.hset(key, mapping=dict(items[at : at + _AT_ONCE]))


def calls(most: int | None) -> Iterator[Measure]:
    """The longest call of each kind of data; with `most` on less of it."""
    kinds: dict[str, Callable[[Server, int | None], float]] = {
        "orphan": _orphan,
        "lost_message_group": _lost_message_group,
        "large_bodies": _large_bodies,
        "full_batches": _full_batches,
    }
    with Server() as server:
        for name, measure in kinds.items():
            print(f"  calls: {name} ...", file=sys.stderr, flush=True)
            yield Measure(f"longest_call_ms_{name}", measure(server, most), BAR_MS)


def _orphan(server: Server, most: int | None) -> float:
    """One message without a body in an ordered group with many message groups."""
    bench = _Bench(server, ordered=True)
    count = most or MESSAGE_GROUPS
    bench.client.publish("t", 1, id="lost", message_group="one")
    names = {f"message-group-{number}": f"m{number}" for number in range(count)}
    bench.fill(bench.keys.heads, names)
    slots = {id_: f"{0:016}{name}" for name, id_ in names.items()}
    bench.fill(bench.keys.partition.message_groups, slots)
    bench.raw.hdel(bench.keys.partition.bodies, "lost")
    bench.receipts(BATCH)
    bench.raw.zadd(bench.keys.inflight, {"lost": 1})
    bench.run(expire(bench.keys, worker="w", hold_ms=0, random=0.5))
    return bench.longest_ms


def _lost_message_group(server: Server, most: int | None) -> float:
    """A message group all of whose messages, but the first, have lost their bodies."""
    bench = _Bench(server, ordered=True)
    count = min(most or 20_000, 20_000)
    bench.client.publish("t", 1, id="first", message_group="one")
    line = {f"one\0{number:016}m{number}": 0 for number in range(2, count + 2)}
    bench.raw.zadd(bench.keys.order, line)
    bench.run(succeed(bench.keys, bench.receipts(1), worker="w"))
    return bench.longest_ms


def _large_bodies(server: Server, most: int | None) -> float:
    """Bodies of 4 MiB that are committed, or purged, as many as one call may name."""
    bench = _Bench(server)
    ids = [f"m{number}" for number in range(min(most or BODIES, BODIES))]
    for where in ("committed", "purged"):
        for id_ in ids:
            bench.raw.hset(bench.keys.partition.bodies, id_, _BODY)
        bench.raw.hset(bench.keys.partition.big, mapping=dict.fromkeys(ids, len(_BODY)))
        key, floor = bench.keys.dead, int(bench.raw.hget(bench.keys.config, "floor") or 1)
        rest = ids
        bench.raw.zadd(
            bench.keys.inflight if where == "committed" else key, dict.fromkeys(ids, 2**42)
        )
        while rest:
            command = (
                succeed(bench.keys, [(id_, floor) for id_ in rest], worker="w")
                if where == "committed"
                else purge(bench.keys, rest, actor="ops")
            )
            verdicts = bench.run(command)
            rest = [id_ for id_, verdict in zip(rest, verdicts, strict=True) if verdict == b"LATER"]
    assert bench.raw.hlen(bench.keys.partition.bodies) == 0
    return bench.longest_ms


def _full_batches(server: Server, most: int | None) -> float:
    """As many messages as a call may take, with ids, keys and long errors; and old history."""
    bench = _Bench(server, ordered=True)
    record = '{"c":"failure","m":"' + "x" * 2000 + '"}'
    for number in range(min(most or 10, 10)):
        for at in range(BATCH):
            keys = [f"{number}-{at}-{key}" for key in range(16)]
            bench.client.publish("t", at, id=f"{number}-{at}", message_group=str(at), keys=keys)
        receipts = bench.receipts(BATCH)
        failures = [Failure(r, 0, "", 0.5, "failure", record) for r in receipts]  # type: ignore[arg-type]
        bench.run(fail(bench.keys, failures, worker="w", tracebacks={}))
    bench.raw.hset(bench.keys.partition.meta, "limit", 1)
    while bench.run(sweep(bench.keys.partition, [bench.keys])).next_ms == 0:
        pass
    return bench.longest_ms
