"""redrive: dead letters chosen by SQL go back to their group, once, also if a run is killed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

from rqretry.admin.context import AdminContext
from rqretry.admin.dead_letter_filter import DeadLetterFilter, DeadLetterPages, Found
from rqretry.admin.dead_letters import SENT_AT_ONCE, dead_letter_places, send_back
from rqretry.admin.dead_letters import Pace as CheckedPace
from rqretry.admin.results import RedriveReport
from rqretry.catalog.store import Place
from rqretry.client import Client
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.durations import Duration
from rqretry.core.failure_record import REDRIVEN, read_record
from rqretry.core.limits import check_count
from rqretry.core.parts import parts_of
from rqretry.core.rates import Rate, per_second
from rqretry.protocol.command import Operation, SyncPerformer, batches
from rqretry.protocol.inspect import Peeked, peek
from rqretry.protocol.keys import GroupKeys
from rqretry.spark.progress import Progress
from rqretry.spark.redrive_choice import choose
from rqretry.spark.redrive_record import FOLDER, Choice, ChosenDeadLetter, Record
from rqretry.transport.store_sync import reach

_LOGGED = 300


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
        self.checked()

    def checked(self, delay: float = 0.0) -> CheckedPace:
        """The values that were meant, and how long the first waits. Raises InvalidArgument."""
        return CheckedPace.read(self.rate, self.canary, self.canary_timeout, delay)


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
    limit: int | None = None,
    dry_run: bool = False,
    state: str = FOLDER,
    fresh: bool = False,
    progress: Progress | None = None,
) -> RedriveSummary:
    """Send dead letters back for which a condition of Spark SQL holds, each once.

    What was chosen is kept in a file until all of it was sent. A run that was killed, or that its
    canaries stopped, is resumed by the next one with the same server, namespace, group and
    condition: it sends what has been dead since then, and not what died again. However many they
    are, a bounded number of them is in memory.

    Args:
        spark: The session to run on.
        group: The group's name.
        where: The condition, over the columns of dead letters (docs/spark.md).
        url: The server, as everywhere.
        namespace: The namespace, as everywhere.
        rate: Send no faster than this, as for `admin.redrive`.
        canary: Send this many first, as there.
        canary_timeout: How long to wait for them, as there; seconds, or text such as "1m".
        limit: Choose no more than this, the oldest deaths; default all.
        dry_run: Only choose and count; send nothing and write nothing.
        state: The folder of the file.
        fresh: Forget what an earlier run chose.
        progress: Called with how many tasks of the choosing are done, and how many there are.

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: The condition is not one, or a value is outside its limits.
        ConfigError: The file cannot be read or written, or another run is at work with it.
        StoreUnavailable, AmbiguousResult: Not all was sent; run it again.
    """
    pace = Pace(rate, canary, canary_timeout)
    most = None if limit is None else check_count(limit, name="limit")
    with Client(url, namespace=namespace) as client:
        reach(parts_of(client).store)
        record = Record(state, client, group, where)
        with recorded(record, dry_run=dry_run) as chosen_path:
            choice = None if fresh else record.read()
            if choice is None:
                client.admin.group(group)
                space = parts_of(client).settings.namespace
                choice = choose(
                    spark, group, where, namespace=space, url=url,
                    chosen_path=chosen_path, limit=most, progress=progress,
                )  # fmt: skip
            dead = still_dead(client, choice, record)
            if dry_run:
                return summary_of(choice, dead)
            return send(client, choice, record, pace, dead)


@contextmanager
def recorded(record: Record, *, dry_run: bool) -> Iterator[Path]:
    """Alone with a record; where to list what is chosen. A dry run leaves nothing behind."""
    if dry_run:
        with TemporaryDirectory(prefix="rqretry-") as folder:
            yield Path(folder) / record.chosen_path.name
    else:
        with record.alone():
            yield record.chosen_path


def still_dead(client: Client, choice: Choice, record: Record) -> int:
    """How many of a choice were not sent yet, nor purged."""
    if not choice.resumed:
        return choice.count
    survey = _survey(parts_of(client.admin).operations, choice, record, looks=False)
    return parts_of(client).store.perform(survey)[0]


def summary_of(choice: Choice, dead: int, report: RedriveReport | None = None) -> RedriveSummary:
    """The summary of a choice of which so many were dead, and of what was sent."""
    sent = dead if report is None else int(report)
    return RedriveSummary(
        choice.group,
        choice.where,
        chosen=choice.count,
        before=choice.count - dead,
        sent=sent,
        left=dead if report is None else report.matched - sent,
        canaries=report.canaries if report else 0,
        failed=report.failed if report else 0,
        reason=report.reason if report else "",
        resumed=choice.resumed,
        dry_run=report is None,
        kinds=choice.kinds,
        samples=choice.samples,
    )


def send(
    client: Client,
    choice: Choice,
    record: Record,
    pace: Pace,
    dead: int,
    *,
    performer: SyncPerformer | None = None,
) -> RedriveSummary:
    """Send what is left of a choice as the core's redrive does, with its audit record.

    Args:
        client: Of the server and namespace of the choice.
        choice: What to send.
        record: Where the choice is remembered until all of it was sent; nobody else is at work
            with it.
        pace: How.
        dead: How many of them are dead still.
        performer: Performs it; default the client's own.

    Raises:
        ConfigError: The record cannot be written.
    """
    if not choice.resumed:
        record.write(choice)
    report, wait = RedriveReport(0, matched=0), 0.0
    perform = (performer or parts_of(client).store).perform
    if dead:
        context = parts_of(client.admin).operations
        if pace.rate is not None and dead < choice.count:
            _, last_ms = perform(_survey(context, choice, record, looks=True))
            wait = last_ms / 1000 + 1 / per_second(pace.rate) if last_ms else 0.0
        report = perform(_send(context, choice, record, pace, dead, wait))
    if not report.stopped:
        record.forget()
    summary = summary_of(choice, dead, report)
    last = report - report.canaries - 1
    if pace.rate is not None and last >= 0:
        summary.due_in = round(wait + last / per_second(pace.rate), 3)
    return summary


def _send(
    context: AdminContext, choice: Choice, record: Record, pace: Pace, dead: int, wait: float
) -> Operation[RedriveReport]:
    source = _Deaths((yield from _places(context, choice)), record.chosen())
    arguments: dict[str, Any] = {"group": choice.group, "rate": pace.rate}
    arguments |= {"where": choice.where[:_LOGGED], "chosen": choice.count}
    if dead < choice.count:  # a run that was killed has not recorded what it sent
        arguments["sent_before"] = choice.count - dead
    return (yield from send_back(context, source, pace.checked(wait), arguments, dead))


Places = Mapping[tuple[str, int], Place]


def _places(context: AdminContext, choice: Choice) -> Operation[Places]:
    found = yield from dead_letter_places(context, choice.group, DeadLetterFilter(all=True))
    return {(place.topic, place.keys.partition.partition): place for place in found}


class _Deaths:
    """Those of a choice that are dead still, in its order."""

    def __init__(self, places: Places, chosen: Iterator[ChosenDeadLetter]) -> None:
        self._places, self._chosen = places, chosen

    def take(self, count: int) -> Operation[Found]:
        """The next ones, so many at most; none at the end."""
        found: Found = []
        while len(found) < count and (part := [*islice(self._chosen, count - len(found))]):
            dead = yield from _dead_of(self._places, part)
            found += [dead[one] for one in part if one in dead]
        return found


def _dead_of(
    places: Places, part: Sequence[ChosenDeadLetter]
) -> Operation[dict[ChosenDeadLetter, tuple[DeadLetterRecord, GroupKeys]]]:
    """Those that are dead, and have not died again since."""
    ids: dict[tuple[str, int], list[str]] = {}
    for one in part:
        ids.setdefault((one.topic, one.partition), []).append(one.id)
    wanted, found = frozenset(part), {}
    for where in ids.keys() & places.keys():
        pages = DeadLetterPages(places[where], DeadLetterFilter(ids=ids[where]), with_bodies=False)
        while (dead := (yield from pages.next())) is not None:
            for each in dead:
                one = ChosenDeadLetter(*where, each.id, each.dead_since_ms)
                if one in wanted:
                    found[one] = each, places[where].keys
    return found


def _survey(
    context: AdminContext, choice: Choice, record: Record, *, looks: bool
) -> Operation[tuple[int, int]]:
    """How many are dead still; if it looks, in how many ms the last one of the others is due."""
    places, chosen = (yield from _places(context, choice)), record.chosen()
    count = listed = last_ms = 0
    while part := [*islice(chosen, SENT_AT_ONCE)]:
        listed += len(part)
        dead = yield from _dead_of(places, part)
        count += len(dead)
        sent = [one for one in part if one not in dead and one[:2] in places] if looks else []
        for batch in batches(sent):
            seen = yield [peek(places[one[:2]].keys, one.id) for one in batch]
            last_ms = max(last_ms, *map(_due_in_ms, seen))
    if listed < choice.count:
        raise record.damaged(f"it lists {listed} of {choice.count}")
    return count, last_ms


def _due_in_ms(seen: Peeked) -> int:
    errors = read_record(seen.failures)
    if not errors or errors[-1].cause != REDRIVEN:  # it has failed since: it waits as any other
        return 0
    return max((due_ms - seen.now_ms for _, due_ms in seen.waiting), default=0)
