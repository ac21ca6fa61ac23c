"""The data pipeline on Spark: a data source, and jobs over it; `rqretry.spark` is its front."""
