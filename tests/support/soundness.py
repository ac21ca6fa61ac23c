"""At the end of a test: does everything that Redis holds agree with itself?"""

import json

from rqretry.checks.auditor import Defect, audit
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.delay_levels import LevelTable
from rqretry.protocol.command import Operation, Performer, SyncPerformer
from rqretry.protocol.inspect import read_record, read_records
from rqretry.protocol.keys import NamespaceKeys, partition_keys


def assert_sound(store: SyncPerformer, namespace: str = "default") -> None:
    """The auditor finds nothing in any partition of the namespace, through a sync store."""
    complain(store.perform(findings_of(namespace)))


async def assert_sound_async(store: Performer, namespace: str = "default") -> None:
    """The same through an asyncio store."""
    complain(await store.perform(findings_of(namespace)))


def findings_of(namespace: str) -> Operation[list[Defect]]:
    """What the auditor finds in every partition that the catalog knows; nothing is written."""
    catalog = NamespaceKeys(namespace)
    settings: str = yield read_record(catalog.settings, "settings")
    if not settings:
        return []
    levels = len(LevelTable.decode(json.loads(settings)["delay_levels"]))
    topics: dict[str, str] = yield read_records(catalog.topics)
    findings: list[Defect] = []
    for name, stored in sorted(topics.items()):
        topic = TopicRecord.decode(name, stored)
        for number in range(topic.partitions):
            keys = partition_keys(namespace, name, number)
            sources = {group.name: group.source for group in topic.dlq_groups}
            groups = [
                keys.group(group.name, levels, sources.get(group.name, ""))
                for group in topic.members
            ]
            findings += yield from audit(keys, groups)
    return findings


def complain(findings: list[Defect]) -> None:
    """Fail with one line per finding."""
    assert not findings, "\n" + "\n".join(
        f"{f.severity}: {f.key} {f.id}: {f.text}" for f in findings
    )
