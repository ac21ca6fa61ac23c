"""rqretry workers and rqretry inflight: who works, and on what."""

from dataclasses import asdict

import click

from rqretry.admin.incidents import OtherVersion, other_version
from rqretry.admin.results import WorkerInfo
from rqretry.cli.options import json_command
from rqretry.cli.output import date, note, print_list, rows_of
from rqretry.cli.session import connected, print_all
from rqretry.core.durations import spell

_COLUMNS = [
    "worker", "#pid", "version", "service", "groups", "topics", "#busy", "#failed", "#restarts",
    "since", "state",
]  # fmt: skip


@click.command(epilog="Example: rqretry workers --json")
@json_command
def workers(context: click.Context, *, as_json: bool) -> None:
    """List the live worker processes.

    busy: how many of its slots ran an attempt a few seconds ago; failed: attempts in the last
    minute; restarts: processes that were started in place of one that had ended. One that died is
    listed for 15 seconds at most; one whose event loop stands still is stuck; one of another
    version of rqretry than most is marked.
    """
    with connected(context) as client:
        found = client.admin.workers()
        differ = other_version(found)
        rows = [
            (w.name, w.pid, w.version, w.service, w.groups, w.topics, f"{w.busy}/{w.slots}",
             w.failures, w.restarts, date(w.since_ms), _state(w, differ))
            for w in found
        ]  # fmt: skip
        table = (_COLUMNS, rows)
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
    rows = rows_of(found, "id topic partition attempt deadline_ms holder since_ms")
    table = (["id", "topic", "#partition", "#attempt", "deadline", "holder", "since"], rows)
    print_list(
        {"group": group}, "messages", [asdict(message) for message in found], table, as_json=as_json
    )


def _state(worker: WorkerInfo, differ: OtherVersion | None) -> str:
    state = f"stuck for {spell(worker.blocked_s)}" if worker.blocked_s else "works"
    other = differ is not None and worker.name in differ.workers
    return f"{state}, others run {differ.usual}" if differ is not None and other else state
