"""rqretry dlq redrive: with a rate and canaries, and what became of them."""

import sys
from typing import Any

import click

from rqretry.admin.answers import RedriveReport
from rqretry.durations import seconds, spell
from rqretry.edge.cli.boundary import DONE, FAILED
from rqretry.edge.cli.confirming import ask, counted
from rqretry.edge.cli.filtering import read_filter
from rqretry.edge.cli.finding import find_group
from rqretry.edge.cli.output import clean, note, print_json
from rqretry.edge.cli.progress import working
from rqretry.edge.cli.session import connected
from rqretry.rates import per_second

DEFAULT_PATIENCE = "60s"
_SHORTEST_S = 0.2


def redriven(context: click.Context, given: dict[str, Any]) -> int:
    """Do it and tell it; the exit status."""
    if given["rate"] is not None:
        per_second(given["rate"], name="--rate")
    patience = _patience(given)
    group, dry_run = given["group"], given["dry_run"]
    asks = not (dry_run or given["yes"]) and sys.stdin.isatty()
    with connected(context) as client:
        wanted = read_filter(client, given)
        find_group(client, group)
        report = client.admin.redrive(group, wanted, dry_run=True)
        if not dry_run and report:
            if asks:
                ask(f"redrive {counted(report, 'dead letter')} of group {group}?")
            if given["canary"]:
                first = counted(min(given["canary"], report), "canary message")
                note(f"waiting at most {spell(patience)} for {first}")
            with working(client, f"redriving {group}", int(report)) as admin:
                report = admin.redrive(
                    group,
                    wanted,
                    rate=given["rate"],
                    canary=given["canary"],
                    canary_timeout=patience,
                )
    if given["as_json"]:
        print_json(_fields(group, report, dry_run=dry_run))
    else:
        _print(group, report, given)
    return FAILED if report.stopped else DONE


def _patience(given: dict[str, Any]) -> float:
    """How long to wait for the canaries, in seconds."""
    if given["canary_timeout"] is not None and given["canary"] is None:
        raise click.UsageError("--canary-timeout does nothing without --canary: give both")
    text = given["canary_timeout"] or DEFAULT_PATIENCE
    return seconds(text, name="--canary-timeout", minimum=_SHORTEST_S)


def _fields(group: str, report: RedriveReport, *, dry_run: bool) -> dict[str, Any]:
    return {
        "group": group,
        "verb": "redrive",
        "count": int(report),
        "dry_run": dry_run,
        "matched": report.matched,
        "canaries": report.canaries,
        "failed": report.failed,
        "stopped": report.stopped,
        "reason": report.reason,
    }


def _print(group: str, report: RedriveReport, given: dict[str, Any]) -> None:
    would = "would be " if given["dry_run"] else ""
    click.echo(f"{counted(report, 'dead letter')} of group {group} {would}sent back")
    if report.stopped:
        left = counted(report.matched - report, "dead letter")
        click.echo(f"stopped: {clean(report.reason)}; {left} not sent")
    elif given["rate"] is not None and not given["dry_run"]:
        last = (report - report.canaries - 1) / per_second(given["rate"])
        if last > 0:
            due = spell(round(last, 0 if last > 1 else 2))
            click.echo(f"at {given['rate']}: the last one is due in {due}")
