"""rqretry fsck: do indexes, bodies and states agree? And making them agree again."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from rqretry.admin.results import Checkup, Problem, Repair
from rqretry.cli.confirmation import ask, at_a_terminal, confirmation_options, counted
from rqretry.cli.errors import DONE, FAILED
from rqretry.cli.options import json_command
from rqretry.cli.output import note, print_json, print_table
from rqretry.cli.session import connected, elsewhere
from rqretry.core.parts import parts_of


@click.command(epilog="Example: rqretry fsck --repair --dry-run")
@click.option("--repair", is_flag=True, help="Repair what can be repaired; asks, or needs --yes.")
@confirmation_options
@json_command
def fsck(context: click.Context, *, repair: bool, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Read every partition of the namespace; report what is wrong.

    With --repair, it fixes what can be fixed without losing a message, while others keep working.
    It shows the repairs and asks first; without a terminal, nothing is changed unless --yes is
    given. Repairs are in the audit log. The exit status is 1 if, at the end, a message is lost,
    stuck, or would be handled twice.
    """
    if (dry_run or yes) and not repair:
        raise click.UsageError("--dry-run and --yes belong to a repair: give --repair with them")
    with connected(context) as client:
        result = client.admin.fsck()
        namespace = parts_of(client).settings.namespace
        if not result.partitions:
            note(f"namespace {namespace} has no topics{elsewhere(client)}")
        fixable = sum(bool(problem.remedy) for problem in result.problems)
        if repair and fixable and _is_wanted(result, fixable, dry_run=dry_run, yes=yes):
            result = client.admin.fsck(repair=True)
    if as_json:
        print_json({"namespace": namespace, **_fields(result, with_repairs=repair)})
    else:
        _print(result, with_remedies=repair)
    return FAILED if result.errors else DONE


def _is_wanted(result: Checkup, fixable: int, *, dry_run: bool, yes: bool) -> bool:
    if dry_run or yes:
        return not dry_run
    if not at_a_terminal():
        note("nothing was changed: give --yes to repair")
        return False
    _print(result, with_remedies=True)
    ask(f"repair {counted(fixable, 'problem')}?")
    return True


def _fields(result: Checkup, *, with_repairs: bool) -> dict[str, Any]:
    found = {"partitions": result.partitions, "findings": [*map(asdict, result.problems)]}
    repairs = {"repairs": [*map(asdict, result.repairs)], "left": [*map(asdict, result.left)]}
    return found | repairs if with_repairs else found


def _print(result: Checkup, *, with_remedies: bool) -> None:
    _print_problems(result.problems, with_remedies=with_remedies)
    if result.repairs:
        _print_repairs(result.repairs)
        if result.left:
            click.echo("left:")
            _print_problems(result.left, with_remedies=True)
    warnings = len(result.left) - result.errors
    read = counted(result.partitions, "partition")
    click.echo(f"{read} read: {counted(result.errors, 'error')}, {counted(warnings, 'warning')}")


def _print_problems(problems: Sequence[Problem], *, with_remedies: bool) -> None:
    if not problems:
        return
    columns = ["", "kind", "key", "id", "finding", *(["repair"] if with_remedies else ())]
    rows = [
        (p.severity, p.kind, p.key, p.id, p.text, p.remedy or f"none: {p.advice}") for p in problems
    ]
    print_table(columns, [row[: len(columns)] for row in rows])


def _print_repairs(repairs: Sequence[Repair]) -> None:
    click.echo("repaired:")
    rows = [(r.topic, r.partition, r.group, len(r.ids), r.did) for r in repairs]
    print_table(["topic", "#partition", "group", "#messages", "repair"], rows)
