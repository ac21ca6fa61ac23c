"""rqretry pipeline redrive: send back dead letters selected by SQL, on Spark."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rqretry.cli.confirmation import ask, confirmation_options, counted, print_count
from rqretry.cli.dlq_redrive import note_patience, pace_options, print_due, read_pace
from rqretry.cli.errors import DONE, FAILED
from rqretry.cli.options import Whole, json_command, spark_options, target_of
from rqretry.cli.output import clean, date, note, print_json, print_records
from rqretry.cli.progress import performing, tasks_done
from rqretry.cli.session import connected
from rqretry.cli.trace_option import otlp_option
from rqretry.client import Client
from rqretry.core.parts import parts_of
from rqretry.spark.redrive_choice import choose
from rqretry.spark.redrive_job import Pace, RedriveSummary, recorded, send, still_dead, summary_of
from rqretry.spark.redrive_record import FOLDER, Choice, Record
from rqretry.spark.sessions import session_for

_CUT = 60


@click.command(
    epilog="Example: rqretry pipeline redrive claims --where \"error_message like '%timeout%'\""
    " --canary 5 --rate 50/s"
)
@click.argument("group", metavar="GROUP")
@click.option(
    "--where", metavar="SQL", required=True, help="A condition over the columns of dead letters."
)
@pace_options
@click.option("--limit", type=Whole(min=1), metavar="N", help="Select the N oldest; default all.")
@click.option(
    "--state",
    metavar="FOLDER",
    default=FOLDER,
    show_default=True,
    help="Where the selection is recorded.",
)
@click.option("--fresh", is_flag=True, help="Discard the selection of an earlier, unfinished run.")
@confirmation_options
@otlp_option
@spark_options
@json_command
def redrive(context: click.Context, /, **given: Any) -> int:
    """Redrive dead letters that match a Spark SQL condition.

    It counts them by kind, shows samples, and sends them as dlq redrive does. The selection is kept
    in a file until all of it is sent: after a crash, or when a canary stopped it, the same command
    resumes it and sends none twice. The exit status is 1 if the canaries stopped it.
    """
    patience = read_pace(given)
    pace = Pace(given["rate"], given["canary"], patience)
    group, dry_run = given["group"], given["dry_run"]
    asks = not (dry_run or given["yes"]) and sys.stdin.isatty()
    with connected(context) as client:
        client.admin.group(group)
        record = Record(given["state"], client, group, given["where"])
        with recorded(record, dry_run=dry_run) as chosen_path:
            choice = _chosen(context, client, record, chosen_path, given)
            dead = still_dead(client, choice, record)
            if not given["as_json"]:
                _preview(choice, dead)
            summary = summary_of(choice, dead)
            if not dry_run:
                if asks and dead:
                    ask(f"redrive {counted(dead, 'dead letter')} of group {group}?")
                note_patience(given, dead, patience)
                with performing(client, f"redriving {group}", dead) as performer:
                    summary = send(client, choice, record, pace, dead, performer=performer)
    _print_result(summary, given)
    return FAILED if summary.reason else DONE


def _chosen(
    context: click.Context, client: Client, record: Record, chosen_path: Path, given: dict[str, Any]
) -> Choice:
    choice = None if given["fresh"] else record.read()
    if choice is not None:
        note(f"resuming the run recorded in {record.path}; --fresh discards it")
        return choice
    space, url = parts_of(client).settings.namespace, target_of(context).url
    with (
        session_for("rqretry redrive", given["master"], given["config"]) as spark,
        tasks_done() as progress,
    ):
        return choose(
            spark, given["group"], given["where"], namespace=space, url=url,
            chosen_path=chosen_path, limit=given["limit"], progress=progress,
        )  # fmt: skip


def _preview(choice: Choice, dead: int) -> None:
    """The selection by kind, and samples of it."""
    chosen = counted(choice.count, "dead letter")
    sent = choice.count - dead
    click.echo(f"{chosen} of group {choice.group}" + (f", {sent} sent before" if sent else ""))
    if not choice.count:
        return
    kinds = [
        row
        | {"first": date(row["first_ms"]), "last": date(row["last_ms"])}
        | {"error": _error(row["error_type"], row["example"])}
        for row in choice.kinds
    ]
    print_records(["#count", "topic", "cause", "first", "last", "fingerprint", "error"], kinds)
    samples = [
        one
        | {"sample": one["id"], "body": clean(one["body"] or "-", _CUT)}
        | {"error": _error(one["error_type"], one["error_message"])}
        for one in choice.samples
    ]
    print_records(["sample", "topic", "#deliveries", "error", "body"], samples)


def _error(type_: str | None, message: str | None) -> str:
    return clean(": ".join(filter(None, (type_, message))) or "-", _CUT)


def _print_result(summary: RedriveSummary, given: dict[str, Any]) -> None:
    if given["as_json"]:
        totals = {"verb": "redrive", "count": summary.sent, "stopped": bool(summary.reason)}
        print_json(asdict(summary) | totals)
        return
    print_count("dead letter", summary.sent, summary.group, "sent back", dry_run=summary.dry_run)
    if summary.reason:
        left = counted(summary.left, "dead letter")
        click.echo(f"stopped: {clean(summary.reason)}; {left} not sent, run it again to resume")
    elif not summary.dry_run:
        print_due(given["rate"], summary.due_in)
