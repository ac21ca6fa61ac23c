"""Messages that died because nobody told a result in time: what an observer is told of them."""

from typing import Any

from rqretry.core.dead_letter import read_dead_letter
from rqretry.observability import observer
from rqretry.protocol.command import Command, Operation, text
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.maintain import Expired


def tell_buried(keys: GroupKeys, expired: Expired, worker: str) -> Operation[None]:
    """Tell the observer, if there is one, of the dead letters that an expire has made.

    Costs nothing where nobody observes or nothing died. Bodies over 8 KiB are not read: their
    headers, and with them the trace of the publish, are then not known.
    """
    seen = observer.installed
    if seen is None or not expired.dead or keys.source:  # there is no DLQ of a DLQ
        return
    ids = expired.dead
    graves, records, sizes = yield [
        _many(key, ids) for key in (keys.deaths, keys.failures, keys.partition.big)
    ]
    small = [id_ for id_, size in zip(ids, sizes, strict=True) if size is None]
    bodies = (yield _many(keys.partition.bodies, small)) if small else []
    data = dict(zip(small, bodies, strict=True))
    letters = [
        read_dead_letter(
            keys.partition.topic,
            keys.group,
            id_,
            expired.now_ms,
            text(grave or b""),
            text(record or b""),
            data.get(id_) or b"",
        )
        for id_, grave, record in zip(ids, graves, records, strict=True)
    ]
    seen.buried(keys.partition.namespace, letters, worker)


def _many(key: str, ids: tuple[str, ...] | list[str]) -> Command[list[Any]]:
    return Command("read", (), (), list, arguments=("HMGET", key, *ids))
