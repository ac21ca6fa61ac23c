"""rqretry audit: who changed, moved or destroyed what."""

import json
from dataclasses import asdict

import click

from rqretry.cli.options import json_command
from rqretry.cli.output import date, note, print_json, print_table
from rqretry.cli.session import connected, elsewhere


@click.command(epilog="Example: rqretry audit --count 20")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
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
        namespace = client.settings.namespace
        if not entries:
            note(f"namespace {namespace} has no audit record yet{elsewhere(client)}")
    if as_json:
        print_json({"namespace": namespace, "entries": [asdict(entry) for entry in entries]})
    elif entries:
        rows = [
            (date(e.at_ms), e.actor, e.verb, _text_of(e.arguments), _text_of(e.counts))
            for e in entries
        ]
        print_table(["time", "actor", "verb", "arguments", "counts"], rows)


def _text_of(fields: dict[str, object]) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
    )
