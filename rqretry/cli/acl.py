"""rqretry acl: the least rights of a Redis user, for one role."""

import click

from rqretry.checks.acl import rules
from rqretry.cli.options import json_command, target_of
from rqretry.cli.output import note, print_json
from rqretry.core.errors import show
from rqretry.protocol.scripts import ScriptLibrary


@click.command(epilog="Example: rqretry acl worker --namespace shop")
@click.argument("role", type=click.Choice(["producer", "worker", "admin", "reader"]))
@click.option("--user", metavar="NAME", help="The user's name; default rqretry-ROLE.")
@click.option("--cluster", is_flag=True, help="For a cluster node; implied by a cluster --url.")
@json_command
def acl(
    context: click.Context, /, role: str, *, user: str | None, cluster: bool, as_json: bool
) -> None:
    """Print the ACL SETUSER for what ROLE needs, and no more.

    Nothing is sent to a server. The password is yours to add: >PASSWORD behind the name.
    """
    if user is not None and (
        not user or not user.isascii() or not user.isprintable() or " " in user
    ):
        raise click.UsageError(f"--user {show(user)} must be visible ASCII without blanks")
    settings = target_of(context).settings()
    spread = cluster or settings.url.deployment == "cluster"
    arguments = rules(role, settings.namespace, ScriptLibrary(), user=user or "", cluster=spread)
    if as_json:
        print_json({"role": role, "namespace": settings.namespace, "rules": arguments})
        return
    click.echo(f"ACL SETUSER {' '.join(arguments)}")
    note("add >PASSWORD to it, on every node; it cannot log in without one")
