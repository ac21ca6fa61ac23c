"""rqretry group: list, show, set, pause and resume consumer groups; see group_operate."""

from dataclasses import asdict
from typing import Any

import click

from rqretry.admin.views import GroupForecast, GroupInfo
from rqretry.cli.confirmation import counted
from rqretry.cli.errors import CommandGroup
from rqretry.cli.group_messages import messages
from rqretry.cli.group_operate import (
    dead_letter,
    delete,
    promote,
    purge,
    reset,
    unsubscribe,
)
from rqretry.cli.options import json_command, server_options, whole_or
from rqretry.cli.output import (
    date,
    fields_of,
    print_fields,
    print_json,
    print_page,
    print_table,
    rows_of,
)
from rqretry.cli.reasons import reason_lines
from rqretry.cli.session import connected, print_all
from rqretry.cli.status import print_stats
from rqretry.core.durations import spell
from rqretry.core.limits import DLQ

_FIELDS = (
    "kind max_retries policy ladder topics max_inflight rate_limit dlq_retention_s paused pinned"
    " changed_by"
)
_SETTINGS = ("max_retries", "policy", "max_inflight", "rate_limit", "dlq_retention", "pin")
_MAX_RETRIES = click.option(
    "--max-retries",
    metavar="N|unlimited",
    callback=whole_or("unlimited"),
    help="At most N retries, which is N + 1 deliveries.",
)
_POLICY = click.option(
    "--policy",
    metavar="POLICY",
    help='"rocketmq", "ladder:10s 30s 1m", "fixed:1s" or "exponential:5s,2,2h,0.1".',
)


@click.group(cls=CommandGroup, epilog="Example: rqretry group set claims --max-retries 5")
@server_options
def group() -> None:
    """Create, show, set, pause, promote, purge and reset groups."""


@group.command("list", epilog="Example: rqretry group list --json")
@json_command
def list_(context: click.Context, *, as_json: bool) -> None:
    """List the consumer groups of the namespace."""
    with connected(context) as client:
        found = client.admin.groups()
        rows = rows_of(found, "name kind topics policy ladder")
        table = (["group", "kind", "topics", "policy", "retries"], rows)
        print_all(client, "groups", [*map(_fields, found)], table, "groups", as_json=as_json)


@group.command(epilog="Example: rqretry group show claims")
@click.argument("name", metavar="GROUP")
@json_command
def show(context: click.Context, *, name: str, as_json: bool) -> None:
    """Show one group: its settings, and where its messages are."""
    with connected(context) as client:
        found = client.admin.group(name)
        _print_info(found, as_json=as_json)
        if found.topics and not as_json:
            click.echo()
            print_stats(client.admin.stats(group=name))
            print_page(reason_lines(client.admin.reasons(group=name)))


@group.command(epilog="Example: rqretry group create billing --topic orders --kind push")
@click.argument("name", metavar="GROUP")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC",
    help="What it consumes; may be given several times.",
)  # fmt: skip
@click.option("--kind", type=click.Choice(["push", "simple"]), default="push", show_default=True,
              help="What its consumers are.")  # fmt: skip
@_MAX_RETRIES
@_POLICY
@click.option("--tags", metavar="TAGS", help='What it takes, such as "a || b"; default all.')
@click.option("--ordered", is_flag=True, default=None,
              help="One message of a message group at a time, in order; for good.")  # fmt: skip
@json_command
def create(context: click.Context, /, name: str, **given: Any) -> None:
    """Create a group before its first consumer starts.

    Python workers create their own group; clients of rqretry gateway do not. A group that is there
    already is subscribed to the topics.
    """
    as_json = given.pop("as_json")
    with connected(context) as client:
        client.admin.create_group(name, [*given.pop("topics")], **given)
        _print_info(client.admin.group(name), as_json=as_json)


