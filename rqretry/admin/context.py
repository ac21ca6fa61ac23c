"""What every admin operation needs: the catalog, the places of a group, and the audit record."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.store import Place
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.errors import ConfigError, show
from rqretry.core.worker_info import groups_of
from rqretry.protocol.audit_log import audit_append
from rqretry.protocol.command import Operation
from rqretry.protocol.maintain import LiveWorker, live_workers


@dataclass(frozen=True, slots=True)
class AdminContext:
    """One operator, at work in one namespace."""

    catalog: Catalog
    actor: str

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
                )

    def audit(
        self, verb: str, arguments: Mapping[str, Any], counts: Mapping[str, Any] | None = None
    ) -> Operation[None]:
        """Add an audit record; arguments that were not given are left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        yield audit_append(
            self.catalog.keys, actor=self.actor, verb=verb, arguments=given, counts=counts or {}
        )
