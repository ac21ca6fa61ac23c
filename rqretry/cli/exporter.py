"""rqretry exporter: the numbers of status for Prometheus, once per system."""

import threading
import time
from contextlib import suppress

import click

from rqretry.admin.series import SeriesWriter
from rqretry.cli.idle_series import IdleGroups
from rqretry.cli.metrics import render
from rqretry.cli.options import host_option, port_option, server_command, url_of
from rqretry.cli.session import connected
from rqretry.client import Client
from rqretry.core.parts import parts_of
from rqretry.supervision.metrics_port import PATH, open_server
from rqretry.transport.store_sync import FIRST_REPEAT_SECONDS
from rqretry.worker.stop_signals import Stoppable, StoppedEarly

CACHED_S = 1.0
_POLL_S = 0.2


@click.command(epilog="Example: rqretry exporter --port 9464")
@port_option("--port", "The TCP port.", 9464)
@host_option
@click.option("--all", "all_", is_flag=True, help="Export idle groups and topics, too.")
@server_command
def exporter(context: click.Context, *, port: int, host: str, all_: bool) -> None:
    """Serve metrics of groups, dead letters and workers.

    It answers GET /metrics with the depth of every state, lag, dead letters and workers. One for
    each namespace is enough. The numbers are as of the scrape, at most a second old; while Redis is
    away a scrape is answered with 503. Groups that have no messages and have done nothing for ten
    minutes are left out, and counted.
    """
    with suppress(StoppedEarly), Stoppable(), connected(context) as client:
        parts_of(client).store.repeat_seconds = FIRST_REPEAT_SECONDS
        server = open_server(
            host, port, Metrics(client, None if all_ else IdleGroups()).text, "--port"
        )
        with server:
            namespace = parts_of(client).settings.namespace
            click.echo(f"metrics of namespace {namespace} at {url_of(host, port, PATH)}")
            server.serve_forever(_POLL_S)


class Metrics:
    """The text of a scrape, read at most once a second."""

    def __init__(self, client: Client, idle: IdleGroups | None = None) -> None:
        self._client = client
        self._idle = idle
        self._series = SeriesWriter()
        self._lock = threading.Lock()
        self._text = ""
        self._until = 0.0

    def text(self) -> str:
        """Raises RqretryError if the server does not answer."""
        with self._lock:
            if time.monotonic() >= self._until:
                fault = parts_of(self._client).store.look()
                stats, idle = self._client.admin.stats(), 0
                store, context = parts_of(self._client.admin)
                store.perform(self._series.round(context, stats))
                if self._idle is not None:
                    stats, idle = self._idle.left_out(stats)
                self._text = render(stats, evicts=fault is not None, idle=idle)
                self._until = time.monotonic() + CACHED_S
            return self._text
