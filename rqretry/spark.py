"""rqretry on Spark: `session` and `RqretryDataSource`, and the jobs of the data pipeline.

Needs the extra `rqretry[spark]`. Options, columns and guarantees: docs/spark.md.
"""

from rqretry.edge.spark.sessions import session
from rqretry.edge.spark.source import RqretryDataSource

__all__ = ["RqretryDataSource", "session"]
