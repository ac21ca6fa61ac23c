"""rqretry workers and rqretry inflight: who works, and on what."""

from dataclasses import asdict

import click

from rqretry.cli.options import json_command
from rqretry.cli.output import note, print_list, rows_of
from rqretry.cli.session import connected, print_all


@click.command(epilog="Example: rqretry workers --json")
@json_command
def workers(context: click.Context, *, as_json: bool) -> None:
    """List the live worker processes.

    One that died is listed for 15 seconds at most.
    """
    with connected(context) as client:
        found = client.admin.workers()
        rows = rows_of(found, "name pid groups topics since_ms")
        table = (["worker", "#pid", "groups", "topics", "since"], rows)
        fields = [asdict(worker) for worker in found]
        print_all(client, "workers", fields, table, "live workers", as_json=as_json)


@click.command(epilog="Example: rqretry inflight claims")
@click.argument("group", metavar="GROUP")
@json_command
def inflight(context: click.Context, *, group: str, as_json: bool) -> None:
    """List the messages of GROUP under a lease, by its deadline."""
    with connected(context) as client:
        found = client.admin.inflight(group)
    if not found:
        note(f"group {group} has nothing in flight")
    rows = rows_of(found, "id topic partition attempt deadline_ms")
    table = (["id", "topic", "#partition", "#attempt", "deadline"], rows)
    print_list(
        {"group": group}, "messages", [asdict(message) for message in found], table, as_json=as_json
    )
