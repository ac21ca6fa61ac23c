"""The message filter of the command line, the same for every command."""

from typing import Any, TypeVar

import click

from rqretry.admin.dead_letter_filter import DeadLetterFilter
from rqretry.cli.options import grouped, read_when
from rqretry.client import Client
from rqretry.core.parts import parts_of

T = TypeVar("T")
_CONDITIONS = ("fingerprint", "topic", "error", "since", "before")


_WHEN = "A date with a time zone, or how long ago: 2026-01-31T12:00:00Z, 2h."
failure_options = grouped(
    click.option("--ids", multiple=True, metavar="ID,ID", help="These ids; can be repeated."),
    click.option(
        "--fingerprint", metavar="F", help="Messages whose last error has this fingerprint."
    ),
    click.option("--topic", metavar="TOPIC", help="Messages of this topic."),
    click.option("--error", metavar="TEXT", help="Messages whose last error contains this text."),
)
"""Options that select failed messages: ids, fingerprint, topic, error."""
dead_letter_options = grouped(
    failure_options,
    click.option("--since", metavar="WHEN", callback=read_when, help=f"Dead since. {_WHEN}"),
    click.option("--before", metavar="WHEN", callback=read_when, help=f"Dead before. {_WHEN}"),
    click.option("--all", "all_", is_flag=True, help="All of them."),
)
"""Options that select dead letters: the same, when they died, and all of them."""


def check_chosen(
    given: dict[str, Any], *, default_all: bool = False, what: str = "dead letters"
) -> None:
    """Conditions or --all, not both; with `default_all`, none of them is all."""
    some = bool(given["ids"]) or any(given.get(name) is not None for name in _CONDITIONS)
    if some and given["all_"]:
        raise click.UsageError("--all cannot be given with other conditions: keep one")
    if not (some or given["all_"] or default_all):
        names = ", ".join(f"--{name}" for name in ("ids", *_CONDITIONS) if name in given)
        raise click.UsageError(f"which {what}? give {names}, or --all")


def read_filter(client: Client, given: dict[str, Any]) -> DeadLetterFilter:
    """The filter that the options mean. Raises InvalidArgument."""
    ids = [id_ for listed in given["ids"] for id_ in listed.split(",")]
    conditions = {name: given.get(name) for name in ("topic", "fingerprint", "error")}
    since, before = moment(client, given.get("since")), moment(client, given.get("before"))
    nothing = not ids and not any(v is not None for v in (*conditions.values(), since, before))
    return DeadLetterFilter(ids=ids or None, since=since, before=before, all=nothing, **conditions)


def moment(client: Client, when: T) -> T | float:
    """An age as a time of the server's clock; what is none as it is."""
    if isinstance(when, float):
        return parts_of(client).store.clock.now_ms() / 1000 + when
    return when
