"""What the machine gives at best: bare loops over the same scripts, and a bare LPUSH loop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import redis

from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workload import bodies
from rqretry import App, Client, OutgoingMessage
from rqretry.core.envelope import checksum, encode
from rqretry.core.message_id import make_ids, make_producer
from rqretry.core.parts import parts_of
from rqretry.core.receipt import Receipt
from rqretry.protocol.lease import lease, succeed
from rqretry.protocol.publish import Prepared, publish

BATCH = 100
_LANE_TTL_MS = 60_000
_NAMESPACE = "floor"


@contextmanager
def _client(url: str) -> Iterator[Client]:
    app = App(url, namespace=_NAMESPACE)
    try:
        yield app.client
    finally:
        app.client.close()


def publish_rate(url: str, count: int, filling: int) -> float:
    """Messages per second of the bare publish script, 100 a call, everything encoded before."""
    with _client(url) as client:
        store, catalog = parts_of(client).store, parts_of(client).catalog
        client.publish("bare", 0)
        data = [encode(body) for body in bodies(BATCH, filling)]
        keys, route = catalog.partition("bare", 0), catalog.topics.route("bare", 0)
        producer, rounds = make_producer(), max(1, count // BATCH)
        started = time.perf_counter()
        for number in range(1, rounds + 1):
            ids = make_ids(BATCH, store.clock.now_ms())
            messages = [Prepared(id_, text, "", "") for id_, text in zip(ids, data, strict=True)]
            total = checksum(
                part for id_, text in zip(ids, data, strict=True) for part in (id_.encode(), text)
            )
            store.run(
                publish(
                    keys, route, messages, producer=producer, seq=number, checksum=total,
                    lane_ttl_ms=_LANE_TTL_MS,
                )
            )  # fmt: skip
        return rounds * BATCH / (time.perf_counter() - started)


def drain_rate(url: str, count: int, filling: int) -> float:
    """Messages per second of lease and succeed, 100 a call."""
    with _client(url) as client:
        client.publish_many("drain", bodies(count, filling))
        parts_of(client).store.perform(parts_of(client).catalog.join("bare", "push", ["drain"]))
        return _drained(client, count, BATCH)


def one_by_one_rate(url: str, count: int) -> float:
    """Messages per second of one message group: lease, succeed, lease the next."""
    with _client(url) as client:
        store, join = parts_of(client).store, parts_of(client).catalog.join
        store.perform(join("bare", "push", ["drain"], ordered=True))
        items = [OutgoingMessage(body=body, message_group="g") for body in bodies(count)]
        client.publish_many("drain", items)
        return _drained(client, count, 1)


def _drained(client: Client, count: int, want: int) -> float:
    store, keys = parts_of(client).store, parts_of(client).catalog.group_keys("drain", 0, "bare")
    handled, started = 0, time.perf_counter()
    while handled < count:
        leased = store.run(lease(keys, worker="bare", want=want, visibility_ms=30_000))
        receipts = [
            Receipt(id_, numbers[0])
            for id_, numbers in zip(leased.ids, leased.numbers, strict=True)
        ]
        store.run(succeed(keys, receipts, worker="bare"))
        handled += len(receipts)
    return count / (time.perf_counter() - started)


def lpush_rate(port: int, count: int, size: int) -> float:
    """Single LPUSHes per second of redis-py, one after another."""
    with redis.Redis(port=port) as client:  # noqa: TID251 - this is what is compared with
        data, started = b"x" * size, time.perf_counter()
        for _ in range(count):
            client.lpush("bare-list", data)
        rate = count / (time.perf_counter() - started)
        client.delete("bare-list")
        return rate


def server_us(server: Server, count: int, size: int) -> dict[str, float]:
    """CPU of the server for one LPUSH and one XADD of so many bytes, sent one after another."""
    data, found = b"x" * size, {}
    with redis.Redis(port=server.port) as client:  # noqa: TID251 - this is what is compared with
        bare = {
            "lpush_us": partial(client.lpush, "bare-list", data),
            "xadd_us": partial(client.xadd, "bare-stream", {"payload": data}),
        }
        for name, send in bare.items():
            cpu = server.cpu_s()
            for _ in range(count):
                send()
            found[name] = (server.cpu_s() - cpu) / count * MICROSECONDS
        client.delete("bare-list", "bare-stream")
    return found
