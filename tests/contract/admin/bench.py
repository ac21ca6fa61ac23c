"""What the tests of the operator's verbs share: one client, and messages in every state."""

import json
from typing import Any

import redis

from rqretry import Client
from rqretry.core.failure_record import describe_cause
from rqretry.core.message_id import MessageId
from rqretry.core.parts import parts_of
from rqretry.core.receipt import Receipt
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failure, fail, lease, succeed
from rqretry.protocol.maintain import promote, register


class Bench:
    """A client without workers: the test leases and settles, so nothing moves by itself."""

    def __init__(self, client: Client, raw: redis.Redis, url: str) -> None:
        self.client = client
        self.url = url
        self.admin = client.admin
        self.redis: Any = raw
        self.leased: list[Receipt] = []

    def group(self, name: str = "g", *topics: str, kind: str = "push", **settings: Any) -> None:
        """A group of these topics (default `t`), as a starting worker makes it."""
        join = parts_of(self.client).catalog.join(name, kind, topics or ("t",), **settings)
        parts_of(self.client).store.perform(join)

    def publish(self, *bodies: Any, topic: str = "t", **options: Any) -> list[MessageId]:
        """Publish bodies; their ids."""
        return [self.client.publish(topic, body, **options) for body in bodies]

    def keys(self, group: str = "g", topic: str = "t", partition: int = 0) -> GroupKeys:
        """The keys of a group in a partition."""
        parts_of(self.client).store.perform(parts_of(self.client).catalog.topics.get(topic))
        return parts_of(self.client).catalog.group_keys(topic, partition, group)

    def lease(
        self, want: int = 100, *, group: str = "g", topic: str = "t", partition: int = 0
    ) -> list[Receipt]:
        """Lease what is ready."""
        command = lease(
            self.keys(group, topic, partition), worker="w", want=want, visibility_ms=60_000
        )
        leased = parts_of(self.client).store.run(command)
        return [
            Receipt(id_, number)
            for id_, (number, _) in zip(leased.ids, leased.numbers, strict=True)
        ]

    def lease_due(self) -> bool:
        """Promote what is due, and lease it; what it was is in `leased`."""
        parts_of(self.client).store.run(promote(self.keys(), worker="w"))
        self.leased = self.lease()
        return bool(self.leased)

    def succeed(self, receipts: list[Receipt], *, group: str = "g", topic: str = "t") -> None:
        """Commit."""
        verdicts = parts_of(self.client).store.run(
            succeed(self.keys(group, topic), receipts, worker="w")
        )
        assert set(verdicts) <= {b"OK"}

    def fail(
        self,
        receipts: list[Receipt],
        reason: str = "boom",
        *,
        level: int = 0,
        delay_ms: int | str = "",
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
    ) -> None:
        """Report failures with this reason; each reason has a fingerprint of its own."""
        record = describe_cause("failure", reason, "w")
        rows = [Failure(r, level, delay_ms, 0.5, "failure", record) for r in receipts]
        keys = self.keys(group, topic, partition)
        answers = parts_of(self.client).store.run(fail(keys, rows, worker="w", tracebacks={}))
        assert {answer.verdict for answer in answers} <= {"OK"}

    def dead_letter(self, *bodies: Any, reason: str = "boom", **places: Any) -> list[MessageId]:
        """Publish, and let die at the first attempt."""
        topic = places.get("topic", "t")
        ids = self.publish(*bodies, topic=topic)
        self.fail(self.lease(len(bodies), **places), reason, level=-1, **places)
        return ids

    def numbers(self, group: str = "g", topic: str | None = None) -> tuple[int, ...]:
        """(ready, retry, inflight, waiting, dead) of a group."""
        stats = self.admin.stats(topic, group=group)
        return (stats.ready, stats.retry, stats.inflight, stats.waiting, stats.dead)

    def appear(
        self, name: str, *, group: str = "g", topic: str = "t", ttl_ms: int = 60_000, **facts: Any
    ) -> None:
        """A worker says that it lives."""
        about = json.dumps({"groups": [group], "topics": [topic], "pid": 7, **facts})
        keys = parts_of(self.client).catalog.keys
        parts_of(self.client).store.run(register(keys, worker=name, about=about, ttl_ms=ttl_ms))

    def stored(self, topic: str = "t", partition: int = 0) -> int:
        """Bodies kept in a partition."""
        return int(self.redis.hlen(f"rqretry:test:{{{topic}:{partition}}}:bodies"))

    def keys_of(self, part: str) -> list[str]:
        """The names of keys that contain this."""
        return sorted(key.decode() for key in self.redis.keys(f"*{part}*"))

    def verbs(self) -> list[str]:
        """The verbs in the audit record, the oldest first."""
        return [entry.verb for entry in reversed(self.admin.audit())]
