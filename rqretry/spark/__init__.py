"""rqretry on Spark: `session` and `RqretryDataSource`, and the jobs of the data pipeline.

Needs the extra `rqretry[spark]`. Options, columns and guarantees: docs/spark.md. The names are
imported when they are first used, so that a Python worker of Spark loads only what it needs.
"""

from rqretry.core.lazy_exports import attributes

__all__, __getattr__, __dir__ = attributes(__name__)
