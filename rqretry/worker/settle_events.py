"""How attempts ended, reported to the log, callbacks, spans and metrics."""

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rqretry.core.durations import spell
from rqretry.core.failure_record import fingerprint_in, kind_in, reason_in
from rqretry.core.middleware import Announcer, Event
from rqretry.observability.log_format import about, log_death
from rqretry.observability.observer import DEAD_LETTER, FAILURE, STALE
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failed, Failure
from rqretry.transport.store import Store
from rqretry.worker.leases import Delivery

log = logging.getLogger("rqretry")

_FOLDED_S, _MOST_KINDS = 60.0, 1000
_WHERE = re.compile(r'File "(?:[^"]*/)?([^"/]+)", line (\d+)')


@dataclass(slots=True)
class _Folded:
    """Failures of one kind in one group: the first is logged, the others once a minute."""

    kind: str
    last: tuple[str, int, str]
    """Id, attempt and trace of the last one."""
    since: float
    """The beginning of the minute."""
    count: int = 1
    """How many failed in it."""
    logged: int = 1
    """How many of these have a line of their own."""

    def add(self, delivery: Delivery) -> None:
        """One more of them failed."""
        self.count += 1
        self.last = delivery.id, delivery.attempt, delivery.trace


class OutcomeReporter:
    """Reports for all consumers of a process."""

    def __init__(self, announcer: Announcer, worker: str, store: Store) -> None:
        self._announcer = announcer
        self._worker = worker
        self._store = store
        self._folded: dict[tuple[str, str, str], _Folded] = {}
        """By topic, group and fingerprint."""
        self._same: tuple[str, GroupKeys, _Folded] | None = None
        """The last record, its group and where it was counted: most are as the one before."""
        self._traces: dict[str, str] = {}
        """By kind of failure, its traceback."""

    @property
    def wants_failures(self) -> bool:
        """Whether somebody wants to hear of each failure, also of those that are retried."""
        return self._announcer.wants("failure")

    def learn(self, tracebacks: Mapping[str, str]) -> None:
        """Remember the tracebacks of kinds of failures."""
        if len(self._traces) > _MOST_KINDS:
            self._traces.clear()
        self._traces.update(tracebacks)

    def failed(
        self, delivery: Delivery, failure: Failure, result: Failed, *, retried_too: bool
    ) -> None:
        """The server has this failure; `retried_too`: what `wants_failures` was."""
        watch, keys = delivery.watch, delivery.place.keys
        if watch is not None and result.dead:
            watch.settled(DEAD_LETTER, record=failure.record)
        elif watch is not None:
            due_ms = result.due_ms or None
            watch.settled(FAILURE, record=failure.record, level=result.level, due_ms=due_ms)
        if result.dead:
            self._log_death(delivery, failure, result)
        elif result.verdict == "OK":
            self.log_failure(delivery, failure, result)
        if result.dead or (retried_too and result.verdict == "OK"):
            self._announce(keys, failure, result)

    def rejected(self, delivery: Delivery) -> None:
        """The lease was over before the result was reported."""
        keys = delivery.place.keys
        if delivery.watch is not None:
            delivery.watch.settled(STALE)
        log.warning(
            "a result was rejected: the lease of message %s, attempt %d, was over",
            delivery.id, delivery.attempt,
            extra=about(
                delivery.id, keys.partition.topic, keys.group, delivery.attempt, delivery.trace
            ),
        )  # fmt: skip

    def finish(self) -> None:
        """Log what is folded; the process is about to stop."""
        for key, folded in self._folded.items():
            self._log_folded(key, folded)
        self._folded.clear()
        self._same = None

    def _log_death(self, delivery: Delivery, failure: Failure, result: Failed) -> None:
        keys, reason = delivery.place.keys, reason_in(failure.record)
        of = delivery.id, keys.partition.topic, keys.group, result.attempt
        log_death(*of, reason, delivery.trace, kept=not keys.source)

    def _announce(self, keys: GroupKeys, failure: Failure, result: Failed) -> None:
        dead_lettered = result.dead and not keys.source
        for name in ("failure", "dead_letter") if dead_lettered else ("failure",):
            if self._announcer.wants(name):
                topic, record = keys.partition.topic, failure.record
                due_ms = None if result.dead else result.due_ms
                id_, attempt, reason = failure.receipt.id, result.attempt, reason_in(record)
                facts = (keys.group, topic, id_, attempt, reason, due_ms, fingerprint_in(record))
                self._announcer.post(Event(name, self._worker, *facts))

    def log_failure(self, delivery: Delivery, failure: Failure, result: Failed) -> None:
        """A line for the first of a kind in a group, and one a minute while it goes on."""
        same, keys = self._same, delivery.place.keys
        if same is not None and same[0] is failure.record and same[1] is keys:
            same[2].add(delivery)  # most end here: no more than they need is done
            return
        topic, fingerprint = keys.partition.topic, fingerprint_in(failure.record)
        folded = self._folded.get((topic, keys.group, fingerprint))
        if folded is not None:
            folded.add(delivery)
            self._same = failure.record, keys, folded
            return
        if not log.isEnabledFor(logging.WARNING):
            return
        self._fold((topic, keys.group, fingerprint), delivery, failure)
        trace = self._traces.get(fingerprint, "")
        where = _WHERE.findall(trace)[-1:]
        most = delivery.message.max_retries if delivery.message else None
        of = "" if most is None else f" of {most + 1}"  # None: unlimited
        wait_s = (result.due_ms - self._store.clock_of(keys.partition.meta).now_ms()) / 1000
        log.warning(
            "message %s of %s, group %s: attempt %d%s failed, next in %s: %s%s",
            delivery.id, topic, keys.group, result.attempt, of,
            spell(max(0, round(wait_s) if wait_s >= 1 else round(wait_s, 2))),
            reason_in(failure.record), "".join(f" ({file}:{line})" for file, line in where),
            extra=about(delivery.id, topic, keys.group, result.attempt, delivery.trace)
            | {"traceback": trace},
        )  # fmt: skip

    def _fold(self, key: tuple[str, str, str], delivery: Delivery, failure: Failure) -> None:
        """Others of its kind are counted from now on, until a minute has none."""
        if len(self._folded) > _MOST_KINDS:
            self.finish()
        last = delivery.id, delivery.attempt, delivery.trace
        folded = self._folded[key] = _Folded(kind_in(failure.record), last, time.monotonic())
        asyncio.get_running_loop().call_later(_FOLDED_S, self._minute_over, key, folded)

    def _minute_over(self, key: tuple[str, str, str], folded: _Folded) -> None:
        if self._folded.get(key) is not folded:
            return
        if not folded.count:
            del self._folded[key]
            self._same = None
            return
        self._log_folded(key, folded)
        folded.since, folded.count, folded.logged = time.monotonic(), 0, 0
        asyncio.get_running_loop().call_later(_FOLDED_S, self._minute_over, key, folded)

    def _log_folded(self, key: tuple[str, str, str], folded: _Folded) -> None:
        (topic, group, _), (id_, attempt, trace) = key, folded.last
        if folded.count > folded.logged:
            log.info(
                "%s/%s: %d failed attempts in %d s, %s, e.g. message %s",
                topic, group, folded.count, max(1, round(time.monotonic() - folded.since)),
                folded.kind, id_, extra=about(id_, topic, group, attempt, trace),
            )  # fmt: skip
