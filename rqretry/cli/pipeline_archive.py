"""rqretry pipeline archive: the history of deliveries is kept, on Spark."""

from dataclasses import asdict
from typing import Any

import click

from rqretry.cli.options import Whole, duration, json_command, spark_options, target_of
from rqretry.cli.output import print_fields, print_summary, print_table
from rqretry.cli.progress import progress
from rqretry.cli.session import connected
from rqretry.cli.stop import stop_signals
from rqretry.core.durations import spell
from rqretry.spark.archive_job import FORMATS, PARQUET, ArchiveSummary
from rqretry.spark.archive_job import archive as run
from rqretry.spark.sessions import session_for


@click.command(epilog="Example: rqretry pipeline archive ./history --follow --interval 1m")
@click.argument("output", metavar="FOLDER")
@click.option("--topic", "topics", default="*", help='A topic, or several as "a,b"; default all.')
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default=PARQUET,
    help="Of the archive: Parquet files (default), or a Delta Lake table.",
)
@click.option("--follow", is_flag=True, help="Keep archiving new events until interrupted.")
@click.option(
    "--interval", default="10s", callback=duration(0.1), help="How often to poll; default 10s."
)
@click.option("--max-events", type=Whole(1), default=1_000_000, help="Per batch.")
@click.option("--skip-lost", is_flag=True, help="Skip history that was trimmed unarchived.")
@click.option("--no-compact", is_flag=True, help="Do not compact a Delta table at the end.")
@spark_options
@json_command
def archive(context: click.Context, /, as_json: bool, **given: Any) -> None:  # noqa: FBT001 - click
    """Add what is new in the history of topics to an archive.

    Each event is archived once. Running it again continues where it stopped, however it ended. It
    prints how far behind it is, and when unread history will be trimmed.
    """
    master, config = given.pop("master"), given.pop("config")
    given |= {"fail_on_data_loss": not given.pop("skip_lost")}
    given |= {"compact": not given.pop("no_compact")}
    with connected(context):
        given |= asdict(target_of(context))
    with (
        stop_signals() as stopped,
        session_for("rqretry archive", master, config) as spark,
        progress("events") as advance,
    ):
        summary = run(spark, **given, progress=advance, stop=stopped)
    print_summary(summary, _print, as_json=as_json)


def _print(summary: ArchiveSummary) -> None:
    print_fields(
        [
            ("archive", summary.output),
            ("events", summary.events),
            ("files", summary.files),
            ("merged", summary.merged or None),
        ]
    )
    rows = [
        (
            lag.topic,
            lag.partition,
            lag.events,
            spell(lag.seconds),
            "-" if lag.trimmed_in_seconds is None else f"in {spell(lag.trimmed_in_seconds)}",
            lag.dropped,
        )
        for lag in summary.lags
    ]
    if rows:
        columns = ["topic", "#partition", "#behind", "by", "trimmed", "#dropped so far"]
        print_table(columns, rows)
