"""rqretry cron: list schedules, publish one of their messages now, pause and resume them."""

from dataclasses import asdict

import click

from rqretry.admin.schedules import ScheduleInfo
from rqretry.cli.errors import CommandGroup
from rqretry.cli.options import json_command, server_options
from rqretry.cli.output import date, print_json
from rqretry.cli.session import connected, print_all


@click.group(cls=CommandGroup, epilog="Example: rqretry cron list")
@server_options
def cron() -> None:
    """List, trigger, pause and resume periodic messages."""


@cron.command("list", epilog="Example: rqretry cron list --json")
@json_command
def list_(context: click.Context, *, as_json: bool) -> None:
    """List the schedules, with their next and last slots."""
    with connected(context) as client:
        found = client.admin.schedules()
        columns = ["name", "schedule", "timezone", "catch up", "next", "last", "last message"]
        rows = [
            (
                one.name, one.schedule, one.timezone, one.catch_up,
                "paused" if one.paused else date(one.next_ms) or "", date(one.last_ms) or "",
                one.last_id or "",
            )
            for one in found
        ]  # fmt: skip
        fields = [asdict(one) for one in found]
        print_all(client, "schedules", fields, (columns, rows), "schedules", as_json=as_json)


@cron.command(epilog="Example: rqretry cron trigger nightly")
@click.argument("name")
@json_command
def trigger(context: click.Context, *, name: str, as_json: bool) -> None:
    """Publish a message of a schedule now; its slots stay as they are."""
    with connected(context) as client:
        id_ = client.admin.trigger(name)
    if as_json:
        print_json({"schedule": name, "id": id_})
    else:
        click.echo(f"schedule {name} is triggered: message {id_}")


@cron.command(epilog="Example: rqretry cron pause nightly")
@click.argument("name")
@json_command
def pause(context: click.Context, *, name: str, as_json: bool) -> None:
    """Publish no messages of a schedule until it is resumed."""
    with connected(context) as client:
        _print_state(client.admin.pause_schedule(name), as_json=as_json)


@cron.command(epilog="Example: rqretry cron resume nightly")
@click.argument("name")
@json_command
def resume(context: click.Context, *, name: str, as_json: bool) -> None:
    """Publish again; slots that fell into the pause are not made up."""
    with connected(context) as client:
        _print_state(client.admin.resume_schedule(name), as_json=as_json)


@cron.command(epilog="Example: rqretry cron delete nightly")
@click.argument("name")
@json_command
def delete(context: click.Context, *, name: str, as_json: bool) -> None:
    """Delete a schedule that no live worker declares."""
    with connected(context) as client:
        client.admin.delete_schedule(name)
    if as_json:
        print_json({"schedule": name, "deleted": True})
    else:
        click.echo(f"schedule {name} is deleted; its topic and its messages stay")


def _print_state(found: ScheduleInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    state = "is paused" if found.paused else f"is resumed, next at {date(found.next_ms)}"
    click.echo(f"schedule {found.name} {state}")
