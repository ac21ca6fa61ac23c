"""Redriving on the command line: with a rate and canaries, and what became of them.

The rate and the canaries themselves are in admin/dead_letters.py.
"""

import sys
from typing import Any

import click

from rqretry.admin.dead_letters import SHORTEST_PATIENCE_S
from rqretry.admin.results import RedriveReport
from rqretry.cli.confirmation import ask, counted, print_count
from rqretry.cli.errors import DONE, FAILED
from rqretry.cli.message_filter import read_filter
from rqretry.cli.options import Whole, grouped
from rqretry.cli.output import clean, fields_of, note, print_json
from rqretry.cli.progress import working
from rqretry.cli.session import connected
from rqretry.core.durations import seconds, spell
from rqretry.core.rates import per_second

_DEFAULT_PATIENCE = "60s"


pace_options = grouped(
    click.option(
        "--rate",
        metavar="RATE",
        help="At most this rate, such as 20/s or 100/m; the server keeps the due times.",
    ),
    click.option(
        "--canary",
        type=Whole(min=1),
        metavar="N",
        help="Send N first; stop if one fails with the same error again.",
    ),
    click.option(
        "--canary-timeout",
        metavar="DURATION",
        help=f"How long to wait for the canaries; default {_DEFAULT_PATIENCE}. Past it, stop.",
    ),
)
"""--rate, --canary and --canary-timeout."""


def redriven(context: click.Context, given: dict[str, Any]) -> int:
    """Redrive and print the result; the exit status."""
    patience = read_pace(given)
    group, dry_run = given["group"], given["dry_run"]
    asks = not (dry_run or given["yes"]) and sys.stdin.isatty()
    with connected(context) as client:
        wanted = read_filter(client, given)
        report = client.admin.redrive(group, wanted, dry_run=True)
        if not dry_run and report:
            if asks:
                ask(f"redrive {counted(report, 'dead letter')} of group {group}?")
            note_patience(given, report, patience)
            with working(client, f"redriving {group}", int(report)) as admin:
                report = admin.redrive(
                    group,
                    wanted,
                    rate=given["rate"],
                    canary=given["canary"],
                    canary_timeout=patience,
                )
    if given["as_json"]:
        head = {"group": group, "verb": "redrive", "count": int(report), "dry_run": dry_run}
        print_json(head | fields_of(report, "matched canaries failed stopped reason"))
    else:
        _print(group, report, given)
    return FAILED if report.stopped else DONE


def read_pace(given: dict[str, Any]) -> float:
    """Check the three options; how long to wait for the canaries, in seconds."""
    if given["rate"] is not None:
        per_second(given["rate"], name="--rate")
    if given["canary_timeout"] is not None and given["canary"] is None:
        raise click.UsageError("--canary-timeout does nothing without --canary: give both")
    text = given["canary_timeout"] or _DEFAULT_PATIENCE
    return seconds(text, name="--canary-timeout", minimum=SHORTEST_PATIENCE_S)


def note_patience(given: dict[str, Any], count: int, patience: float) -> None:
    """Note how long the command will wait, where there are canaries."""
    if given["canary"]:
        first = counted(min(given["canary"], count), "canary message")
        note(f"waiting at most {spell(patience)} for {first}")


def _print(group: str, report: RedriveReport, given: dict[str, Any]) -> None:
    print_count("dead letter", report, group, "sent back", dry_run=given["dry_run"])
    if report.stopped:
        left = counted(report.matched - report, "dead letter")
        click.echo(f"stopped: {clean(report.reason)}; {left} not sent")
    elif given["rate"] is not None and not given["dry_run"]:
        print_due(given["rate"], (report - report.canaries - 1) / per_second(given["rate"]))


def print_due(rate: str, last: float) -> None:
    """When the last one is due, in so many seconds."""
    if last > 0:
        click.echo(f"at {rate}: the last one is due in {spell(round(last, 0 if last > 1 else 2))}")
