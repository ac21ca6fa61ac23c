"""Whether and how this program traces: `--otlp` and the OTEL_* variables, read in one place."""

import logging
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rqretry.core.errors import ConfigError, show
from rqretry.core.settings import variable

log = logging.getLogger("rqretry")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SETUP = "rqretry.otel.setup"
_NEEDS = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_INSTALL = "pip install 'rqretry[otel]'"


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """How a process traces; picklable.

    Attributes:
        endpoint: The collector's URL; None for what the environment says.
        service: service.name, where the environment gives none.
        one_trace: All attempts of a message in the trace of its publish.
        keep_failures: Export failed attempts whatever the sampler says.
    """

    endpoint: str | None = None
    service: str = "rqretry"
    one_trace: bool = False
    keep_failures: bool = False


def trace_settings(
    otlp: str | None, *, service: str, one_trace: bool = False, keep_failures: bool = False
) -> TraceSettings | None:
    """What `--otlp` and the environment ask for; None for no tracing.

    Raises:
        ConfigError: The URL cannot work, or tracing is asked for and the SDK is not installed.
    """
    if otlp is None and not any(variable(name) for name in ENDPOINTS):
        return None
    if otlp is not None and not otlp.startswith(("http://", "https://")):
        raise ConfigError(f"--otlp {show(otlp)} must be a URL such as http://localhost:4318")
    if not all(_has(module) for module in _NEEDS):
        if otlp is not None:
            raise ConfigError(f"--otlp {show(otlp)} needs OpenTelemetry: {_INSTALL}")
        log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set and OpenTelemetry is missing: %s", _INSTALL)
        return None
    return TraceSettings(otlp, service, one_trace, keep_failures)


def start_tracing(settings: TraceSettings | None) -> None:
    """Trace this process from now on. None: do not."""
    if settings is not None:
        setup: Any = import_module(_SETUP)
        setup.start(settings)


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
