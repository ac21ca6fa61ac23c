"""rqretry group promote, purge, reset, unsubscribe and delete: what moves or ends its messages."""

from typing import Any

import click

from rqretry.admin.promote_purge_reset import STATES
from rqretry.cli.confirmation import (
    ask,
    confirmation_options,
    counted,
    force_option,
    must_ask,
)
from rqretry.cli.message_filter import check_chosen, failure_options, read_filter
from rqretry.cli.options import json_command
from rqretry.cli.output import print_json
from rqretry.cli.progress import working
from rqretry.cli.session import connected, find_group
from rqretry.core.limits import EARLIEST, LATEST


@click.command(epilog="Example: rqretry group promote claims --error 'connection refused'")
@click.argument("group", metavar="GROUP")
@failure_options
@click.option(
    "--level", type=click.IntRange(min=1), metavar="N", help="Those waiting at this delay level."
)
@click.option("--dry-run", is_flag=True, help="Only count them.")
@json_command
def promote(context: click.Context, /, **given: Any) -> None:
    """Run waiting retries of GROUP now, whatever their due time; default all of them.

    Their attempts stay counted.
    """
    name, dry_run = given["group"], given["dry_run"]
    with connected(context) as client:
        wanted = read_filter(client, given)
        find_group(client, name)
        with working(client, f"promoting retries of {name}") as admin:
            count = admin.promote(name, wanted, level=given["level"], dry_run=dry_run)
    _print_result("promote", name, count, "made ready", given)


@click.command(epilog="Example: rqretry group purge claims --state ready --topic flights --dry-run")
@click.argument("group", metavar="GROUP")
@click.option(
    "--state",
    type=click.Choice(STATES),
    required=True,
    help="Ready (new ones and retries that can run now), waiting_retry, or dead.",
)
@failure_options
@click.option("--all", "all_", is_flag=True, help="All in this state.")
@confirmation_options
@json_command
def purge(context: click.Context, /, **given: Any) -> None:
    """Delete messages of GROUP in one state for good; other groups keep theirs.

    Dead letters can also be chosen by when they died: see rqretry dlq purge.
    """
    name, state, dry_run = given["group"], given["state"], given["dry_run"]
    check_chosen(given, what=f"{state} messages")
    asks = must_ask("purge", dry_run=dry_run, yes=given["yes"])
    with connected(context) as client:
        wanted = read_filter(client, given)
        find_group(client, name)
        count = client.admin.purge(name, wanted, state=state, dry_run=True)
        if not dry_run and count:
            if asks:
                ask(f"delete {counted(count, f'{state} message')} of group {name}?")
            with working(client, f"deleting messages of {name}", count) as admin:
                count = admin.purge(name, wanted, state=state)
    _print_result("purge", name, count, "deleted", given)


@click.command(epilog="Example: rqretry group reset claims --dry-run")
@click.argument("group", metavar="GROUP")
@click.option(
    "--to",
    type=click.Choice([LATEST, EARLIEST]),
    default=LATEST,
    show_default=True,
    help="New messages only, or also those still stored.",
)
@confirmation_options
@json_command
def reset(context: click.Context, /, **given: Any) -> None:
    """Restart GROUP at the end or at the beginning of what is stored.

    Latest: everything waiting for it, ready or to be retried, is skipped: deleted for this group.
    In-flight messages finish, and dead letters stay. Earliest: it gets all messages still stored
    because another group has not finished with them, even those that it had finished with; it is
    paused meanwhile.
    """
    name, to, dry_run = given["group"], given["to"], given["dry_run"]
    asks = must_ask("reset", dry_run=dry_run, yes=given["yes"])
    done, question = ("skipped", "skip {} of group {}?")
    if to == EARLIEST:
        done, question = ("delivered again", "deliver {} that are stored to group {}?")
    with connected(context) as client:
        find_group(client, name)
        count = None
        if asks:
            count = client.admin.reset(name, to, dry_run=True)
            ask(question.format(counted(count, "message"), name))
        with working(client, f"resetting {name}", count) as admin:
            count = admin.reset(name, to, dry_run=dry_run)
    _print_result("reset", name, count, done, given)


@click.command(epilog="Example: rqretry group unsubscribe claims flights --yes")
@click.argument("group", metavar="GROUP")
@click.argument("topic", metavar="TOPIC")
@force_option
@confirmation_options
@json_command
def unsubscribe(context: click.Context, /, **given: Any) -> None:
    """GROUP leaves TOPIC and drops its unfinished messages and dead letters there."""
    name, topic, dry_run, force = (given[n] for n in ("group", "topic", "dry_run", "force"))
    asks = must_ask("unsubscribe", dry_run=dry_run, yes=given["yes"])
    with connected(context) as client:
        find_group(client, name)
        count = None
        if asks:
            count = client.admin.unsubscribe(name, topic, dry_run=True)
            ask(f"unsubscribe group {name}, which drops {counted(count, 'message')}?")
        with working(client, f"unsubscribing {name}", count) as admin:
            count = admin.unsubscribe(name, topic, force=force, dry_run=dry_run)
    _print_result("unsubscribe", name, count, "dropped", given)


@click.command(epilog="Example: rqretry group delete claims --dry-run")
@click.argument("group", metavar="GROUP")
@force_option
@confirmation_options
@json_command
def delete(context: click.Context, /, **given: Any) -> None:
    """Unsubscribe GROUP from all its topics and delete it, with its dead letters."""
    name, dry_run, force = given["group"], given["dry_run"], given["force"]
    asks = must_ask("delete", dry_run=dry_run, yes=given["yes"])
    with connected(context) as client:
        find_group(client, name)
        count = None
        if asks:
            count = client.admin.delete_group(name, dry_run=True)
            ask(f"delete group {name} with {counted(count, 'message')}?")
        with working(client, f"deleting group {name}", count) as admin:
            count = admin.delete_group(name, force=force, dry_run=dry_run)
    _print_result("delete", name, count, "dropped", given)


def _print_result(verb: str, group: str, count: int, done: str, given: dict[str, Any]) -> None:
    dry_run = given["dry_run"]
    if given["as_json"]:
        print_json({"group": group, "verb": verb, "count": count, "dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    click.echo(f"{counted(count, 'message')} of group {group} {would}{done}")
    if verb == "delete" and not dry_run:
        click.echo(f"group {group} is deleted")
