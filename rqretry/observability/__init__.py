"""The seam for tracing and metrics, the counters of a process, and log lines."""
