"""How attempts ended, reported to the log, callbacks, spans and metrics."""

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rqretry.core.durations import spell
from rqretry.core.failure_record import fingerprint_in, reason_in
from rqretry.core.middleware import Announcer, Event
from rqretry.observability.log_format import about
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
    """Failures of one kind in one group: only the first of a minute is logged."""

    until: float
    """When the next one is logged again."""
    count: int = 0
    """How many were not."""


class OutcomeReporter:
    """Reports for all consumers of a process."""

    def __init__(self, announcer: Announcer, worker: str, store: Store) -> None:
        self._announcer = announcer
        self._worker = worker
        self._store = store
        self._folded: dict[tuple[str, str], _Folded] = {}
        """By group and kind."""
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
            _log_death(keys, failure, result)
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
            extra=about(delivery.id, keys.partition.topic, keys.group, delivery.attempt),
        )  # fmt: skip

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
        """A line for the first of a kind in a group, and for one a minute where it goes on."""
        keys, now = delivery.place.keys, time.monotonic()
        kind = fingerprint_in(failure.record)  # most end here: no more than they need is done
        folded = self._folded.get((keys.group, kind))
        if folded is not None and now < folded.until:
            folded.count += 1
            return
        if not log.isEnabledFor(logging.WARNING):
            return
        more = 0 if folded is None else folded.count
        if len(self._folded) > _MOST_KINDS:
            self._folded.clear()
        self._folded[keys.group, kind] = _Folded(now + _FOLDED_S)
        trace, topic = self._traces.get(kind, ""), keys.partition.topic
        where = _WHERE.findall(trace)[-1:]
        most = delivery.message.max_retries if delivery.message else None
        of = "" if most is None else f" of {most + 1}"  # None: unlimited
        wait_s = (result.due_ms - self._store.clock_of(keys.partition.meta).now_ms()) / 1000
        log.warning(
            "message %s of %s, group %s: attempt %d%s failed, next in %s: %s%s%s",
            delivery.id, topic, keys.group, result.attempt, of,
            spell(max(0, round(wait_s) if wait_s >= 1 else round(wait_s, 2))),
            reason_in(failure.record), "".join(f" ({file}:{line})" for file, line in where),
            f"; {more} more like it before" if more else "",
            extra=about(delivery.id, topic, keys.group, result.attempt) | {"traceback": trace},
        )  # fmt: skip


def _log_death(keys: GroupKeys, failure: Failure, result: Failed) -> None:
    id_, topic, group = failure.receipt.id, keys.partition.topic, keys.group
    log.warning(
        "%s: message %s of %s, group %s, after %d %s: %s",
        "dropped" if keys.source else "dead letter", id_, topic, group, result.attempt,
        "delivery" if result.attempt == 1 else "deliveries", reason_in(failure.record),
        extra=about(id_, topic, group, result.attempt),
    )  # fmt: skip
