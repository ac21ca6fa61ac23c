"""Confirmation of destructive commands: a question, --yes or --dry-run."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from rqretry.cli.options import grouped

confirmation_options = grouped(
    click.option("--dry-run", is_flag=True, help="Only count; change nothing."),
    click.option("--yes", is_flag=True, help="Do not ask."),
)
force_option = click.option(
    "--force", is_flag=True, help="Even with live workers, which will subscribe again."
)


def must_ask(verb: str, given: Mapping[str, Any]) -> bool:
    """Whether a verb that destroys has to ask. Raises UsageError without a terminal."""
    if given["dry_run"] or given["yes"]:
        return False
    if not at_a_terminal():
        raise click.UsageError(f"{verb} needs confirmation: give --yes or --dry-run")
    return True


def at_a_terminal() -> bool:
    """Whether a person is there to ask."""
    return sys.stdin.isatty()


def ask(question: str) -> None:
    """Continue after a yes; everything else aborts."""
    click.confirm(question, abort=True, err=True)


def print_count(noun: str, count: int, group: str, done: str, *, dry_run: bool) -> None:
    """What was done to how many of a group, or would be."""
    would = "would be " if dry_run else ""
    click.echo(f"{counted(count, noun)} of group {group} {would}{done}")


def counted(count: int, noun: str) -> str:
    """A number and its noun: "1 message", "2 messages"."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
