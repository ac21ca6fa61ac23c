"""How attempts ended, told to whoever wants to know: the log, hooks, spans and metrics."""

import logging

from rqretry.core.failure_record import read_line
from rqretry.core.middleware import Announcer, Event
from rqretry.observability.log_format import about
from rqretry.observability.observer import DEAD_LETTER, FAILURE, STALE, SUCCESS, Attempt
from rqretry.protocol.lease import Failed, Failure
from rqretry.worker.leases import Delivery, Place

log = logging.getLogger("rqretry")


class Herald:
    """Tells it for all consumers of a process."""

    def __init__(self, announcer: Announcer, worker: str) -> None:
        self._announcer = announcer
        self._worker = worker

    @property
    def curious(self) -> bool:
        """Whether somebody wants to hear of each failure, also of those that are retried."""
        return log.isEnabledFor(logging.DEBUG) or self._announcer.wants("failure")

    def succeeded(self, delivery: Delivery) -> None:
        """The success is written down."""
        if delivery.watch is not None:
            delivery.watch.settled(SUCCESS)

    def failed(
        self,
        place: Place,
        delivery: Delivery,
        failure: Failure,
        result: Failed,
        *,
        curious: bool,
    ) -> None:
        """The failure is."""
        if delivery.watch is not None:
            _tell(delivery.watch, failure, result)
        if result.dead or (curious and result.verdict == "OK"):
            self._announce(place, failure, result)

    def refused(self, place: Place, delivery: Delivery) -> None:
        """The lease was over before the result was told."""
        if delivery.watch is not None:
            delivery.watch.settled(STALE)
        log.warning(
            "a result was refused: the lease of message %s, attempt %d, was over",
            delivery.id, delivery.attempt,
            extra=about(delivery.id, place.topic, place.keys.group, delivery.attempt),
        )  # fmt: skip

    def _announce(self, place: Place, failure: Failure, result: Failed) -> None:
        if result.dead or log.isEnabledFor(logging.DEBUG):
            _log_failure(place, failure, result)
        buried = result.dead and not place.keys.source
        for name in ("failure", "dead_letter") if buried else ("failure",):
            if self._announcer.wants(name):
                self._announcer.post(_event(name, self._worker, place, failure, result))


def _tell(watch: Attempt, failure: Failure, result: Failed) -> None:
    """What became of a failed attempt."""
    if result.dead:
        watch.settled(DEAD_LETTER, record=failure.record)
    else:
        due_ms = result.due_ms or None
        watch.settled(FAILURE, record=failure.record, level=result.level, due_ms=due_ms)


def _log_failure(place: Place, failure: Failure, result: Failed) -> None:
    id_, topic, group = failure.receipt.id, place.topic, place.keys.group
    if result.dead:
        log.warning(
            "%s: message %s of %s, group %s, after %d %s: %s",
            "dropped" if place.keys.source else "dead letter", id_, topic, group, result.attempt,
            "delivery" if result.attempt == 1 else "deliveries", _reason(failure, result),
            extra=about(id_, topic, group, result.attempt),
        )  # fmt: skip
    else:
        log.debug(
            "message %s of %s, group %s, failed at attempt %d: %s",
            id_, topic, group, result.attempt, _reason(failure, result),
            extra=about(id_, topic, group, result.attempt),
        )  # fmt: skip


def _reason(failure: Failure, result: Failed) -> str:
    """What the handler raised or said."""
    error = read_line(f"{result.attempt} 0 {failure.record}")
    said = ": ".join(filter(None, (error.type, error.message))) if error else ""
    return said or failure.cause


def _event(name: str, worker: str, place: Place, failure: Failure, result: Failed) -> Event:
    return Event(
        name,
        worker,
        place.keys.group,
        place.topic,
        failure.receipt.id,
        result.attempt,
        _reason(failure, result),
        None if result.dead else result.due_ms,
    )
