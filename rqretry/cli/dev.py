"""rqretry dev: everything that is needed to try an app, in one command."""

import sys
from contextlib import ExitStack
from shlex import quote

import click

from rqretry.cli.options import server_options, target_of
from rqretry.cli.worker import worker
from rqretry.supervision.reload import require_watchfiles
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.worker.stop_signals import Stoppable, StoppedEarly

GRACE_S = 5.0
"""Short: whoever changes the code wants to see the change."""


@click.command(epilog="Example: rqretry dev shop.billing:app")
@click.argument("target", metavar="MODULE:APP")
@click.option("--app-dir", metavar="DIR", default=".", show_default=True, help="Where MODULE is.")
@server_options
@click.pass_context
def dev(context: click.Context, /, target: str, app_dir: str) -> int:
    """Run APP with a Redis of its own, and restart it when the code below DIR changes.

    The Redis is private and forgets everything at the end; with --url that server is used instead.
    For development: use rqretry worker elsewhere.
    """
    where = target_of(context)
    where.settings()
    require_watchfiles()
    try:
        with ExitStack() as stack, Stoppable():
            if where.url is None:
                where.url = stack.enter_context(EmbeddedRedis()).url
                space = f" --namespace {quote(where.namespace)}" if where.namespace else ""
                options = f"--url {quote(where.url)}{space}"
                click.echo(f"publish  rqretry publish TOPIC --body JSON {options}")
                sys.stdout.flush()
            status: int = context.invoke(
                worker, target=target, app_dir=app_dir, reload=True, grace=GRACE_S
            )
            return status
    except StoppedEarly:
        return 0
