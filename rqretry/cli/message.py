"""rqretry message: where one message is, for each group, and what happened to it."""

from collections.abc import Sequence
from typing import Any

import click

from rqretry.admin.timeline import timing
from rqretry.admin.views import MessageView, TimelineEvent
from rqretry.cli.options import json_command, trace_url_option
from rqretry.cli.output import (
    body_text,
    date,
    fields_of,
    headers_text,
    note,
    print_fields,
    print_json,
    print_table,
    rows_of,
)
from rqretry.cli.session import connected, elsewhere
from rqretry.client import Client
from rqretry.core.errors import MessageNotFound, show

_SHOWN_BODY = 2000
_MOST_OF_KEY = 100
_PLACEHOLDER = "{trace_id}"
_EVENT_FIELDS = (
    "at_ms event group worker note attempt level due_ms error trace_id queue_seconds"
    " buffer_seconds handler_seconds"
)


@click.command(epilog="Examples: rqretry message BqUpq2cmSuwDWlyn; rqretry message --key order-7")
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--key", metavar="K", help="The messages with this message key, 100 at most.")
@trace_url_option
@json_command
def message(context: click.Context, /, **given: Any) -> None:
    """Show where a message is, why it waits, and its history.

    Also of a message that is committed or purged, while its history is kept.
    """
    id_, key, trace_url = given["id_"], given["key"], given["trace_url"]
    if (id_ is None) == (key is None):
        raise click.UsageError("give the ID of one message, or a --key")
    if trace_url is not None and _PLACEHOLDER not in trace_url:
        raise click.UsageError(f"--trace-url {show(trace_url)} must contain {_PLACEHOLDER}")
    with connected(context) as client:
        ids = [id_] if id_ is not None else _of_key(client, key)
        views = [_view(client, found) for found in ids]
    if given["as_json"]:
        found = [_as_fields(view, trace_url) for view in views]
        print_json(found[0] if id_ is not None else {"key": key, "messages": found})
        return
    for number, view in enumerate(views):
        if number:
            click.echo()
        _print(view, trace_url)


def _of_key(client: Client, key: str) -> list[str]:
    ids: list[str] = client.admin.find(key)
    if not ids:
        raise MessageNotFound(
            f"no message with key {show(key)} is stored or in the history{elsewhere(client)}"
        )
    if len(ids) > _MOST_OF_KEY:
        note(f"{len(ids)} messages have key {show(key)}; these are the last {_MOST_OF_KEY}")
    return ids[-_MOST_OF_KEY:]


def _view(client: Client, id_: str) -> MessageView:
    """The message; one that is not stored any more is rebuilt from its history."""
    try:
        return client.admin.message(id_)
    except MessageNotFound as error:
        try:
            return client.admin.remembered(id_)
        except MessageNotFound:
            raise MessageNotFound(f"{error}{elsewhere(client)}") from None


def _as_fields(view: MessageView, trace_url: str | None) -> dict[str, object]:
    events = [
        fields_of(event, _EVENT_FIELDS)
        | {"trace_url": _link(event, trace_url) if trace_url else None}
        for event in view.timeline
    ]
    states = [fields_of(state, "group state attempt due_ms explain") for state in view.states]
    return {"id": view.id, "topic": view.topic, "states": states, "timeline": events}


def _link(event: TimelineEvent, trace_url: str | None) -> str:
    """Where the trace of an event is shown; its id without --trace-url."""
    if event.trace_id is None:
        return ""
    return event.trace_id if trace_url is None else trace_url.replace(_PLACEHOLDER, event.trace_id)


def _print(view: MessageView, trace_url: str | None) -> None:
    body = body_text(view.body)
    cut = body if len(body) <= _SHOWN_BODY else f"{body[:_SHOWN_BODY]}..."
    print_fields(
        [
            ("message", view.id),
            ("topic", f"{view.topic}, partition {view.partition}"),
            ("published", date(view.born_ms)),
            ("tag", view.tag),
            ("keys", " ".join(view.keys) or None),
            ("headers", headers_text(view.headers)),
            ("body", cut if view.stored else "no longer stored"),
        ]
    )
    click.echo()
    rows = rows_of(view.states, "group state attempt due_ms explain")
    print_table(["group", "state", "#attempt", "due", "why"], rows)
    click.echo()
    _print_timeline(view.timeline, trace_url)


def _print_timeline(timeline: Sequence[TimelineEvent], trace_url: str | None) -> None:
    if not timeline:
        click.echo("no history is kept for it")
        return
    rows = [(*_cells(event), _link(event, trace_url)) for event in timeline]
    print_table(["time", "event", "#attempt", "group", "by", "note", "trace"], rows)
    if not any(event.event == "publish" for event in timeline):
        note("the history does not reach back to its publish; see the archive")


def _cells(event: TimelineEvent) -> tuple[object, ...]:
    note = "; ".join(filter(None, (event.note, timing(event))))
    return date(event.at_ms), event.event, event.attempt or "", event.group, event.worker, note
