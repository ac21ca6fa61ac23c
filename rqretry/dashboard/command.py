"""`rqretry dashboard`."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from rqretry.cli.options import (
    host_option,
    port_option,
    server_command,
    target_of,
    trace_url_option,
    url_of,
)
from rqretry.cli.session import connected
from rqretry.cli.stop import stop_signals
from rqretry.cli.trace_option import otlp_option
from rqretry.client import AsyncClient
from rqretry.core.errors import ConfigError, show
from rqretry.core.parts import parts_of
from rqretry.core.settings import TOKEN_VARIABLE, variable
from rqretry.transport.store_sync import FIRST_REPEAT_SECONDS

_NEEDS = ("jinja2", "starlette", "uvicorn")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "::")  # noqa: S104 - what a user may give, with a token
_MIN_TOKEN = 16


@click.command(epilog="Example: rqretry dashboard --operator --port 8765")
@host_option
@port_option("--port", "The TCP port.", 8765)
@click.option("--operator", is_flag=True, help="Allow redrive, purge, pause and resume.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"The password for browsers; default {TOKEN_VARIABLE}, else none.",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A proxy in front terminates TLS; needed to listen beyond this machine.",
)
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Also answer requests for this host name (repeatable).",
)
@trace_url_option
@otlp_option
@server_command
def dashboard(context: click.Context, /, **given: Any) -> None:
    """Show topics, groups, dead letters and messages as web pages.

    It needs rqretry[dashboard]. It only reads, unless started with --operator.
    """
    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{missing[0]} is not installed: pip install 'rqretry[dashboard]'")
    _check_trace_url(given["trace_url"])
    _check_allowed(given["allowed"])
    token = _token(given["token_file"])
    _check_host(given["host"], token, behind_proxy=given["behind_proxy"])
    with connected(context) as client:
        namespace = parts_of(client).settings.namespace
    with closing(_listen(given["host"], given["port"])) as listening, stop_signals():
        address = url_of(given["host"], given["port"], "/")
        rights = "with operator rights" if given["operator"] else "read-only"
        shown = f"dashboard of namespace {namespace} ({rights}) at {address}"
        asyncio.run(_serve(context, listening, token, given, shown))


async def _serve(
    context: click.Context,
    listening: socket.socket,
    token: str | None,
    given: dict[str, Any],
    shown: str,
) -> None:
    """Serve; `shown` is printed once the pages are there."""
    # Of the extra; `rqretry --help` works without.
    from rqretry.dashboard.access import LOOPBACK, Rights  # noqa: PLC0415
    from rqretry.dashboard.http_server import make_server  # noqa: PLC0415
    from rqretry.dashboard.site import make_site  # noqa: PLC0415

    names = {name.lower() for name in (*given["allowed"], given["host"])} - set(_ANY)
    rights = Rights(operator=given["operator"], token=token, hosts=LOOPBACK | names)
    target = target_of(context)
    async with AsyncClient(target.url, namespace=target.namespace) as client:
        parts_of(client).store.repeat_seconds = FIRST_REPEAT_SECONDS
        site = make_site(client, rights, trace_url=given["trace_url"])
        server = make_server(site, lambda: click.echo(shown))
        await server.serve(sockets=[listening])


def _check_allowed(names: Sequence[str]) -> None:
    """Whether a Host header can name each of them."""
    from rqretry.dashboard.access import host_name  # noqa: PLC0415 - of the extra

    def fits(name: str | None) -> bool:
        bracketed = f"[{name}]" if name and ":" in name else name or ""
        return host_name([bracketed]) == (name or " ").lower()

    for name in names:
        if fits(name):
            continue
        try:
            meant = urlsplit(name if "//" in name else f"//{name}").hostname
        except ValueError:
            meant = None
        fix = show(meant) if fits(meant) else "one such as mq.example.com"
        raise click.UsageError(f"--allow-host {show(name)} is no host name alone: write {fix}")


def _token(file: Path | None) -> str | None:
    # What is no UTF-8 is not ASCII either, which is refused below.
    text = None if file is None else file.read_text("utf-8", errors="replace")
    token = variable(TOKEN_VARIABLE) if text is None else text.strip()
    if token is not None and (len(token) < _MIN_TOKEN or not token.isascii()):
        source = TOKEN_VARIABLE if file is None else show(str(file))
        raise ConfigError(f"the token of {source} must be at least {_MIN_TOKEN} ASCII characters")
    return token


def _check_host(host: str, token: str | None, *, behind_proxy: bool) -> None:
    if host in _LOOPBACK:
        return
    if token is None:
        raise ConfigError(
            f"--host {show(host)} is open to other machines: give --token-file too, or listen on"
            " 127.0.0.1"
        )
    if not behind_proxy:
        raise ConfigError(
            f"--host {show(host)} would send the token in the clear: put a proxy with TLS in front"
            " and say --behind-proxy, or listen on 127.0.0.1"
        )


def _check_trace_url(url: str | None) -> None:
    if url is not None and ("{trace_id}" not in url or not url.startswith(("http://", "https://"))):
        raise click.UsageError(f"--trace-url {show(url)} must be http(s) and contain {{trace_id}}")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"--port {port} cannot be opened on {show(host)} ({reason}): choose another"
        ) from error
