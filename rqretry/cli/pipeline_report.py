"""rqretry pipeline report: what the history says of each group, on Spark."""

from dataclasses import asdict

import click

from rqretry.cli.options import json_command, master_option, target_of
from rqretry.cli.output import print_fields, print_json, print_table
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
@master_option
@json_command
def report(
    context: click.Context,
    *,
    archive: str | None,
    live: bool,
    output: str,
    topics: str,
    master: str | None,
    as_json: bool,
) -> None:
    """Report on deliveries, retries, times and dead letters, as Parquet tables and an HTML page.

    The page, report.html, is one file that needs no network. It reads an archive, or with --live
    the history that Redis has, which is cut at its limit.
    """
    if live == (archive is not None):
        raise click.UsageError("give either --from FOLDER or --live")
    url = namespace = None
    if live:
        with connected(context):
            target = target_of(context)
        url, namespace = target.url, target.namespace
    with session_for("rqretry report", master) as spark:
        summary = run(spark, output, archive, topics, url=url, namespace=namespace)
    if as_json:
        print_json(asdict(summary))
    else:
        _print(summary)


def _print(summary: ReportSummary) -> None:
    print_fields([("report", f"{summary.output.rstrip('/')}/{PAGE}")])
    columns = ["topic", "group", "#messages", "#deliveries", "#amplification", "#committed"]
    columns += ["#dead", "#wasted s"]
    rows = [
        (
            row["topic"],
            row["group"],
            row["messages"],
            row["deliveries"],
            f"{row['amplification']:.2f}",
            row["committed"],
            row["dead"],
            f"{row['wasted_seconds']:.1f}",
        )
        for row in summary.groups
    ]
    print_table(columns, rows)
    if summary.dead:
        dead = [(r["group"], r["fingerprint"], r["error_type"], r["died"]) for r in summary.dead]
        print_table(["group", "fingerprint", "error", "#died"], dead)
