"""rqretry pipeline report: what the history says of each group, on Spark."""

from dataclasses import asdict
from typing import Any

import click

from rqretry.cli.options import Amount, json_command, period_options, spark_options, target_of
from rqretry.cli.output import print_fields, print_records, print_summary, print_table
from rqretry.cli.session import connected
from rqretry.spark.report_job import PAGE, ReportSummary
from rqretry.spark.report_job import report as run
from rqretry.spark.sessions import session_for


@click.command(epilog="Example: rqretry pipeline report --from ./history --out ./report")
@click.option("--from", "archive", metavar="FOLDER", help="The archive to read.")
@click.option("--live", is_flag=True, help="Read the history that Redis has instead.")
@click.option(
    "--out", "output", metavar="FOLDER", required=True, help="For the tables and the page."
)
@click.option("--topic", "topics", default="*", help='A topic, or several as "a,b"; default all.')
@period_options
@click.option(
    "--hourly-cost", metavar="AMOUNT", type=Amount(), help="What an hour of a handler costs."
)
@click.option("--dashboard", metavar="URL", help="Message ids of the page are links to it.")
@spark_options
@json_command
def report(context: click.Context, /, live: bool, as_json: bool, **given: Any) -> None:  # noqa: FBT001 - click
    """Report on deliveries, retries, times and dead letters.

    It writes Parquet tables and an HTML page. The page, report.html, is one file that needs no
    network. It reads an archive, or with --live the history that Redis has, which is cut at its
    limit.
    """
    if live == (given["archive"] is not None):
        raise click.UsageError("give either --from FOLDER or --live")
    master, config = given.pop("master"), given.pop("config")
    if live:
        with connected(context):
            given |= asdict(target_of(context))
    with session_for("rqretry report", master, config) as spark:
        summary = run(spark, **given)
    print_summary(summary, _print, as_json=as_json)


def _print(summary: ReportSummary) -> None:
    print_fields([("report", f"{summary.output.rstrip('/')}/{PAGE}")])
    columns = ["topic", "group", "#messages", "#deliveries", "#amplification", "#committed"]
    rows = [
        row
        | {
            "amplification": f"{row['amplification']:.2f}",
            "wasted s": "" if row["wasted_seconds"] is None else f"{row['wasted_seconds']:.1f}",
        }
        for row in summary.groups
    ]
    print_records([*columns, "#dead", "#wasted s"], rows)
    if summary.dead:
        dead = [(r["group"], r["fingerprint"], r["error_type"], r["died"]) for r in summary.dead]
        print_table(["group", "fingerprint", "error", "#died"], dead)
    if summary.changes:
        columns = ["topic", "group", "error_type", "#died", "#died_before", "#deliveries"]
        print_records([*columns, "#deliveries_before"], summary.changes)
    if summary.losses:
        print_records(
            ["topic", "#partition", "#after_entry", "#next_entry", "what"], summary.losses
        )
