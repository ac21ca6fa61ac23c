"""rqretry pipeline ingest: files become messages of a topic, on Spark."""

import re
from dataclasses import asdict
from typing import Any

import click

from rqretry.cli.errors import DONE, FAILED
from rqretry.cli.options import json_command, read_pairs, reader, spark_options, target_of
from rqretry.cli.output import note, print_fields, print_summary
from rqretry.cli.progress import tasks_done
from rqretry.cli.session import connected
from rqretry.cli.trace_option import tasks_otlp_option
from rqretry.core.errors import show
from rqretry.spark.ingest_job import IngestSummary
from rqretry.spark.ingest_job import ingest as run
from rqretry.spark.input_files import FORMATS
from rqretry.spark.publish_tracing import tracing_of_tasks
from rqretry.spark.sessions import session_for

_MOST = re.compile(r"[0-9]{1,12}|[0-9]{1,3}(\.[0-9]+)?%")


@reader
def _read_most(name: str, text: str) -> str:
    """A number of rows, or a percentage of them."""
    if not _MOST.fullmatch(text):
        reason = "must be a whole number, or a percentage such as 0.5%"
        raise click.UsageError(f"{name} {show(text)} {reason}")
    return text


@click.command(epilog="Example: rqretry pipeline ingest flights.parquet flights --id flight_id")
@click.argument("path", metavar="PATH")
@click.argument("topic", metavar="TOPIC")
@click.option("--id", metavar="COLUMN", help="Message ids; each is published once.")
@click.option("--key", metavar="COLUMN", help="Message keys.")
@click.option("--tag", metavar="COLUMN", help="Tags.")
@click.option("--delay", metavar="COLUMN", help="Delays: seconds, or text such as 5m.")
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="The format of the files; default by the extension of PATH.",
)
@click.option("--schema", metavar="DDL", help="Columns of CSV or JSON; default inferred.")
@click.option(
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=read_pairs,
    help="How to read the files, as Spark names it: sep, quote, escape, encoding; can be repeated.",
)
@click.option("--rejected", metavar="FOLDER", help="For rejected rows; default PATH-rejected.")
@click.option(
    "--max-rejects",
    metavar="N",
    default="0",
    show_default=True,
    callback=_read_most,
    help="More rejected rows, or a higher percentage such as 1%, are exit status 1.",
)
@click.option("--job", metavar="NAME", help="Running the same job again adds only what is missing.")
@tasks_otlp_option
@spark_options
@json_command
def ingest(context: click.Context, /, as_json: bool, max_rejects: str, **given: Any) -> int:  # noqa: FBT001 - click
    """Publish each row of Parquet, CSV or JSON Lines files.

    They are at PATH; the body of a message is its row. Running it again adds what is missing and
    nothing twice. Rows that cannot be messages are put aside in a folder of Parquet files, with the
    reason; the others are published, and the exit status is 1 if there are more than --max-rejects.
    """
    master = given.pop("master")
    config = tracing_of_tasks(given.pop("otlp")) | given.pop("config")
    with connected(context):
        server = asdict(target_of(context))
    with session_for("rqretry ingest", master, config) as spark, tasks_done() as progress:
        summary = run(spark, **server, **given, progress=progress)
    print_summary(summary, _print, as_json=as_json)
    share = max_rejects.endswith("%")
    most = summary.rows * float(max_rejects[:-1]) / 100 if share else int(max_rejects)
    return FAILED if summary.rejected > most else DONE


def _print(summary: IngestSummary) -> None:
    print_fields(
        [
            ("topic", summary.topic),
            ("rows", summary.rows),
            ("published", summary.published),
            ("known", summary.known or None),
            ("rejected", summary.rejected or None),
        ]
    )
    if summary.rejected_folder:
        note(f"{summary.rejected} rows were rejected; they are in {summary.rejected_folder}")
