"""Deciding transactions and carrying decisions out, for producers, checkers and operators.

The record in the namespace's slot is the truth. A decision is one script there; then the halves are
published or removed, partition by partition, in steps that can be repeated. Whoever decides does
that at once; if it is cut off, the next process that claims what is due completes it
(docs/decisions/0028).
"""

from collections.abc import Sequence
from contextlib import suppress

from rqretry.catalog.catalog import Catalog
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError, TransactionDecided, TransactionNotFound, show
from rqretry.maintenance.due import Delivered, Maintenance
from rqretry.observability import observer
from rqretry.observability.observer import Published
from rqretry.protocol import transaction
from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.transaction import COMMITTED, OPEN, PARKED, ROLLED_BACK, Decided, Record

FINISH_LEASE_MS = 15_000
"""How long whoever has decided is left alone with carrying it out."""
_FINISHED_AT_ONCE = 100
STATE_TEXTS = {OPEN: "open", PARKED: "parked", COMMITTED: "committed", ROLLED_BACK: "rolled back"}
_VERBS = {COMMITTED: "commit", ROLLED_BACK: "rollback"}


def resolve(
    catalog: Catalog,
    id_: str,
    group: str,
    decision: str,
    *,
    worker: str,
    claim: int | None = None,
    reason: str = "",
    published: Sequence[Published] | None = None,
) -> Operation[bool]:
    """Decide a transaction, and carry that out.

    Args:
        catalog: The namespace.
        id_: The transaction.
        group: Its producer group.
        decision: "committed" or "rolled_back".
        worker: Who decides.
        claim: The number of the claim, where a checker decides; its turn may be over.
        reason: Why, for the record.
        published: Its messages, for traces; None: they are looked up.

    Returns:
        Whether this call decided it: False if it was decided so before, or the turn is over.

    Raises:
        TransactionDecided: It was decided the other way before.
        TransactionNotFound: It is not known, or was finished more than ten minutes ago.
    """
    decide = transaction.decide(
        catalog.keys,
        id_,
        group,
        decision,
        worker=worker,
        lease_ms=FINISH_LEASE_MS,
        claim=claim,
        reason=reason,
    )
    if observer.installed is None:
        return (yield from _resolve(catalog, id_, decision, decide, worker))
    if published is None:
        published = yield from _published(catalog, id_)
    with observer.deciding(catalog.namespace, id_, decision, published) as watched:
        decided = yield from _resolve(catalog, id_, decision, decide, worker)
        watched.done(decided=decided)
        return decided


def _published(catalog: Catalog, id_: str) -> Operation[list[Published]]:
    """Its messages, as far as they can be read; for traces."""
    record: Record | None = yield transaction.read(catalog.keys, id_)
    if record is None or record.state not in (OPEN, PARKED):
        return []
    halves = yield from halves_of(catalog, record, _FINISHED_AT_ONCE)
    found = []
    for topic, _, data in halves:
        with suppress(CodecError):
            found.append((topic, decode(data).headers.get("traceparent", "")))
    return found


def _resolve(
    catalog: Catalog, id_: str, decision: str, decide: Command[Decided], worker: str
) -> Operation[bool]:
    answer: Decided = yield decide
    if answer.status == "CONFLICT":
        raise _decided(id_, decision, answer)
    if answer.status == "GONE":
        raise unknown(catalog, id_)
    if answer.status == "STALE":
        return False
    yield from carry_out(catalog, id_, decision, answer, worker=worker)
    return answer.status == "OK"


def complete(catalog: Catalog, record: Record, *, worker: str) -> Operation[None]:
    """Carry out a decision that was cut off."""
    answer = Decided("ALREADY", record.decided_ms or 0, record.partitions)
    yield from carry_out(catalog, record.id, record.state, answer, worker=worker)


def carry_out(
    catalog: Catalog, id_: str, decision: str, decided: Decided, *, worker: str
) -> Operation[None]:
    """Publish or remove the halves, partition by partition; repeating it is harmless."""
    for topic, partition in decided.partitions:
        keys = catalog.partition(topic, partition)
        left = 1
        while left:
            if decision == COMMITTED:
                moved: tuple[int, int] = yield transaction.commit(
                    keys, id_, worker=worker, decided_ms=decided.decided_ms
                )
            else:
                moved = yield transaction.rollback(keys, id_, worker=worker)
            _, left = moved
        if decision == COMMITTED:
            yield from _deliver(catalog, topic, partition, worker)
    for at in range(0, len(decided.partitions), _FINISHED_AT_ONCE):
        done = decided.partitions[at : at + _FINISHED_AT_ONCE]
        yield transaction.finish(catalog.keys, id_, done)


def _deliver(catalog: Catalog, topic: str, partition: int, worker: str) -> Operation[None]:
    """Everything that is due there now, which the halves are."""
    maintenance, keys = Maintenance(catalog.topics, worker), catalog.partition(topic, partition)
    delivered = Delivered(moved=1, next_ms=0)
    while delivered.more:
        (delivered,) = yield from maintenance.deliver([keys])


def unresolved(catalog: Catalog) -> Operation[list[Record]]:
    """All transactions that are not finished, the oldest first."""
    found: list[Record] = []
    offset = 0
    while True:
        ids: list[str] = yield transaction.page(catalog.keys.open_transactions, offset, MAX_BATCH)
        if ids:
            records: list[Record] = yield transaction.read_many(catalog.keys, ids)
            found += records
        if len(ids) < MAX_BATCH:
            return found
        offset += len(ids)


def record_of(catalog: Catalog, id_: str) -> Operation[Record]:
    """One record. Raises TransactionNotFound."""
    record: Record | None = yield transaction.read(catalog.keys, id_)
    if record is None:
        raise unknown(catalog, id_)
    return record


def halves_of(
    catalog: Catalog, record: Record, count: int
) -> Operation[list[tuple[str, str, bytes]]]:
    """The first halves of a transaction: topic, id and stored bytes of each."""
    found: list[tuple[str, str, bytes]] = []
    for topic, partition in record.partitions:
        keys = catalog.partition(topic, partition)
        ids: Sequence[str] = yield transaction.halves(keys, record.id, count - len(found))
        if ids:
            data: list[bytes | None] = yield transaction.bodies(keys, ids)
            found += [(topic, id_, stored) for id_, stored in zip(ids, data, strict=True) if stored]
        if len(found) >= count:
            break
    return found


def unknown(catalog: Catalog, id_: str) -> TransactionNotFound:
    """The error for a transaction without a record."""
    return TransactionNotFound(
        f"there is no transaction {show(id_)} in namespace {show(catalog.namespace)}: it was"
        " finished more than ten minutes ago, had no messages, or was never begun"
    )


def _decided(id_: str, wanted: str, answer: Decided) -> TransactionDecided:
    because = f" ({answer.reason})" if answer.reason else ""
    return TransactionDecided(
        f"transaction {show(id_)} cannot be {STATE_TEXTS[wanted]}:"
        f" it was {STATE_TEXTS[answer.state]} before, by {answer.decider}{because}"
    )
