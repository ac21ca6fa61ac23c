"""rqretry on Spark: `session` and `RqretryDataSource`, and the jobs of the data pipeline.

Needs the extra `rqretry[spark]`. Options, columns and guarantees: docs/spark.md. The names are
imported when they are first used, so that a Python worker of Spark loads only what it needs.
"""

from rqretry.core.lazy_exports import attributes

_MODULES = {
    "ArchiveSummary": "rqretry.spark.archive_job",
    "archive": "rqretry.spark.archive_job",
    "DataLoss": "rqretry.spark.error_messages",
    "IngestSummary": "rqretry.spark.ingest_job",
    "ingest": "rqretry.spark.ingest_job",
    "Lag": "rqretry.spark.lag",
    "RedriveSummary": "rqretry.spark.redrive_job",
    "redrive": "rqretry.spark.redrive_job",
    "ReportSummary": "rqretry.spark.report_job",
    "report": "rqretry.spark.report_job",
    "session": "rqretry.spark.sessions",
    "SimulationSummary": "rqretry.spark.simulate_job",
    "simulate": "rqretry.spark.simulate_job",
    "RqretryDataSource": "rqretry.spark.source",
}

__all__ = [*_MODULES]  # noqa: PLE0604 - the stub has them one by one

__getattr__, __dir__ = attributes(__name__, _MODULES)
