"""Operations on transactions: list the undecided ones, and decide them."""

from dataclasses import dataclass

from rqretry.admin.context import AdminContext
from rqretry.core.limits import check_message_id
from rqretry.maintenance.transaction_resolver import record_of, resolve, unresolved
from rqretry.protocol import transaction as transacting
from rqretry.protocol.command import Operation
from rqretry.protocol.transaction import COMMITTED, OPEN, ROLLED_BACK, Record


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """One transaction.

    Attributes:
        id: The transaction.
        state: "open", "parked" (checked too often: it waits for an operator), "committed" or
            "rolled_back".
        producer_group: The producer group whose checker is called.
        topic: The topic it was started for.
        opened_by: The process that started it.
        opened_ms: When its first message was stored, server time.
        checks: How often it was checked.
        max_checks: After how many checks it is parked.
        next_check_ms: When it is checked next, server time; None for never.
        decided_by: Who decided it; "" if it is undecided.
        decided_ms: When.
        reason: Why it was decided, or why the last checker answered UNKNOWN.
        places: Topic and partition of all its messages.
    """

    id: str
    state: str
    producer_group: str
    topic: str
    opened_by: str
    opened_ms: int
    checks: int
    max_checks: int
    next_check_ms: int | None
    decided_by: str
    decided_ms: int | None
    reason: str
    places: tuple[tuple[str, int], ...]


def transactions(
    context: AdminContext, *, parked: bool = False
) -> Operation[list[TransactionInfo]]:
    """The unfinished transactions, oldest first.

    One that is committed or rolled back is listed until that is done in all partitions.

    Args:
        parked: Only those that wait for an operator.
    """
    yield from context.catalog.open()
    records = yield from unresolved(context.catalog)
    found: list[TransactionInfo] = []
    for record in records:
        if not parked or record.state == transacting.PARKED:
            found += [(yield from _info(context, record))]
    return found


def transaction(context: AdminContext, id: str) -> Operation[TransactionInfo]:  # noqa: A002 - as for messages
    """One transaction; finished ones are kept for ten minutes.

    Args:
        id: The transaction.

    Raises:
        TransactionNotFound: There is no such transaction.
    """
    record = yield from record_of(context.catalog, check_message_id(id, name="transaction"))
    return (yield from _info(context, record))


def commit_transaction(context: AdminContext, id: str) -> Operation[bool]:  # noqa: A002
    """Commit an undecided transaction: its messages are delivered.

    Args:
        id: The transaction.

    Returns:
        False if it was already committed.

    Raises:
        TransactionNotFound: There is no such transaction.
        TransactionDecided: It was rolled back.
    """
    return (yield from _resolve(context, id, COMMITTED, "commit_transaction"))


def rollback_transaction(context: AdminContext, id: str) -> Operation[bool]:  # noqa: A002
    """Roll an undecided transaction back: its messages are removed.

    Args:
        id: The transaction.

    Returns:
        False if it was already rolled back.

    Raises:
        TransactionNotFound: There is no such transaction.
        TransactionDecided: It was committed.
    """
    return (yield from _resolve(context, id, ROLLED_BACK, "rollback_transaction"))


def _resolve(context: AdminContext, id_: str, decision: str, verb: str) -> Operation[bool]:
    record = yield from record_of(context.catalog, check_message_id(id_, name="transaction"))
    group, why = record.terms.group, "an operator said so"
    done = yield from resolve(
        context.catalog, record.id, group, decision, worker=context.actor, reason=why
    )
    if done:
        yield from context.audit(verb, {"transaction": record.id})
    return done


def _info(context: AdminContext, record: Record) -> Operation[TransactionInfo]:
    next_ms: int | None = None
    if record.state == OPEN:
        next_ms = yield transacting.next_check(context.catalog.keys, record.terms.group, record.id)
    return TransactionInfo(
        record.id,
        record.state,
        record.terms.group,
        record.terms.topic,
        record.opened_by,
        record.opened_ms,
        record.checks,
        record.terms.most,
        next_ms,
        record.decider,
        record.decided_ms,
        record.reason,
        record.partitions,
    )
