"""How attempts ended, reported to the log, callbacks, spans and metrics."""

import logging

from rqretry.core.failure_record import reason_in
from rqretry.core.middleware import Announcer, Event
from rqretry.observability.log_format import about
from rqretry.observability.observer import DEAD_LETTER, FAILURE, STALE, Attempt
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failed, Failure

log = logging.getLogger("rqretry")


class OutcomeReporter:
    """Reports for all consumers of a process."""

    def __init__(self, announcer: Announcer, worker: str) -> None:
        self._announcer = announcer
        self._worker = worker

    @property
    def wants_failures(self) -> bool:
        """Whether somebody wants to hear of each failure, also of those that are retried."""
        return log.isEnabledFor(logging.DEBUG) or self._announcer.wants("failure")

    def failed(
        self,
        keys: GroupKeys,
        failure: Failure,
        result: Failed,
        watch: Attempt | None,
        *,
        retried_too: bool,
    ) -> None:
        """The server has this failure; `retried_too`: what `wants_failures` was."""
        if watch is not None and result.dead:
            watch.settled(DEAD_LETTER, record=failure.record)
        elif watch is not None:
            due_ms = result.due_ms or None
            watch.settled(FAILURE, record=failure.record, level=result.level, due_ms=due_ms)
        if result.dead or (retried_too and result.verdict == "OK"):
            self._announce(keys, failure, result)

    def rejected(self, keys: GroupKeys, id_: str, attempt: int, watch: Attempt | None) -> None:
        """The lease was over before the result was reported."""
        if watch is not None:
            watch.settled(STALE)
        log.warning(
            "a result was rejected: the lease of message %s, attempt %d, was over",
            id_, attempt,
            extra=about(id_, keys.partition.topic, keys.group, attempt),
        )  # fmt: skip

    def _announce(self, keys: GroupKeys, failure: Failure, result: Failed) -> None:
        if result.dead or log.isEnabledFor(logging.DEBUG):
            _log_failure(keys, failure, result)
        dead_lettered = result.dead and not keys.source
        for name in ("failure", "dead_letter") if dead_lettered else ("failure",):
            if self._announcer.wants(name):
                topic, reason = keys.partition.topic, reason_in(failure.record)
                due_ms = None if result.dead else result.due_ms
                id_, attempt = failure.receipt.id, result.attempt
                event = Event(name, self._worker, keys.group, topic, id_, attempt, reason, due_ms)
                self._announcer.post(event)


def _log_failure(keys: GroupKeys, failure: Failure, result: Failed) -> None:
    id_, topic, group = failure.receipt.id, keys.partition.topic, keys.group
    if result.dead:
        log.warning(
            "%s: message %s of %s, group %s, after %d %s: %s",
            "dropped" if keys.source else "dead letter", id_, topic, group, result.attempt,
            "delivery" if result.attempt == 1 else "deliveries", reason_in(failure.record),
            extra=about(id_, topic, group, result.attempt),
        )  # fmt: skip
    else:
        log.debug(
            "message %s of %s, group %s, failed at attempt %d: %s",
            id_, topic, group, result.attempt, reason_in(failure.record),
            extra=about(id_, topic, group, result.attempt),
        )  # fmt: skip
