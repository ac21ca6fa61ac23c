"""rqretry on Spark: `session` and `RqretryDataSource`, and the jobs of the data pipeline.

Needs the extra `rqretry[spark]`. Options, columns and guarantees: docs/spark.md.
"""

from rqretry.edge.spark.archive import ArchiveSummary, archive
from rqretry.edge.spark.ingest import IngestSummary, ingest
from rqretry.edge.spark.lags import Lag
from rqretry.edge.spark.plainly import DataLoss
from rqretry.edge.spark.redriving import RedriveSummary, redrive
from rqretry.edge.spark.reporting import ReportSummary, report
from rqretry.edge.spark.sessions import session
from rqretry.edge.spark.simulating import SimulationSummary, simulate
from rqretry.edge.spark.source import RqretryDataSource

__all__ = [
    "ArchiveSummary",
    "DataLoss",
    "IngestSummary",
    "Lag",
    "RedriveSummary",
    "ReportSummary",
    "RqretryDataSource",
    "SimulationSummary",
    "archive",
    "ingest",
    "redrive",
    "report",
    "session",
    "simulate",
]
