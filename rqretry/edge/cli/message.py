"""rqretry message: where one message is, for each group, and what happened to it."""

import click

from rqretry.admin.views import MessageView
from rqretry.edge.cli.options import json_option, server_options
from rqretry.edge.cli.output import body_text, date, print_fields, print_json, print_table
from rqretry.edge.cli.session import connected, elsewhere
from rqretry.errors import MessageNotFound

_SHOWN_BODY = 2000


@click.command(epilog="Example: rqretry message BqUpq2cmSuwDWlyn")
@click.argument("id_", metavar="ID")
@json_option
@server_options
@click.pass_context
def message(context: click.Context, *, id_: str, as_json: bool) -> None:
    """Show where a message is, why it is not running, and its history."""
    with connected(context) as client:
        try:
            view = client.admin.message(id_)
        except MessageNotFound as error:
            raise MessageNotFound(f"{error}{elsewhere(client)}") from None
    if as_json:
        print_json(_as_fields(view))
    else:
        _print(view)


def _as_fields(view: MessageView) -> dict[str, object]:
    return {
        "id": view.id,
        "topic": view.topic,
        "states": [
            {
                "group": state.group,
                "state": state.state,
                "attempt": state.attempt,
                "due_ms": state.due_ms,
                "explain": state.explain,
            }
            for state in view.states
        ],
        "timeline": [
            {
                "at_ms": event.at_ms,
                "event": event.event,
                "group": event.group,
                "worker": event.worker,
                "note": event.note,
            }
            for event in view.timeline
        ],
    }


def _print(view: MessageView) -> None:
    body = body_text(view.body)
    cut = body if len(body) <= _SHOWN_BODY else f"{body[:_SHOWN_BODY]}..."
    print_fields(
        [
            ("message", view.id),
            ("topic", f"{view.topic}, partition {view.partition}"),
            ("published", date(view.born_ms)),
            ("tag", view.tag),
            ("keys", " ".join(view.keys) or None),
            ("headers", " ".join(f"{k}={v}" for k, v in view.headers.items()) or None),
            ("body", cut),
        ]
    )
    click.echo()
    rows = [(s.group, s.state, s.attempt, date(s.due_ms) or "", s.explain) for s in view.states]
    print_table(["group", "state", "#attempt", "due", "why"], rows)
    click.echo()
    events = [(date(e.at_ms), e.event, e.group, e.worker, e.note) for e in view.timeline]
    if events:
        print_table(["time", "event", "group", "by", "note"], events)
    else:
        click.echo("no history is kept of it")
