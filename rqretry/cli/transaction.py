"""rqretry transaction: list and show what is undecided, and decide it."""

from dataclasses import asdict

import click

from rqretry.cli.errors import CommandGroup
from rqretry.cli.options import json_command, server_options
from rqretry.cli.output import date, print_fields, print_json
from rqretry.cli.session import connected, print_all


@click.group(cls=CommandGroup, epilog="Example: rqretry transaction list --parked")
@server_options
def transaction() -> None:
    """Show, commit and roll back unfinished transactions."""


@transaction.command("list", epilog="Example: rqretry transaction list --json")
@click.option("--parked", is_flag=True, help="Only those that no checker could decide.")
@json_command
def list_(context: click.Context, *, parked: bool, as_json: bool) -> None:
    """List the transactions that are not finished, the oldest first."""
    with connected(context) as client:
        found = client.admin.transactions(parked=parked)
        columns = ["id", "state", "producer group", "topic", "checks", "next check", "opened"]
        rows = [
            (
                one.id, one.state, one.producer_group, one.topic, f"{one.checks}/{one.max_checks}",
                date(one.next_check_ms) or "", date(one.opened_ms), one.reason,
            )
            for one in found
        ]  # fmt: skip
        table = ([*columns, "reason"], rows)
        none = f"{'parked' if parked else 'unfinished'} transactions"
        fields = [asdict(one) for one in found]
        print_all(client, "transactions", fields, table, none, as_json=as_json)


@transaction.command(epilog="Example: rqretry transaction show P6y4bNm15urSMpZP")
@click.argument("id_", metavar="ID")
@json_command
def show(context: click.Context, *, id_: str, as_json: bool) -> None:
    """Show one transaction; a finished one is known for ten minutes."""
    with connected(context) as client:
        found = client.admin.transaction(id_)
    if as_json:
        print_json(asdict(found))
    else:
        print_fields(
            [
                ("transaction", found.id),
                ("state", found.state),
                ("producer group", found.producer_group),
                ("topic", found.topic),
                ("opened", date(found.opened_ms)),
                ("opened by", found.opened_by),
                ("checks", f"{found.checks} of {found.max_checks}"),
                ("next check", date(found.next_check_ms)),
                ("decided", date(found.decided_ms)),
                ("decided by", found.decided_by or None),
                ("reason", found.reason or None),
                (
                    "messages in",
                    ", ".join(f"{topic} partition {n}" for topic, n in found.places) or None,
                ),
            ]
        )


@transaction.command(epilog="Example: rqretry transaction commit P6y4bNm15urSMpZP")
@click.argument("id_", metavar="ID")
@json_command
def commit(context: click.Context, *, id_: str, as_json: bool) -> None:
    """Commit an undecided transaction: its messages are delivered."""
    with connected(context) as client:
        done = client.admin.commit_transaction(id_)
    _print_result(id_, "committed", done=done, as_json=as_json)


@transaction.command(epilog="Example: rqretry transaction rollback P6y4bNm15urSMpZP")
@click.argument("id_", metavar="ID")
@json_command
def rollback(context: click.Context, *, id_: str, as_json: bool) -> None:
    """Roll an undecided transaction back: its messages are removed."""
    with connected(context) as client:
        done = client.admin.rollback_transaction(id_)
    _print_result(id_, "rolled_back", done=done, as_json=as_json)


def _print_result(id_: str, state: str, *, done: bool, as_json: bool) -> None:
    if as_json:
        print_json({"id": id_, "state": state, "done": done})
        return
    before = "" if done else " already"
    click.echo(f"transaction {id_} is {state.replace('_', ' ')}{before}")
