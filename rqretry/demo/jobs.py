"""The data pipeline beside the demo: ingest from Parquet, archive meanwhile, report at the end.

All calls into Spark are made in threads of this module. The main thread only polls their futures,
so the live view continues, and Ctrl-C ends the demo as it does without Spark.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from rqretry.core.errors import ConfigError, show
from rqretry.demo.feed import Pace
from rqretry.demo.flights import ARRIVAL_COLUMNS, CLAIM_COLUMNS, TEXT_COLUMNS, Flight
from rqretry.demo.proof import ArchiveReport
from rqretry.demo.topology import ARRIVALS, CLAIMS_GROUP, FLIGHTS
from rqretry.spark.archive_job import archive
from rqretry.spark.ingest_job import ingest
from rqretry.spark.report_job import PAGE, ReportSummary, report

_MASTER = "local[4]"
"""More tasks at once than the archive has: an ingest never waits until it has written a batch."""
_SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "8"}
_INTERVAL_S = 2
_MOST_EVENTS = 200_000
_MARKER = ".rqretry-demo"
_FILES, _ARCHIVE, _REPORT = "flights", "archive", "report"
_ID, _DELAY = "flight_id", "known_after_seconds"
_SOONEST_S, _LATEST_S = 1, 8
"""An arrival is known when its claim has come, or a little later, so that many a claim fails at
first; but long before the ladder of a claim ends."""

OpenSession = Callable[[str, str, dict[str, str]], SparkSession]
"""Opens a session: the name of the program, the master, settings."""


class SparkJobs:
    """The jobs of one run, in the order in which they are asked for; each answers with a future.

    Args:
        open_session: As `rqretry.spark.sessions.session`.
        folder: Empty; flights, archive and report go there.
        url, namespace: Where the demo runs.
    """

    pace = Pace(seconds=2.0, first=2_000, smallest=1_000, largest=20_000)

    def __init__(self, open_session: OpenSession, folder: Path, url: str, namespace: str) -> None:
        self._open_session = open_session
        self._folder = folder
        self._where: dict[str, Any] = {"url": url, "namespace": namespace}
        self._all_done, self._closed = threading.Event(), threading.Event()
        self._threads = ThreadPoolExecutor(2, "rqretry-demo-spark")
        self._spark: Future[SparkSession] = Future()
        self._following: Future[int] | None = None
        self._files = 0
        self._claims_took = 0.0

    def begin(self) -> Future[None]:
        """Start Spark, and archive what happens from now on."""

        def follow() -> None:
            spark = _start(self._open_session)
            self._spark.set_result(spark)
            self._following = self._threads.submit(self._archive, spark, follow=True)

        return self._threads.submit(follow)

    def check(self) -> None:
        """Raises the error that ended the archiving, if any."""
        if self._following is not None and self._following.done():
            self._following.result()

    def arrivals(self, flights: Sequence[Flight]) -> Future[int]:
        """Publish arrivals from a Parquet file, whose rows say when they will be known."""
        delay = min(_LATEST_S, max(_SOONEST_S, int(self._claims_took)))
        rows = ({**arrival, _DELAY: delay} for arrival in map(_arrival, flights))
        columns = (*ARRIVAL_COLUMNS, _DELAY)
        return self._threads.submit(self._ingest, rows, ARRIVALS, columns, _DELAY)

    def claims(self, flights: Sequence[Flight]) -> Future[int]:
        """Publish claims from a Parquet file."""

        def publish() -> int:
            rows = ({_ID: flight.id, **flight.claim} for flight in flights)
            start = time.monotonic()
            published = self._ingest(rows, FLIGHTS, CLAIM_COLUMNS)
            self._claims_took = time.monotonic() - start
            return published

        return self._threads.submit(publish)

    def finish(self) -> Future[int]:
        """Archive the rest; answers how many events the archive has."""

        def rest() -> int:
            assert self._following is not None
            self._all_done.set()
            return self._following.result() + self._archive(self._spark.result(), follow=False)

        return self._threads.submit(rest)

    def report(self) -> Future[ArchiveReport]:
        """Report on the archive."""

        def ask() -> ArchiveReport:
            folder = self._folder / _REPORT
            found = report(self._spark.result(), str(folder), str(self._folder / _ARCHIVE))
            return report_summary(found, folder / PAGE)

        return self._threads.submit(ask)

    def close(self) -> None:
        """Stop the jobs, and Spark."""
        self._all_done.set()
        self._closed.set()
        if self._spark.done():
            self._quietly(lambda spark: spark.sparkContext.cancelAllJobs())
        self._threads.shutdown(cancel_futures=True)
        self._quietly(lambda spark: spark.stop())

    def _quietly(self, act: Callable[[SparkSession], None]) -> None:
        with suppress(Exception):  # the jobs themselves raise what went wrong
            act(self._spark.result(timeout=0))

    def _archive(self, spark: SparkSession, *, follow: bool) -> int:
        summary = archive(
            spark,
            str(self._folder / _ARCHIVE),
            **self._where,
            follow=follow,
            interval=_INTERVAL_S,
            max_events=_MOST_EVENTS,
            stop=(self._all_done if follow else self._closed).is_set,
        )
        return summary.events

    def _ingest(
        self,
        rows: Iterable[Mapping[str, object]],
        topic: str,
        columns: Sequence[str],
        delay: str | None = None,
    ) -> int:
        """Write a file as an airline would, and publish its rows; each once, by its id."""
        self._files += 1
        file = self._folder / _FILES / f"{topic}-{self._files:04}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows), _schema(columns)), file)
        done = ingest(self._spark.result(), str(file), topic, id=_ID, delay=delay, **self._where)
        return done.published + done.known


@contextmanager
def spark_jobs(
    open_session: OpenSession, folder: Path, url: str, namespace: str
) -> Iterator[SparkJobs]:
    """The jobs of one run; Spark starts, and is gone at the end."""
    jobs = SparkJobs(open_session, folder, url, namespace)
    try:
        yield jobs
    finally:
        jobs.close()


def make_room(folder: Path) -> Path:
    """Empty a folder that an earlier demo wrote, or make one; answers its absolute path.

    Raises:
        ConfigError: It holds something else.
    """
    marker = folder / _MARKER
    try:
        if folder.exists() and not marker.exists() and any(folder.iterdir()):
            raise ConfigError(
                f"the folder {show(str(folder))} has files that no demo wrote: name an empty one"
            )
        for name in (_FILES, _ARCHIVE, _REPORT):
            shutil.rmtree(folder / name, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise ConfigError(
            f"the folder {show(str(folder))} cannot be written ({error.strerror}): name another"
        ) from error
    return folder.absolute()


def report_summary(found: ReportSummary, page: Path) -> ArchiveReport:
    """The claims in a report."""
    return ArchiveReport(
        page,
        {str(row["example"]): row["dead"] for row in found.dead if row["group"] == CLAIMS_GROUP},
        {
            row["attempt"]: row["succeeded"]
            for row in found.attempts
            if row["group"] == CLAIMS_GROUP and row["succeeded"]
        },
    )


def _arrival(flight: Flight) -> Mapping[str, object]:
    assert flight.arrival is not None
    return flight.arrival


def _schema(columns: Sequence[str]) -> pa.Schema:
    types = {name: pa.string() if name in TEXT_COLUMNS else pa.int32() for name in columns}
    return pa.schema({_ID: pa.string(), **types})


def _start(open_session: OpenSession) -> SparkSession:
    """A session whose first Python worker has started, so that the first ingest is a quick one."""
    spark = open_session("rqretry demo", _MASTER, _SETTINGS)
    spark.range(1).mapInArrow(_same, "id long").collect()
    return spark


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
