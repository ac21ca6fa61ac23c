"""rqretry dlq: list, show, redrive, export and purge the dead letters of a group."""

import sys
from typing import Any

import click

from rqretry.admin.dead_letter_filter import DeadLetterFilter
from rqretry.admin.dead_letters import clusters
from rqretry.cli.confirmation import confirmation_options, counted
from rqretry.cli.dead_letter_export import destination, exported, pages_of, write_lines
from rqretry.cli.dead_letter_tables import (
    dead_letter_fields,
    print_clusters,
    print_dead_letter,
    print_messages,
)
from rqretry.cli.dlq_redrive import pace_options, redriven
from rqretry.cli.errors import CommandGroup
from rqretry.cli.group_operate import purged
from rqretry.cli.message_filter import check_chosen, dead_letter_options, read_filter
from rqretry.cli.options import (
    app_dir_option,
    json_command,
    json_option,
    server_command,
    server_options,
)
from rqretry.cli.output import note, print_json
from rqretry.cli.progress import progress
from rqretry.cli.replay import find_dead_letter, replayed
from rqretry.cli.session import connected
from rqretry.cli.trace_option import otlp_option
from rqretry.client import Client
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.parts import parts_of
from rqretry.protocol.inspect import tracebacks

group_argument = click.argument(
    "group",
    metavar="GROUP",
    callback=lambda _context, _parameter, name: name.removeprefix("%DLQ%"),
)
"""GROUP, or the name of its dead-letter queue, %DLQ%GROUP."""


@click.group(cls=CommandGroup, epilog="Example: rqretry dlq list claims")
@server_options
def dlq() -> None:
    """Show, redrive, export, replay and purge dead letters."""


@dlq.command("list", epilog="Example: rqretry dlq list claims --by message --json")
@group_argument
@click.option(
    "--by",
    type=click.Choice(["fingerprint", "message"]),
    default="fingerprint",
    show_default=True,
    help="One row per kind of error, or per message.",
)
@json_command
def list_(context: click.Context, *, group: str, by: str, as_json: bool) -> None:
    """List the dead letters of GROUP, grouped by their last error.

    Those of one fingerprint are one row.
    """
    with connected(context) as client:
        if by == "message":
            pages = pages_of(client, group, DeadLetterFilter(all=True), with_bodies=False)
            some = print_messages(group, pages, as_json=as_json)
        else:
            found = parts_of(client).store.perform(
                clusters(parts_of(client.admin).operations, group)
            )
            print_clusters(group, found, as_json=as_json)
            some = bool(found)
    if not some:
        note(f"group {group} has no dead letters")


@dlq.command("show", epilog="Example: rqretry dlq show claims BqUpq2cmSuwDWlyn")
@group_argument
@click.argument("id_", metavar="ID")
@json_command
def show_(context: click.Context, *, group: str, id_: str, as_json: bool) -> None:
    """Show one dead letter: body, attempts and errors.

    It says why the message died, and what each of its attempts failed with.
    """
    with connected(context) as client:
        dead_letter = find_dead_letter(client, group, id_)
        trace = _traceback(client, dead_letter)
    if as_json:
        print_json(dead_letter_fields(dead_letter) | {"traceback": trace})
    else:
        print_dead_letter(dead_letter, trace)


@dlq.command(
    epilog="Example: rqretry dlq redrive claims --fingerprint 5fd1c0a97e1b22d4"
    " --canary 5 --rate 20/s"
)
@group_argument
@dead_letter_options
@pace_options
@confirmation_options
@json_option
@otlp_option
@server_command
def redrive(context: click.Context, /, **given: Any) -> int:
    """Send dead letters back to their group, as attempt 1 again.

    They keep their id and body. The exit status is 1 if the canaries stopped it.
    """
    check_chosen(given)
    return redriven(context, given)


@dlq.command(epilog="Example: rqretry dlq purge claims --before 720h --dry-run")
@group_argument
@dead_letter_options
@confirmation_options
@json_command
def purge(context: click.Context, /, **given: Any) -> None:
    """Delete dead letters for good."""
    check_chosen(given)
    purged(context, given, "dead", "purge", "dead letter", "dead letter")


@dlq.command(epilog="Example: rqretry dlq export claims --since 24h --file dead.jsonl")
@group_argument
@dead_letter_options
@click.option(
    "--file",
    metavar="F.jsonl",
    default="-",
    show_default=True,
    help="A new file; - is standard output.",
)
@json_command
def export(context: click.Context, /, group: str, file: str, **given: Any) -> None:
    """Write dead letters as JSON, one a line, the oldest first.

    All of them unless some are chosen. Each line has the message, with its body as JSON or as
    base64, and the errors of its attempts.
    """
    check_chosen(given, default_all=True)
    if given["as_json"] and file == "-":
        raise click.UsageError(
            "--json reports what was written to a file: give --file, or remove --json"
        )
    with connected(context) as client:
        wanted = read_filter(client, given)
        total = client.admin.stats(group=group).dead
        with destination(file) as stream, progress(f"exporting {group}", total) as advance:
            count = write_lines(stream, exported(client, group, wanted, advance))
    if given["as_json"]:
        print_json({"group": group, "verb": "export", "count": count, "file": file})
    else:
        note(f"{counted(count, 'dead letter')} of group {group} written")
    sys.stdout.flush()


@dlq.command(
    epilog="Example: rqretry dlq replay claims BqUpq2cmSuwDWlyn --app shop.billing:app --pdb"
)
@group_argument
@click.argument("id_", metavar="ID")
@click.option("--app", metavar="MODULE:APP", required=True, help="The app that has the handler.")
@app_dir_option
@click.option("--pdb", "with_pdb", is_flag=True, help="Debug the handler where it raised.")
@click.option(
    "--as-test", metavar="FILE", help="Write it as a failing pytest into a new file; run nothing."
)
@server_command
def replay(context: click.Context, /, **given: Any) -> int:
    """Run the handler of APP on a dead letter, on this machine.

    Nothing is leased or settled. The same body, headers, attempt and last error as when it died.
    What the handler itself writes or publishes goes where APP says. The exit status is 1 if it
    fails.
    """
    return replayed(context, given)


def _traceback(client: Client, dead_letter: DeadLetterRecord) -> str:
    """The traceback kept for the fingerprint, by whichever partition has it."""
    if not dead_letter.fingerprint:
        return ""
    record = parts_of(client).store.perform(parts_of(client).catalog.topics.get(dead_letter.topic))
    keys = [
        parts_of(client).catalog.group_keys(dead_letter.topic, number, dead_letter.group)
        for number in range(record.partitions)
    ]
    kept = parts_of(client).store.run_all(
        [tracebacks(key, [dead_letter.fingerprint]) for key in keys]
    )
    return next((text for (text,) in kept if text), "")
