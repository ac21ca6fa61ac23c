"""rqretry recall: cancel a message that was published with a delay and is not due yet."""

import click

from rqretry.cli.errors import DONE, FAILED
from rqretry.cli.options import json_command
from rqretry.cli.output import print_json
from rqretry.cli.session import connected, elsewhere
from rqretry.core.errors import MessageNotFound


@click.command(epilog="Example: rqretry recall BqUpq2cmSuwDWlyn --topic claims")
@click.argument("id_", metavar="ID")
@click.option("--topic", metavar="TOPIC", help="Its topic; default: search all.")
@json_command
def recall(context: click.Context, *, id_: str, topic: str | None, as_json: bool) -> int:
    """Cancel a delayed message, so that no group ever gets it.

    The exit status is 1 if it is too late: the message is due, was delivered, or never was delayed.
    """
    with connected(context) as client:
        try:
            recalled = client.recall(id_, topic)
        except MessageNotFound as error:
            raise MessageNotFound(f"{error}{elsewhere(client)}") from None
    if as_json:
        print_json({"id": id_, "recalled": recalled})
    elif recalled:
        click.echo(f"message {id_} is recalled")
    else:
        click.echo(f"too late: message {id_} is not waiting for its time; see rqretry message")
    return DONE if recalled else FAILED
