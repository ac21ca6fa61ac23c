"""report: statistics of a topic's groups from its history, as Parquet tables and an HTML page."""

import io
import math
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rqretry.core.durations import epoch_ms
from rqretry.core.errors import ConfigError, InvalidArgument, refuse, show
from rqretry.spark.archive_delta import LOG, DeltaArchive
from rqretry.spark.archive_files import SUFFIX, ParquetFiles
from rqretry.spark.error_messages import plain_on_driver
from rqretry.spark.hadoop_folder import HadoopFolder
from rqretry.spark.options import ALL_TOPICS, given_options
from rqretry.spark.queries import DELIVERIES, EVENTS, MESSAGES, TABLES
from rqretry.spark.report_changes import compared
from rqretry.spark.report_page import page

PAGE = "report.html"
_URL = re.compile(r"https?://[^\s\"'<>]+")
Rows = list[dict[str, Any]]


@dataclass(slots=True)
class ReportSummary:
    """What a report found; the rows of each table, as in its Parquet file.

    Attributes:
        output: The folder with the tables and report.html.
        groups: Of each group: deliveries, amplification, dead, time of handlers, wasted time; the
            slowest first. Times are seconds.
        attempts: Of each group and attempt: deliveries and how they ended.
        times: Percentiles of waiting, handling and time to success, and the longest one's message.
        dead: Dead letters by fingerprint of the last error, with examples.
        costs: Of each group: retries, messages that they `recovered` or retried `in_vain`, their
            handlers' seconds, and with a price of an hour the `cost`.
        hours: Of each group and hour: deliveries, how many failed, and their ids; the worst first.
        dependencies: Failures by the host that the error names, or else by its type, with ids.
        losses: Where entries of the history are missing, or were written anew over lost ones.
        changes: Of each group and error what died, and of each group what was delivered and wasted,
            beside the same in the time before (`_before`); what got worse first. Only with compare.
    """

    output: str
    groups: Rows = field(default_factory=list)
    attempts: Rows = field(default_factory=list)
    times: Rows = field(default_factory=list)
    dead: Rows = field(default_factory=list)
    costs: Rows = field(default_factory=list)
    hours: Rows = field(default_factory=list)
    dependencies: Rows = field(default_factory=list)
    losses: Rows = field(default_factory=list)
    changes: Rows = field(default_factory=list)


def report(  # noqa: PLR0913 - options by name
    spark: SparkSession,
    output: str,
    archive: str | None = None,
    topics: str = ALL_TOPICS,
    *,
    url: str | None = None,
    namespace: str | None = None,
    since: datetime | float | None = None,
    until: datetime | float | None = None,
    compare: bool = False,
    hourly_cost: float | None = None,
    dashboard: str | None = None,
) -> ReportSummary:
    """Report on the deliveries of an archive, or on those that Redis still has.

    Args:
        spark: The session to run on.
        output: A folder for the tables and the page; those of an earlier report are replaced.
        archive: The folder that `archive` writes; default the history in Redis.
        topics: A topic, several as "a,b", or "*" for all.
        url: The server, where no archive is given.
        namespace: The namespace, where no archive is given.
        since: Only events from this time on (an aware datetime, or seconds since the epoch).
        until: Only events before this time.
        compare: Also compare with as long a time before `since`; both times must be given.
        hourly_cost: What an hour of a handler costs, in any currency.
        dashboard: The URL of a dashboard; message ids of the page are links to it.

    Raises:
        InvalidArgument: A time is not one, compare has nothing to compare, the cost is negative, or
            the dashboard is no http URL.
        ConfigError: There is no archive there, or the folder cannot be written.
        TopicNotFound, StoreUnavailable: There is nothing to read from.
    """
    options = given_options(url=url, namespace=namespace, topic=topics)
    before = time_before(since, until) if compare else None
    hourly = None if hourly_cost is None else _checked_cost(hourly_cost)
    links = None if dashboard is None else _checked_url(dashboard)
    with plain_on_driver():
        if archive is None:
            history = spark.read.format("rqretry").options(**options).load()
        else:
            history = open_archive(spark, archive, topics)
        tables = _ask(spark, within(history, since, until), hourly)
        if before is not None:
            tables["changes"] = compared(tables, _ask(spark, within(history, *before), hourly))
        folder = HadoopFolder(spark, output)
        found = {name: table.to_pylist() for name, table in tables.items()}
        _write(folder, tables, page(found, archive or "the history in Redis", links))
    return ReportSummary(output, **found)


def open_archive(spark: SparkSession, archive: str, topics: str = ALL_TOPICS) -> DataFrame:
    """The history that an archive holds. Raises ConfigError."""
    folder = HadoopFolder(spark, archive)
    kept = (DeltaArchive if folder.has(LOG) else ParquetFiles)(spark, folder)
    rows = kept.rows()
    if rows is None:
        raise ConfigError(
            f"there is no archive in {show(archive)}: write one with rqretry pipeline archive"
        )
    if topics == ALL_TOPICS:
        return rows
    return rows.where(rows.topic.isin([name.strip() for name in topics.split(",")]))


def within(
    history: DataFrame, since: datetime | float | None, until: datetime | float | None
) -> DataFrame:
    """The events from one time on and before another. Raises InvalidArgument."""
    at = fn.unix_millis("event_time")
    if since is not None:
        history = history.where(at >= epoch_ms("since", since))
    if until is not None:
        history = history.where(at < epoch_ms("until", until))
    return history


def time_before(
    since: datetime | float | None, until: datetime | float | None
) -> tuple[float, float]:
    """As long a time before another. Raises InvalidArgument."""
    if since is None or until is None:
        raise InvalidArgument("compare needs a time to compare: give since and until, too")
    begin, end = epoch_ms("since", since), epoch_ms("until", until)
    if begin >= end:
        refuse("until", until, f"must be after since {show(since)}")
    return (2 * begin - end) / 1000, begin / 1000


def _checked_cost(value: float) -> float:
    if not 0 <= value < math.inf:
        refuse("hourly_cost", value, "must be a number that is not negative")
    return float(value)


def _checked_url(value: str) -> str:
    if not _URL.fullmatch(value):
        refuse("dashboard", value, "must be a URL such as http://127.0.0.1:8080")
    return value.rstrip("/")


def _ask(spark: SparkSession, history: DataFrame, hourly: float | None) -> dict[str, pa.Table]:
    """Every table, of the same events."""
    events = spark.sql(EVENTS, history=history).persist()
    deliveries = spark.sql(DELIVERIES, events=events).persist()
    messages = spark.sql(MESSAGES, events=events).persist()
    kept: dict[str, Any] = {"events": events, "deliveries": deliveries, "messages": messages}
    cost = "CAST(NULL AS DOUBLE)" if hourly is None else f"{hourly!r}D"
    try:
        return {
            name: spark.sql(query.replace("{hourly}", cost), **kept).toArrow()
            for name, query in TABLES.items()
        }
    finally:
        for frame in kept.values():
            frame.unpersist()


def _write(folder: HadoopFolder, tables: dict[str, pa.Table], text: str) -> None:
    for name, table in tables.items():
        content = io.BytesIO()
        pq.write_table(table, content, compression="zstd")
        folder.write(name + SUFFIX, content.getvalue())
    folder.write(PAGE, text.encode())
