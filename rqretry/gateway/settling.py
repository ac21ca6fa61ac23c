"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

import asyncio
import time
from typing import Any

from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.errors import AmbiguousResult, InvalidReceiptHandle, RqretryError, show
from rqretry.core.limits import DLQ
from rqretry.core.message import ReceiptHandle
from rqretry.gateway.codes import OK, Code, Refused, overall, status, status_of
from rqretry.gateway.groups import Groups, handle_of
from rqretry.gateway.leases import Held, Leases
from rqretry.gateway.operations import DEAD, PushOperations, on_behalf
from rqretry.gateway.policies import attempts_of, check_invisible, delays_of
from rqretry.gateway.protocol import seconds_of, v2
from rqretry.gateway.repeats import ACK, CHANGE, FAIL, done_before
from rqretry.gateway.requests import Caller, Names
from rqretry.gateway.slots import in_background
from rqretry.transport.store import Store

_MOST_ACKS = 256
"""In one call of acks that wait for each other."""
_Acks = list[tuple[list[str], "asyncio.Future[dict[str, str]]"]]


class Settling:
    """How deliveries end."""

    def __init__(self, names: Names, store: Store, groups: Groups, leases: Leases) -> None:
        self._names = names
        self._store = store
        self._groups = groups
        self._leases = leases
        self._acks: dict[tuple[str, str, str], _Acks] = {}
        """Those that wait for the call under way of their group, topic and client."""

    async def ack_message(self, request: Any, caller: Caller) -> Any:
        """Commit; each handle has a result of its own."""
        group, topic = self._named(request)
        refused = dict[str, Any]()
        handles = dict.fromkeys(entry.receipt_handle for entry in request.entries)
        for text in handles:
            try:
                handle_of(text, group, topic)
            except (InvalidReceiptHandle, Refused) as error:
                refused[text] = status_of(error)
        if valid := [text for text in handles if text not in refused]:
            refused |= await self._ack(group, topic, valid, caller)
        entries = [
            v2.AckMessageResultEntry(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=refused.get(entry.receipt_handle, OK),
            )
            for entry in request.entries
        ]
        return v2.AckMessageResponse(
            status=overall(entry.status for entry in entries), entries=entries
        )

    async def _ack(
        self, group: str, topic: str, texts: list[str], caller: Caller
    ) -> dict[str, Any]:
        try:
            operations = await self._operations(group, topic, caller)
            refused = await self._ack_together(operations, (group, topic, operations.worker), texts)
        except RqretryError as error:
            return dict.fromkeys(texts, status_of(error))
        self._leases.drop(texts)
        code = Code.INVALID_RECEIPT_HANDLE
        return {
            handle: status(code, f"the receipt handle is not valid: {reason}")
            for handle, reason in refused.items()
        }

    async def _ack_together(
        self, operations: SimpleOperations, key: tuple[str, str, str], texts: list[str]
    ) -> dict[str, str]:
        """Commit with what else comes while a call is under way; those refused, and why."""
        answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        waiting = self._acks.get(key)
        if waiting is None:
            self._acks[key] = waiting = []
            in_background(self._send_acks(operations, key, waiting))
        waiting.append((texts, answer))
        return await answer

    async def _send_acks(
        self, operations: SimpleOperations, key: tuple[str, str, str], waiting: _Acks
    ) -> None:
        while waiting:
            sent, waiting[:] = waiting[:_MOST_ACKS], waiting[_MOST_ACKS:]
            refused, error = dict[str, str](), None
            try:
                texts = [text for mine, _ in sent for text in mine]
                refused = await self._commit(operations, texts)
            except Exception as raised:  # noqa: BLE001 - everybody who waits gets it
                error = raised
            for mine, answer in sent:
                if answer.done():
                    continue
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result({text: refused[text] for text in mine if text in refused})
        del self._acks[key]

    async def _commit(self, operations: SimpleOperations, texts: list[str]) -> dict[str, str]:
        try:
            await self._store.perform(operations.ack(map(self._leases.message, texts)))
        except InvalidReceiptHandle as error:
            reasons = {text: reason for text, _, reason in error.refused}
            handles = map(ReceiptHandle.parse, reasons)
            repeated = await self._store.perform(done_before(operations, ACK, handles))
            return {t: reason for t, reason in reasons.items() if t not in {*map(str, repeated)}}
        return {}

    async def change_invisible_duration(self, request: Any, caller: Caller) -> Any:
        """In a group of simple consumers a new deadline; in one of push consumers a failure."""
        group, topic = self._named(request)
        handle = handle_of(request.receipt_handle, group, topic)
        seconds = seconds_of(request.invisible_duration)
        if seconds:
            check_invisible(seconds)
        operations = await self._operations(group, topic, caller)
        if isinstance(operations, PushOperations):
            await self._retry(operations, handle, seconds, caller)
            return v2.ChangeInvisibleDurationResponse(status=OK, receipt_handle=str(handle))
        text = await self._change(operations, handle, seconds)
        return v2.ChangeInvisibleDurationResponse(status=OK, receipt_handle=text)

    async def _change(
        self, operations: SimpleOperations, handle: ReceiptHandle, seconds: float
    ) -> str:
        perform, verb = self._store.perform, CHANGE if seconds else FAIL
        try:
            return await perform(operations.change_invisible_duration(str(handle), seconds))
        except (InvalidReceiptHandle, AmbiguousResult):
            if not await perform(done_before(operations, verb, [handle])):
                raise
        return str(handle._replace(lease_no=handle.lease_no + 1))

    async def _retry(
        self, operations: PushOperations, handle: ReceiptHandle, seconds: float, caller: Caller
    ) -> None:
        held = self._leases.find(str(handle))
        record = await self._groups.record(handle.group)
        reason = f"client {caller.client.id} reported a failure"
        delay_ms: int | None = round(seconds * 1000)
        if self._is_by_policy(seconds, held, record):
            delay_ms = None
        await self._fail(operations, handle, reason, held, delay_ms=delay_ms)

    def _is_by_policy(self, seconds: float, held: Held | None, record: GroupRecord) -> bool:
        """Whether a delay is what the group's policy says; see decision 0087."""
        if seconds == 0 or held is None:
            return seconds == 0
        delays = delays_of(record, self._groups.levels)
        own_s = delays[min(held.message.attempt, len(delays)) - 1] / 1000
        return seconds in (own_s, int(own_s))

    async def forward_message_to_dead_letter_queue(self, request: Any, caller: Caller) -> Any:
        """Dead at once; in an ordered group a failed attempt, until the group's limit is reached.

        See attempts_of: an ordered client is allowed one attempt.
        """
        group, topic = self._named(request)
        handle = handle_of(request.receipt_handle, group, topic)
        operations = await self._operations(group, topic, caller)
        if not isinstance(operations, PushOperations):
            raise Refused(
                Code.FORBIDDEN, "a group of simple consumers has no failures to forward: ack it"
            )
        record = await self._groups.record(group)
        held = self._leases.find(str(handle))
        retried = record.ordered and request.max_delivery_attempts == attempts_of(record)
        reason = f"client {caller.client.id} reported a failure"
        if not retried:
            reason = f"client {caller.client.id} forwarded it to the dead-letter queue"
        await self._fail(operations, handle, reason, held, level=0 if retried else DEAD)
        return v2.ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def _fail(
        self,
        operations: PushOperations,
        handle: ReceiptHandle,
        reason: str,
        held: Held | None,
        *,
        level: int = 0,
        delay_ms: int | None = None,
    ) -> None:
        ran = 0.0 if held is None else time.monotonic() - held.since
        cause = "failure" if level == 0 else "rejected"
        leased = (handle, None if held is None else held.message)
        failing = operations.fail(
            leased, cause, reason, level=level, delay_ms=delay_ms, seconds=ran
        )
        try:
            await self._store.perform(failing)
        except InvalidReceiptHandle:
            if not await self._store.perform(done_before(operations, FAIL, [handle])):
                raise
        finally:
            self._leases.drop([str(handle)])

    def _named(self, request: Any) -> tuple[str, str]:
        """The group and the topic of a request."""
        return self._names.group(request.group), self._names.topic(request.topic, source=True)

    async def _operations(self, group: str, topic: str, caller: Caller) -> SimpleOperations:
        record = await self._groups.record(group)
        if not record.source and topic not in record.topics:
            raise Refused(
                Code.INVALID_RECEIPT_HANDLE,
                f"group {show(group)} does not consume topic {show(topic)}",
            )
        subscribed = f"{DLQ}{record.source}" if record.source else topic
        reader = await self._groups.reader(caller.client, group, subscribed)
        return on_behalf(reader.operations, caller.client.worker)
