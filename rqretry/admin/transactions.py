"""Operations on transactions: list the undecided ones, and decide them."""

from dataclasses import dataclass

from rqretry.admin.base import AdminBase
from rqretry.core.durations import spell
from rqretry.core.limits import check_transaction
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


class TransactionAdmin(AdminBase):
    """Transactions."""

    def transactions(self, *, parked: bool = False) -> Operation[list[TransactionInfo]]:
        """The unfinished transactions, oldest first; with `parked`, only the parked ones.

        One that is committed or rolled back is listed until that is done in all partitions.
        """
        yield from self.catalog.open()
        records = yield from unresolved(self.catalog)
        found: list[TransactionInfo] = []
        for record in records:
            if not parked or record.state == transacting.PARKED:
                found += [(yield from self._info(record))]
        return found

    def transaction(self, id: str) -> Operation[TransactionInfo]:  # noqa: A002 - as for messages
        """One transaction; finished ones are kept for ten minutes. Raises TransactionNotFound."""
        record = yield from record_of(self.catalog, check_transaction(id))
        return (yield from self._info(record))

    def commit_transaction(self, id: str) -> Operation[bool]:  # noqa: A002
        """Commit an undecided transaction: its messages are delivered.

        Returns:
            False if it was already committed.

        Raises:
            TransactionNotFound: There is no such transaction.
            TransactionDecided: It was rolled back.
        """
        return (yield from self._resolve(id, COMMITTED, "commit_transaction"))

    def rollback_transaction(self, id: str) -> Operation[bool]:  # noqa: A002
        """Roll an undecided transaction back: its messages are removed.

        Returns:
            False if it was already rolled back.

        Raises:
            TransactionNotFound: There is no such transaction.
            TransactionDecided: It was committed.
        """
        return (yield from self._resolve(id, ROLLED_BACK, "rollback_transaction"))

    def _resolve(self, id_: str, decision: str, verb: str) -> Operation[bool]:
        record = yield from record_of(self.catalog, check_transaction(id_))
        done = yield from resolve(
            self.catalog,
            record.id,
            record.terms.group,
            decision,
            worker=self.actor,
            reason="an operator said so",
        )
        if done:
            yield from self._note(verb, {"transaction": record.id})
        return done

    def _info(self, record: Record) -> Operation[TransactionInfo]:
        next_ms: int | None = None
        if record.state == OPEN:
            next_ms = yield transacting.next_check(self.catalog.keys, record.terms.group, record.id)
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
            record.places,
        )


def why_half(record: Record | None, next_ms: int | None, now_ms: int) -> str:
    """Why a message of a transaction is not delivered, in one sentence."""
    if record is None:
        return "it belongs to an unknown transaction; see rqretry fsck"
    if record.state == transacting.PARKED:
        return (
            f"its transaction {record.id} is unresolved and parked after {record.checks} checks:"
            " see rqretry transaction show"
        )
    if record.state != OPEN:
        return f"its transaction {record.id} is {record.state}, which is being carried out"
    unresolved_ = f"its transaction {record.id} is unresolved: check"
    number = min(record.checks + 1, record.terms.most)
    left = max(0, (next_ms or now_ms) - now_ms) / 1000
    return f"{unresolved_} {number} of {record.terms.most} in {spell(left)}"
