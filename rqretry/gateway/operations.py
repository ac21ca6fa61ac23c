"""What clients of other languages do in a group, each by its own name."""

import copy
import logging
from collections.abc import Iterable
from typing import Any, TypeVar

from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.core.catalog_records import PUSH, SIMPLE
from rqretry.core.errors import InvalidReceiptHandle, RefusedHandle, RqretryError
from rqretry.core.failure_record import describe_cause
from rqretry.core.limits import MAX_POSTPONES
from rqretry.core.message import Message, ReceiptHandle
from rqretry.observability import observer
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failed, Failure, fail, release
from rqretry.transport.store import Store

log = logging.getLogger("rqretry")

DEAD = -1
Operations = TypeVar("Operations", bound=SimpleOperations)


class PushOperations(SimpleOperations):
    """Receive and ack as a simple consumer does, and report failed attempts as a worker does."""

    kind = PUSH
    strict = False

    def keys_of(self, handle: ReceiptHandle) -> GroupKeys:
        """The place of a lease."""
        return self._keys(handle)

    def fail(
        self,
        leased: observer.Leased,
        cause: str,
        reason: str,
        *,
        level: int = 0,
        delay_ms: int | None = None,
        seconds: float = 0.0,
    ) -> Operation[Failed]:
        """A failed attempt: retried by the group's policy or after `delay_ms`, or dead.

        Args:
            leased: The lease, and its message where that is known.
            cause: Why it failed.
            reason: The same for people.
            level: DEAD for dead at once, 0 for what the policy says.
            delay_ms: The wait, in place of the policy's.
            seconds: How long the attempt took.

        Raises:
            InvalidReceiptHandle: The lease has ended; nothing was changed.
        """
        handle, message = leased
        keys = (yield from self._lease_of(str(handle)))[1]
        delay = "" if delay_ms is None else delay_ms
        record = describe_cause(cause, reason, self.worker, seconds)
        chance = self.catalog.chance.random()
        failure = Failure(handle.receipt, level, delay, chance, cause, record)
        result: Failed
        with self._watched(observer.NACK, [message or str(handle)], [handle]) as watch:
            (result,) = yield fail(keys, [failure], worker=self.worker, tracebacks={})
            watch.done([] if result.verdict == "OK" else [handle.id])
        if result.verdict != "OK":
            over = RefusedHandle(str(handle), handle.id, "its lease has ended")
            raise InvalidReceiptHandle.of([over])
        if result.dead:
            now_ms = yield from self.catalog.store.now_ms()
            yield from self._report_deaths(keys, [handle.id], now_ms)
        return result


def on_behalf(operations: Operations, worker: str) -> Operations:
    """The operations of a group as one client performs them, by its name."""
    own = copy.copy(operations)
    own.worker = worker
    return own


async def give_back(
    store: Store, operations: SimpleOperations, messages: Iterable[Message[Any]], worker: str
) -> None:
    """Give back messages that no client has or wants any more, uncounted."""
    most = MAX_POSTPONES if operations.kind == SIMPLE else 0
    for message in messages:
        handle = ReceiptHandle.parse(message.receipt_handle)
        keys = operations.catalog.group_keys(handle.topic, handle.partition, handle.group)
        try:
            await store.run(release(keys, [handle.receipt], worker=worker, max_postpones=most))
        except RqretryError as error:
            log.warning("message %s could not be given back: %s", handle.id, error)
