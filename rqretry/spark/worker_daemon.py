"""The process from which Spark forks its Python workers, with all that they import loaded once.

Spark's own loads nothing, so that every worker takes about a second of CPU to load the same.
"""

import gc

import pyspark.worker
from pyspark import daemon

from rqretry.spark import archive_job, ingest_job, simulate_job, source

NEEDED = (pyspark.worker, archive_job, ingest_job, simulate_job, source)

if __name__ == "__main__":
    gc.freeze()  # what is loaded is never garbage; traversing it would copy it for each worker
    daemon.manager()
