"""A Spark session that is ready to use: a Java, this Python, a quiet log, and the data source."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from rqretry.spark.error_messages import first_line, plain_failures, plain_on_driver
from rqretry.spark.java import prepare_environment
from rqretry.spark.source import RqretryDataSource

DEFAULT_MASTER = "local[*]"
_LOG_SETTINGS = "log4j2.properties"
_QUERIES = "SQLQueryContextLogger"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "rqretry.spark.worker_daemon",
}
_DEFAULTS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.authenticate.socketTimeout": "60s",  # a busy machine starts Python slowly
}
_HEAP = {"spark.driver.memory", "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"}
_SMALL_HEAP = "512m"
_SMALL = {"spark.driver.defaultJavaOptions": "-XX:+UseSerialGC"}


_starting = threading.Event()


def session(
    name: str = "rqretry", master: str | None = None, config: dict[str, str] | None = None
) -> SparkSession:
    """The running Spark session, or a new one, with the data source `rqretry` registered.

    Args:
        name: What the application is called where Spark lists it.
        master: Where it runs, such as "spark://host:7077"; default "local[*]", and under
            spark-submit what that was given.
        config: Settings of Spark, which win over those made here.

    Raises:
        ConfigError: There is no Java.
    """
    prepare_environment()
    settings = dict(_DEFAULTS)
    chosen = master or (None if _SUBMITTED in os.environ else DEFAULT_MASTER)
    builder = SparkSession.builder.appName(name)
    if chosen is not None:
        builder = builder.master(chosen)
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_log_settings()}"
    if chosen is not None and chosen.startswith("local"):
        settings |= _LOCAL
    for key, value in (settings | (config or {})).items():
        builder = builder.config(key, value)
    _starting.set()
    try:
        with plain_on_driver():
            spark = builder.getOrCreate()
    finally:
        _starting.clear()
    spark.dataSource.register(RqretryDataSource)
    sys.excepthook = first_line(sys.__excepthook__)
    return spark


def _outlive_signals() -> None:
    """In the process that becomes Java: a signal to all processes is for the driver to handle.

    Java ends when its driver does.
    """
    if _starting.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


os.register_at_fork(after_in_child=_outlive_signals)


@contextmanager
def session_for(
    name: str, master: str | None = None, config: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for one job, which ends with it. Raises ConfigError where Spark fails.

    On this machine its Java has a heap of 512 MiB, unless Spark's settings name another size.
    """
    # It logs errors of queries, with Java's stack, before it raises them.
    PySparkLogger.getLogger(_QUERIES).setLevel(logging.CRITICAL)
    with plain_failures():
        spark = session(name, master, _sparing(master or DEFAULT_MASTER, config or {}))
        try:
            yield spark
        finally:
            spark.stop()


def _sparing(master: str, config: dict[str, str]) -> dict[str, str]:
    """A job on this machine has a small Java, unless it was said what Java it should have.

    The heap is set where spark-defaults.conf and `spark.driver.memory` win over it. With two
    arenas, Java's threads do not each keep memory that they have freed.
    """
    given = "SPARK_DRIVER_MEMORY" in os.environ or not _HEAP.isdisjoint(config)
    if given or not master.startswith("local"):
        return config
    os.environ["SPARK_DRIVER_MEMORY"] = _SMALL_HEAP
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    return _SMALL | config


def _log_settings() -> Path:
    source = resources.files("rqretry.spark").joinpath(_LOG_SETTINGS)
    return Path(str(source))
