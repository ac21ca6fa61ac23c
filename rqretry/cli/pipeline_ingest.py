"""rqretry pipeline ingest: files become messages of a topic, on Spark."""

from dataclasses import asdict
from typing import Any

import click

from rqretry.cli.options import json_command, master_option, target_of
from rqretry.cli.output import note, print_fields, print_summary
from rqretry.cli.progress import progress
from rqretry.cli.session import connected
from rqretry.cli.trace_option import tasks_otlp_option
from rqretry.spark.ingest_job import IngestSummary
from rqretry.spark.ingest_job import ingest as run
from rqretry.spark.input_files import FORMATS
from rqretry.spark.publish_tracing import tracing_of_tasks
from rqretry.spark.sessions import session_for


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
@click.option("--rejected", metavar="FOLDER", help="For rejected rows; default PATH-rejected.")
@click.option("--job", metavar="NAME", help="Running the same job again adds only what is missing.")
@tasks_otlp_option
@master_option
@json_command
def ingest(context: click.Context, /, as_json: bool, **given: Any) -> None:  # noqa: FBT001 - click
    """Publish each row of Parquet, CSV or JSON Lines files.

    They are at PATH; the body of a message is its row. Running it again adds what is missing and
    nothing twice. Rows that cannot be messages are put aside in a folder of Parquet files, with the
    reason.
    """
    traced, master = tracing_of_tasks(given.pop("otlp")), given.pop("master")
    with connected(context):
        server = asdict(target_of(context))
    with session_for("rqretry ingest", master, traced) as spark, progress("tasks") as advance:
        reported = 0

        def show(done: int, _all: int) -> None:
            nonlocal reported
            advance(done - reported)
            reported = done

        summary = run(spark, **server, **given, progress=show)
    print_summary(summary, _print, as_json=as_json)


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
        note(f"{summary.rejected} rows do not fit; they are in {summary.rejected_folder}")
