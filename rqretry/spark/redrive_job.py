"""redrive: dead letters chosen by SQL go back to their group, once, also if a run is killed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from rqretry.admin.dead_letters import SHORTEST_PATIENCE_S
from rqretry.admin.results import RedriveReport
from rqretry.client import Admin, Client
from rqretry.core.durations import Duration, seconds
from rqretry.core.failure_record import REDRIVEN, read_record
from rqretry.core.limits import check_count
from rqretry.core.parts import parts_of
from rqretry.core.rates import Rate, per_second
from rqretry.protocol.command import batches
from rqretry.protocol.inspect import Peeked, peek
from rqretry.spark.redrive_choice import Choice, ChosenDeadLetter, Deaths, choose
from rqretry.spark.redrive_record import FOLDER, Record
from rqretry.transport.store_sync import reach


@dataclass(slots=True)
class RedriveSummary:
    """What a redrive chose and did.

    Attributes:
        group: The group.
        where: The condition.
        chosen: Dead letters for which it held.
        before: How many of these an earlier run of the same redrive had sent already.
        sent: How many this run sent back (or would send, with dry_run).
        left: How many are dead still: not 0 if a canary stopped it, and with dry_run.
        canaries: Sent first and watched.
        failed: Canaries that failed again.
        due_in: With a rate, seconds until the last of them is due.
        reason: Why the rest was not sent; "" if nothing stopped it.
        resumed: It went on with what an earlier run had chosen.
        dry_run: Nothing was sent.
        kinds: How many were chosen of each topic, cause and error; the 20 most frequent.
        samples: Five of them.
    """

    group: str
    where: str
    chosen: int
    before: int
    sent: int
    left: int
    canaries: int = 0
    failed: int = 0
    due_in: float = 0.0
    reason: str = ""
    resumed: bool = False
    dry_run: bool = False
    kinds: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pace:
    """How dead letters are sent: as `admin.redrive` takes it."""

    rate: Rate | None = None
    canary: int | None = None
    canary_timeout: Duration = 60

    def __post_init__(self) -> None:
        """Check them before anything is read. Raises InvalidArgument."""
        if self.rate is not None:
            per_second(self.rate)
        if self.canary is not None:
            check_count(self.canary, name="canary")
        seconds(self.canary_timeout, name="canary_timeout", minimum=SHORTEST_PATIENCE_S)


def redrive(  # noqa: PLR0913 - options by name
    spark: SparkSession,
    group: str,
    where: str,
    *,
    url: str | None = None,
    namespace: str | None = None,
    rate: Rate | None = None,
    canary: int | None = None,
    canary_timeout: Duration = 60,
    dry_run: bool = False,
    state: str = FOLDER,
    fresh: bool = False,
) -> RedriveSummary:
    """Send dead letters back for which a condition of Spark SQL holds, each once.

    What was chosen is kept in a file until all of it was sent. A run that was killed, or that its
    canaries stopped, is resumed by the next one with the same server, namespace, group and
    condition: it sends what has been dead since then, and not what died again.

    Args:
        spark: The session to run on.
        group: The group's name.
        where: The condition, over the columns of dead letters (docs/spark.md).
        url: The server, as everywhere.
        namespace: The namespace, as everywhere.
        rate: Send no faster than this, as for `admin.redrive`.
        canary: Send this many first, as there.
        canary_timeout: How long to wait for them, as there; seconds, or text such as "1m".
        dry_run: Only choose and count; send nothing and write nothing.
        state: The folder of the file.
        fresh: Forget what an earlier run chose.

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: The condition is not one, or a value is outside its limits.
        ConfigError: The file cannot be read or written, or another run is at work with it.
        StoreUnavailable, AmbiguousResult: Not all was sent; run it again.
    """
    pace = Pace(rate, canary, canary_timeout)
    with Client(url, namespace=namespace) as client:
        reach(parts_of(client).store)
        record = Record(state, client, group, where)
        choice = None if fresh else record.read()
        if choice is None:
            client.admin.group(group)
            space = parts_of(client).settings.namespace
            choice = choose(spark, group, where, namespace=space, url=url)
        if dry_run:
            return summary_of(choice, still_dead(client, choice))
        return send(client, choice, record, pace)


def still_dead(client: Client, choice: Choice) -> set[ChosenDeadLetter]:
    """Those of a choice that were not sent yet, nor purged."""
    found = client.admin.dead_letters(choice.group, Deaths.of(choice), bodies=False)
    died = {(dead_letter.topic, dead_letter.id, dead_letter.dead_since_ms) for dead_letter in found}
    return {one for one in choice.dead_letters if (one.topic, one.id, one.dead_since_ms) in died}


def summary_of(
    choice: Choice, dead: set[ChosenDeadLetter], report: RedriveReport | None = None
) -> RedriveSummary:
    """The summary of a choice of which these were dead, and of what was sent."""
    sent = len(dead) if report is None else int(report)
    return RedriveSummary(
        choice.group,
        choice.where,
        chosen=len(choice.dead_letters),
        before=len(choice.dead_letters) - len(dead),
        sent=sent,
        left=len(dead) if report is None else report.matched - sent,
        canaries=report.canaries if report else 0,
        failed=report.failed if report else 0,
        reason=report.reason if report else "",
        resumed=choice.resumed,
        dry_run=report is None,
        kinds=choice.kinds,
        samples=choice.samples,
    )


def send(
    client: Client, choice: Choice, record: Record, pace: Pace, admin: Admin | None = None
) -> RedriveSummary:
    """Send what is left of a choice by the core's redrive, which writes the audit record.

    Args:
        client: Of the server and namespace of the choice.
        choice: What to send.
        record: Where the choice is remembered until all of it was sent.
        pace: How.
        admin: Performs it; default the client's own.

    Raises:
        ConfigError: The record cannot be written, or another run is at work with its folder.
    """
    with record.alone():
        if not choice.resumed:
            record.write(choice)
        dead, report = still_dead(client, choice), RedriveReport(0, matched=0)
        wait = 0.0
        if dead:
            sent = [dead_letter for dead_letter in choice.dead_letters if dead_letter not in dead]
            wait = _behind(client, choice.group, sent, pace.rate)
            report = (admin or client.admin).redrive(
                choice.group,
                Deaths.of(choice, len(sent)),
                rate=pace.rate,
                canary=pace.canary,
                canary_timeout=pace.canary_timeout,
                delay=wait,
            )
        if not report.stopped:
            record.forget()
    summary = summary_of(choice, dead, report)
    last = report - report.canaries - 1
    if pace.rate is not None and last >= 0:
        summary.due_in = round(wait + last / per_second(pace.rate), 3)
    return summary


def _behind(
    client: Client, group: str, sent: Sequence[ChosenDeadLetter], rate: Rate | None
) -> float:
    """How many seconds the rest waits for what was sent before it, so that the rate is kept."""
    if rate is None or not sent:
        return 0.0
    last_ms = 0
    for batch in batches(sent):
        keys = [
            parts_of(client).catalog.group_keys(one.topic, one.partition, group) for one in batch
        ]
        looks = [peek(group_keys, one.id) for group_keys, one in zip(keys, batch, strict=True)]
        last_ms = max(last_ms, *map(_due_in_ms, parts_of(client).store.run_all(looks)))
    return last_ms / 1000 + 1 / per_second(rate) if last_ms else 0.0


def _due_in_ms(seen: Peeked) -> int:
    errors = read_record(seen.failures)
    if not errors or errors[-1].cause != REDRIVEN:  # it has failed since: it waits as any other
        return 0
    return max((due_ms - seen.now_ms for _, due_ms in seen.waiting), default=0)
