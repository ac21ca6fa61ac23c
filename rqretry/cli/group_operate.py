"""rqretry group promote, purge, reset, unsubscribe and delete: what moves or ends its messages."""

from collections.abc import Callable
from typing import Any

import click

from rqretry.admin.promote_purge_reset import STATES
from rqretry.cli.confirmation import (
    ask,
    confirmation_options,
    counted,
    force_option,
    must_ask,
    print_count,
)
from rqretry.cli.message_filter import check_chosen, failure_options, moment, read_filter
from rqretry.cli.options import Whole, json_command, read_start
from rqretry.cli.output import print_json
from rqretry.cli.progress import working
from rqretry.cli.session import connected
from rqretry.client import Admin
from rqretry.core.start import EARLIEST, LATEST


@click.command(epilog="Example: rqretry group promote claims --error 'connection refused'")
@click.argument("group", metavar="GROUP")
@failure_options
@click.option("--level", type=Whole(min=1), metavar="N", help="Those waiting at this delay level.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@json_command
def promote(context: click.Context, /, **given: Any) -> None:
    """Run waiting retries of GROUP now, whatever their due time.

    All of them unless some are chosen. Their attempts stay counted.
    """
    name, dry_run = given["group"], given["dry_run"]
    with connected(context) as client:
        wanted = read_filter(client, given)
        with working(client, f"promoting retries of {name}") as admin:
            count = admin.promote(name, wanted, level=given["level"], dry_run=dry_run)
    _print_result("promote", count, "made ready", given)


@click.command("dead-letter", epilog="Example: rqretry group dead-letter claims --error 'no card'")
@click.argument("group", metavar="GROUP")
@failure_options
@click.option("--all", "all_", is_flag=True, help="All that are not done, and not in flight.")
@click.option("--reason", metavar="TEXT", default="", help="Why; dlq list and message show it.")
@confirmation_options
@json_command
def dead_letter(context: click.Context, /, **given: Any) -> None:
    """Move messages of GROUP that are not done to its dead letters.

    Those that are ready, blocked, or waiting for a retry, without another attempt; what is in
    flight stays. In an ordered group the next one of the message group goes. rqretry dlq redrive
    sends them back.
    """
    check_chosen(given, what="messages")
    name, reason = given["group"], given["reason"]
    asks = must_ask("dead-letter", given)
    with connected(context) as client:
        wanted = read_filter(client, given)
        count = client.admin.dead_letter(name, wanted, dry_run=True)
        if not given["dry_run"] and count:
            if asks:
                ask(f"move {counted(count, 'message')} of group {name} to its dead letters?")
            with working(client, f"dead-lettering messages of {name}", count) as admin:
                count = admin.dead_letter(name, wanted, reason=reason)
    _print_result("dead-letter", count, "moved to the dead letters", given)


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
    """Delete messages of GROUP in one state for good.

    Other groups keep theirs. Dead letters can also be chosen by when they died: see rqretry dlq
    purge.
    """
    state = given["state"]
    check_chosen(given, what=f"{state} messages")
    purged(context, given, state, "delete", f"{state} message", "message")


@click.command(epilog="Example: rqretry group reset claims --dry-run")
@click.argument("group", metavar="GROUP")
@click.option(
    "--to",
    metavar="latest|earliest|WHEN",
    callback=read_start,
    default=LATEST,
    show_default=True,
    help="New messages only, also those still stored, or also those consumed since WHEN, as far as"
    " they are kept. A date with a time zone, or how long ago: 2026-01-31T12:00:00Z, 2h.",
)
@confirmation_options
@json_command
def reset(context: click.Context, /, **given: Any) -> None:
    """Restart GROUP at the beginning, at the end, or at a time.

    Latest: everything waiting for it, ready or to be retried, is skipped: deleted for this group.
    In-flight messages finish, and dead letters stay. Earliest: it gets all messages still stored
    because another group has not finished with them, even those that it had finished with; it is
    paused meanwhile. A time: what it has consumed since then is delivered again, at attempt 1, as
    far as its topics keep it (topic set --keep); the next call completes an interrupted one.
    """
    name, to = given["group"], given["to"]
    if isinstance(to, float):
        with connected(context) as client:
            to = moment(client, to)
    done, question = ("delivered again", "deliver {} again to group {}?")
    if to == LATEST:
        done, question = ("skipped", "skip {} of group {}?")
    elif to == EARLIEST:
        question = "deliver {} that are stored to group {}?"

    def reset_group(admin: Admin, *, dry_run: bool) -> int:
        return admin.reset(name, to, dry_run=dry_run)

    _operate(context, given, "reset", reset_group, (question, f"resetting {name}", done))


@click.command(epilog="Example: rqretry group unsubscribe claims flights --yes")
@click.argument("group", metavar="GROUP")
@click.argument("topic", metavar="TOPIC")
@force_option
@confirmation_options
@json_command
def unsubscribe(context: click.Context, /, **given: Any) -> None:
    """Remove GROUP from TOPIC, with all that it has there.

    Its unfinished messages and dead letters there are dropped.
    """
    name, topic, force = given["group"], given["topic"], given["force"]

    def leave(admin: Admin, *, dry_run: bool) -> int:
        return admin.unsubscribe(name, topic, force=force, dry_run=dry_run)

    question = "unsubscribe group {1}, which drops {0}?"
    _operate(context, given, "unsubscribe", leave, (question, f"unsubscribing {name}", "dropped"))


@click.command(epilog="Example: rqretry group delete claims --dry-run")
@click.argument("group", metavar="GROUP")
@force_option
@confirmation_options
@json_command
def delete(context: click.Context, /, **given: Any) -> None:
    """Unsubscribe GROUP and delete it, with its dead letters."""
    name, force = given["group"], given["force"]

    def delete_group(admin: Admin, *, dry_run: bool) -> int:
        return admin.delete_group(name, force=force, dry_run=dry_run)

    texts = ("delete group {1} with {0}?", f"deleting group {name}", "dropped")
    _operate(context, given, "delete", delete_group, texts)
    if not (given["dry_run"] or given["as_json"]):
        click.echo(f"group {name} is deleted")


def purged(
    context: click.Context, given: dict[str, Any], state: str, verb: str, asked: str, noun: str
) -> None:
    """Purge what the options select: count, ask, delete, and print how many."""
    name, dry_run = given["group"], given["dry_run"]
    asks = must_ask("purge", given)
    with connected(context) as client:
        wanted = read_filter(client, given)
        count = client.admin.purge(name, wanted, state=state, dry_run=True)
        if not dry_run and count:
            if asks:
                ask(f"{verb} {counted(count, asked)} of group {name}?")
            with working(client, f"deleting {noun}s of {name}", count) as admin:
                count = admin.purge(name, wanted, state=state)
    _print_result("purge", count, "deleted", given, noun)


def _operate(
    context: click.Context,
    given: dict[str, Any],
    verb: str,
    operation: Callable[..., int],
    texts: tuple[str, str, str],
) -> None:
    """Ask, do it, and print how many; the texts are the question, the work and the result."""
    name, (question, work, done) = given["group"], texts
    asks = must_ask(verb, given)
    with connected(context) as client:
        count = None
        if asks:
            count = operation(client.admin, dry_run=True)
            ask(question.format(counted(count, "message"), name))
        with working(client, work, count) as admin:
            count = operation(admin, dry_run=given["dry_run"])
    _print_result(verb, count, done, given)


def _print_result(
    verb: str, count: int, done: str, given: dict[str, Any], noun: str = "message"
) -> None:
    group, dry_run = given["group"], given["dry_run"]
    if given["as_json"]:
        print_json({"group": group, "verb": verb, "count": count, "dry_run": dry_run})
    else:
        print_count(noun, count, group, done, dry_run=dry_run)
