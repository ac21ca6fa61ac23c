"""rqretry audit: who changed, moved or destroyed what."""

import json
from dataclasses import asdict

import click

from rqretry.cli.options import Whole, json_command
from rqretry.cli.output import date
from rqretry.cli.session import connected, print_all


@click.command(epilog="Example: rqretry audit --count 20")
@click.option(
    "--count",
    type=Whole(1, 10_000),
    default=100,
    show_default=True,
    help="How many of the newest entries.",
)
@json_command
def audit(context: click.Context, *, count: int, as_json: bool) -> None:
    """Show the audit record of the namespace, newest first.

    The actor is host:pid:number of the process that did it.
    """
    with connected(context) as client:
        entries = client.admin.audit(count)
        rows = [
            (date(e.at_ms), e.actor, e.verb, _text(e.arguments), _text(e.counts)) for e in entries
        ]
        table = (["time", "actor", "verb", "arguments", "counts"], rows)
        fields = [asdict(entry) for entry in entries]
        print_all(client, "entries", fields, table, "audit record yet", as_json=as_json)


def _text(fields: dict[str, object]) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
    )
