"""How unfinished messages are found and ended, for good or as dead letters."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rqretry.admin.dead_letter_filter import Candidate, DeadLetterFilter
from rqretry.catalog.drain_group import drop_all, purge_all
from rqretry.catalog.store import Place
from rqretry.core.failure_record import read_record
from rqretry.protocol import operate
from rqretry.protocol.command import Command, Operation, batches
from rqretry.protocol.inspect import read_these
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.operate import BlockedPage, GroupPage, PurgeCount, scan


class Ending(NamedTuple):
    """How messages end: deleted, or, with a line for the failure record, dead."""

    actor: str
    record: str = ""

    def of_list(
        self, keys: GroupKeys, key: str, answers: Sequence[tuple[str, bool]]
    ) -> Command[PurgeCount]:
        """Of a list: what the answers say, as far as it is at the head."""
        if not self.record:
            return operate.purge_list(keys, key, actor=self.actor, answers=answers)
        actor, record = self.actor, self.record
        return operate.dead_letter(keys, key, "list", answers, actor=actor, record=record)

    def of_set(self, keys: GroupKeys, key: str, ids: Sequence[str]) -> Operation[int]:
        """Ids in a sorted set, or members of the order."""
        gone, structure = 0, "order" if key == keys.order else "zset"
        for batch in batches(ids):
            if self.record:
                answers = [(id_, True) for id_ in batch]
                actor, record = self.actor, self.record
                gone += (
                    yield operate.dead_letter(
                        keys, key, structure, answers, actor=actor, record=record
                    )
                ).gone
            elif structure == "order":
                command = partial(operate.purge_blocked, keys, actor=self.actor)
                gone += yield from operate.purge_each(command, batch)
            else:
                command = partial(operate.purge, keys, actor=self.actor, key=key)
                gone += yield from operate.purge_each(command, batch)
        return gone


def end(
    ending: Ending, place: Place, state: str, wanted: DeadLetterFilter, *, dry_run: bool
) -> Operation[int]:
    """End those of a state in one place; or count them."""
    keys = place.keys
    if state == "ready":
        gone = yield from _end_blocked(ending, place, wanted, dry_run=dry_run)
        for key in keys.lists:
            gone += yield from _end_listed(ending, place, key, wanted, dry_run=dry_run)
        return gone
    gone = 0
    for key in keys.levels if state == "waiting_retry" else (keys.dead,):
        if wanted.takes_all and not dry_run and not ending.record:
            gone += yield from purge_all(keys, key, ending.actor)
            continue
        ids = yield from matching(place, key, wanted)
        gone += len(ids) if dry_run else (yield from ending.of_set(keys, key, ids))
    return gone


def _end_blocked(
    ending: Ending, place: Place, wanted: DeadLetterFilter, *, dry_run: bool
) -> Operation[int]:
    """End messages that wait behind others of their message group, page by page."""
    gone, after = 0, ""
    while True:
        page: BlockedPage = yield operate.scan_blocked(place.keys, after=after)
        found = {c.id for c in _candidates(place.topic, page) if wanted.matches(c)}
        pairs = zip(page.members, page.ids, strict=True)
        members = [member for member, id_ in pairs if id_ in found]
        if dry_run:
            gone += len(members)
        else:
            gone += yield from ending.of_set(place.keys, place.keys.order, members)
        after = page.after
        if not after:
            return gone


def _end_listed(
    ending: Ending, place: Place, key: str, wanted: DeadLetterFilter, *, dry_run: bool
) -> Operation[int]:
    if dry_run:
        return len((yield from matching(place, key, wanted)))
    if wanted.takes_all and not ending.record:
        return (yield from drop_all(place.keys, key, ending.actor))
    rest, gone = -1, 0
    while rest:
        page: GroupPage = yield operate.scan_group(place.keys, key, in_list=True, offset=0)
        rest = page.total if rest < 0 else rest
        answers = [(c.id, wanted.matches(c)) for c in _candidates(place.topic, page)][:rest]
        if not answers:
            break
        dropped: PurgeCount = yield ending.of_list(place.keys, key, answers)
        gone += dropped.gone
        # If consumers took the whole window meanwhile, it is done too.
        rest = max(0, rest - (dropped.window or len(answers)))
    return gone


def matching(place: Place, key: str, wanted: DeadLetterFilter) -> Operation[list[str]]:
    """The selected ids in one list or sorted set; ids that are named are looked up in a set."""
    if wanted.ids is not None and key not in place.keys.lists:
        return (yield from _named(place, key, wanted, sorted(wanted.ids)))

    def read(page: GroupPage) -> list[str]:
        return [c.id for c in _candidates(place.topic, page) if wanted.matches(c)]

    ids = yield from scan(place.keys, key, read)
    return list(dict.fromkeys(ids))


def _named(
    place: Place, key: str, wanted: DeadLetterFilter, ids: Sequence[str]
) -> Operation[list[str]]:
    found: list[str] = []
    for batch in batches(ids):
        scores, records = yield [
            operate.scores(key, batch), read_these(place.keys.failures, batch)
        ]  # fmt: skip
        for id_, score, record in zip(batch, scores, records, strict=True):
            candidate = Candidate(id_, place.topic, next(iter(read_record(record)[-1:]), None))
            found += [id_] if score is not None and wanted.matches(candidate) else []
    return found


def _candidates(topic: str, page: GroupPage | BlockedPage) -> Iterator[Candidate]:
    for id_, record in zip(page.ids, page.failures, strict=True):
        errors = read_record(record)
        yield Candidate(id_, topic, errors[-1] if errors else None)
