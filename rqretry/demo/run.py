"""A run of the demo from start to end: serve, publish, wait, prove, redrive."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rqretry.client import Client
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.errors import ConfigError, RqretryError, show
from rqretry.core.parts import parts_of
from rqretry.demo.book import BookKeys, delete_namespace, read_ledger
from rqretry.demo.feed import Feed, Ingest
from rqretry.demo.flights import Flight
from rqretry.demo.live_table import View
from rqretry.demo.proof import ArchiveReport, Evidence, prove
from rqretry.demo.report import Archived, Result
from rqretry.demo.topology import ARRIVALS, BOOK_GROUP, CLAIMS_GROUP, FLIGHTS, LEVELS, Progress
from rqretry.protocol.command import Command
from rqretry.protocol.keys import NamespaceKeys
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.transport.store_sync import SyncStore, reach

T = TypeVar("T")

REDRIVEN = 10
_START_SECONDS = 180.0
_STALLED_SECONDS = 60.0
"""Without progress for this long the demo fails: far beyond the longest wait of the ladder."""
_LOOK_EVERY_S = 0.05
_HISTORY_BYTES = 256 * 1024 * 1024
"""History kept by a topic: a slow machine may archive more slowly than it works."""


class Jobs(Ingest, Protocol):
    """The data pipeline on Spark (jobs.py), which the demo does not need."""

    def begin(self) -> Future[None]:
        """Start Spark, and archive what happens from now on."""

    def check(self) -> None:
        """Raises what ended the archiving, if something did."""

    def finish(self) -> Future[int]:
        """Archive the rest; answers how many events the archive has."""

    def report(self) -> Future[ArchiveReport]:
        """Report on the archive."""


class Workers(Protocol):
    """The worker processes of the demo, as long as they run."""

    def check(self) -> None:
        """Raises RqretryError if they have ended."""


WorkersStarter = Callable[[int, str, str], AbstractContextManager[Workers]]
"""Starts so many worker processes, for a URL and a namespace."""
Pipeline = Callable[[str, str], AbstractContextManager[Jobs]]
"""Starts the jobs of one run, for a URL and a namespace."""


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """Where a demo runs.

    Attributes:
        url: The server; None for an embedded one.
        namespace: One that holds nothing, and that the demo may delete.
        keep: Keep it afterwards, with its dead letters, for a closer look.
    """

    url: str | None
    namespace: str
    keep: bool = False


def run_demo(
    flights: Sequence[Flight],
    target: DemoTarget,
    *,
    processes: int,
    start_workers: WorkersStarter,
    view: View,
    pipeline: Pipeline | None = None,
) -> Result:
    """Run the demo, and delete its namespace at the end, unless it is to be kept.

    Args:
        flights: The input.
        target: Server and namespace.
        processes: Worker processes.
        start_workers: Starts them.
        view: Where it is shown.
        pipeline: Starts Spark beside it; None for without.

    Raises:
        ConfigError: There is no server to embed, or the namespace holds something.
        RqretryError: The server cannot be reached, or the workers ended.
    """
    with (
        _served(target) as url,
        Client(url, namespace=target.namespace, delay_levels=LEVELS) as client,
        pipeline(url, target.namespace) if pipeline else nullcontext() as jobs,
        start_workers(processes, url, target.namespace) as workers,
    ):
        return _Run(client, workers, flights, view, jobs).play(processes)


@contextmanager
def _served(target: DemoTarget) -> Iterator[str]:
    if target.url is None:
        with EmbeddedRedis() as server:
            yield server.url
        return
    with Client(target.url, namespace=target.namespace) as client:
        store = parts_of(client).store
        reach(store)  # an unreachable server is reported before anything is started
        keys = NamespaceKeys(target.namespace)
        arguments = ("EXISTS", keys.settings, keys.topics, keys.groups)
        if store.run(Command("exists", (), (), int, arguments=arguments)):
            raise ConfigError(
                f"namespace {show(target.namespace)} is in use, and the demo would delete it: name"
                " another, or none"
            )
        try:
            yield target.url
        finally:
            for url in () if target.keep else parts_of(client).store.servers():
                with SyncStore(url) as server:
                    server.perform(delete_namespace(target.namespace))


class _Run:
    """One run; the workers are starting."""

    def __init__(
        self,
        client: Client,
        workers: Workers,
        flights: Sequence[Flight],
        view: View,
        jobs: Jobs | None,
    ) -> None:
        self._client = client
        self._workers = workers
        self._flights = flights
        self._view = view
        self._jobs = jobs
        self._keys = BookKeys(parts_of(client).settings.namespace)
        self._feed = Feed(client, self._look, jobs)
        self._moved = (0, 0, time.monotonic())

    def play(self, processes: int) -> Result:
        self._wait_for_workers(processes)
        if self._jobs is not None:
            self._keep_history()
            self._view.report("starting Spark, which ingests, archives and reports")
            self._answer(self._jobs.begin())
        started = time.monotonic()
        with self._view:
            self._feed.publish_all(self._flights)
            last = self._until(lambda now: now.unfinished == 0)
        seconds = time.monotonic() - started
        evidence = self._collect(last)
        proof = prove(self._flights, evidence)
        archived = self._archived()
        chosen = _choose(evidence.dead_claims)
        committed = self._redrive(chosen)
        return Result(len(self._flights), proof, seconds, len(chosen), committed, archived)

    def _archived(self) -> Archived | None:
        """The archive of all that happened so far, and its report."""
        if self._jobs is None:
            return None
        self._view.report("archiving the rest of the history, and reporting on it")
        events = self._answer(self._jobs.finish())
        return Archived(events, self._answer(self._jobs.report()))

    def _keep_history(self) -> None:
        """Keep enough history that nothing is trimmed before it is archived."""
        for topic in (FLIGHTS, ARRIVALS):
            self._client.admin.set_topic(topic, max_history_bytes=_HISTORY_BYTES)

    def _answer(self, under_way: Future[T]) -> T:
        while not under_way.done():
            self._workers.check()
            time.sleep(_LOOK_EVERY_S)
        return under_way.result()

    def _wait_for_workers(self, processes: int) -> None:
        until = time.monotonic() + _START_SECONDS
        while not self._all_here(processes):
            if time.monotonic() > until:
                raise RqretryError(f"the workers did not start within {_START_SECONDS:g} s")
            time.sleep(_LOOK_EVERY_S)

    def _all_here(self, processes: int) -> bool:
        self._workers.check()
        groups = {group.group: group for group in self._client.admin.stats().groups}
        return {BOOK_GROUP, CLAIMS_GROUP} <= groups.keys() and all(
            group.workers >= processes for group in groups.values()
        )

    def _look(self) -> Progress:
        self._workers.check()
        if self._jobs is not None:
            self._jobs.check()
        claims, book = (
            next(self._client.admin.stats(topic, group).groups)
            for topic, group in ((FLIGHTS, CLAIMS_GROUP), (ARRIVALS, BOOK_GROUP))
        )
        now = Progress(claims, book)
        self._view.show(now)
        self._check_that_it_moves(now)
        return now

    def _check_that_it_moves(self, now: Progress) -> None:
        unfinished, deliveries, since = self._moved
        leased = now.claims.counters.get("lease", 0) + now.book.counters.get("lease", 0)
        if self._feed.ingesting or (now.unfinished, leased) != (unfinished, deliveries):
            self._moved = (now.unfinished, leased, time.monotonic())
        elif now.unfinished and time.monotonic() - since > _STALLED_SECONDS:
            raise RqretryError(
                f"no progress for {_STALLED_SECONDS:g} s with {now.unfinished} messages unfinished;"
                " see the log of the Redis server"
            )

    def _until(self, reached: Callable[[Progress], bool]) -> Progress:
        while not reached(now := self._look()):
            time.sleep(_LOOK_EVERY_S)
        return now

    def _collect(self, last: Progress) -> Evidence:
        store, admin = parts_of(self._client).store, self._client.admin
        return Evidence(
            settled=store.perform(read_ledger(self._keys.settled)),
            booked=store.perform(read_ledger(self._keys.booked)),
            dead_claims=admin.dead_letters(CLAIMS_GROUP, bodies=False),
            dead_arrivals=admin.dead_letters(BOOK_GROUP, bodies=False),
            published=(self._feed.claims, self._feed.arrivals),
            last=last,
        )

    def _redrive(self, ids: Sequence[str]) -> int:
        """Publish missing arrivals, redrive the dead claims; how many of them are settled then."""
        if not ids:
            return 0
        self._feed.publish_arrivals(_made_up(id_) for id_ in ids)
        self._until(lambda now: now.unfinished == 0)
        self._client.admin.redrive(CLAIMS_GROUP, ids=ids)
        self._until(lambda now: now.unfinished == 0)
        settled = parts_of(self._client).store.perform(read_ledger(self._keys.settled))
        still_dead = {x.id for x in self._client.admin.dead_letters(CLAIMS_GROUP, bodies=False)}
        return len({effect.flight_id for effect in settled}.intersection(ids) - still_dead)


def _choose(dead: Sequence[DeadLetterRecord]) -> list[str]:
    """Ten of the dead claims: the first ones and the last ones."""
    ids = [record.id for record in dead]
    half = REDRIVEN // 2
    return ids if len(ids) <= REDRIVEN else ids[:half] + ids[-half:]


def _made_up(flight_id: str) -> dict[str, object]:
    return {"flight_id": flight_id, "arr_time": 1200, "arr_delay": 180, "air_time": 120}
