"""The part of the catalog about dead letters as a topic: groups that consume `%DLQ%<group>`.

Such a group, a view, has its lists inside the partitions of the other group, and is in none of
their routes: what it gets is not published to it, but fed from the dead letters (decisions 23).
"""

from collections.abc import Iterable

from rqretry.catalog.group_config import GroupCopies
from rqretry.core.catalog_records import BROADCAST, GroupRecord
from rqretry.core.errors import ConfigError, GroupNotFound, show
from rqretry.core.limits import DLQ
from rqretry.protocol import inspect as admin
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import GroupKeys

Place = tuple[str, int, GroupKeys]


class ViewCatalog(GroupCopies):
    """Finds the places of a group, also of one that consumes dead letters."""

    def group(self, name: str) -> Operation[GroupRecord]:
        """A group's record. Raises GroupNotFound."""
        yield from self.open()
        stored = yield admin.read_record(self.keys.groups, name)
        if not stored:
            raise missing(name, self.namespace)
        return self._learnt(GroupRecord.decode(name, stored))

    def places(self, group: str, topics: Iterable[str]) -> Operation[list[Place]]:
        """Every partition of what a consumer names as its topics, with the group's keys there.

        Raises:
            GroupNotFound, TopicNotFound: One of them is not there.
        """
        names = tuple(topics)
        source = source_of(group, names)
        if source:
            names = (yield from self.group(source)).topics
            yield from self.group(group)
        found = []
        for name in names:
            topic = yield from self.refreshed(name)
            found += [
                (name, number, self.group_keys(name, number, group))
                for number in range(topic.all_partitions)
            ]
        return found

    def _topics_of_source(self, group: str, source: str) -> Operation[tuple[str, ...]]:
        """The topics in which a group has dead letters. Raises GroupNotFound, ConfigError."""
        record = yield from self.group(source)
        if record.kind == BROADCAST:
            raise ConfigError(
                f"group {show(source)} is a broadcast group and has no dead letters, so group"
                f" {show(group)} cannot consume {show(DLQ + source)}"
            )
        if record.source:
            raise ConfigError(
                f"group {show(source)} consumes the dead letters of {show(record.source)} and has"
                f" none itself, so group {show(group)} cannot consume {show(DLQ + source)}"
            )
        return record.topics

    def _learnt(self, record: GroupRecord) -> GroupRecord:
        if record.source:
            self._views[record.name] = record.source
        return record


def source_of(group: str, topics: Iterable[str]) -> str:
    """Whose dead letters a consumer names as its topic; "" for none. Raises ConfigError."""
    names = list(topics)
    sources = [name.removeprefix(DLQ) for name in names if name.startswith(DLQ)]
    if not sources:
        return ""
    if len(names) > 1 or sources[0] == group:
        raise ConfigError(
            f"group {show(group)} consumes {show(', '.join(names))}: dead letters are consumed by"
            " a group of their own, which consumes nothing else; use another group name"
        )
    return sources[0]


def check_same_source(record: GroupRecord, source: str, topics: Iterable[str]) -> None:
    """A group consumes topics, or one group's dead letters, for good. Raises ConfigError."""
    if source and record.kind == BROADCAST:
        raise ConfigError(
            f"group {show(record.name)} is a broadcast group and cannot consume"
            f" {show(DLQ + source)}: leave broadcast=True"
        )
    if source and record.ordered:
        raise ConfigError(
            f"group {show(record.name)} is ordered and cannot consume {show(DLQ + source)}: dead"
            " letters have no order; leave ordered=True"
        )
    if record.source == source or not (record.source or record.topics or record.leaving):
        return
    has = DLQ + record.source if record.source else ", ".join((*record.topics, *record.leaving))
    wanted = DLQ + source if source else ", ".join(topics)
    raise ConfigError(
        f"group {show(record.name)} consumes {show(has)} and cannot also consume {show(wanted)};"
        " use another group name"
    )


def missing(group: str, namespace: str) -> GroupNotFound:
    """The error of a group that is not there."""
    return GroupNotFound(f"there is no consumer group {show(group)} in namespace {show(namespace)}")
