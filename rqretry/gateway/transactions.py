"""Transactions: half messages, EndTransaction, and asking producers about those left undecided."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from rqretry.client import AsyncClient
from rqretry.core.durations import Duration
from rqretry.core.envelope import decode
from rqretry.core.errors import RqretryError, show
from rqretry.core.limits import MAX_GROUP, check_message_id
from rqretry.core.message import OutgoingMessage
from rqretry.core.parts import parts_of
from rqretry.gateway.clients import Clients
from rqretry.gateway.codes import OK, Code, Refused, checked, status
from rqretry.gateway.messages import Type, stored
from rqretry.gateway.protocol import seconds_of, v2
from rqretry.gateway.requests import Caller, Names
from rqretry.maintenance.transaction_resolver import complete, halves_of, resolve
from rqretry.protocol import transaction
from rqretry.protocol.transaction import COMMITTED, OPEN, ROLLED_BACK, Claimed, Record

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 5.0
ANSWER_MS = 30_000
"""How long an asked producer has before another one is asked."""
_SOONEST_S, _AT_ONCE = 0.05, 10
_PREFIX = "rocketmq-"
_Resolution = v2.TransactionResolution
_DECISIONS = {_Resolution.COMMIT: COMMITTED, _Resolution.ROLLBACK: ROLLED_BACK}


def producer_group(topic: str) -> str:
    """Whose checkers are asked: producers of this topic; the protocol names no group of them."""
    return f"{_PREFIX}{topic}"[:MAX_GROUP]


class Transactions:
    """Half messages of clients. A transaction has one message, and its id."""

    def __init__(self, names: Names, client: AsyncClient, clients: Clients) -> None:
        self._names = names
        self._client = client
        self._parts = parts_of(client)
        self._clients = clients

    async def prepare(self, topic: str, item: OutgoingMessage, message: Any, caller: Caller) -> Any:
        """Store a half; repeating it with the same id changes nothing."""
        system, options = message.system_properties, dict[str, Duration]()
        if system.HasField("orphaned_transaction_recovery_duration"):
            options["check_after"] = seconds_of(system.orphaned_transaction_recovery_duration)
        caller.client.topics.add(topic)
        begun = self._client.transaction(
            topic,
            producer_group=producer_group(topic),
            **options,  # type: ignore[arg-type]
        )
        parts_of(begun).operations.id = str(item.id)
        made = await begun.publish(item)
        return v2.SendResultEntry(status=OK, message_id=made, transaction_id=begun.id)

    async def end_transaction(self, request: Any, caller: Caller) -> Any:
        """Commit, or roll back; a producer that does not know is asked again later."""
        topic, code = self._names.topic(request.topic), Code.INVALID_TRANSACTION_ID
        id_ = checked(code, check_message_id, request.transaction_id)
        decision = _DECISIONS.get(request.resolution)
        if decision is None:
            if request.source == v2.TransactionSource.SOURCE_SERVER_CHECK:
                return v2.EndTransactionResponse(status=OK)
            raise Refused(Code.BAD_REQUEST, f"transaction {show(id_)}: commit it or roll it back")
        record = await self._parts.store.run(transaction.read(self._parts.catalog.keys, id_))
        if record is not None and record.terms.topic != topic:
            raise Refused(code, f"transaction {show(id_)} is not one of topic {show(topic)}")
        deciding = resolve(
            self._parts.catalog,
            id_,
            producer_group(topic),
            decision,
            worker=caller.client.worker,
            reason="its producer said so",
        )
        await self._parts.store.perform(deciding)
        return v2.EndTransactionResponse(status=OK)

    async def keep_checking(self) -> None:
        """Ask producers about their undecided transactions, for ever."""
        while True:
            wait_s = LOOK_EVERY_S
            try:
                next_ms = await self.check()
                if next_ms is not None:
                    wait_s = min(wait_s, max(_SOONEST_S, next_ms / 1000))
            except RqretryError as error:
                log.warning("looking for transactions failed, trying again: %s", error)
            await asyncio.sleep(wait_s)

    async def check(self) -> int | None:
        """Ask about those that are due; milliseconds until there may be more."""
        topics = {t for c in self._clients if c.kind == "producer" for t in c.topics}
        asked = [topic for topic in sorted(topics) if self._clients.producers_of(topic)]
        groups = sorted({producer_group(topic) for topic in asked})
        if not groups:
            return None
        claiming = transaction.claim(
            self._parts.catalog.keys, groups, lease_ms=ANSWER_MS, limit=_AT_ONCE
        )
        claimed: Claimed = await self._parts.store.run(claiming)
        for id_ in claimed.parked:
            log.error(
                "transaction %s is parked: its producers never decided it; decide it with"
                " rqretry transaction commit or rollback", id_,
            )  # fmt: skip
        for record in claimed.records:
            with suppress(RqretryError):
                await self._see_to(record)
        return 0 if len(claimed.records) == _AT_ONCE else claimed.next_due_ms

    async def _see_to(self, record: Record) -> None:
        catalog, perform = self._parts.catalog, self._parts.store.perform
        if record.state != OPEN:
            await perform(complete(catalog, record, worker=self._parts.name))
            return
        producers = self._clients.producers_of(record.terms.topic)
        halves = await perform(halves_of(catalog, record, 1))
        if not producers or not halves:
            return
        topic, id_, data = halves[0]
        chosen = next((p for p in producers if p.worker == record.opened_by), producers[0])
        command = v2.TelemetryCommand(status=status(Code.OK))
        recover = command.recover_orphaned_transaction_command
        recover.transaction_id = record.id
        recover.message.CopyFrom(stored(topic, id_, decode(data)))
        recover.message.system_properties.message_type = Type.TRANSACTION
        chosen.streams[-1].put_nowait(command)
