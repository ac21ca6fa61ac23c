"""What partitions are told of a group, and limits that are split over them (decisions 22)."""

from collections.abc import Iterable

from rqretry.catalog.topics import TopicCatalog
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.errors import ConfigError, show
from rqretry.protocol import inspect as admin
from rqretry.protocol import rate_limit
from rqretry.protocol.command import Command, Operation
from rqretry.protocol.keys import bucket_key


class GroupCopies(TopicCatalog):
    """The part of the catalog that copies a group's record to the partitions."""

    def _configure(
        self, group: GroupRecord, topics: Iterable[str] | None = None
    ) -> Operation[None]:
        """Tell partitions, by default all of the group's topics.

        A rate is in force once the partitions ask for tokens, so the bucket comes before them, and
        is emptied after them.
        """
        levels = yield from self.open()
        shares = yield from self._shares(group)
        limit: Command[int] = rate_limit.limit(
            bucket_key(self.namespace, group.name), group.version, group.rate_limit
        )
        if group.rate_limit:
            yield limit
        for name in group.topics if topics is None else topics:
            topic = yield from self.refreshed(name)
            byte = topic.byte_of(group.name)
            commands = [
                admin.configure(
                    self.group_keys(name, number, group.name),
                    group.version,
                    group.configuration(levels, byte, name, shares.get((name, number), 0)),
                )
                for number in range(topic.all_partitions)
                if byte or group.source
            ]
            yield commands
        if not group.rate_limit:
            yield limit

    def _shares(self, group: GroupRecord) -> Operation[dict[tuple[str, int], int]]:
        """Each partition's part of a group's max_inflight; no part where there is no limit."""
        if not group.max_inflight:
            return {}
        places = yield from self._partitions_of(group.topics)
        least, more = divmod(group.max_inflight, len(places))
        return {place: least + (index < more) for index, place in enumerate(places)}

    def _partitions_of(self, topics: Iterable[str]) -> Operation[list[tuple[str, int]]]:
        places = []
        for name in topics:
            topic = yield from self.refreshed(name)
            places += [(name, number) for number in range(topic.all_partitions)]
        return places

    def _check_inflight(
        self, group: str, wanted: int | None, joining: Iterable[str]
    ) -> Operation[None]:
        """Every partition needs a part of max_inflight, or its messages would never be delivered.

        Raises:
            ConfigError: There are fewer parts than partitions.
        """
        stored = yield admin.read_record(self.keys.groups, group)
        record = GroupRecord.decode(group, stored) if stored else None
        if wanted is None:
            wanted = record.max_inflight if record else 0
        if wanted:
            known = record.topics if record else ()
            places = yield from self._partitions_of(dict.fromkeys((*known, *joining)))
            if wanted < len(places):
                raise ConfigError(
                    f"max_inflight {wanted} of group {show(group)}: it is split over the partitions"
                    f" of the group's topics, which are {len(places)}; give at least as many"
                )
