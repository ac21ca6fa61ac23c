"""The operator's verbs, without I/O: what is where, why, and moving it (design.md section 3)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rqretry import inspecting
from rqretry.catalog import Catalog
from rqretry.codec import Envelope, decode
from rqretry.command import Command, Operation, batches
from rqretry.commands import administering as commands
from rqretry.commands.upkeep import roster
from rqretry.dead_letters import DeadLetterFilter, chosen
from rqretry.errors import CodecError, GroupNotFound, MessageNotFound, show
from rqretry.failures import read_record
from rqretry.ids import partition_of
from rqretry.keys import GroupKeys
from rqretry.levels import LevelTable
from rqretry.limits import (
    check_group,
    check_max_retries,
    check_message_id,
    check_partitions,
    check_topic,
)
from rqretry.policy import RetryPolicy
from rqretry.records import SIMPLE, GroupRecord, TopicRecord
from rqretry.statistics import gather_stats
from rqretry.views import (
    DeadLetter,
    GroupInfo,
    MessageView,
    Stats,
    TopicInfo,
)

_UNREADABLE = Envelope(None, None, (), {}, None, None)


class AdminOperations:
    """Every admin verb, once; served to asyncio and sync code by the facades of client.py."""

    def __init__(self, catalog: Catalog, actor: str) -> None:
        self.catalog = catalog
        self.actor = actor

    # -- topics and groups -------------------------------------------------------------------

    def topics(self) -> Operation[list[TopicInfo]]:
        """All topics of the namespace, by name."""
        records = yield from self.catalog.topics()
        return [_topic_info(record) for record in records]

    def create_topic(self, name: str, partitions: int | None = None) -> Operation[TopicInfo]:
        """Create a topic, or find the one that exists.

        Args:
            name: 1 to 127 characters of A-Z a-z 0-9 _ -.
            partitions: 1 to 1024; default 1 for a new topic.

        Raises:
            InvalidArgument: A value is outside its limits, or the topic exists with another
                number of partitions.
        """
        count = None if partitions is None else check_partitions(partitions)
        record = yield from self.catalog.create_topic(check_topic(name), count)
        return _topic_info(record)

    def groups(self) -> Operation[list[GroupInfo]]:
        """All consumer groups of the namespace, by name."""
        levels = yield from self.catalog.open()
        records = yield from self.catalog.groups()
        return [_group_info(record, levels) for record in records]

    def group(self, name: str) -> Operation[GroupInfo]:
        """One consumer group. Raises GroupNotFound."""
        levels = yield from self.catalog.open()
        record = yield from self.catalog.group(check_group(name))
        return _group_info(record, levels)

    def set_group(
        self,
        group: str,
        *,
        max_retries: int | str | None = None,
        policy: RetryPolicy | str | None = None,
    ) -> Operation[GroupInfo]:
        """Change a group's settings for all its instances, at once (semantics.md section 4).

        Args:
            group: The group's name.
            max_retries: 0 or more, or "unlimited"; there are at most max_retries + 1 deliveries.
            policy: A RetryPolicy, or its text such as "ladder:10s 30s"; its own max_retries
                counts where `max_retries` is not given.

        Raises:
            GroupNotFound: There is no such group.
            InvalidArgument: A value is outside its limits.
        """
        levels = yield from self.catalog.open()
        settings = group_settings(max_retries, policy)
        record = yield from self.catalog.set_group(check_group(group), **settings)
        return _group_info(record, levels)

    # -- looking -----------------------------------------------------------------------------

    def stats(self, topic: str | None = None, group: str | None = None) -> Operation[Stats]:
        """How many messages are where; what is due counts as ready, moved or not.

        Raises:
            TopicNotFound, GroupNotFound: The one asked for is not there.
        """
        if topic is None:
            records = yield from self.catalog.topics()
        else:
            records = [(yield from self.catalog.refreshed(check_topic(topic)))]
        if group is not None:
            wanted = yield from self.catalog.group(check_group(group))
            records = [record for record in records if record.name in wanted.topics]
            if topic is not None and not records:
                raise GroupNotFound(f"group {show(group)} is not subscribed to topic {show(topic)}")
        _, workers = yield roster(self.catalog.keys)
        return (yield from gather_stats(self.catalog, records, group, list(workers.values())))

    def message(self, id: str) -> Operation[MessageView]:  # noqa: A002 - the name of the contract
        """Where a message is, for each group, and its history as far as it is kept.

        Raises:
            MessageNotFound: Nothing is stored under this id: it was committed by all groups,
                purged, or never published to this namespace.
        """
        checked = check_message_id(id)
        records = yield from self.catalog.topics()
        # Where its id says it should be first; elsewhere if partitions were added since.
        likely = [(r, partition_of(checked, r.partitions)) for r in records]
        places = [*likely, *((r, n) for r in records for n in range(r.partitions))]
        for record, partition in dict.fromkeys(places):
            view = yield from inspecting.look(self.catalog, record, partition, checked)
            if view is not None:
                return view
        raise MessageNotFound(
            f"no message {show(id)} is stored in namespace {show(self.catalog.namespace)}: it was"
            " committed by every group, purged, or never published here"
        )

    def dead_letters(
        self,
        /,
        group: str,
        filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
        *,
        bodies: bool = True,
        **fields: Any,
    ) -> Operation[list[DeadLetter]]:
        """The dead letters of a group, oldest first, over all its topics.

        Args:
            group: The group's name.
            filter: Which ones; default all. Its fields can be given as keywords instead.
            bodies: Fetch and decode the bodies too.
            fields: The filter's fields, where no filter is given.

        Raises:
            GroupNotFound: There is no such group.
            InvalidArgument: The filter is not one.
        """
        wanted = chosen(filter, fields, default_all=True)
        record = yield from self.catalog.group(check_group(group))
        found: list[DeadLetter] = []
        for topic, _, keys in (yield from self._places(record)):
            if wanted.topic in (None, topic):
                found += yield from self._read_dead(topic, keys, wanted, with_bodies=bodies)
        return sorted(found, key=lambda letter: (letter.dead_since_ms, letter.id))

    # -- moving ------------------------------------------------------------------------------

    def redrive(
        self,
        /,
        group: str,
        filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
        *,
        dry_run: bool = False,
        **fields: Any,
    ) -> Operation[int]:
        """Send dead letters back to the group: attempt 1 again, same id, same body.

        Args:
            group: The group's name.
            filter: Which ones (or as keywords): ids=, topic=, fingerprint=, error=, since=,
                before=, or all=True.
            fields: The filter's fields, where no filter is given.
            dry_run: Only count them.

        Returns:
            How many were sent back (or would be).

        Raises:
            GroupNotFound: There is no such group.
            InvalidArgument: The filter chooses nothing in particular; say all=True.
        """
        return (yield from self._move(commands.redrive, group, filter, fields, dry_run=dry_run))

    def purge(
        self,
        /,
        group: str,
        filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
        *,
        dry_run: bool = False,
        **fields: Any,
    ) -> Operation[int]:
        """Delete dead letters for good; arguments, answer and errors as for redrive."""
        return (yield from self._move(commands.purge, group, filter, fields, dry_run=dry_run))

    def _move(
        self,
        verb: Any,
        group: str,
        filter_: DeadLetterFilter | None,
        fields: dict[str, Any],
        *,
        dry_run: bool,
    ) -> Operation[int]:
        wanted = chosen(filter_, fields, default_all=False)
        record = yield from self.catalog.group(check_group(group))
        moved = 0
        for topic, _, keys in (yield from self._places(record)):
            if wanted.topic not in (None, topic):
                continue
            letters = yield from self._read_dead(topic, keys, wanted, with_bodies=False)
            ids = [letter.id for letter in letters]
            for batch in batches(ids):
                if dry_run:
                    moved += len(batch)
                    continue
                verdicts: list[bytes] = yield verb(keys, batch, actor=self.actor)
                moved += verdicts.count(b"OK")
        return moved

    def _places(self, record: GroupRecord) -> Operation[list[tuple[str, int, GroupKeys]]]:
        places = []
        for name in record.topics:
            topic = yield from self.catalog.topic(name)
            places += [
                (name, number, self.catalog.group_keys(name, number, record.name))
                for number in range(topic.partitions)
            ]
        return places

    def _read_dead(
        self, topic: str, keys: GroupKeys, wanted: DeadLetterFilter, *, with_bodies: bool
    ) -> Operation[list[DeadLetter]]:
        found: list[DeadLetter] = []
        offset, total = 0, 1
        while offset < total:
            page: Command[commands.DeadPage] = commands.dead_letters(
                keys, offset=offset, with_bodies=with_bodies
            )
            letters = yield page
            if not letters.ids:
                break
            offset, total = offset + len(letters.ids), letters.total
            found += [
                letter for letter in _letters(topic, keys.group, letters) if wanted.matches(letter)
            ]
        return found


def group_settings(
    max_retries: int | str | None, policy: RetryPolicy | str | None
) -> dict[str, Any]:
    """The settings that are named, checked; what is None is left as it is."""
    settings: dict[str, Any] = {}
    if policy is not None:
        parsed = RetryPolicy.parse(policy) if isinstance(policy, str) else policy
        settings["policy"] = replace(parsed, max_retries=None)
        if parsed.max_retries is not None:
            settings["max_retries"] = parsed.max_retries
    if max_retries is not None:
        settings["max_retries"] = check_max_retries(max_retries)
    return settings


def _letters(topic: str, group: str, page: commands.DeadPage) -> Sequence[DeadLetter]:
    bodies = page.data or [b""] * len(page.ids)
    rows = zip(page.ids, page.since_ms, page.graves, page.failures, bodies, strict=True)
    return [_letter(topic, group, *row) for row in rows]


def _letter(
    topic: str, group: str, id_: str, since_ms: int, grave: str, record: str, data: bytes
) -> DeadLetter:
    attempt, _, cause = grave.partition(" ")
    try:
        envelope = decode(data) if data else _UNREADABLE
    except CodecError:
        envelope = _UNREADABLE
    return DeadLetter(
        id=id_,
        topic=topic,
        group=group,
        body=envelope.body,
        raw=data,
        tag=envelope.tag,
        keys=envelope.keys,
        headers=dict(envelope.headers),
        born_ms=inspecting.born(id_, envelope),
        attempt=int(attempt or 0),
        cause=cause,
        dead_since_ms=since_ms,
        errors=tuple(read_record(record)),
    )


def _topic_info(record: TopicRecord) -> TopicInfo:
    return TopicInfo(record.name, record.partitions, tuple(group.name for group in record.groups))


def _group_info(record: GroupRecord, levels: LevelTable) -> GroupInfo:
    return GroupInfo(
        record.name,
        record.kind,
        None if record.max_retries < 0 else record.max_retries,
        str(record.policy),
        _in_words(record, levels),
        record.topics,
        record.changed_by,
    )


def _in_words(record: GroupRecord, levels: LevelTable) -> str:
    """How often and when; a simple consumer's messages do not use the ladder."""
    if record.kind != SIMPLE:
        return record.policy.describe(record.max_retries, levels)
    if record.max_retries < 0:
        return "unlimited deliveries, each when the one before was not acknowledged in time"
    retries = "1 retry" if record.max_retries == 1 else f"{record.max_retries} retries"
    deliveries = record.max_retries + 1
    return f"{retries}, so at most {deliveries} deliveries, each when the lease before has ended"
