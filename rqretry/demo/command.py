"""`rqretry demo`."""

import json
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import click
from click.core import ParameterSource
from rich.console import Console

from rqretry.cli.options import Target, Whole, json_option, target_of
from rqretry.cli.output import note, terminal
from rqretry.core.errors import ConfigError, show
from rqretry.core.limits import read_whole
from rqretry.core.settings import URL_VARIABLE, Settings
from rqretry.demo.flights import INSTALL, Flight, installed_archive, load, sample_size
from rqretry.demo.live_table import View
from rqretry.demo.report import print_report, problems
from rqretry.demo.run import DemoTarget, Pipeline, run_demo
from rqretry.demo.topology import CLAIMS_GROUP
from rqretry.demo.worker_processes import DemoWorkers
from rqretry.supervision.app_loader import load_worker_app

DEFAULT_ROWS = 20_000
EMBEDDED = "embedded"
MOST_PROCESSES = 64
_TERMINATED = 128 + signal.SIGTERM


def _rows(value: str) -> int | None:
    """A number of rows from 1, or "all", which is None."""
    if value == "all":
        return None
    rows = read_whole(value)
    if not rows:
        raise click.BadParameter(f"{show(value)} must be a number from 1, or all")
    return rows


@click.command(epilog="Example: rqretry demo --rows all")
@click.option(
    "--rows", type=_rows, metavar="N|all", help=f"How many flights; default {DEFAULT_ROWS}."
)
@click.option(
    "--processes",
    type=Whole(1, MOST_PROCESSES),
    default=2,
    show_default=True,
    help="Worker processes.",
)
@click.option(
    "--redis",
    "--url",
    "url",
    metavar="embedded|URL",
    envvar=URL_VARIABLE,
    help="The server; default RQRETRY_REDIS_URL, else an embedded one.",
)
@click.option(
    "--namespace",
    metavar="NAME",
    help="An empty namespace, deleted at the end; default demo- and a random number.",
)
@click.option(
    "--spark",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Ingest with Spark, archive and report; FOLDER gets the archive and the page.",
)
@click.option("--keep", is_flag=True, help="Keep the namespace: its dead letters can be replayed.")
@json_option
@click.pass_context
def demo(
    context: click.Context,
    *,
    rows: int | None,
    processes: int,
    url: str | None,
    namespace: str | None,
    folder: Path | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Settle delay claims of real flights; prove none is lost.

    Flights that left New York in 2013 go to a topic, and their arrivals, a little later, to
    another. A claim fails while its arrival is not known and climbs the 16-step ladder at 1/1000 of
    its times; the claims of flights that never arrived end in the dead-letter queue.
    """
    progress = terminal(err=as_json)
    where = _target(context, url, namespace, keep=keep)
    given = context.get_parameter_source("rows") is not ParameterSource.DEFAULT
    flights = load(rows) if given else load_default(progress)
    view = View(progress, len(flights))
    with _terminable():
        pipeline = None if folder is None else _pipeline(folder)
        result = run_demo(
            flights,
            where,
            processes=processes,
            start_workers=partial(DemoWorkers, load_worker_app),
            view=view,
            pipeline=pipeline,
        )
    if as_json:
        click.echo(json.dumps(result.as_json))
    else:
        print_report(progress, result)
    for problem in problems(result):
        click.echo(f"failed: {problem}", err=True)
    if keep:
        safe = Settings.read(where.url, where.namespace).url.safe
        target = f"--url {safe} --namespace {where.namespace}"
        note(f"kept: rqretry dlq list {CLAIMS_GROUP} --by message {target}")
    if not result.as_promised:
        context.exit(1)
    progress.print("nothing was lost", style="bold green")
    if result.archived is not None:
        progress.print(f"report: {result.archived.report.page}", soft_wrap=True)


def _target(
    context: click.Context, url: str | None, namespace: str | None, *, keep: bool
) -> DemoTarget:
    """Where the demo runs. Raises UsageError for what is no URL or no namespace."""
    before = target_of(context)  # given before the word demo
    if before.url and context.get_parameter_source("url") is not ParameterSource.COMMANDLINE:
        url = before.url
    url = None if url == EMBEDDED else url
    own = namespace or before.namespace or f"demo-{secrets.token_hex(4)}"
    Target(url, own).settings()
    if keep and url is None:
        raise click.UsageError("--keep needs a server that stays up: name one with --redis URL")
    return DemoTarget(url, own, keep)


def _pipeline(folder: Path) -> Pipeline:
    """The data pipeline, into a folder. Raises ConfigError."""
    if find_spec("pyspark") is None:
        raise ConfigError("--spark needs Spark: run pip install 'rqretry[spark]'")
    from rqretry.demo.jobs import make_room, spark_jobs  # noqa: PLC0415 - of the extra
    from rqretry.spark.sessions import session  # noqa: PLC0415 - of the extra

    return partial(spark_jobs, session, make_room(folder))


def load_default(progress: Console) -> list[Flight]:
    """The flights without --rows: 20 000 rows, or the sample where the data is missing."""
    if installed_archive() is not None:
        return load(DEFAULT_ROWS)
    progress.print(
        f"the full data is not installed ({INSTALL}): these are the {sample_size} rows of the"
        " sample"
    )
    return load(sample_size)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the demo as an error does: the workers are stopped, the data is deleted."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        sys.exit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
