"""rqretry topic: create, list and show topics."""

import click

from rqretry.edge.cli.boundary import CommandGroup
from rqretry.edge.cli.options import json_option, server_options
from rqretry.edge.cli.output import note, print_json, print_table
from rqretry.edge.cli.session import connected, elsewhere
from rqretry.edge.cli.status import print_stats, read_stats
from rqretry.views import TopicInfo


@click.group(cls=CommandGroup, epilog="Example: rqretry topic create claims --partitions 4")
@server_options
def topic() -> None:
    """Create, list and show topics."""


@topic.command(epilog="Example: rqretry topic create claims --partitions 4")
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", type=int, metavar="N", help="1 to 1024; default 1 for a new topic.")
@json_option
@server_options
@click.pass_context
def create(context: click.Context, *, name: str, partitions: int | None, as_json: bool) -> None:
    """Create a topic; one that is there already is left as it is."""
    with connected(context) as client:
        made = client.admin.create_topic(name, partitions)
    if as_json:
        print_json(_fields(made))
    else:
        click.echo(f"topic {made.name} has {_partitions(made.partitions)}")


@topic.command("list", epilog="Example: rqretry topic list --json")
@json_option
@server_options
@click.pass_context
def list_(context: click.Context, *, as_json: bool) -> None:
    """List the topics of the namespace."""
    with connected(context) as client:
        topics = client.admin.topics()
        namespace = client.settings.namespace
        if not topics:
            note(f"namespace {namespace} has no topics{elsewhere(client)}")
    if as_json:
        print_json({"namespace": namespace, "topics": [_fields(found) for found in topics]})
    elif topics:
        rows = [(t.name, t.partitions, " ".join(t.groups)) for t in topics]
        print_table(["topic", "#partitions", "groups"], rows)


@topic.command(epilog="Example: rqretry topic show claims")
@click.argument("name", metavar="TOPIC")
@json_option
@server_options
@click.pass_context
def show(context: click.Context, *, name: str, as_json: bool) -> None:
    """Show one topic: its partitions, its groups and how much it stores."""
    with connected(context) as client:
        stats = read_stats(client, name)
    (found,) = stats.topics
    if as_json:
        fields = _fields(TopicInfo(found.topic, found.partitions, _names(found.groups)))
        numbers = ("stored", "scheduled", "backlog")
        print_json(fields | {number: getattr(found, number) for number in numbers})
        return
    partitions = _partitions(found.partitions)
    click.echo(f"topic {found.topic} has {partitions} and stores {found.stored} messages")
    print_stats(stats)


def _names(groups: object) -> tuple[str, ...]:
    assert isinstance(groups, tuple)
    return tuple(group.group for group in groups)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _fields(info: TopicInfo) -> dict[str, object]:
    return {"topic": info.name, "partitions": info.partitions, "groups": list(info.groups)}
