"""How attempts ended, reported to the log, callbacks, spans and metrics."""

import asyncio
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rqretry.core.durations import spell
from rqretry.core.failure_record import fingerprint_in, kind_in, reason_in
from rqretry.core.middleware import Announcer, Event
from rqretry.observability.log_format import about, log_death
from rqretry.observability.observer import DEAD_LETTER, FAILURE, STALE, Watched
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failed, Failure
from rqretry.transport.store import Store
from rqretry.worker.leases import Delivery

log = logging.getLogger("rqretry")

_FOLDED_S, _MOST_KINDS = 60.0, 1000
_WHERE = re.compile(r'File "([^"]+)", line (\d+)')
_OURS = f"{Path(__file__).parents[1]}{os.sep}"


FailedAttempt = tuple[Delivery, Failure, Failed]
Kind = tuple[str, str, str]
"""Of failures: topic, group and fingerprint."""


@dataclass(slots=True)
class _Folded:
    """Failures of one kind in one group: the first is logged, the others once a minute."""

    kind: str
    since: float
    """The beginning of the minute."""
    count: int = 0
    """How many failed in it."""
    logged: int = 1
    """How many of these have a line of their own."""
    last: tuple[str, int, str] = "", 0, ""
    """Id, attempt and trace of the last one."""

    def add(self, count: int, last: Delivery) -> None:
        """So many more of them failed."""
        self.count += count
        self.last = last.id, last.attempt, last.trace


class OutcomeReporter:
    """Reports for all consumers of a process."""

    def __init__(self, announcer: Announcer, worker: str, store: Store) -> None:
        self._announcer = announcer
        self._worker = worker
        self._store = store
        self._folded: dict[Kind, _Folded] = {}
        self._traces: dict[str, str] = {}
        """By kind of failure, its traceback."""

    def learn(self, tracebacks: Mapping[str, str]) -> None:
        """Remember the tracebacks of kinds of failures."""
        if len(self._traces) > _MOST_KINDS:
            self._traces.clear()
        self._traces.update(tracebacks)

    def failed(self, keys: GroupKeys, failed: Sequence[FailedAttempt]) -> int:
        """The server has these failures of one group. Returns how many of them are deaths."""
        announced, retried, deaths = self._announcer.wants("failure"), [], 0
        for one in failed:
            delivery, failure, result = one
            if delivery.watch is not None:
                _show(delivery.watch, failure, result)
            if result.dead:
                deaths += 1
                self._log_death(delivery, failure, result)
            elif result.verdict == "OK":
                retried.append(one)
            if result.dead or (announced and result.verdict == "OK"):
                self._announce(keys, failure, result)
        self._log_retried(keys, retried)
        return deaths

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

    def _log_retried(self, keys: GroupKeys, retried: Sequence[FailedAttempt]) -> None:
        """A line for the first of a kind in a group, and one a minute while it goes on."""
        records = [failure.record for _, failure, _ in retried]
        last = dict(zip(records, retried, strict=True))  # most are alike
        for record, count in Counter(records).items():
            key = keys.partition.topic, keys.group, fingerprint_in(record)
            folded = self._folded.get(key)
            if folded is None and log.isEnabledFor(logging.WARNING):
                folded = self._fold(key, record)
                self._log_first(key, *retried[records.index(record)])
            if folded is not None:
                folded.add(count, last[record][0])

    def _log_first(self, key: Kind, delivery: Delivery, failure: Failure, result: Failed) -> None:
        topic, group, fingerprint = key
        trace = self._traces.get(fingerprint, "")
        most = delivery.message.max_retries if delivery.message else None
        of = "" if most is None else f" of {most + 1}"  # None: unlimited
        clock = self._store.clock_of(delivery.place.keys.partition.meta)
        wait_s = (result.due_ms - clock.now_ms()) / 1000
        log.warning(
            "message %s of %s, group %s: attempt %d%s failed, next in %s: %s%s",
            delivery.id, topic, group, result.attempt, of,
            spell(max(0, round(wait_s) if wait_s >= 1 else round(wait_s, 2))),
            reason_in(failure.record), _place_in(trace),
            extra=about(delivery.id, topic, group, result.attempt, delivery.trace)
            | {"traceback": trace},
        )  # fmt: skip

    def _fold(self, key: Kind, record: str) -> _Folded:
        """Failures of this kind are counted from now on, until a minute has none."""
        if len(self._folded) > _MOST_KINDS:
            self.finish()
        folded = self._folded[key] = _Folded(kind_in(record), time.monotonic())
        asyncio.get_running_loop().call_later(_FOLDED_S, self._minute_over, key, folded)
        return folded

    def _minute_over(self, key: Kind, folded: _Folded) -> None:
        if self._folded.get(key) is not folded:
            return
        if not folded.count:
            del self._folded[key]
            return
        self._log_folded(key, folded)
        folded.since, folded.count, folded.logged = time.monotonic(), 0, 0
        asyncio.get_running_loop().call_later(_FOLDED_S, self._minute_over, key, folded)

    def _log_folded(self, key: Kind, folded: _Folded) -> None:
        (topic, group, _), (id_, attempt, trace) = key, folded.last
        if folded.count > folded.logged:
            log.info(
                "%s/%s: %d failed attempts in %d s, %s, e.g. message %s",
                topic, group, folded.count, max(1, round(time.monotonic() - folded.since)),
                folded.kind, id_, extra=about(id_, topic, group, attempt, trace),
            )  # fmt: skip


def _place_in(trace: str) -> str:
    """The line of the handler, or of what it called, though ours may stand behind it."""
    places = _WHERE.findall(trace)
    others = [place for place in places if not place[0].startswith(_OURS)]
    return "".join(f" ({Path(file).name}:{line})" for file, line in (others or places)[-1:])


def _show(watch: Watched, failure: Failure, result: Failed) -> None:
    """Let an observer know what became of a failed attempt."""
    if result.dead:
        watch.settled(DEAD_LETTER, record=failure.record)
    else:
        due_ms = result.due_ms or None
        watch.settled(FAILURE, record=failure.record, level=result.level, due_ms=due_ms)