@group.command("set", epilog="Example: rqretry group set claims --max-retries 3 --pin")
@click.argument("name", metavar="GROUP")
@_MAX_RETRIES
@_POLICY
@click.option(
    "--max-inflight",
    metavar="N|none",
    callback=whole_or("none"),
    help="At most N messages under a lease, over all workers.",
)
@click.option(
    "--rate-limit",
    metavar="RATE|none",
    help='Deliveries over all workers: "100/s", "100/m", "100/h".',
)
@click.option(
    "--dlq-retention",
    metavar="DURATION|none",
    help="Purge dead letters that are older, such as 720h; by default they are kept for ever.",
)
@click.option(
    "--pin/--unpin",
    default=None,
    help="Keep these values over those of a starting worker; --unpin stops that.",
)
@click.option("--dry-run", is_flag=True, help="Only show the effect on what is waiting now.")
@json_command
def set_(context: click.Context, /, name: str, **given: Any) -> None:
    """Change a group's settings for all its workers, at once.

    The settings that are not given stay. --pin and --unpin alone apply to all settings of the
    group.
    """
    named = {setting: given[setting] for setting in _SETTINGS if given[setting] is not None}
    if not named:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in _SETTINGS)
        raise click.UsageError(f"nothing to set: give {options} or --unpin")
    with connected(context) as client:
        changed = client.admin.set_group(name, **named, dry_run=given["dry_run"])
    _print_info(changed, as_json=given["as_json"])


@group.command(epilog="Example: rqretry group pause claims")
@click.argument("name", metavar="GROUP")
@json_command
def pause(context: click.Context, *, name: str, as_json: bool) -> None:
    """Stop deliveries to GROUP; running handlers finish.

    Nothing is lost.
    """
    with connected(context) as client:
        _print_info(client.admin.pause(name), as_json=as_json)


@group.command(epilog="Example: rqretry group resume claims")
@click.argument("name", metavar="GROUP")
@json_command
def resume(context: click.Context, *, name: str, as_json: bool) -> None:
    """Resume a paused GROUP, at once."""
    with connected(context) as client:
        _print_info(client.admin.resume(name), as_json=as_json)


for command in (messages, promote, dead_letter, purge, reset, unsubscribe, delete):
    group.add_command(command)


def _print_info(info: GroupInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(_fields(info))
        return
    _print_settings(info)
    if info.forecast is not None:
        _print_forecast(info.forecast)


def _print_settings(info: GroupInfo) -> None:
    print_fields(
        [
            ("group", info.name),
            ("kind", f"{info.kind}, ordered" if info.ordered else info.kind),
            ("topics", " ".join(info.topics)),
            ("tags", "; ".join(f"{topic}: {taken}" for topic, taken in info.tags.items()) or None),
            ("tags set", _since(info)),
            ("policy", info.policy),
            ("retries", info.ladder + _then(info)),
            ("at start", "; ".join(info.other_retries) or None),
            ("max_inflight", info.max_inflight),
            ("rate_limit", info.rate_limit),
            ("dlq_retention", info.dlq_retention_s and spell(info.dlq_retention_s)),
            ("paused", "yes: rqretry group resume continues" if info.paused else None),
            ("pinned", " ".join(info.pinned) or None),
            ("set by", info.changed_by or None),
        ]
    )


def _print_forecast(forecast: GroupForecast) -> None:
    click.echo()
    click.echo(
        f"nothing is changed; {counted(forecast.unfinished, 'unfinished message')},"
        f" {forecast.waiting} of them waiting until their due time as before"
    )
    if forecast.attempts:
        rows = [
            (row.attempt, row.count, _wait(row.wait_before_s), _wait(row.wait_after_s))
            for row in forecast.attempts
        ]
        print_table(["#delivery", "#messages", "on failure now", "on failure then"], rows)
    click.echo(
        f"{counted(forecast.dead_at_next_failure, 'message')} would be dead at the next failure,"
        " each after one more delivery"
    )


def _wait(seconds: float | None) -> str:
    return "dead" if seconds is None else f"waits {spell(seconds)}"


def _since(info: GroupInfo) -> str | None:
    """Who changed the tags that it takes, and when."""
    at = date(info.tags_changed_at_ms)
    return at and f"{at} by {info.tags_changed_by}: what was published before is as it was chosen"


def _then(info: GroupInfo) -> str:
    """Where a message goes when its retries are exhausted."""
    if info.max_retries is None:
        return ""
    drops = info.topics[:1] and info.topics[0].startswith(DLQ)
    return ", then dropped" if drops else f", then {DLQ}{info.name}"


def _fields(info: GroupInfo) -> dict[str, object]:
    forecast = {} if info.forecast is None else {"forecast": asdict(info.forecast)}
    ordered = {"ordered": True} if info.ordered else {}
    tags: dict[str, object] = {"tags": info.tags} if info.tags else {}
    if info.tags_changed_at_ms is not None:
        tags |= {
            "tags_changed_by": info.tags_changed_by,
            "tags_changed_at": date(info.tags_changed_at_ms),
        }
    others = {"other_retries": info.other_retries} if info.other_retries else {}
    return {"group": info.name, **fields_of(info, _FIELDS), **others, **forecast, **ordered, **tags}
