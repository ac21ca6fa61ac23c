"""rqretry worker: run the handlers of an app in one or more processes."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from rqretry.app import App
from rqretry.doctor import Finding, check, refused
from rqretry.edge.cli.banner import print_banner
from rqretry.edge.cli.options import duration, server_options
from rqretry.edge.cli.session import connect, target_of
from rqretry.embedded import EmbeddedRedis
from rqretry.errors import StoreUnavailable, UnsafeServer
from rqretry.loading import load_app, require_consumers
from rqretry.registry import MAX_CONCURRENCY
from rqretry.supervisor import supervise

MAX_PROCESSES = 256


@click.command(epilog="Example: rqretry worker shop.billing:app --processes 2")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    default=1,
    show_default=True,
    help="Worker processes.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_CONCURRENCY),
    metavar="N",
    help="Attempts at once per handler and process; default what each handler says.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    default="25s",
    show_default=True,
    callback=duration(),
    help="How long running handlers may go on after SIGTERM.",
)
@click.option("--app-dir", metavar="DIR", default=".", show_default=True, help="Where MODULE is.")
@click.option(
    "--redis",
    type=click.Choice(["embedded"]),
    help="Start a private Redis that ends with the worker.",
)
@click.option("--strict", is_flag=True, help="Refuse to start where doctor only warns, too.")
@server_options
@click.pass_context
def worker(context: click.Context, /, target: str, **given: Any) -> int:
    """Run the handlers of APP, a variable of MODULE, until a signal stops them.

    SIGTERM or Ctrl-C stops leasing, gives back what has not started, and lets running handlers
    end within the grace period; a second signal is immediate.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    where = target_of(context)
    if given["redis"] and where.url is not None:
        raise click.UsageError("--redis embedded cannot be given with --url: keep one")
    where.settings()
    app = load_app(target, given["app_dir"])
    require_consumers(app, target, given["app_dir"])
    with _server(given["redis"], where.url) as url:
        app.configure(url, where.namespace)
        _start(app, embedded=given["redis"] is not None, given=given)
        return supervise(
            target,
            app_dir=given["app_dir"],
            processes=given["processes"],
            concurrency=given["concurrency"],
            grace=given["grace"],
            url=url,
            namespace=where.namespace,
        )


@contextmanager
def _server(redis: str | None, url: str | None) -> Iterator[str | None]:
    """The URL to use; with `redis`, of a server that lives as long as this block."""
    if redis is None:
        yield url
        return
    with EmbeddedRedis() as server:
        yield server.url


def _start(app: App, *, embedded: bool, given: dict[str, Any]) -> None:
    """Say what the worker will do. Raises UnsafeServer where it must not start."""
    client = app.client
    reached, findings = True, list[Finding]()
    try:
        connect(client.store)
        library = client.store.wire.library
        findings = client.store.perform(check(library, app.settings.namespace))
    except StoreUnavailable:
        reached = False
    if embedded:  # it is meant to be forgotten
        findings = [f for f in findings if f.severity != "warning"]
    bad = refused(findings, strict=given["strict"])
    if bad:
        said = "; ".join(f"{finding.sentence}: {finding.fix}" for finding in bad)
        raise UnsafeServer(f"Redis at {app.settings.url.place} is not safe for a queue: {said}")
    print_banner(
        app,
        findings,
        reached=reached,
        processes=given["processes"],
        concurrency=given["concurrency"],
    )
    sys.stdout.flush()
    client.close()
