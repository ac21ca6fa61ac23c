"""rqretry dlq: list, show, redrive and purge the dead letters of a group."""

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from rqretry.client import Client
from rqretry.commands.administering import tracebacks
from rqretry.dead_letters import DeadLetterFilter
from rqretry.edge.cli.boundary import CommandGroup
from rqretry.edge.cli.group import find
from rqretry.edge.cli.letters import (
    letter_fields,
    print_clusters,
    print_letter,
    print_messages,
)
from rqretry.edge.cli.options import json_option, read_when, server_options
from rqretry.edge.cli.output import note, print_json
from rqretry.edge.cli.session import connected
from rqretry.errors import MessageNotFound, show
from rqretry.views import DeadLetter

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX = "%DLQ%"


def _read_group(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    return name.removeprefix(_PREFIX)


def group_argument(command: F) -> F:
    """GROUP, or the name of its dead-letter queue, %DLQ%GROUP."""
    return click.argument("group", metavar="GROUP", callback=_read_group)(command)


@click.group(cls=CommandGroup, epilog="Example: rqretry dlq list claims")
@server_options
def dlq() -> None:
    """List, show, redrive and purge the dead letters of a group."""


@dlq.command("list", epilog="Example: rqretry dlq list claims --by message --json")
@group_argument
@click.option(
    "--by",
    type=click.Choice(["fingerprint", "message"]),
    default="fingerprint",
    show_default=True,
    help="One line for each kind of error, or for each message.",
)
@json_option
@server_options
@click.pass_context
def list_(context: click.Context, *, group: str, by: str, as_json: bool) -> None:
    """List the dead letters of GROUP, grouped by the fingerprint of their last error."""
    with connected(context) as client:
        find(client, group)
        letters = client.admin.dead_letters(group, bodies=False)
    if not letters:
        note(f"group {group} has no dead letters")
    if by == "message":
        print_messages(group, letters, as_json=as_json)
    else:
        print_clusters(group, letters, as_json=as_json)


@dlq.command("show", epilog="Example: rqretry dlq show claims BqUpq2cmSuwDWlyn")
@group_argument
@click.argument("id_", metavar="ID")
@json_option
@server_options
@click.pass_context
def show_(context: click.Context, *, group: str, id_: str, as_json: bool) -> None:
    """Show one dead letter: its body, why it died, and the errors of its attempts."""
    with connected(context) as client:
        find(client, group)
        letters = client.admin.dead_letters(group, ids=[id_])
        if not letters:
            raise MessageNotFound(
                f"group {show(group)} has no dead letter {show(id_)}; see rqretry message {id_}"
            )
        trace = _traceback(client, letters[0])
    if as_json:
        print_json(letter_fields(letters[0]) | {"traceback": trace})
    else:
        print_letter(letters[0], trace)


def filter_options(command: F) -> F:
    """What chooses dead letters, and how it is confirmed."""
    when = "A date with a time zone, or how long ago: 2026-01-31T12:00:00Z, 2h."
    options = (
        click.option("--ids", multiple=True, metavar="ID,ID", help="These ids; can be repeated."),
        click.option("--fingerprint", metavar="F", help="Whose last error has this fingerprint."),
        click.option("--topic", metavar="TOPIC", help="Of this topic."),
        click.option("--error", metavar="TEXT", help="Whose last error contains this text."),
        click.option("--since", metavar="WHEN", callback=read_when, help=f"Dead since. {when}"),
        click.option("--before", metavar="WHEN", callback=read_when, help=f"Dead before. {when}"),
        click.option("--all", "all_", is_flag=True, help="All of them."),
        click.option("--dry-run", is_flag=True, help="Only count them."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        json_option,
        server_options,
        click.pass_context,
    )
    for option in reversed(options):
        command = option(command)
    return command


@dlq.command(epilog="Example: rqretry dlq redrive claims --fingerprint 5fd1c0a97e1b22d4 --yes")
@group_argument
@filter_options
def redrive(context: click.Context, **given: Any) -> None:
    """Send dead letters back to their group: attempt 1 again, same id, same body."""
    _move(context, "redrive", given)


@dlq.command(epilog="Example: rqretry dlq purge claims --before 720h --dry-run")
@group_argument
@filter_options
def purge(context: click.Context, **given: Any) -> None:
    """Delete dead letters for good."""
    _move(context, "purge", given)


def _move(context: click.Context, verb: str, given: dict[str, Any]) -> None:
    group, dry_run, as_json = given["group"], given["dry_run"], given["as_json"]
    _check_chosen(given)
    if not (dry_run or given["yes"] or sys.stdin.isatty()):
        raise click.UsageError(f"{verb} asks before it moves anything: give --yes or --dry-run")
    with connected(context) as client:
        wanted = _filter(client, given)
        find(client, group)
        verbs = {"redrive": client.admin.redrive, "purge": client.admin.purge}
        count = verbs[verb](group, wanted, dry_run=True)
        if not dry_run and count:
            if not given["yes"]:
                click.confirm(f"{verb} {_letters(count)} of group {group}?", abort=True, err=True)
            count = verbs[verb](group, wanted)
    if as_json:
        print_json({"group": group, "verb": verb, "count": count, "dry_run": dry_run})
        return
    done = {"redrive": "sent back", "purge": "deleted"}[verb]
    would = "would be " if dry_run else ""
    click.echo(f"{_letters(count)} of group {group} {would}{done}")


def _check_chosen(given: dict[str, Any]) -> None:
    chosen = [given[name] for name in ("fingerprint", "topic", "error", "since", "before")]
    some = bool(given["ids"]) or any(value is not None for value in chosen)
    if some and given["all_"]:
        raise click.UsageError("--all cannot be given with other conditions: keep one")
    if not some and not given["all_"]:
        raise click.UsageError(
            "which dead letters? give --ids, --fingerprint, --topic, --error, --since or --before,"
            " or --all"
        )


def _filter(client: Client, given: dict[str, Any]) -> DeadLetterFilter:
    ids = [id_ for listed in given["ids"] for id_ in listed.split(",")]
    return DeadLetterFilter(
        ids=ids or None,
        topic=given["topic"],
        fingerprint=given["fingerprint"],
        error=given["error"],
        since=_moment(client, given["since"]),
        before=_moment(client, given["before"]),
        all=given["all_"],
    )


def _moment(client: Client, when: datetime | float | None) -> datetime | float | None:
    """How long ago becomes a time of the server's clock."""
    if isinstance(when, float):
        return client.store.clock.now_ms() / 1000 + when
    return when


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"


def _traceback(client: Client, letter: DeadLetter) -> str:
    """The traceback kept for the fingerprint, by whichever partition has it."""
    if not letter.fingerprint:
        return ""
    record = client.store.perform(client.catalog.topic(letter.topic))
    keys = [
        client.catalog.group_keys(letter.topic, number, letter.group)
        for number in range(record.partitions)
    ]
    kept = client.store.run_all([tracebacks(key, [letter.fingerprint]) for key in keys])
    return next((text for (text,) in kept if text), "")
