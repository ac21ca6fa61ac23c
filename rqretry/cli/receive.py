"""rqretry receive: lease messages as a simple consumer, print them, and acknowledge on request."""

import sys
from typing import Any

import click

from rqretry.cli.message_filter import moment
from rqretry.cli.options import Whole, duration, json_command, read_start
from rqretry.cli.output import (
    body_fields,
    body_text,
    date,
    fields_of,
    headers_text,
    note,
    print_fields,
    print_json,
)
from rqretry.cli.session import connected
from rqretry.cli.trace_option import otlp_option
from rqretry.client import SimpleConsumer
from rqretry.consumer.simple_operations import LONGEST_WAIT_S
from rqretry.core.durations import spell
from rqretry.core.limits import (
    MAX_INVISIBLE_S,
    MAX_RECEIVE,
    MIN_INVISIBLE_S,
    check_group,
    check_source,
)
from rqretry.core.message import Message
from rqretry.core.parts import parts_of
from rqretry.core.start import LATEST


@click.command(epilog="Example: rqretry receive claims --group audit --create-group --ack")
@click.argument("topic")
@click.option("--group", required=True, metavar="G", help="The consumer group.")
@click.option(
    "--max",
    "most",
    type=Whole(1, MAX_RECEIVE),
    default=16,
    show_default=True,
    help="At most so many messages.",
)
@click.option(
    "--invisible",
    metavar="DURATION",
    default="30s",
    show_default=True,
    callback=duration(MIN_INVISIBLE_S, MAX_INVISIBLE_S),
    help="How long they stay invisible to other consumers.",
)
@click.option(
    "--wait",
    metavar="DURATION",
    default="20s",
    show_default=True,
    callback=duration(0, LONGEST_WAIT_S),
    help="How long to wait for the first one.",
)
@click.option("--ack", is_flag=True, help="Acknowledge them after printing.")
@click.option("--create-group", is_flag=True, help="Create the group if it does not exist.")
@click.option(
    "--start",
    metavar="latest|earliest|WHEN",
    callback=read_start,
    default=LATEST,
    show_default=True,
    help="Where a new group starts: earliest is the oldest stored message; WHEN, a date with a time"
    " zone or how long ago, is that and what was consumed since then, as far as it is kept.",
)
@otlp_option
@json_command
def receive(context: click.Context, /, topic: str, **given: Any) -> None:
    """Receive messages of TOPIC for a group, and print them.

    Without --ack they come back when their invisible duration is over, as the next attempt.
    """
    check_source(topic)
    group = check_group(given["group"])
    with connected(context) as client:
        start, create = moment(client, given["start"]), given["create_group"]
        with client.simple_consumer(
            topic, group=group, create_group=create, start=start
        ) as consumer:
            _receive(consumer, given)


def _receive(consumer: SimpleConsumer, given: dict[str, Any]) -> None:
    messages = consumer.receive(given["most"], given["invisible"], given["wait"])
    if given["as_json"]:
        print_json({"messages": [_fields(message) for message in messages]})
    else:
        for message in messages:
            _print(message)
    # What could not be printed is not acknowledged: it comes back.
    sys.stdout.flush()
    if not messages:
        paused = (
            f": group {given['group']} is paused" if parts_of(consumer).operations.paused else ""
        )
        note(f"no message came within {spell(given['wait'])}{paused}")
    elif given["ack"]:
        consumer.ack(messages)


def _fields(message: Message[Any]) -> dict[str, Any]:
    return {
        **fields_of(message, "id topic"),
        **body_fields(message.body),
        **fields_of(message, "tag keys"),
        "headers": dict(message.headers),
        "published": _published(message),
        **fields_of(message, "attempt max_retries group receipt_handle"),
        "remaining_s": round(message.remaining(), 3),
    }


def _print(message: Message[Any]) -> None:
    print_fields(
        [
            ("message", message.id),
            ("published", _published(message)),
            ("attempt", message.attempt),
            ("tag", message.tag),
            ("keys", " ".join(message.keys) or None),
            ("headers", headers_text(message.headers)),
            ("receipt", message.receipt_handle),
            ("body", body_text(message.body)),
        ]
    )
    click.echo()


def _published(message: Message[Any]) -> str | None:
    at = message.published_at
    return None if at is None else date(int(at.timestamp() * 1000))
