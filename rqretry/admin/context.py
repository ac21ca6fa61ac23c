"""What every admin operation needs: the catalog, the places of a group, and the audit record.

Operators move what is due in what they read, if no live worker does (docs/decisions/0014).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.store import Place
from rqretry.core.catalog_records import GroupRecord, TopicRecord
from rqretry.core.errors import ConfigError, GroupNotFound, show
from rqretry.core.limits import check_group, check_topic
from rqretry.core.worker_info import groups_of
from rqretry.maintenance.due import Due, Maintenance
from rqretry.maintenance.quiet import any_key, holding
from rqretry.protocol.audit_log import audit_append
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import PartitionKeys
from rqretry.protocol.maintain import LiveWorker, live_workers

_ROUNDS = 20
"""How many batches of one place one read moves at most."""


@dataclass(frozen=True, slots=True)
class AdminContext:
    """One operator, at work in one namespace."""

    catalog: Catalog
    actor: str
    chance: Callable[[], float] | None = None
    """What jitter is drawn from; default at random."""
    moved: Counter[str] = field(default_factory=Counter)
    """What reads have moved because it was due: "promoted", "expired" and "delivered"."""

    def topics_of(self, topic: str | None, group: str | None) -> Operation[Sequence[TopicRecord]]:
        """The topics that a question is about; raises TopicNotFound or GroupNotFound."""
        asked = None if group is None else check_group(group)
        if topic is None:
            records = yield from self.catalog.topics.all()
        else:
            records = [(yield from self.catalog.store.topic(check_topic(topic)))]
        if asked is None:
            return records
        wanted = yield from self.catalog.groups.get(asked)
        records = [record for record in records if record.name in wanted.topics]
        if topic is not None and not records:
            raise GroupNotFound(f"group {show(asked)} is not subscribed to topic {show(topic)}")
        return records

    def places(self, record: GroupRecord, topic: str | None = None) -> Operation[list[Place]]:
        """The partitions in which a group has messages, of one topic or all of its topics."""
        places = []
        for name in record.topics:
            if topic not in (None, name):
                continue
            found = yield from self.catalog.topics.get(name)
            places += [
                Place(name, number, self.catalog.group_keys(name, number, record.name))
                for number in range(found.partitions)
            ]
        return places

    def places_now(
        self, record: GroupRecord, topic: str | None = None, *, promote: bool = False
    ) -> Operation[list[Place]]:
        """The same; without a live worker, leases that have ended expire first.

        With `promote`, retries that are due are ready first, too.
        """
        places = yield from self.places(record, topic)

        def keys_of(place: Place) -> list[str]:
            return [place.keys.inflight, *([place.keys.due] if promote else [])]

        held = yield from holding(places, any_key(keys_of), 1, seconds=0.0)
        live = (yield from self.live()) if held else []
        abouts = [groups_of(worker.about) for worker in live]
        left = [p for p in held if not any(a.serves(record.name, p.topic) for a in abouts)]
        yield from self.move_due([Due(place.keys, promote) for place in left])
        return places

    def move_due(
        self, due: Sequence[Due], scheduled: Sequence[PartitionKeys] = ()
    ) -> Operation[bool]:
        """Promote, expire and deliver what is due here; whether anything was.

        What this user may not, or the server cannot now, is left to others.
        """
        maintenance = Maintenance(self.catalog.topics, self.actor, self.chance)
        before = self.moved.total()
        for _ in range(_ROUNDS):
            moved = yield from maintenance.move(due)
            delivered = (yield from maintenance.deliver(scheduled)) if scheduled else []
            self.moved["promoted"] += sum(one.promoted for one in moved)
            self.moved["expired"] += sum(one.expired for one in moved)
            self.moved["delivered"] += sum(one.moved for one in delivered)
            due = [place for place, one in zip(due, moved, strict=True) if one.more]
            scheduled = [keys for keys, one in zip(scheduled, delivered, strict=True) if one.more]
            if not due and not scheduled:
                break
        return self.moved.total() > before

    def live(self) -> Operation[list[LiveWorker]]:
        """The live workers."""
        return (yield from live_workers(self.catalog.keys))

    def refuse_live(self, group: str, verb: str, topics: Iterable[str]) -> Operation[None]:
        """Raise ConfigError if a live worker consumes one of these topics for the group."""
        for worker in (yield from self.live()):
            about = groups_of(worker.about)
            if group in about.groups and set(topics) & set(about.topics):
                raise ConfigError(
                    f"{verb} {show(group)}: its worker {show(worker.name)} is alive and would"
                    " subscribe it again; stop its workers first, or force it"
                    " (force=True, --force)"
                )

    def audit(
        self, verb: str, arguments: Mapping[str, Any], counts: Mapping[str, Any] | None = None
    ) -> Operation[None]:
        """Add an audit record; arguments that were not given are left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        yield audit_append(
            self.catalog.keys, actor=self.actor, verb=verb, arguments=given, counts=counts or {}
        )
