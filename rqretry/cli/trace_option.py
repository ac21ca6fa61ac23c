"""--otlp: tracing of the commands that publish, and of the worker."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rqretry.observability import observer
from rqretry.observability.trace_settings import TraceSettings, start_tracing, trace_settings

F = TypeVar("F", bound=Callable[..., Any])

_URL_HELP = (
    "Export traces to this OpenTelemetry collector or Jaeger, such as http://localhost:4318;"
    " default OTEL_EXPORTER_OTLP_ENDPOINT."
)


def otlp_option(command: F) -> F:
    """--otlp for a command that moves messages: it is traced from here to its end."""
    option = click.option(
        "--otlp", metavar="URL", expose_value=False, callback=_trace, help=_URL_HELP
    )
    return option(command)


def tasks_otlp_option(command: F) -> F:
    """--otlp for a command whose work is done by tasks of Spark."""
    return click.option("--otlp", metavar="URL", help=_URL_HELP)(command)


def worker_trace_options(command: F) -> F:
    """--otlp, --one-trace and --keep-failures, for `traced_workers`."""
    otlp = click.option("--otlp", metavar="URL", help=_URL_HELP)
    one_trace = click.option(
        "--one-trace",
        is_flag=True,
        help="All attempts in the trace of the publish; default later ones are linked to it.",
    )
    keep = click.option(
        "--keep-failures",
        is_flag=True,
        help="Export failed attempts regardless of OTEL_TRACES_SAMPLER.",
    )
    return otlp(one_trace(keep(command)))


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
