"""Tracing and metrics through OpenTelemetry (the extra `rqretry[otel]`; design.md section 7)."""
