"""rqretry group: list, show and set consumer groups."""

import click

from rqretry.client import Client
from rqretry.edge.cli.boundary import CommandGroup
from rqretry.edge.cli.options import json_option, read_retries, server_options
from rqretry.edge.cli.output import note, print_fields, print_json, print_table
from rqretry.edge.cli.session import connected, elsewhere
from rqretry.edge.cli.status import print_stats
from rqretry.errors import GroupNotFound
from rqretry.views import GroupInfo


@click.group(cls=CommandGroup, epilog="Example: rqretry group set claims --max-retries 5")
@server_options
def group() -> None:
    """List, show and set consumer groups."""


@group.command("list", epilog="Example: rqretry group list --json")
@json_option
@server_options
@click.pass_context
def list_(context: click.Context, *, as_json: bool) -> None:
    """List the consumer groups of the namespace."""
    with connected(context) as client:
        groups = client.admin.groups()
        namespace = client.settings.namespace
        if not groups:
            note(f"namespace {namespace} has no groups{elsewhere(client)}")
    if as_json:
        print_json({"namespace": namespace, "groups": [_fields(found) for found in groups]})
    elif groups:
        rows = [(g.name, g.kind, " ".join(g.topics), g.policy, g.ladder) for g in groups]
        print_table(["group", "kind", "topics", "policy", "retries"], rows)


@group.command(epilog="Example: rqretry group show claims")
@click.argument("name", metavar="GROUP")
@json_option
@server_options
@click.pass_context
def show(context: click.Context, *, name: str, as_json: bool) -> None:
    """Show one group: its settings, and where its messages are."""
    with connected(context) as client:
        found = find(client, name)
        if as_json:
            print_json(_fields(found))
            return
        _print(found)
        if found.topics:
            click.echo()
            print_stats(client.admin.stats(group=name))


@group.command("set", epilog="Example: rqretry group set claims --policy 'ladder:10s 30s 1m'")
@click.argument("name", metavar="GROUP")
@click.option(
    "--max-retries",
    metavar="N|unlimited",
    callback=read_retries,
    help="At most N retries, which is N + 1 deliveries.",
)
@click.option(
    "--policy",
    metavar="POLICY",
    help='"rocketmq", "ladder:10s 30s 1m", "fixed:1s" or "exponential:5s,2,2h,0.1".',
)
@json_option
@server_options
@click.pass_context
def set_(
    context: click.Context,
    *,
    name: str,
    max_retries: int | str | None,
    policy: str | None,
    as_json: bool,
) -> None:
    """Change a group's settings for all its instances, at once; what is not named stays."""
    if max_retries is None and policy is None:
        raise click.UsageError("nothing to set: give --max-retries, --policy or both")
    with connected(context) as client:
        find(client, name)
        changed = client.admin.set_group(name, max_retries=max_retries, policy=policy)
    if as_json:
        print_json(_fields(changed))
    else:
        _print(changed)


def find(client: Client, name: str) -> GroupInfo:
    """A group; an unknown one is an error that names the other namespaces of the server."""
    try:
        return client.admin.group(name)
    except GroupNotFound as error:
        raise GroupNotFound(f"{error}{elsewhere(client)}") from None


def _print(info: GroupInfo) -> None:
    print_fields(
        [
            ("group", info.name),
            ("kind", info.kind),
            ("topics", " ".join(info.topics)),
            ("policy", info.policy),
            ("retries", f"{info.ladder}, then %DLQ%{info.name}"),
            ("set by", info.changed_by or None),
        ]
    )


def _fields(info: GroupInfo) -> dict[str, object]:
    return {
        "group": info.name,
        "kind": info.kind,
        "max_retries": info.max_retries,
        "policy": info.policy,
        "ladder": info.ladder,
        "topics": list(info.topics),
        "changed_by": info.changed_by,
    }
