"""rqretry topic: create, list, show, set and delete topics."""

from typing import Any

import click

from rqretry.admin.views import TopicInfo, TopicStats
from rqretry.cli.confirmation import ask, confirmation_options, counted, must_ask
from rqretry.cli.errors import CommandGroup
from rqretry.cli.options import Whole, json_command, server_options
from rqretry.cli.output import fields_of, print_fields, print_json, rows_of
from rqretry.cli.progress import working
from rqretry.cli.session import connected, print_all
from rqretry.cli.status import print_stats
from rqretry.core.durations import spell
from rqretry.core.route import UNORDERED

_SHOWN_IF_SET = (
    "max_history_bytes", "max_history_age_s", "keep_s", "keep_bytes", "unordered", "compress_from",
)  # fmt: skip


@click.group(cls=CommandGroup, epilog="Example: rqretry topic create claims --partitions 4")
@server_options
def topic() -> None:
    """Create, list, show, set and delete topics."""


@topic.command(epilog="Example: rqretry topic create claims --partitions 4")
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partitions", type=Whole(), metavar="N", help="1 to 1024; default 1 for a new topic."
)
@json_command
def create(context: click.Context, *, name: str, partitions: int | None, as_json: bool) -> None:
    """Create a topic; one that is there already is left as it is."""
    with connected(context) as client:
        made = client.admin.create_topic(name, partitions)
    if as_json:
        print_json(_fields(made))
    else:
        click.echo(f"topic {made.name} has {counted(made.partitions, 'partition')}")


@topic.command("list", epilog="Example: rqretry topic list --json")
@json_command
def list_(context: click.Context, *, as_json: bool) -> None:
    """List the topics of the namespace."""
    with connected(context) as client:
        found = client.admin.topics()
        table = (["topic", "#partitions", "groups"], rows_of(found, "name partitions groups"))
        print_all(client, "topics", [*map(_fields, found)], table, "topics", as_json=as_json)


@topic.command(epilog="Example: rqretry topic show claims")
@click.argument("name", metavar="TOPIC")
@json_command
def show(context: click.Context, *, name: str, as_json: bool) -> None:
    """Show one topic: its partitions, its groups and how much it stores."""
    with connected(context) as client:
        stats = client.admin.stats(name)
    (found,) = stats.topics
    if as_json:
        groups = tuple(group.group for group in found.groups)
        info = TopicInfo(found.topic, found.partitions, groups, found.max_messages)
        figures = fields_of(found, "stored scheduled backlog bytes history_bytes")
        kept = fields_of(found, "keep_s kept kept_bytes") if found.keep_s else {}
        if found.compress_from:
            kept |= fields_of(found, "compress_from compression_ratio")
        print_json(_fields(info) | figures | kept | _tags(found))
        return
    click.echo(f"topic {found.topic} has {counted(found.partitions, 'partition')}")
    print_stats(stats)


@topic.command("set", epilog="Example: rqretry topic set claims --max-messages 1000000")
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partitions",
    type=Whole(),
    metavar="N",
    help="Add partitions up to N; the number never shrinks.",
)
@click.option(
    "--max-messages",
    type=Whole(min=0),
    metavar="N",
    help="Refuse publishes (QueueFull) that would store more; 0 for no limit.",
)
@click.option(
    "--max-history-bytes",
    type=Whole(),
    metavar="BYTES",
    help="Keep so much history, over all partitions; default 67108864 (64 MiB).",
)
@click.option(
    "--max-history-age",
    metavar="DURATION|none",
    help="Forget history that is older, such as 72h; by default it is kept while there is room.",
)
@click.option(
    "--keep",
    metavar="DURATION|none",
    help="Keep what was consumed so long, such as 24h, for group reset --to; default none.",
)
@click.option(
    "--keep-bytes",
    type=Whole(),
    metavar="BYTES",
    help="Keep at most so much of it, over all partitions; default 1073741824 (1 GiB).",
)
@click.option(
    "--unordered",
    type=click.Choice(UNORDERED),
    help="Ordered groups handle messages without a message group one at a time in each partition,"
    " or all at once; default queue.",
)
@click.option(
    "--compress-from",
    type=Whole(min=0),
    metavar="BYTES",
    help="Compress bodies of so many bytes and more, such as 4096; needs rqretry[zstd] wherever"
    " they are published or read; 0 for none.",
)
@json_command
def set_(context: click.Context, /, name: str, *, as_json: bool, **given: Any) -> None:
    """Change a topic's settings, for all producers at once."""
    named: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    if not named:
        raise click.UsageError(
            "nothing to set: give --partitions, --max-messages, --max-history-bytes,"
            " --max-history-age, --keep, --keep-bytes, --unordered or --compress-from"
        )
    with connected(context) as client:
        changed = client.admin.set_topic(name, **named)
    shown = [name for name in _SHOWN_IF_SET if name.removesuffix("_s") in named]
    settings = fields_of(changed, " ".join(shown))
    if as_json:
        print_json(_fields(changed) | settings)
        return
    most = changed.max_messages
    stores = "any number of messages" if most is None else f"at most {counted(most, 'message')}"
    click.echo(
        f"topic {changed.name} has {counted(changed.partitions, 'partition')} and stores {stores}"
    )
    print_fields((name.removesuffix("_s"), _setting(name, settings[name])) for name in shown)


def _setting(name: str, value: Any) -> object:
    if value is None:
        return "none"
    return spell(value) if name.endswith("_s") else value


@topic.command(epilog="Example: rqretry topic delete claims --dry-run")
@click.argument("name", metavar="TOPIC")
@click.option("--force", is_flag=True, help="Unsubscribe its groups first, even with live workers.")
@confirmation_options
@json_command
def delete(context: click.Context, /, name: str, **given: Any) -> None:
    """Delete a topic and all it stores.

    With --force also the dead letters of its groups.
    """
    dry_run, force = given["dry_run"], given["force"]
    asks = must_ask("delete", given)
    with connected(context) as client:
        if asks:
            count = client.admin.delete_topic(name, force=force, dry_run=True)
            ask(f"delete topic {name} with {counted(count, 'message')}?")
        with working(client, f"deleting topic {name}") as admin:
            count = admin.delete_topic(name, force=force, dry_run=dry_run)
    if given["as_json"]:
        print_json({"topic": name, "verb": "delete", "count": count, "dry_run": dry_run})
        return
    would = "would be" if dry_run else "is"
    click.echo(f"topic {name} {would} deleted with {counted(count, 'message')}")


def _tags(found: TopicStats) -> dict[str, object]:
    """Tags and filtered messages of its groups, where a group does not take everything."""
    some = [group for group in found.groups if group.tags != "*" or group.filtered]
    if not some:
        return {}
    tags = {group.group: group.tags for group in some}
    return {"tags": tags, "filtered": {group.group: group.filtered for group in some}}


def _fields(info: TopicInfo) -> dict[str, object]:
    return {"topic": info.name, **fields_of(info, "partitions groups max_messages")}
