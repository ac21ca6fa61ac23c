"""rqretry publish: one message, or one for each line of a file."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from rqretry.cli.body_input import check_lines, one_body, opened, read_lines
from rqretry.cli.options import (
    Whole,
    duration,
    json_option,
    read_date,
    read_pairs,
    reader,
    server_command,
    target_of,
)
from rqretry.cli.output import note, print_json
from rqretry.cli.progress import progress
from rqretry.cli.session import connected
from rqretry.cli.trace_option import otlp_option
from rqretry.client import Client
from rqretry.core.durability import check_durability
from rqretry.core.errors import RqretryError
from rqretry.core.limits import (
    MAX_DELAY_S,
    check_count,
    check_headers,
    check_keys,
    check_message_group,
    check_message_id,
    check_tag,
    check_topic,
)
from rqretry.core.message import OutgoingMessage
from rqretry.core.message_id import MessageId

_CHUNK = 5000
_CHECKS = {"message_group": check_message_group, "tag": check_tag, "id_": check_message_id}
_DELAYS = ("delay", "delay_level", "deliver_at")


@click.command(
    epilog="Examples: rqretry publish claims --body '{\"flight\": 1}' --delay 10s;"
    " rqretry publish claims --file claims.jsonl"
)
@click.argument("topic")
@click.argument("source", required=False, metavar="[-]")
@click.option("--body", metavar="JSON", help="The body of one message.")
@click.option("--file", "file", metavar="F.jsonl", help="One JSON body per line; - is stdin.")
@click.option("--raw", is_flag=True, help="The body is bytes as they are: all of --body or --file.")
@click.option(
    "--delay",
    metavar="DURATION",
    callback=duration(maximum=MAX_DELAY_S),
    help="Deliver after this delay, such as 10s; at most 40 days.",
)
@click.option("--delay-level", type=Whole(), metavar="N", help="The same, as a delay level.")
@click.option(
    "--deliver-at",
    metavar="DATE",
    callback=read_date,
    help="Deliver at this date, such as 2026-11-21T12:00:00Z; at most 40 days ahead.",
)
@click.option(
    "--message-group",
    metavar="G",
    help="Its message group, for ordered groups; not with a delay.",
)
@click.option("--tag", metavar="T", help="A tag that subscriptions filter by.")
@click.option("--key", "keys", multiple=True, metavar="K", help="A business key; can be repeated.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=read_pairs,
    help="A header; can be repeated.",
)
@click.option(
    "--durability",
    metavar="WHAT",
    callback=reader(lambda _name, text: check_durability(text) or None),
    help="Wait until replica:N has it, or disk (Redis 7.2); default the primary's memory.",
)
@click.option("--id", "id_", metavar="ID", help="Your own id; the same again is a duplicate.")
@json_option
@otlp_option
@server_command
def publish(context: click.Context, /, topic: str, **given: Any) -> None:
    """Publish one message to TOPIC, or each line of a file.

    The ids are printed. The topic is created if it is not there. "-" reads lines from standard
    input.
    """
    check_topic(topic)
    file = _source(given)
    fields = _fields(given)
    target_of(context).settings()
    if file is None or given["raw"]:
        body = one_body(given["body"], file, raw=given["raw"])
        with connected(context) as client:
            ids = [client.publish(topic, OutgoingMessage(body=body, id=given["id_"], **fields))]
    else:
        ids = _publish_lines(context, topic, file, fields)
    if given["as_json"]:
        print_json({"ids": ids})
        return
    for id_ in ids:
        click.echo(id_)
    if len(ids) == 1 and ids[0].duplicate:
        note(f"message {ids[0]} was published before: it is stored once")


def _source(given: dict[str, Any]) -> str | None:
    """The file to read, or None for --body. Exactly one of the three must be given."""
    if given["source"] not in (None, "-"):
        raise click.UsageError("a body is given with --body, --file or -")
    file = given["file"] if given["source"] is None else given["source"]
    ways = [way for way in (given["body"], given["file"], given["source"]) if way is not None]
    if len(ways) != 1:
        problem = "nothing to publish" if not ways else "more than one source of bodies"
        raise click.UsageError(f"{problem}: give one of --body, --file and -")
    if given["id_"] is not None and file is not None and not given["raw"]:
        raise click.UsageError("--id names one message: give it with --body")
    return None if file is None else str(file)


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """Everything but the body and the id, checked before anything is read or sent."""
    ways = [name for name in _DELAYS if given[name] is not None]
    if len(ways) > 1:
        both = " and ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise click.UsageError(f"{both} both set the delay: give one of them")
    if given["delay_level"] is not None:
        check_count(given["delay_level"], name="--delay-level")
    for name, check in _CHECKS.items():
        if given[name] is not None:
            check(given[name])
    if given["message_group"] is not None and ways:
        raise click.UsageError("--message-group cannot be given with a delay")
    check_keys(given["keys"])
    check_headers(given["headers"])
    names = (*_DELAYS, "tag", "keys", "headers", "message_group", "durability")
    return {name: given[name] for name in names}


def _publish_lines(
    context: click.Context, topic: str, source: str, fields: dict[str, Any]
) -> list[MessageId]:
    with opened(source) as file:
        count = check_lines(file, source)
        bodies = (OutgoingMessage(body=body, **fields) for body in read_lines(file))
        with connected(context) as client:
            return _publish_many(client, topic, bodies, count)


def _publish_many(
    client: Client, topic: str, messages: Iterator[OutgoingMessage], count: int
) -> list[MessageId]:
    """Publish in chunks, with a bar on a terminal."""
    ids: list[MessageId] = []
    with progress(f"publishing to {topic}", count) as advance:
        while chunk := list(islice(messages, _CHUNK)):
            try:
                ids += client.publish_many(topic, chunk)
            except RqretryError:
                note(f"the first {len(ids)} of {count} messages are stored")
                raise
            advance(len(chunk))
    return ids
