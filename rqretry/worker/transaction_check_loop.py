"""Asking checkers about transactions that nobody decided, and completing decisions that were cut.

Every worker completes; the workers of an app with checkers also ask these. A claim keeps two
processes from asking about the same transaction at once.
"""

import asyncio
import contextvars
import inspect
import logging
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.consumer.transaction_checker import (
    MOST_SHOWN,
    CheckerSpec,
    HalfMessage,
    TransactionCheck,
    TransactionResolution,
    check_of,
)
from rqretry.core.envelope import decode
from rqretry.core.errors import RqretryError, show
from rqretry.core.failure_record import describe_exception, reason_in
from rqretry.maintenance.due import HOLD_MS
from rqretry.maintenance.transaction_resolver import complete, halves_of, resolve
from rqretry.protocol import transaction
from rqretry.protocol.command import Operation
from rqretry.protocol.lease import expected_ms
from rqretry.protocol.transaction import COMMITTED, OPEN, ROLLED_BACK, Claimed, Record
from rqretry.transport.store import Store, jitter
from rqretry.worker.daemon_threads import DaemonThreads
from rqretry.worker.invoker import caught

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 30.0
"""How often a worker without checkers looks for decisions that were cut off."""
CHECKER_LOOKS_S = 5.0
"""How often one with checkers looks, at least."""
_SOONEST_S = 0.02
_AT_ONCE = 10
_MARGIN_MS = 5_000
"""How much longer a claim lasts than its checker may take."""


class TransactionChecks:
    """The part of a worker that resolves transactions."""

    def __init__(
        self, store: Store, catalog: Catalog, checkers: Mapping[str, CheckerSpec], worker: str
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._checkers = checkers
        self._worker = worker
        self._random = random.Random()
        self._threads: DaemonThreads | None = None
        self.found = False
        """The last look found something to see to."""
        self._seen: tuple[int, float] | None = None
        """The server's time, and ours, at the last look."""
        every = [CHECKER_LOOKS_S, *(spec.every_s for spec in checkers.values())]
        self._every_s = max(_SOONEST_S, min(every)) if checkers else LOOK_EVERY_S
        longest = max((spec.timeout_s for spec in checkers.values()), default=10.0)
        self._lease_ms = round(longest * 1000) + _MARGIN_MS

    async def run(self) -> None:
        """Look for ever."""
        while True:
            wait = self._every_s
            try:
                next_ms = await self.look()
                if next_ms is not None:
                    wait = max(_SOONEST_S, min(wait, next_ms / 1000))
            except RqretryError as error:
                log.warning("looking for transactions failed, trying again: %s", error)
            await asyncio.sleep(jitter(wait, self._random) if wait == self._every_s else wait)

    def close(self) -> None:
        """Leave checkers that still run in threads alone."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> int | None:
        """Take what needs somebody, and see to it; milliseconds until there may be more."""
        expected = expected_ms(self._seen, time.monotonic())
        command = transaction.claim(
            self._catalog.keys, sorted(self._checkers), lease_ms=self._lease_ms, limit=_AT_ONCE,
            expected_ms=expected, hold_ms=HOLD_MS,
        )  # fmt: skip
        claimed: Claimed = await self._store.run(command)
        if claimed.now_ms != expected:
            self._seen = claimed.now_ms, time.monotonic()
        self.found = bool(claimed.records or claimed.parked)
        for id_ in claimed.parked:
            _log_parked(id_, "the last check was never answered")
        await asyncio.gather(*(self._see_to_one(record) for record in claimed.records))
        return 0 if len(claimed.records) == _AT_ONCE else claimed.next_due_ms

    async def _see_to_one(self, record: Record) -> None:
        """An error of one leaves it to the next who claims it, and stops no other."""
        try:
            await self._see_to(record)
        except RqretryError as error:
            log.warning("transaction %s cannot be seen to, trying again: %s", record.id, error)

    async def _see_to(self, record: Record) -> None:
        if record.state != OPEN:
            log.info("completing transaction %s, which is %s", record.id, record.state)
            await self._store.perform(complete(self._catalog, record, worker=self._worker))
            return
        resolution, reason = await self._ask(self._checkers[record.terms.group], record)
        if resolution is TransactionResolution.UNKNOWN:
            await self._defer(record, reason)
            return
        decision = COMMITTED if resolution is TransactionResolution.COMMIT else ROLLED_BACK
        try:
            done = await self._store.perform(self._decide(record, decision))
        except RqretryError as error:
            log.warning("transaction %s: the checker's answer came too late: %s", record.id, error)
            return
        if done:
            log.info("transaction %s is %s by its checker", record.id, decision)

    def _decide(self, record: Record, decision: str) -> Operation[bool]:
        return resolve(
            self._catalog,
            record.id,
            record.terms.group,
            decision,
            worker=self._worker,
            claim=record.claim,
            reason="its checker said so",
        )

    async def _defer(self, record: Record, reason: str) -> None:
        log.warning(
            "transaction %s is not decided, check %d of %d: %s",
            record.id, record.checks, record.terms.most, reason,
        )  # fmt: skip
        refusal = transaction.defer(
            self._catalog.keys, record.id, record.terms.group, claim=record.claim, reason=reason
        )
        if await self._store.run(refusal) == "PARKED":
            _log_parked(record.id, reason)

    # -- asking --------------------------------------------------------------------------------

    async def _ask(self, spec: CheckerSpec, record: Record) -> tuple[TransactionResolution, str]:
        """The checker's answer; UNKNOWN with the reason where it has none."""
        unknown = TransactionResolution.UNKNOWN
        try:
            messages = await self._store.perform(self._messages(record))
            check = check_of(record, messages)
            async with asyncio.timeout(spec.timeout_s):
                answer = await self._call(spec.function, check)
        except TimeoutError:
            return unknown, f"the checker took longer than {spec.timeout_s:g} s"
        except BaseException as error:
            task = asyncio.current_task()
            own = issubclass(type(error), asyncio.CancelledError)
            if own and (task is None or task.cancelling()):
                raise
            log.debug("checker %s failed", spec.name, exc_info=True)
            return unknown, reason_in(describe_exception(error, "", self._worker, 0.0))
        if not isinstance(answer, TransactionResolution):
            return unknown, f"the checker answered {show(answer)}, no TransactionResolution"
        return answer, "the checker does not know yet"

    async def _call(self, function: Callable[..., Any], check: TransactionCheck) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(check)
        if self._threads is None:
            self._threads = DaemonThreads(_AT_ONCE, "rqretry-checker")
        run = contextvars.copy_context().run
        loop = asyncio.get_running_loop()
        call = partial(function, check)
        answer, raised = await loop.run_in_executor(self._threads, run, caught, call)
        if raised is not None:
            raise raised
        return await answer if inspect.isawaitable(answer) else answer

    def _messages(self, record: Record) -> Operation[tuple[HalfMessage, ...]]:
        stored = yield from halves_of(self._catalog, record, MOST_SHOWN)
        found = []
        for topic, id_, data in stored:
            body, tag, keys, headers, message_group, *_ = decode(data)
            found.append(HalfMessage(id_, topic, body, tag, keys, headers, message_group))
        return tuple(found)


def _log_parked(id_: str, reason: str) -> None:
    log.error(
        "transaction %s is parked: %s; decide it with rqretry transaction commit or rollback",
        id_, reason,
    )  # fmt: skip
