"""rqretry workers and rqretry inflight: who works, and on what."""

from dataclasses import asdict

import click

from rqretry.cli.options import json_command
from rqretry.cli.output import date, note, print_json, print_table
from rqretry.cli.session import connected, elsewhere


@click.command(epilog="Example: rqretry workers --json")
@json_command
def workers(context: click.Context, *, as_json: bool) -> None:
    """List the live worker processes; one that died is listed for 15 seconds at most."""
    with connected(context) as client:
        found = client.admin.workers()
        namespace = client.settings.namespace
        if not found:
            note(f"namespace {namespace} has no live workers{elsewhere(client)}")
    if as_json:
        print_json({"namespace": namespace, "workers": [asdict(worker) for worker in found]})
    elif found:
        rows = [
            (w.name, w.pid or "", " ".join(w.groups), " ".join(w.topics), date(w.since_ms) or "")
            for w in found
        ]
        print_table(["worker", "#pid", "groups", "topics", "since"], rows)


@click.command(epilog="Example: rqretry inflight claims")
@click.argument("group", metavar="GROUP")
@json_command
def inflight(context: click.Context, *, group: str, as_json: bool) -> None:
    """List the messages of GROUP that are under a lease, by the deadline at which it ends."""
    with connected(context) as client:
        client.admin.group(group)
        found = client.admin.inflight(group)
    if not found:
        note(f"group {group} has nothing in flight")
    if as_json:
        print_json({"group": group, "messages": [asdict(message) for message in found]})
    elif found:
        rows = [(m.id, m.topic, m.partition, m.attempt, date(m.deadline_ms)) for m in found]
        print_table(["id", "topic", "#partition", "#attempt", "deadline"], rows)
