"""`rqretry gateway`."""

import asyncio
import socket
import ssl
import sys
from contextlib import closing, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

import click

from rqretry.cli.options import Target, Whole, server_command, target_of
from rqretry.cli.session import connected
from rqretry.cli.trace_option import tasks_otlp_option
from rqretry.core.errors import ConfigError, show
from rqretry.core.parts import parts_of
from rqretry.core.settings import URL_VARIABLE
from rqretry.gateway.processes import run_processes
from rqretry.observability import observer
from rqretry.observability.log_format import LogSettings, default_format, set_up_logging
from rqretry.observability.trace_settings import start_tracing, trace_settings
from rqretry.testing.embedded_redis import EmbeddedRedis

_NEEDS = {"grpc": "grpcio", "google.protobuf": "protobuf", "cryptography": "cryptography"}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BACKLOG = 1024
_PRIVATE = """\
server   {}, private: it forgets everything at the end
programs export {}={}"""


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:  # noqa: PLR2004 - ports
        raise click.UsageError(f"{name} {show(text)} must be HOST:PORT, such as 127.0.0.1:8081")
    return host.strip("[]"), int(port)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog="Example: rqretry gateway --redis embedded --auto-create")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8081",
    show_default=True,
    help="Where clients connect; TLS and plain text on one port.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="What routes name; default the address that the client used.",
)
@click.option("--processes", type=Whole(1, 64), default=1, show_default=True, metavar="N",
              help="So many processes share the port.")  # fmt: skip
@click.option("--tls-cert", type=_FILE, metavar="FILE",
              help="A PEM certificate; default a self-signed one, made at the start.")  # fmt: skip
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key, if it is in another file.")
@click.option("--access-keys", type=_FILE, metavar="FILE",
              help="Lines of an access key and its secret; calls must be signed.")  # fmt: skip
@click.option("--anonymous", is_flag=True,
              help="Serve other machines without access keys.")  # fmt: skip
@click.option("--auto-create", is_flag=True,
              help="Create unknown topics and groups, as in tests.")  # fmt: skip
@click.option("--redis", type=click.Choice(["embedded"]),
              help="Start a private Redis, which ends with the gateway.")  # fmt: skip
@tasks_otlp_option
@server_command
def gateway(context: click.Context, /, **given: Any) -> None:
    """Serve RocketMQ 5 clients of any language.

    It needs rqretry[gateway]. Without --access-keys it listens on this machine alone.
    """
    for module, package in _NEEDS.items():
        if not _is_there(module):
            raise ConfigError(f"{package} is not installed: pip install 'rqretry[gateway]'")
    host, port = _address("--listen", given["listen"])
    named = given["advertise"]
    advertise = None if named is None else _address("--advertise", named)
    if host not in _LOOPBACK and not given["access_keys"] and not given["anonymous"]:
        raise ConfigError(
            f"--listen {show(given['listen'])} is open to other machines: give --access-keys, or"
            " say --anonymous"
        )
    if given["tls_key"] and not given["tls_cert"]:
        raise click.UsageError("--tls-key is given without --tls-cert: give both")
    keys, tls = _secrets(host, given)
    where = target_of(context)
    if given["redis"] and where.url is not None:
        raise click.UsageError("--redis embedded cannot be given with --url: keep one")
    set_up_logging(LogSettings(default_format(sys.stderr), "info", tracebacks=True))
    with EmbeddedRedis() if given["redis"] else nullcontext() as server:
        where.url = where.url if server is None else server.url
        with connected(context) as client:
            settings = parts_of(client).settings
        with closing(_listen(host, port)) as listening:
            click.echo(f"gateway of namespace {settings.namespace} at {given['listen']}")
            if server is not None:
                click.echo(_PRIVATE.format(server, URL_VARIABLE, quote(server.url)))
            serve = partial(_serve, listening, where, (keys, tls, advertise), given)
            if given["processes"] == 1:
                serve()
            else:
                run_processes(given["processes"], serve)


def _serve(
    listening: socket.socket,
    where: Target,
    terms: tuple[Any, ssl.SSLContext, tuple[str, int] | None],
    given: dict[str, Any],
) -> None:
    """One process. gRPC is imported after the fork, which it would not survive."""
    from rqretry.gateway.run import Options, run  # noqa: PLC0415
    from rqretry.supervision.worker_process import loop_factory  # noqa: PLC0415

    tracing = trace_settings(given["otlp"], service="rqretry")
    if tracing is not None:
        start_tracing(tracing)
    options = Options(where.url, where.namespace, *terms, create=given["auto_create"])
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run(listening, options))
    finally:
        observer.stop()


def _secrets(host: str, given: dict[str, Any]) -> tuple[Any, ssl.SSLContext]:
    """The access keys and the certificate; of the extra, so `rqretry --help` works without."""
    from rqretry.gateway.access import AccessKeys  # noqa: PLC0415
    from rqretry.gateway.certificate import tls_context  # noqa: PLC0415

    path = given["access_keys"]
    keys = AccessKeys({}) if path is None else AccessKeys.read(path)
    return keys, tls_context(given["tls_cert"], given["tls_key"], host)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its parent
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"--listen {show(host)}:{port} cannot be opened ({reason}): choose another"
        ) from error
