"""rqretry group messages: what a group has not finished with, and why."""

from typing import Any

import click

from rqretry.admin.messages import STATES, MessageConditions
from rqretry.admin.results import ListedMessage
from rqretry.cli.options import Whole, duration, json_command
from rqretry.cli.output import date, fields_of, note, print_json, print_table
from rqretry.cli.session import connected
from rqretry.client import Client
from rqretry.protocol.command import MAX_BATCH

_FIELDS = (
    "id topic partition state attempt why fingerprint holder tag keys message_group"
    " since_ms due_ms published_ms"
)


@click.command(
    epilog="Example: rqretry group messages claims --state waiting_retry --error refused"
)
@click.argument("group", metavar="GROUP")
@click.option("--state", metavar="STATE", help=f"{', '.join(STATES)}; default all.")
@click.option("--fingerprint", metavar="F", help="Whose last error has this fingerprint.")
@click.option("--error", metavar="TEXT", help="Whose last error contains this text.")
@click.option("--topic", metavar="TOPIC", help="Of this topic.")
@click.option("--tag", metavar="TAG", help="With this tag.")
@click.option("--key", metavar="K", help="With this message key.")
@click.option(
    "--older-than", metavar="DURATION", callback=duration(), help="Published so long ago: 10m, 2h."
)
@click.option("--after", metavar="CURSOR", help="Behind a page, which named this.")
@click.option(
    "--count",
    type=Whole(1, MAX_BATCH),
    metavar="N",
    default=MAX_BATCH,
    show_default=True,
    help="The most that are listed.",
)
@json_command
def messages(context: click.Context, /, group: str, **given: Any) -> None:
    """List the messages that GROUP has not finished with, and why.

    Those in flight, waiting for a retry, ready, blocked behind another one of their message group,
    scheduled, and parked with their transaction. Each with its attempt, its last error, since when,
    when it is due, and who holds it.
    """
    conditions: Any = {name: given[name] for name in MessageConditions.__annotations__}
    with connected(context) as client:
        found, following = _read(client, group, conditions, given["after"], given["count"])
    if given["as_json"]:
        rows = [fields_of(message, _FIELDS) for message in found]
        print_json({"group": group, "messages": rows, "next": following})
        return
    if found:
        columns = ["id", "topic", "state", "#attempt", "since", "due", "held by", "why"]
        print_table(columns, map(_row, found))
    else:
        note(f"group {group} has no such messages")
    if following:
        note(f"{len(found)} listed, and there are more: see --after {following}")


def _read(
    client: Client, group: str, conditions: Any, after: str | None, count: int
) -> tuple[list[ListedMessage], str | None]:
    """So many messages, of as many pages as that takes; where the next one begins."""
    found: list[ListedMessage] = []
    while True:
        most = count - len(found)
        page = client.admin.messages(group, after=after, count=most, **conditions)
        found += page.messages
        after = page.next
        if after is None or len(found) >= count:
            return found, after


def _row(message: ListedMessage) -> tuple[object, ...]:
    since, due = date(message.since_ms), date(message.due_ms)
    return (
        message.id, message.topic, message.state, message.attempt, since or "", due or "",
        message.holder, message.why,
    )  # fmt: skip
