"""--otlp: tracing of the commands that publish, and of the worker."""

from typing import Any

import click

from rqretry.cli.options import grouped
from rqretry.observability import observer
from rqretry.observability.trace_settings import TraceSettings, start_tracing, trace_settings

_URL_HELP = (
    "Export traces to this OpenTelemetry collector or Jaeger, such as http://localhost:4318;"
    " default OTEL_EXPORTER_OTLP_ENDPOINT."
)


tasks_otlp_option = click.option("--otlp", metavar="URL", help=_URL_HELP)
"""--otlp for a command whose work is done by tasks of Spark."""
worker_trace_options = grouped(
    tasks_otlp_option,
    click.option(
        "--one-trace",
        is_flag=True,
        help="All attempts in the trace of the publish; default later ones are linked to it.",
    ),
    click.option(
        "--keep-failures",
        is_flag=True,
        help="Export failed attempts regardless of OTEL_TRACES_SAMPLER.",
    ),
)
"""--otlp, --one-trace and --keep-failures, for `traced_workers`."""


def traced_workers(given: dict[str, Any], service: str) -> TraceSettings | None:
    """What the options of `worker_trace_options` and the environment ask for."""
    settings = trace_settings(
        given["otlp"],
        service=service,
        one_trace=given["one_trace"],
        keep_failures=given["keep_failures"],
    )
    if settings is None:
        for name in ("one_trace", "keep_failures"):
            if given[name]:
                option = f"--{name.replace('_', '-')}"
                raise click.UsageError(f"{option} does nothing without --otlp: give both")
    return settings


def _trace(context: click.Context, _parameter: click.Parameter, url: str | None) -> None:
    if context.resilient_parsing:
        return
    settings = trace_settings(url, service="rqretry")
    if settings is not None:
        start_tracing(settings)
        context.call_on_close(observer.stop)


otlp_option = click.option(
    "--otlp", metavar="URL", expose_value=False, callback=_trace, help=_URL_HELP
)
"""--otlp for a command that moves messages: it is traced from here to its end."""
